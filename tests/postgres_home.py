"""Homes in the PostgreSQL server of the test run, for tests of every engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from session_core import StateDatabase
from tests.thorough import is_in_share, mark_thorough

_SHARE = 12
_TABLES = (
    *("sessions", "messages", "session_model_usage", "state_meta", "gateway_routing"),
    *("compression_locks", "ms_session_state", "ms_shared_state"),
)


def share_postgres(test: str) -> Any:
    """Return the kind of a home for a test. The fast tests run it for a few of them."""
    is_fast = is_in_share((test, "postgres"), _SHARE)
    return "postgres" if is_fast else mark_thorough("postgres")


def get_home_address(folder: Path) -> str:
    """Return the address of a home that is named by a folder of its test."""
    from tests import postgres_server  # noqa: PLC0415 -- an extra

    return f"{postgres_server.get_address()}&home={quote(str(folder))}"


def make_postgres(folder: Path, **options: Any) -> Any:
    """Open the home that is named by a folder of its test. The caller closes it."""
    from session_core.state.postgres.session_db import PostgresDB  # noqa: PLC0415 -- an extra

    return PostgresDB(get_home_address(folder), **options)


def make_again(db: StateDatabase, **options: Any) -> Any:
    """Open the home of an instance again, as another process does. The caller closes it."""
    store: Any = db._store  # type: ignore[attr-defined]
    return make_postgres(Path(store.address.home), **options)


def change_rows(db: StateDatabase, statement: str, values: Sequence[Any]) -> None:
    """Change rows of a home without the engine's operations."""
    store: Any = db._store  # type: ignore[attr-defined]
    store.write(lambda handle: handle.execute_update(statement, values))


def can_run(item: pytest.Item) -> bool:
    """Return False for a test that needs the files of a home, on a home in PostgreSQL."""
    kinds = getattr(getattr(item, "callspec", None), "params", {}).values()
    return "postgres" not in kinds or next(item.iter_markers("needs_files"), None) is None


def read_tables(db: StateDatabase) -> dict[str, list[Any]]:
    """Return all rows of a home, table by table."""
    store: Any = db._store  # type: ignore[attr-defined]
    return {
        table: store.read(
            lambda handle, table=table: sorted(map(repr, handle.fetch_tuples(f"TABLE {table}")))
        )
        for table in _TABLES
    }
