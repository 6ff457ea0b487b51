"""Terminal escapes in every stored field: no verb prints one raw to a terminal."""

from __future__ import annotations

import os
import re

import pytest

from session_core import SessionDB, SessionSource, SessionStore
from tests.cli.command_user import PseudoTerminal
from tests.cli.fork_server import build_environment
from tests.homes import connect

ESCAPES = {
    "clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "title": "\x1b]0;owned\x1b\\",
    "screen": "\x1b[2J\x1b[H",
    "report": "\x1b[6n\x1b[c\x1bP+q544e\x1b\\",
    "colour": "\x1b[31;5mred",
    "one byte": "\x9b31m\x9d0;x\x9c\x90\x9f",
    "keys": "\r\x08\x08\x0b\x0c\x0e\x0f\x7f\x00",
    "turned": "\u202e\u2066\u200f",
}
MARK = "zebrafink"
ALL = MARK + "".join(ESCAPES.values()) + MARK

OURS = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[hl]|\x1b\[\d*[AGKJ]|\x1b\[2?K")
"""Sequences that the command itself prints: styles, and the temporary progress bar."""

PLAIN = ("id", "session_id", "parent_session_id", "started_at", "ended_at", "timestamp", "role")

VERBS = [
    ("list",),
    ("list", "--json"),
    ("show", "h1"),
    ("show", "h1", "--json"),
    ("search", MARK),
    ("routes",),
    ("stats",),
    ("stats", "--json"),
    ("doctor",),
    ("log",),
    ("trash", "list"),
    ("restore",),
    ("export", "h1", "--format", "md"),
    ("export", "h1"),
    ("compress", "h1", "--plan-only"),
    ("prune", "sessions", "--older-than", "0", "--plan-only"),
    ("prune", "all", "--plan-only"),
    ("finalize", "abandoned", "--plan-only"),
    ("finalize", "--session", "h2", "--plan-only"),
    ("edit", "h1", "--title", "new title", "--yes"),
    ("show", ALL.replace("\x00", "")),
    ("list", "--store", ALL.replace("\x00", "")),
    ("finalize", "--session", "h2", "--reason", "a\x1b[31mb", "--yes"),
    ("stats", "--html", "-"),
]


@pytest.fixture(name="home", scope="module")
def _home(tmp_path_factory):
    """A home with escapes in every text column, in routes, and in the ledger."""
    home = tmp_path_factory.mktemp("escapes") / "home"
    home.mkdir()
    with SessionDB(home / "state.db") as db:
        for number in range(1, 4):
            for turn in range(30):
                role = "assistant" if turn % 2 else "user"
                db.append_message(f"h{number}", role, f"{ALL} {turn}", create={"source": "cli"})
        db.create_session("lost", "telegram")
        source = SessionSource(platform="telegram", chat_id="1", user_name=ALL, chat_name=ALL)
        with SessionStore(home / "sessions", db=db) as store:
            store.get_or_create_session(source)
    with connect(home / "state.db") as connection:
        for table in ("sessions", "messages"):
            for row in connection.execute(f"PRAGMA table_info({table})").fetchall():
                if row[2].upper() == "TEXT" and row[1] not in PLAIN:
                    connection.execute(f"UPDATE {table} SET {row[1]} = ?1 || rowid", (ALL,))  # noqa: S608
        connection.commit()
    return home


@pytest.mark.requirement("hostile:escapes")
@pytest.mark.parametrize(
    "verb", VERBS, ids=lambda verb: " ".join(verb)[:30].encode("ascii", "replace").decode()
)
def test_verb_prints_no_escape(forks, home, verb):
    user = os.environ["HOME"]
    arguments = {"env": build_environment(user), "folder": user, "columns": 100}
    with PseudoTerminal(forks, "--home", str(home), *verb, **arguments) as terminal:
        terminal.end()
        seen = OURS.sub("", terminal.seen)
    assert seen.strip()
    raw = {char for char in seen if not char.isprintable() and char not in "\n\r\t"}
    assert raw == set(), seen[:2_000]
    assert "\x1b[31;5m" not in terminal.seen
    assert "\r" not in seen.replace("\r\n", "")
    assert "Traceback" not in seen
