"""Clients of other projects, against the command as it is started, each with its own tools.

Their programs are installed in `.peers/` once, like the environments of other peers. If that fails,
these tests fail; they are never skipped. `tests/README.md` has the details.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.collection import list_items_in
from tests.homes import fill_database, make_hermes_database
from tests.wire.conftest import TOKEN, make_environment, serve_command, serve_home

HERE = Path(__file__).parent
BY_HAND = "test_real_clients.py"

WAYS = ("stdio", "http", "sse")

pytest.register_assert_rewrite("tests.wire.conftest")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real clients are tried by hand. Making any of them ready takes its time."""
    for item in list_items_in(items, HERE):
        mark = pytest.mark.clients if item.path.name == BY_HAND else pytest.mark.conformance
        item.add_marker(mark)
        item.add_marker(pytest.mark.timeout(300, func_only=True))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A Hermes home with old conversations."""
    path = tmp_path / "home"
    make_hermes_database(path / "state.db")
    fill_database(path / "state.db", 6, 12)
    return path


@contextmanager
def open_connection(home: Path, way: str) -> Iterator[dict[str, Any]]:
    """Yield the way in which a client reaches the server of a home. Start it here for HTTP."""
    if way == "stdio":
        first, *rest = serve_command(home)
        yield {"way": way, "command": first, "args": rest, "env": make_environment(home)}
        return
    with serve_home(home) as (_, port):
        path = "/sse" if way == "sse" else "/mcp"
        yield {"way": way, "address": f"http://127.0.0.1:{port}{path}", "token": TOKEN}
