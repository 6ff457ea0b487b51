"""Two copies of one home: Hermes changes one, our library the other, and they stay equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from session_core.errors import SessionError
from session_core.state.sqlite.session_db import SessionDB
from tests.homes import connect
from tests.interop.hermes import Hermes, Refused, copy

NOW = 1_900_000_000.0

TABLES = ("sessions", "messages", "session_model_usage", "state_meta", "compression_locks",
          "gateway_routing", "schema_version", "table_of_the_future")  # fmt: skip

PRAGMAS = ("user_version", "application_id", "journal_mode", "auto_vacuum", "page_size", "encoding")


class Twins:
    """A home of Hermes and a home of ours, with both clocks at `NOW`."""

    def __init__(self, version: str, built: Path, folder: Path) -> None:
        self.their_home = copy(built, folder / "theirs")
        self.our_home = copy(built, folder / "ours")
        self.before = shape(self.our_home)
        self.theirs = Hermes(version, self.their_home)
        self.theirs.job("clock", now=NOW)
        self.ours = SessionDB(self.our_home / "state.db", clock=lambda: NOW)

    def close(self) -> None:
        """Close both."""
        self.ours.close()
        self.theirs.__exit__()

    def both(self, method: str, *args: Any, **kwargs: Any) -> None:
        """Run the same call in both homes, if this version of Hermes has it."""
        if self.theirs.has(method):
            self.theirs.call(method, *args, **kwargs)
            getattr(self.ours, method)(*args, **kwargs)

    def try_both(self, method: str, *args: Any) -> None:
        """Run the same call in both homes. Both accept or both refuse it."""
        try:
            self.theirs.call(method, *args)
        except Refused:
            with pytest.raises(SessionError):
                getattr(self.ours, method)(*args)
        else:
            getattr(self.ours, method)(*args)

    def both_refuse(self, method: str, *args: Any, **kwargs: Any) -> None:
        """Run the same call in both homes. Both refuse it."""
        with pytest.raises(Refused):
            self.theirs.call(method, *args, **kwargs)
        with pytest.raises(SessionError):
            getattr(self.ours, method)(*args, **kwargs)

    def assert_equal(self) -> None:
        """Check that all rows are equal and that our file keeps its schema."""
        assert differences(rows(self.their_home), rows(self.our_home)) == []
        assert shape(self.our_home) == self.before


Rows = dict[str, list[dict[str, Any]]]


def differences(theirs: Rows, ours: Rows) -> list[Any]:
    """Return each differing cell: table and row, the value of Hermes, our value."""
    found: list[Any] = []
    for table in theirs:
        found += [] if len(theirs[table]) == len(ours[table]) else [(table, "rows")]
        for their, our in zip(theirs[table], ours[table], strict=False):
            cells = {name: (their[name], our[name]) for name in their if their[name] != our[name]}
            found += [(table, next(iter(their.values())), cells)] if cells else []
    return found


def rows(home: Path) -> Rows:
    """Return all rows of the tables of a home."""
    with connect(home / "state.db", "ro") as connection:
        found = {}
        for table in TABLES:
            if not connection.execute(
                "SELECT 1 FROM sqlite_master WHERE name = ?", (table,)
            ).fetchall():
                continue
            cursor = connection.execute(f"SELECT * FROM {table}")  # noqa: S608 -- a fixed name
            names = [column[0] for column in cursor.description]
            found[table] = sorted(
                (dict(zip(names, row, strict=True)) for row in cursor),
                key=lambda row: [str(value) for value in row.values()],
            )
        return found


def shape(home: Path) -> dict[str, Any]:
    """Return the schema of a home and all persistent settings."""
    with connect(home / "state.db", "ro") as connection:
        found = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in PRAGMAS}
        found["schema"] = sorted(
            connection.execute("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master")
        )
        found["schema_version"] = connection.execute("SELECT * FROM schema_version").fetchall()
        return found
