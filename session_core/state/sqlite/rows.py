"""Rows as they are stored, with every column, known or not: read whole, copied, and put back."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from session_core import driver
from session_core.errors import InvalidInput, Unsupported
from session_core.state import arguments
from session_core.state.sqlite import blocks, deletion, routes, sessions
from session_core.state.sqlite.handle import Handle, quoted
from session_core.state.sqlite.store import Store

SQL = blocks.load("rows")

_NOT_UNIQUE = "UNIQUE constraint failed: "


class Rows(Store):
    """Rows for what copies a session, and for undo."""

    def copy_session(
        self, session_id: str, to_session_id: str, *, without: Collection[str] = (), **fields: Any
    ) -> None:
        """Create a session with every column of another but these `fields`; it begins now.

        Columns that are left out get what a new session has there.

        Raises:
            NotFound: there is no such session.
            Conflict: the other one is there already.
            Unsupported: this home allows no two sessions with the same value in some column.
        """
        left_out = arguments.texts("without", without) or ()

        def step(handle: Handle) -> None:
            given = {"started_at": self._clock(), **fields, "id": to_session_id}
            row = {**sessions.require(handle, session_id), **given}
            values = {name: value for name, value in row.items() if name not in left_out}
            values = _settable(handle, "sessions", values)
            with copying():
                handle.run(_insert("sessions", values), list(values.values()))

        self._write(step)

    def put_session_fields(self, session_id: str, fields: Mapping[str, Any]) -> bool:
        """Set columns of a session, any that this home has, to what they were; for undo."""
        if not isinstance(fields, Mapping) or "id" in fields:
            raise InvalidInput("what is put back is a mapping of columns without the id")

        def step(handle: Handle) -> bool:
            values = _settable(handle, "sessions", fields)
            if not values:
                return sessions.get(handle, session_id) is not None
            columns = {quoted(name): value for name, value in values.items()}
            return sessions.update(handle, session_id, columns)

        return self._write(step)

    def belongings(self, session_id: str) -> dict[str, list[dict[str, Any]]]:
        """Return by table the rows that are deleted with a session, without its messages."""

        def look(handle: Handle) -> dict[str, list[dict[str, Any]]]:
            found: dict[str, list[dict[str, Any]]] = {}
            for table, column in deletion.belonging(handle):
                if table not in ("sessions", "compression_locks"):
                    rows = handle.rows(_select(table, column), (session_id,))
                    found.setdefault(table, []).extend(rows)
            return {table: rows for table, rows in found.items() if rows}

        return self._read(look)

    def routing_rows(self, *session_ids: str) -> list[dict[str, Any]]:
        """Return the routing rows that lead to one of these sessions, of every scope."""

        def look(handle: Handle) -> list[dict[str, Any]]:
            if not handle.has(routes.TABLE) or routes.led_to(handle).isdisjoint(session_ids):
                return []
            return handle.rows(SQL["list_routes"], (json.dumps(session_ids, ensure_ascii=False),))

        return self._read(look)

    def put_routing_row(self, row: Mapping[str, Any]) -> None:
        """Put a routing row back as `routing_rows` returned it, in the place of the one there."""
        arguments.check_mapping("a routing row", row, "scope", "session_key")

        def step(handle: Handle) -> None:
            values = _settable(handle, routes.TABLE, row)
            routes.delete(handle, row["scope"], row["session_key"])
            handle.run(_insert(routes.TABLE, values), list(values.values()))

        self._write(step)


@contextmanager
def copying() -> Iterator[None]:
    """A row is copied inside, which a home may not allow."""
    try:
        yield
    except driver.library().IntegrityError as error:
        column = str(error).removeprefix(_NOT_UNIQUE)
        if column in (str(error), "sessions.id"):
            raise
        raise Unsupported(
            f"no two rows of this home may have the same {column}, so none is copied; "
            "drop that index, or leave the session as it is"
        ) from error


def _settable(handle: Handle, table: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a row can be put back: what the table computes is not."""
    computed = handle.computed(table)
    for name in row:
        if name not in computed and not handle.has(table, name):
            raise InvalidInput(f"no column {name!r} in {table} to put that into")
    return {name: value for name, value in row.items() if name not in computed}


def _insert(table: str, row: Mapping[str, Any]) -> str:
    names = ", ".join(map(quoted, row))
    return f'INSERT INTO "{table}" ({names}) VALUES ({", ".join("?" * len(row))})'  # noqa: S608 -- columns that the table has


def _select(table: str, column: str) -> str:
    return f"SELECT * FROM {quoted(table)} WHERE {quoted(column)} = ?"  # noqa: S608 -- from the schema, quoted
