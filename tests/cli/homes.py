"""A home with data that every kind of plan removes, with times relative to now."""

from __future__ import annotations

import time
from pathlib import Path

from session_core import SessionDB, SessionFilter, SessionSource, SessionStore
from tests.homes import make_own_database

DAY_S = 86_400.0
LONG_SESSION_ID = "20261118_090909_ab12cd"
"""The session that the examples of `--help` name."""
FRESH_SESSION_ID = "20261118_100000_d4e5f6"


class PastClock:
    """A clock set to a number of days ago."""

    def __init__(self) -> None:
        self.days = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return time.time() - self.days * DAY_S


def build_home(home: Path, *, old: int = 3, ghosts: int = 25) -> Path:
    """Create the home with old, empty, abandoned, long and recent sessions and a stale route."""
    clock = PastClock()
    make_own_database(home / "state.db")
    with SessionDB(home / "state.db", clock=clock) as db:
        with db.transaction():
            for number in range(old):
                clock.days = 140 + number
                _add_session(
                    db, f"20260701_0900{number:02}_0ld{number:03}", f"The ledger, part {number}"
                )
            clock.days = 9
            for number in range(ghosts):
                _add_session(
                    db, f"20261109_1200{number:02}_9057{number:02}", None, source="tui", turns=0
                )
            clock.days = 60
            _add_session(db, "20260920_080000_forg07", "Left open", ends=False)
            clock.days = 2
            _add_long_session(db)
            clock.days = 0.5
            _add_session(db, FRESH_SESSION_ID, "What to cook", ends=False)
        with SessionStore(home / "sessions", db=db) as store:
            store.get_or_create_session(SessionSource(platform="telegram", chat_id="1"))
    return home


def _add_session(
    db: SessionDB,
    key: str,
    title: str | None,
    *,
    source: str = "cli",
    turns: int = 2,
    ends: bool = True,
) -> None:
    db.create_session(key, source)
    for number in range(turns):
        db.append_message(key, "user", f"question {number} of {key}")
        db.append_message(key, "assistant", f"answer {number} of {key}")
    if title:
        db.set_session_title(key, title)
    if ends:
        db.end_session(key, "cli_close")


def _add_long_session(db: SessionDB) -> None:
    db.create_session(LONG_SESSION_ID, "cli")
    db.set_session_title(LONG_SESSION_ID, "The ports")
    for number in range(60):
        text = f"ticket ABC-{number}: we decided to use port {8000 + number}. " + "well, " * 200
        db.append_message(LONG_SESSION_ID, "user", text)
        db.append_message(LONG_SESSION_ID, "assistant", f"noted in /srv/ports/{number}.toml")


def list_live_ids(home: Path, session: str) -> list[int]:
    """Return the ids of the live messages of a session."""
    with SessionDB(home / "state.db", read_only=True) as db:
        return [row["id"] for row in db.get_messages(session)]


def list_titles(home: Path) -> dict[str, str | None]:
    """Return the titles of all sessions by id."""
    with SessionDB(home / "state.db", read_only=True) as db:
        items = db.list_sessions(SessionFilter(status="all"), limit=100).items
        return {item.id: item.title for item in items}
