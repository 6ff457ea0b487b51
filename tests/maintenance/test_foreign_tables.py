"""Rows of foreign tables are removed and restored with the session that they refer to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from session_core.types import RowImages
from tests.homes import connect
from tests.maintenance.changed_homes import Changing, changing
from tests.maintenance.homes import opened
from tests.thorough import take_main_kinds

TABLES = """
    CREATE TABLE reactions (
        id INTEGER PRIMARY KEY, message_id INTEGER REFERENCES messages(id) ON DELETE CASCADE, sign
    );
    CREATE TABLE bookmarks (
        name TEXT PRIMARY KEY, message_id INTEGER REFERENCES Messages ON DELETE SET NULL
    );
    CREATE TABLE ratings (
        id INTEGER PRIMARY KEY, session_id TEXT REFERENCES sessions(id),
        message_id INTEGER NOT NULL REFERENCES messages(ID)
    );
    CREATE TABLE notes (number INTEGER PRIMARY KEY, about TEXT REFERENCES Sessions(ID), note);
    CREATE TABLE tags (
        note INTEGER REFERENCES notes(number) ON DELETE CASCADE, tag TEXT, PRIMARY KEY (note, tag)
    ) WITHOUT ROWID;
    CREATE TABLE colours (
        note INTEGER, tag TEXT, colour BLOB,
        FOREIGN KEY (note, tag) REFERENCES tags ON DELETE CASCADE
    );
"""


@pytest.fixture(params=take_main_kinds(["own", 16, 22, 30]))
def others(home_path: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Changing]:
    """A home in which foreign tables refer to messages and to rows of sessions."""
    with opened(home_path, request.param) as home, changing(home, tmp_path / "kept") as changed:
        home.session("old", 200, reason="cli_close", messages=3)
        home.session("long", 200, messages=0)
        for number in range(40):
            said = f"{number} {'x' * 3_000}"  # more than fits the first step
            home.db.append_message("long", "user", said, timestamp=home.clock() - 200 * 86_400)
        home.db.end_session("long", "cli_close")
        home.session("stays", 1, messages=2)
        with connect(home.db.path) as connection:
            connection.executescript(TABLES)
            for number, name in enumerate(("old", "long", "stays")):
                add_referring_rows(connection, number, name)
        yield changed


def add_referring_rows(connection: Any, number: int, session_id: str) -> None:
    sql = "SELECT id FROM messages WHERE session_id = ? ORDER BY id"
    for (row_id,) in connection.execute(sql, (session_id,)).fetchall():
        connection.execute("INSERT INTO reactions VALUES (?, ?, '+1')", (row_id, row_id))
        connection.execute("INSERT INTO bookmarks VALUES (?, ?)", (f"at {row_id}", row_id))
        rating = (row_id, session_id, row_id)
        connection.execute("INSERT INTO ratings VALUES (?, ?, ?)", rating)
    connection.execute("INSERT INTO notes VALUES (?, ?, 'remember')", (number, session_id))
    connection.execute("INSERT INTO tags VALUES (?, 'later')", (number,))
    connection.execute("INSERT INTO colours VALUES (?, 'later', x'ff00')", (number,))


@pytest.mark.requirement("maintenance:rows-of-others")
def test_referring_rows_are_restored_with_session(others: Changing) -> None:
    before = others.read_everything()
    result = others.plan_and_apply()
    assert (result.removed, result.skipped) == (2, ())
    left = others.read_everything()["rows"]
    assert len(left["reactions"]) == len(left["bookmarks"]) == len(left["ratings"]) == 2
    assert len(left["notes"]) == len(left["tags"]) == len(left["colours"]) == 1
    restored = others.restore(result)
    assert (restored.restored, restored.unfit) == (2, ())
    assert others.read_everything() == before


@pytest.mark.requirement("maintenance:rows-of-others")
def test_constantly_changed_session_stays(
    others: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, db = others.plan(), others.home.db
    usual = type(db.rows).read_referring_images

    def one_more(self: Any, images: Any) -> list[RowImages]:
        """Add a reaction again and again, right after each read."""
        found = usual(self, images)
        first = "(SELECT min(id) FROM messages WHERE session_id = 'old')"
        others.home.sql(f"INSERT INTO reactions (message_id) VALUES ({first})")  # noqa: S608 -- one of ours
        return found

    monkeypatch.setattr(type(db.rows), "read_referring_images", one_more)
    result = others.apply(planned)
    assert (result.removed, [item.id for item in result.skipped]) == (1, ["old"])
    sql = "SELECT count(*) FROM reactions WHERE message_id NOT IN (SELECT id FROM messages)"
    with connect(db.path, "ro") as connection:
        assert connection.execute(sql).fetchone() == (0,)


@pytest.mark.requirement("maintenance:rows-of-others")
def test_each_step_removes_its_referring_rows(
    others: Changing,
) -> None:
    before = others.read_everything()
    planned = others.plan(ids=("long",))
    assert planned.plan is not None
    assert others.apply(planned, 0).remaining == 1
    rows = others.read_everything()["rows"]
    assert len(rows["reactions"]) == len(rows["messages"]) == len(rows["ratings"])
    others.home.db.append_message("long", "user", "still here")
    result = others.apply(planned)
    assert [item.id for item in result.skipped] == ["long"]
    after = others.read_everything()["rows"]
    for name in ("reactions", "bookmarks", "ratings", "notes", "tags", "colours"):
        assert after[name] == before["rows"][name]


@pytest.mark.requirement("maintenance:rows-of-others")
def test_orphaned_rows_remove_referring_rows(
    others: Changing,
) -> None:
    others.home.sql("DELETE FROM sessions WHERE id = 'old'")
    before = others.read_everything()["rows"]
    others.plan_and_apply("orphans")
    left = others.read_everything()["rows"]
    for name in ("messages", "reactions", "bookmarks", "ratings"):
        assert len(left[name]) == len(before[name]) - 3
    (batch,) = others.maintenance.batches().items
    others.maintenance.restore(batch.id)
    assert others.read_everything()["rows"] == before


@pytest.mark.requirement("maintenance:rows-of-others")
def test_rows_of_replaced_session_stay_in_trash(others: Changing) -> None:
    result = others.plan_and_apply(ids=("old",))
    others.home.session("old", 0, messages=1)
    restored = others.restore(result)
    assert restored.restored == 0
    with connect(others.home.db.path, "ro") as connection:
        sql = "SELECT count(*) FROM reactions JOIN messages ON messages.id = message_id"
        total = connection.execute("SELECT count(*) FROM reactions").fetchone()
        assert connection.execute(sql).fetchone() == total


RULES = {
    "a session is refused": "BEFORE DELETE ON sessions WHEN old.id = 'old' "
    "BEGIN SELECT RAISE(ABORT, 'no'); END",
    "a session is passed over": "BEFORE DELETE ON sessions WHEN old.id = 'old' "
    "BEGIN SELECT RAISE(IGNORE); END",
    "a message is refused": "AFTER DELETE ON messages WHEN old.session_id = 'old' "
    "BEGIN SELECT RAISE(FAIL, 'no'); END",
    "a child is refused": "BEFORE UPDATE OF parent_session_id ON sessions "
    "BEGIN SELECT RAISE(ABORT, 'no'); END",
}


@pytest.mark.requirement("maintenance:rows-of-others")
@pytest.mark.parametrize("rule", RULES)
def test_trigger_protected_session_blocks_no_other(others: Changing, rule: str) -> None:
    branch = {"_branched_from": "old"}
    others.home.session("branch", 1, parent_session_id="old", config=branch)
    others.home.sql(f"CREATE TRIGGER rule {RULES[rule]}")
    before = others.read_everything()
    result = others.plan_and_apply()
    assert (result.removed, [item.id for item in result.skipped]) == (1, ["old"])
    others.restore(result)
    assert others.read_everything() == before


@pytest.mark.requirement("maintenance:rows-of-others")
def test_trigger_keeps_session_open(others: Changing) -> None:
    others.home.session("open", 40)
    others.home.session("kept", 40)
    rule = (
        "BEFORE UPDATE ON sessions WHEN old.id = 'kept' BEGIN SELECT RAISE(ABORT, 'keep it'); END"
    )
    others.home.sql(f"CREATE TRIGGER rule {rule}")
    result = others.plan_and_apply("abandoned", "finalize")
    assert (result.finalized, [item.id for item in result.skipped]) == (1, ["kept"])
    why = "a rule of this home (a trigger or a key) refuses the change: keep it"
    assert result.skipped[0].why == why
