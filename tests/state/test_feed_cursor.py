"""Positions of feed readers: reported ends, cursors, and states seen by a watch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB
from session_core.errors import InvalidInput
from session_core.state import cursors
from session_core.state.sqlite import feed_cursor
from session_core.state.sqlite.feed_cursor import (
    BUSY_STATE,
    ChangePosition,
    FeedRow,
    FileWatch,
    KnownSession,
    ReportedEnds,
)
from tests.homes import connect

NOW = 1_000_000.0
POSITION = ChangePosition(
    session="s",
    at=NOW,
    mark="m",
    after=7,
    anchor=(6, "abc"),
    sessions=(KnownSession("s", 3, "def"),),
    ends=ReportedEnds((NOW - 60, ""), frozenset({"x", "y"})),
)


def make_end(session_id: str, ended_at: float) -> FeedRow:
    return (session_id, ended_at, "idle", None)


def test_cursor_keeps_position():
    assert ChangePosition.decode(POSITION.encode()) == POSITION
    bare = replace(POSITION, session=None, mark=None, anchor=None, sessions=())
    assert ChangePosition.decode(bare.encode()) == bare


@pytest.mark.parametrize(
    "wrong",
    [
        *({"after": -1}, {"after": True}, {"after": 2**63}, {"after": "7"}, {"at": None}),
        *({"anchor": [6]}, {"anchor": [6, 5]}, {"sessions": [["s", 3]]}, {"floor": [0.0, None]}),
        *({"sessions": [["s", 3, "x"]] * 5}, {"reported": [5]}, {"mark": 5}, {"other": 1}),
    ],
    ids=str,
)
def test_forged_cursor_is_refused(wrong: dict[str, Any]):
    fields = cursors.decode_cursor("changes", None, POSITION.encode()) | wrong
    with pytest.raises(InvalidInput, match="malformed cursor"):
        ChangePosition.decode(cursors.encode_cursor("changes", None, fields))


def test_each_end_is_reported_once():
    ends = ReportedEnds.from_rows([make_end("old", NOW - 5)], NOW)
    rows = [make_end("old", NOW - 5), make_end("a", NOW + 1), make_end("b", NOW + 2)]
    first, ends = ends.take_new_ends(rows, 1, NOW + 3)
    second, ends = ends.take_new_ends(rows, 5, NOW + 3)
    assert (first, second) == ([rows[1]], [rows[2]])
    assert ends.take_new_ends(rows, 5, NOW + 3)[0] == []


def test_late_commit_with_earlier_time_is_reported():
    _, ends = ReportedEnds.from_rows([], NOW).take_new_ends([make_end("a", NOW)], 5, NOW + 1)
    rows = [make_end("late", NOW - 30), make_end("a", NOW)]
    assert ends.take_new_ends(rows, 5, NOW + 2)[0] == [rows[0]]
    _, ends = ends.take_new_ends(rows, 5, NOW + 100)
    assert ends == ReportedEnds((NOW + 40, ""))


def test_cursor_of_many_ends_is_bounded():
    rows = [make_end(f"s{number:04}", NOW + number / 1000) for number in range(1000)]
    taken, ends = ReportedEnds.from_rows([], NOW).take_new_ends(rows, 1000, NOW + 2)
    assert (len(taken), len(ends.reported)) == (1000, 400)
    assert ends.take_new_ends(rows, 1000, NOW + 2)[0] == []


@pytest.fixture
def path(home_path: Path) -> Path:
    with SessionDB(home_path / "state.db") as db:
        db.create_session("s", "cli")
    return home_path / "state.db"


@pytest.fixture
def watch(path: Path) -> Iterator[FileWatch]:
    watch = FileWatch(path)
    yield watch
    watch.close()


def test_commit_makes_seen_cursor_new(watch: FileWatch, path: Path):
    before = watch.read_state()
    watch.remember_state("c", before)
    assert watch.has_seen("c", watch.read_state())
    assert not watch.has_seen("d", before)
    with SessionDB(path) as db:
        db.append_message("s", "user", "x")
    assert not watch.has_seen("c", watch.read_state())


def test_locked_file_counts_as_unseen(watch: FileWatch, path: Path):
    with connect(path) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        free = watch.read_state()
        connection.execute("BEGIN EXCLUSIVE")
        assert watch.read_state() == BUSY_STATE != free
        watch.remember_state("c", BUSY_STATE)
        assert not watch.has_seen("c", BUSY_STATE)
        connection.execute("ROLLBACK")
    assert watch.read_state() != BUSY_STATE


def test_replaced_or_missing_file_changes_state(watch: FileWatch, path: Path):
    states = [watch.read_state()]
    path.rename(path.with_name("moved.db"))
    states.append(watch.read_state())
    with SessionDB(path) as db:
        db.create_session("s", "cli")
    states.append(watch.read_state())
    assert states[1] == ()
    assert len(set(states)) == 3
    watch.close()
    assert watch.read_state() == ()


def test_message_hash_ignores_changing_columns():
    row = {"session_id": "s", "role": "user", "timestamp": 5.0, "active": 1}
    assert feed_cursor.hash_message(row) == feed_cursor.hash_message({**row, "active": 0})
    assert feed_cursor.hash_message(row) != feed_cursor.hash_message({**row, "timestamp": 6.0})
