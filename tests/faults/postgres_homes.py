"""Homes in PostgreSQL for faults: their mutations, their copies, and their content."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import psycopg

from session_core import OpenedHome, SessionFilter, open_home
from session_core.maintenance import PlanRequest

TOKEN = "token-of-the-append"
OLD = ("old-1", "old-2", "old-3", "old-4")
_STEP_CHARACTERS = 30_000
"""Nearly as many as the first step of a plan removes, so that a plan has several steps."""
_LONG_MESSAGES = 24

_LIST_COLUMNS = """
SELECT c.relname, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)
FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
WHERE c.relnamespace = 'mcp_sessions'::regnamespace AND c.relkind = 'r' AND a.attnum > 0
    AND NOT a.attisdropped AND a.attname <> 'home_id' AND c.relname NOT IN ('homes', 'migrations')
GROUP BY c.relname
"""
_COPY_HOME = """
INSERT INTO mcp_sessions.homes (name, last_message_id)
SELECT %s, last_message_id FROM mcp_sessions.homes WHERE name = %s RETURNING id
"""


@dataclass(frozen=True)
class PostgresMutation:
    """A change of a home, and how another process goes on after its client has died."""

    name: str
    run: Callable[[OpenedHome, str], object]
    """Gets the handle that `prepare` has returned."""
    prepare: Callable[[OpenedHome], str] = lambda _home: ""
    is_single: bool = True
    """Whether the sessions change in one transaction."""
    has_record: bool = False
    """Whether a plan or a batch is stored before the sessions change."""


def _append(home: OpenedHome, _handle: str) -> object:
    return home.db.append_message("old-1", "user", "added", platform_message_id=TOKEN)


def _append_many(home: OpenedHome, _handle: str) -> object:
    messages = [
        {"role": "user", "content": "one", "platform_message_id": TOKEN},
        {"role": "assistant", "content": "two"},
    ]
    return home.db.append_messages("new", messages, create={"source": "cli"})


def _plan(home: OpenedHome, _handle: str = "") -> str:
    return str(home.maintenance.plan(PlanRequest("sessions", ids=OLD)).plan)


def _apply(home: OpenedHome, handle: str) -> str:
    return str(home.maintenance.apply(handle).batch)


def _restore(home: OpenedHome, handle: str) -> object:
    return home.maintenance.restore(handle)


def _compress(home: OpenedHome, _handle: str = "") -> str:
    return str(home.compressor.compress("long", keep_last=2).batch)


MUTATIONS = {
    mutation.name: mutation
    for mutation in (
        PostgresMutation("append", _append),
        PostgresMutation("append many", _append_many),
        PostgresMutation("plan", _plan),
        PostgresMutation("apply", _apply, _plan, is_single=False, has_record=True),
        PostgresMutation(
            "restore",
            _restore,
            lambda home: _apply(home, _plan(home)),
            is_single=False,
            has_record=True,
        ),
        PostgresMutation("compress", _compress, has_record=True),
        PostgresMutation("undo of a compression", _restore, _compress, has_record=True),
    )
}


def get_home_address(address: str, name: str) -> str:
    """Return the address of a home of a server."""
    return f"{address}&home={quote(name)}"


def build_home(address: str, mutation: PostgresMutation) -> str:
    """Build the home of a mutation, named after it, and return the handle for its run."""
    with open_home(get_home_address(address, mutation.name)) as home:
        for number, name in enumerate(OLD):
            home.db.create_session(name, "cli", started_at=1e9 + number)
            at = 1e9 + number
            turns = (("user", f"{name} asks"), ("assistant", "a" * _STEP_CHARACTERS))
            for role, text in turns:
                home.db.append_message(name, role, text, timestamp=at)
            home.db.end_session(name, "done")
        home.db.create_session("long", "cli", started_at=1e9)
        for number in range(_LONG_MESSAGES):
            role = "assistant" if number % 2 else "user"
            home.db.append_message("long", role, f"note {number} " * 30, timestamp=1e9 + number)
        return mutation.prepare(home)


def copy_home(owner_address: str, name: str, copy: str) -> None:
    """Copy a home within its server, with its ledger."""
    with psycopg.connect(owner_address) as connection:
        connection.execute("SET LOCAL session_replication_role = replica")
        row = connection.execute(_COPY_HOME, (copy, name)).fetchone()
        assert row is not None
        for table, columns in connection.execute(_LIST_COLUMNS).fetchall():
            if table == "holder_rows":
                continue
            text = (
                f"INSERT INTO mcp_sessions.{table} (home_id, {columns}) OVERRIDING SYSTEM VALUE "  # noqa: S608 -- names of the schema
                f"SELECT %s, {columns} FROM mcp_sessions.{table} "
                "WHERE home_id = (SELECT id FROM mcp_sessions.homes WHERE name = %s)"
            )
            connection.execute(text.encode(), (row[0], name))


def describe_sessions(home: OpenedHome) -> list[Any]:
    """Return all sessions with their messages, without ids and times that differ by run."""
    db = home.db
    described = []
    for name in db.find_sessions(SessionFilter(status="all")):
        row = db.get_session(name) or {}
        messages = [(message["role"], message["content"]) for message in db.get_messages(name)]
        described.append(
            [row["title"], row["end_reason"], messages, db.get_revision(name).compacted]
        )
    return sorted(described, key=repr)


def describe_home(home: OpenedHome) -> dict[str, Any]:
    """Return the content of a home: sessions, plans, and batches that have changed it."""
    store: Any = home.db._store  # type: ignore[attr-defined]
    plans, batches, trash = store.read(
        lambda handle: (
            handle.fetch_tuples("SELECT kind, state FROM plans ORDER BY 1, 2"),
            handle.fetch_tuples(
                "SELECT what, batches.undone_at IS NOT NULL, sum(steps.count)::bigint FROM batches"
                " JOIN steps ON steps.batch = batches.id AND steps.state = 'done'"
                " GROUP BY batches.id, what, batches.undone_at ORDER BY 1, 2, 3"
            ),
            handle.fetch_value(
                "SELECT count(*) FROM steps WHERE state <> 'done' OR (chunks > 0 AND"
                " steps.undone_at IS NULL"
                " AND NOT EXISTS (SELECT 1 FROM trash WHERE step = steps.id))"
            ),
        )
    )
    sessions = describe_sessions(home)
    return {"sessions": sessions, "plans": plans, "batches": batches, "unsettled": trash}
