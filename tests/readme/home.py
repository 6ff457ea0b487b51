"""A sample home for the README and for the examples of `--help`.

It has the id, title, message, project and chat that the examples name.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tests.homes import add_message, add_session, connect, make_hermes_database

DAY_S = 86_400.0

LEDGER = "20261118_090909_ab12cd"
HIT = 4711
"""The id of a message in the ledger session that a search finds."""

_DECIDED = (
    "Decided: the schema of the ledger changes in two steps. First add entries.currency as "
    "nullable and backfill it, then set NOT NULL in the release after."
)
_PAST = (
    (
        "20261021_101500_77d0ce",
        28.5,
        "telegram",
        "Where the invoices live",
        "Could we keep the schema of invoices apart from the ledger?",
        "We can, but then every report joins two files. What decides it is who reads them.",
    ),
    (
        "20260912_170000_c0ffee",
        67.5,
        "cli",
        "Backups that restore",
        "Did the nightly backup run?",
        "It did; flush_batch took four minutes, and the copy opens.",
    ),
    (
        "20260720_080000_0ddba1",
        121.5,
        "cron",
        "Morning report",
        "Summarise the night.",
        "Two timeouts of the connection pool, both answered at the second try.",
    ),
)


def build_home(home: Path) -> None:
    """Create the home with times relative to now."""
    make_hermes_database(home / "state.db")
    now = time.time()
    with connect(home / "state.db") as connection:
        for key, days, source, title, asked, answered in reversed(_PAST):
            at = now - days * DAY_S
            ended = {"ended_at": at + 900, "end_reason": "cli_close"} if days > 90 else {}
            add_session(connection, key, source=source, title=title, started_at=at, **ended)
            add_message(connection, key, "user", asked, timestamp=at)
            add_message(connection, key, "assistant", answered, timestamp=at + 30)
        _add_ledger_session(connection, home.parent / "shop", now - 17.5 * DAY_S)
    _add_chat_session(home, now)


def _add_ledger_session(connection: Any, project: Path, at: float) -> None:
    """Add a long session that ends with the decision."""
    row = {"source": "cli", "title": "The ledger", "cwd": str(project), "started_at": at}
    add_session(connection, LEDGER, **row)
    talk = [("user", "What shall the schema of the ledger be?")]
    for step in range(1, 41):
        talk += [
            ("assistant", f"Table {step} of the ledger has an index on its date. " * 120),
            ("user", f"Then go on with table {step + 1}."),
        ]
    talk += [("user", "So what did we decide?"), ("assistant", _DECIDED)]
    first = HIT - len(talk) + 1
    for number, (role, text) in enumerate(talk):
        stamp = at + 20 * number
        add_message(connection, LEDGER, role, text, id=first + number, timestamp=stamp)


def _add_chat_session(home: Path, now: float) -> None:
    """Add a route from a Telegram chat to its session."""
    key = "agent:main:telegram:dm:42"
    entry = {
        "session_key": key,
        "session_id": _PAST[0][0],
        "created_at": time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now - 28.5 * DAY_S)),
        "updated_at": time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now - 28.5 * DAY_S)),
        "platform": "telegram",
        "chat_type": "dm",
    }
    folder = home / "sessions"
    folder.mkdir()
    (folder / "sessions.json").write_text(json.dumps({key: entry}), encoding="utf-8")
