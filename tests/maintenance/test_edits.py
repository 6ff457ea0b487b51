"""Titles, archive, pins and reopening: at once, exactly, and with what takes each back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB, SessionSource, SessionStore
from session_core.errors import InvalidInput, NotFound, TitleTaken
from session_core.ledger.ledger import Ledger
from session_core.ledger.pins import Pins
from session_core.ledger.state_folder import StateFolder
from session_core.maintenance.edits import EditResult
from session_core.maintenance.maintenance import Maintenance
from session_core.maintenance.types import RestoreResult
from tests.homes import connect, make_hermes_database, make_own_database

KINDS = ("own", 16, 22, 30)


class Desk:
    """A home of some kind whose sessions are edited."""

    def __init__(self, db: SessionDB, ledger: Ledger) -> None:
        self.db, self.ledger, self.pins = db, ledger, ledger.pins
        self.maintenance = Maintenance(db, ledger, client="test")

    def edit(self, session_id: str, **wanted: Any) -> EditResult:
        """Edit a session."""
        return self.maintenance.edit(session_id, **wanted)

    def undo(self, edited: EditResult) -> RestoreResult:
        """Take an edit back."""
        restored = self.maintenance.restore(str(edited.batch))
        assert isinstance(restored, RestoreResult)
        return restored

    def rows(self) -> dict[str, Any]:
        """Return the rows of all sessions."""
        return {each.id: self.db.get_session(each.id) for each in self.db.list_inventory()}


@pytest.fixture(params=KINDS, ids=str)
def desk(home_path: Path, request: pytest.FixtureRequest) -> Iterator[Desk]:
    path = home_path / "state.db"
    if isinstance(request.param, int):
        make_hermes_database(path, request.param)
    else:
        make_own_database(path)
    with SessionDB(path) as db, Ledger(StateFolder(path)) as ledger:
        db.create_session("root", "cli")
        db.set_session_title("root", "Trip")
        db.end_session("root", "compression")
        for name in ("tip", "left"):
            db.create_session(name, "cli", parent_session_id="root", started_at=2e9)
            db.append_message(name, "user", f"said in {name}")
        db.end_session("left", "cli_close")
        db.create_session("other", "cli")
        db.set_session_title("other", "Work")
        desk = Desk(db, ledger)
        yield desk
        desk.maintenance.close()


def titles(desk: Desk) -> dict[str, Any]:
    return {name: row["title"] for name, row in desk.rows().items() if row["title"]}


def test_a_title_is_set_and_shown(desk: Desk):
    edited = desk.edit("other", title="  New \u200b name ")
    assert edited.session.title == "New name"
    assert titles(desk)["other"] == "New name"


def test_an_empty_title_is_none(desk: Desk):
    assert desk.edit("other", title="").session.title is None


@pytest.mark.requirement("maintenance:edits")
def test_a_title_moves_from_an_ancestor_and_back(desk: Desk):
    edited = desk.edit("tip", title="Trip")
    assert titles(desk) == {"tip": "Trip", "other": "Work"}
    desk.undo(edited)
    assert titles(desk) == {"root": "Trip", "other": "Work"}


@pytest.mark.requirement("maintenance:edits")
@pytest.mark.parametrize("wanted", [{"title": "Work"}, {"title": "Work", "archived": True}])
def test_a_title_of_another_conversation_is_refused_and_nothing_is_changed(desk: Desk, wanted):
    before = desk.rows()
    with pytest.raises(TitleTaken, match="other"):
        desk.edit("tip", **wanted)
    with pytest.raises(InvalidInput, match="100"):
        desk.edit("tip", **{**wanted, "title": "x" * 101})
    assert desk.rows() == before
    assert desk.ledger.list_batches().items == []


def test_a_title_that_is_taken_meanwhile_is_refused(desk: Desk):
    with connect(desk.db.path) as connection:
        run = desk.ledger.prepare_step

        def prepared(*args: Any, **kwargs: Any) -> Any:
            cleared = run(*args, **kwargs)
            connection.execute("UPDATE sessions SET title = 'Now' WHERE id = 'other'")
            return cleared

        desk.ledger.prepare_step = prepared  # type: ignore[method-assign]
        with pytest.raises(TitleTaken, match="other"):
            desk.edit("tip", title="Now")
    assert titles(desk) == {"root": "Trip", "other": "Now"}


@pytest.mark.requirement("maintenance:edits")
def test_a_row_that_changes_meanwhile_is_looked_at_again(desk: Desk):
    with connect(desk.db.path) as connection:
        run = desk.ledger.prepare_step

        def prepared(*args: Any, **kwargs: Any) -> Any:
            cleared = run(*args, **kwargs)
            connection.execute("UPDATE sessions SET title = 'Mine' WHERE id = 'other'")
            return cleared

        desk.ledger.prepare_step = prepared  # type: ignore[method-assign]
        edited = desk.edit("other", title="Ours")
    desk.ledger.prepare_step = run  # type: ignore[method-assign]
    assert titles(desk)["other"] == "Ours"
    desk.undo(edited)
    assert titles(desk)["other"] == "Mine"


def test_what_somebody_else_does_meanwhile_needs_no_batch(desk: Desk):
    with connect(desk.db.path) as connection:
        run = desk.ledger.prepare_step

        def prepared(*args: Any, **kwargs: Any) -> Any:
            cleared = run(*args, **kwargs)
            connection.execute("UPDATE sessions SET title = 'Ours' WHERE id = 'other'")
            return cleared

        desk.ledger.prepare_step = prepared  # type: ignore[method-assign]
        assert desk.edit("other", title="Ours").batch is None


@pytest.mark.requirement("maintenance:edits")
@pytest.mark.parametrize("session", ["root", "tip", "left"])
def test_a_conversation_is_archived_as_a_whole_and_comes_back(desk: Desk, session: str):
    before = desk.rows()
    edited = desk.edit(session, archived=True)
    assert edited.session.status == "archived"
    archived = {name for name, row in desk.rows().items() if row["archived"]}
    assert archived == {"root", "tip", "left"}
    desk.undo(edited)
    assert desk.rows() == before


@pytest.mark.requirement("maintenance:edits")
@pytest.mark.parametrize("session", ["root", "tip", "left"])
def test_a_conversation_is_pinned_with_or_without_a_column(desk: Desk, session: str):
    before = desk.rows()
    edited = desk.edit(session, pinned=True)
    assert edited.session.pinned
    column = {name for name, row in desk.rows().items() if row.get("pinned")}
    assert column | desk.pins.list_pinned() == {"root", "tip", "left"}
    assert not column & desk.pins.list_pinned()
    desk.undo(edited)
    assert desk.rows() == before
    assert desk.pins.list_pinned() == frozenset()


def test_a_conversation_is_unpinned_as_a_whole(desk: Desk):
    desk.edit("root", pinned=True)
    assert not desk.edit("tip", pinned=False).session.pinned
    assert desk.pins.list_pinned() == frozenset()
    assert not any(row.get("pinned") for row in desk.rows().values())


def test_pins_are_seen_by_another_process(desk: Desk):
    desk.pins.set_pins({"tip": True, "other": False})
    with Pins(StateFolder(desk.db.path)) as others:
        assert others.list_pinned() == {"tip"}


def test_a_session_is_reopened_and_ends_again(desk: Desk):
    before = desk.rows()
    edited = desk.edit("left", reopen=True)
    assert edited.session.status == "open"
    assert desk.rows()["left"]["end_reason"] is None
    desk.undo(edited)
    assert desk.rows() == before


def lead(desk: Desk, session_id: str, chat_id: str = "42") -> None:
    """Lead a chat into a session, as a gateway does."""
    with SessionStore(desk.db.path.parent / "sessions", db=desk.db) as store:
        entry = store.get_or_create_session(SessionSource(platform="telegram", chat_id=chat_id))
        entry.session_id = session_id
        store.save(entry)


def test_reopened_session_of_a_chat_ends_again(desk: Desk):
    lead(desk, "left")
    before = desk.rows()
    edited = desk.edit("left", reopen=True)
    assert desk.undo(edited).unfit == ()
    assert desk.rows() == before


def test_reopened_session_that_a_chat_joined_stays_open(desk: Desk):
    lead(desk, "left")
    edited = desk.edit("left", reopen=True)
    lead(desk, "left", "43")
    assert desk.undo(edited).unfit
    assert desk.rows()["left"]["ended_at"] is None


@pytest.mark.requirement("maintenance:edits")
def test_what_was_compressed_is_reopened_at_its_tip(desk: Desk):
    desk.db.append_message("tip", "user", "said last")
    desk.db.end_session("tip", "cli_close")
    before = desk.rows()
    edited = desk.edit("root", reopen=True)
    assert desk.rows()["root"]["end_reason"] == "compression"
    assert desk.rows()["tip"]["ended_at"] is None
    desk.undo(edited)
    assert desk.rows() == before


def test_several_edits_are_one_step(desk: Desk):
    before = desk.rows()
    edited = desk.edit("left", title="All", archived=True, pinned=True, reopen=True)
    assert len(desk.ledger.list_steps(str(edited.batch))) == 1
    desk.undo(edited)
    assert desk.rows() == before


@pytest.mark.parametrize(
    "wanted", [{"title": "Trip"}, {"archived": False}, {"pinned": False}], ids=str
)
def test_what_is_so_already_needs_no_batch(desk: Desk, wanted: dict[str, Any]):
    assert desk.edit("root", **wanted).batch is None
    assert desk.ledger.list_batches().items == []
    assert desk.ledger.list_audit_entries().items == []


@pytest.mark.requirement("maintenance:edits")
def test_what_an_edit_would_change_is_what_it_changes(desk: Desk):
    before = desk.rows()
    wanted: dict[str, Any] = {"title": "Trip", "archived": True, "pinned": True}
    would = desk.maintenance.preview_edit("tip", **wanted)
    assert desk.rows() == before
    found = {(each.session_id, each.what): (each.before, each.after) for each in would}
    assert found.pop(("root", "title")) == ("Trip", None)
    assert found.pop(("tip", "title")) == (None, "Trip")
    assert found.keys() == {(a, b) for a in ("root", "tip", "left") for b in ("archived", "pinned")}
    assert {(bool(was), bool(becomes)) for was, becomes in found.values()} == {(False, True)}
    desk.edit("tip", **wanted)
    assert desk.maintenance.preview_edit("tip", **wanted) == ()


def test_an_edit_that_would_be_refused_is_refused_by_the_look(desk: Desk):
    desk.edit("left", title="Taken")
    with pytest.raises(TitleTaken):
        desk.maintenance.preview_edit("root", title="Taken")
    with pytest.raises(NotFound):
        desk.maintenance.preview_edit("nobody", pinned=True)


def test_nothing_to_edit_and_nobody_to_edit_are_said(desk: Desk):
    with pytest.raises(InvalidInput, match="nothing to edit"):
        desk.edit("root")
    with pytest.raises(NotFound) as raised:
        desk.edit("roo", title="x")
    assert "root" in raised.value.nearest


@pytest.mark.requirement("maintenance:edits")
def test_each_edit_is_in_the_log(desk: Desk):
    desk.edit("root", archived=True)
    (line,) = desk.ledger.list_audit_entries().items
    assert (line.client, line.what) == ("test", "edit")
    assert line.counts == {"session": "root", "archived": True, "reopen": False, "rows": 3}


def test_the_log_tells_that_a_title_was_set_and_not_which(desk: Desk):
    desk.edit("root", title="What somebody said")
    (line,) = desk.ledger.list_audit_entries().items
    assert line.counts["title"] is True
    assert "somebody" not in str(line)


def test_text_that_is_no_utf_8_comes_back_with_an_undo(desk: Desk):
    with connect(desk.db.path) as connection:
        connection.execute("UPDATE sessions SET title = CAST(x'ff41' AS TEXT) WHERE id = 'other'")
    edited = desk.edit("other", title="Readable")
    desk.undo(edited)
    image = desk.db.read_row_images("sessions", {"id": "other"})
    assert image.rows[0][image.columns.index("title")].stored == b"\xffA"


def test_what_was_changed_again_since_stays_and_is_said(desk: Desk):
    edited = desk.edit("other", title="Ours", archived=True)
    desk.db.set_session_title("other", "Mine")
    (unfit,) = desk.undo(edited).unfit
    assert "it was changed again since" in unfit.why
    row = desk.rows()["other"]
    assert (row["title"], row["archived"]) == ("Mine", 0)
