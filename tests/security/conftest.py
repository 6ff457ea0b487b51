"""Shared fixtures of the security tests: clients in memory, and one process over HTTP."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from mcp import Client

from mcp_serve import server
from mcp_serve.stores.stores import ServedStores, ServerOptions
from tests.collection import list_items_in
from tests.homes import fill_database, make_hermes_database
from tests.serve.conftest import _call, _db, _options, _refused
from tests.thorough import share_kinds
from tests.wire.conftest import serve_home

__all__ = ["_call", "_db", "_options", "_refused"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run about a fourth of the tests in the older version of the protocol."""
    here = list_items_in(items, Path(__file__).parent)
    share_kinds(here, ("client", "mode"), {"legacy": 4})


@pytest.fixture(name="client")
async def _client(request: pytest.FixtureRequest, home_path: Path) -> AsyncIterator[Client]:
    """A client of the newer protocol version. Tests of both versions create their own."""
    mark = request.node.get_closest_marker("options")
    served_home = ServedStores(ServerOptions(home=str(home_path), **(mark.kwargs if mark else {})))
    async with Client(server.create_server(served_home), cache=None) as client:
        yield client
    served_home.close()


@pytest.fixture(scope="session", name="process")
def _process(tmp_path_factory) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server over HTTP with a token, and its port."""
    home = tmp_path_factory.mktemp("door") / "home"
    home.mkdir()
    make_hermes_database(home / "state.db")
    fill_database(home / "state.db", 4, 8)
    with serve_home(home) as started:
        yield started


@pytest.fixture(name="port")
def _port(process: tuple[subprocess.Popen[str], int]) -> Iterator[int]:
    """The port of the server, which must still answer after each test."""
    running, port = process
    yield port
    assert running.poll() is None
