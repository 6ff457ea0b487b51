"""Edits of titles, archive, pins and ends: immediate, exact, and undone as one."""

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
from tests.thorough import take_main_kinds

KINDS = ("own", 16, 22, 30)


class Desk:
    """A home of a kind for edits."""

    def __init__(self, db: SessionDB, ledger: Ledger) -> None:
        self.db, self.ledger, self.pins = db, ledger, ledger.pins
        self.maintenance = Maintenance(db, ledger)

    def edit(self, session_id: str | list[str], **wanted: Any) -> EditResult:
        """Edit a session."""
        return self.maintenance.edit(session_id, client="test", **wanted)

    def undo(self, edited: EditResult) -> RestoreResult:
        """Undo an edit."""
        restored = self.maintenance.restore(str(edited.batch))
        assert isinstance(restored, RestoreResult)
        return restored

    def rows(self) -> dict[str, Any]:
        """Return the rows of all sessions."""
        return {item.id: self.db.get_session(item.id) for item in self.db.admin.list_inventory()}


@pytest.fixture(params=take_main_kinds(KINDS), ids=str)
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


def read_titles(desk: Desk) -> dict[str, Any]:
    return {name: row["title"] for name, row in desk.rows().items() if row["title"]}


def test_edit_sets_title(desk: Desk):
    edited = desk.edit("other", title="  New \u200b name ")
    assert edited.sessions[0].title == "New name"
    assert read_titles(desk)["other"] == "New name"


def test_empty_title_is_removed(desk: Desk):
    assert desk.edit("other", title="").sessions[0].title is None


@pytest.mark.requirement("maintenance:edits")
def test_title_moves_from_ancestor_and_back(desk: Desk):
    edited = desk.edit("tip", title="Trip")
    assert read_titles(desk) == {"tip": "Trip", "other": "Work"}
    desk.undo(edited)
    assert read_titles(desk) == {"root": "Trip", "other": "Work"}


@pytest.mark.requirement("maintenance:edits")
@pytest.mark.parametrize("wanted", [{"title": "Work"}, {"title": "Work", "archived": True}])
def test_title_of_other_conversation_is_refused(desk: Desk, wanted):
    before = desk.rows()
    with pytest.raises(TitleTaken, match="other"):
        desk.edit("tip", **wanted)
    with pytest.raises(InvalidInput, match="100"):
        desk.edit("tip", **{**wanted, "title": "x" * 101})
    assert desk.rows() == before
    assert desk.ledger.list_batches().items == []


def test_title_taken_concurrently_is_refused(desk: Desk):
    with connect(desk.db.path) as connection:
        run = desk.ledger.prepare_step

        def prepared(*args: Any, **kwargs: Any) -> Any:
            cleared = run(*args, **kwargs)
            connection.execute("UPDATE sessions SET title = 'Now' WHERE id = 'other'")
            return cleared

        desk.ledger.prepare_step = prepared  # type: ignore[method-assign]
        with pytest.raises(TitleTaken, match="other"):
            desk.edit("tip", title="Now")
    assert read_titles(desk) == {"root": "Trip", "other": "Now"}


@pytest.mark.requirement("maintenance:edits")
def test_edit_retries_after_concurrent_change(desk: Desk):
    with connect(desk.db.path) as connection:
        run = desk.ledger.prepare_step

        def prepared(*args: Any, **kwargs: Any) -> Any:
            cleared = run(*args, **kwargs)
            connection.execute("UPDATE sessions SET title = 'Mine' WHERE id = 'other'")
            return cleared

        desk.ledger.prepare_step = prepared  # type: ignore[method-assign]
        edited = desk.edit("other", title="Ours")
    desk.ledger.prepare_step = run  # type: ignore[method-assign]
    assert read_titles(desk)["other"] == "Ours"
    desk.undo(edited)
    assert read_titles(desk)["other"] == "Mine"


def test_same_concurrent_edit_creates_no_batch(desk: Desk):
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
def test_archive_covers_conversation_and_is_undone(desk: Desk, session: str):
    before = desk.rows()
    edited = desk.edit(session, archived=True)
    assert edited.sessions[0].status == "archived"
    archived = {name for name, row in desk.rows().items() if row["archived"]}
    assert archived == {"root", "tip", "left"}
    desk.undo(edited)
    assert desk.rows() == before


@pytest.mark.requirement("maintenance:edits")
@pytest.mark.parametrize("session", ["root", "tip", "left"])
def test_pin_covers_conversation_without_column(desk: Desk, session: str):
    before = desk.rows()
    edited = desk.edit(session, pinned=True)
    assert edited.sessions[0].pinned
    column = {name for name, row in desk.rows().items() if row.get("pinned")}
    assert column | desk.pins.list_pinned() == {"root", "tip", "left"}
    assert not column & desk.pins.list_pinned()
    desk.undo(edited)
    assert desk.rows() == before
    assert desk.pins.list_pinned() == frozenset()


def test_unpin_covers_whole_conversation(desk: Desk):
    desk.edit("root", pinned=True)
    assert not desk.edit("tip", pinned=False).sessions[0].pinned
    assert desk.pins.list_pinned() == frozenset()
    assert not any(row.get("pinned") for row in desk.rows().values())


def test_other_process_sees_pins(desk: Desk):
    desk.pins.set_pins({"tip": True, "other": False})
    with Pins(StateFolder(desk.db.path)) as others:
        assert others.list_pinned() == {"tip"}


def test_undo_of_reopen_ends_session(desk: Desk):
    before = desk.rows()
    edited = desk.edit("left", reopen=True)
    assert edited.sessions[0].status == "open"
    assert desk.rows()["left"]["end_reason"] is None
    desk.undo(edited)
    assert desk.rows() == before


def add_chat_route(desk: Desk, session_id: str, chat_id: str = "42") -> None:
    """Route a chat to a session, as a gateway does."""
    with SessionStore(desk.db.path.parent / "sessions", db=desk.db) as store:
        entry = store.get_or_create_session(SessionSource(platform="telegram", chat_id=chat_id))
        entry.session_id = session_id
        store.save(entry)


def test_undo_of_reopen_ends_chat_session(desk: Desk):
    add_chat_route(desk, "left")
    before = desk.rows()
    edited = desk.edit("left", reopen=True)
    assert desk.undo(edited).unfit == ()
    assert desk.rows() == before


def test_reopened_session_joined_by_chat_stays_open(desk: Desk):
    add_chat_route(desk, "left")
    edited = desk.edit("left", reopen=True)
    add_chat_route(desk, "left", "43")
    assert desk.undo(edited).unfit
    assert desk.rows()["left"]["ended_at"] is None


@pytest.mark.requirement("maintenance:edits")
def test_reopen_of_compressed_session_uses_tip(desk: Desk):
    desk.db.append_message("tip", "user", "said last")
    desk.db.end_session("tip", "cli_close")
    before = desk.rows()
    edited = desk.edit("root", reopen=True)
    assert desk.rows()["root"]["end_reason"] == "compression"
    assert desk.rows()["tip"]["ended_at"] is None
    desk.undo(edited)
    assert desk.rows() == before


def test_several_edits_share_single_step(desk: Desk):
    before = desk.rows()
    edited = desk.edit("left", title="All", archived=True, pinned=True, reopen=True)
    assert len(desk.ledger.list_steps(str(edited.batch))) == 1
    desk.undo(edited)
    assert desk.rows() == before


@pytest.mark.parametrize(
    "wanted", [{"title": "Trip"}, {"archived": False}, {"pinned": False}], ids=str
)
def test_unchanged_edit_creates_no_batch(desk: Desk, wanted: dict[str, Any]):
    assert desk.edit("root", **wanted).batch is None
    assert desk.ledger.list_batches().items == []
    assert desk.ledger.list_audit_entries().items == []


@pytest.mark.requirement("maintenance:edits")
def test_edit_preview_matches_edit(desk: Desk):
    before = desk.rows()
    request: dict[str, Any] = {"title": "Trip", "archived": True, "pinned": True}
    would = desk.maintenance.preview_edit("tip", **request)
    assert desk.rows() == before
    found = {(item.session_id, item.what): (item.before, item.after) for item in would}
    assert found.pop(("root", "title")) == ("Trip", None)
    assert found.pop(("tip", "title")) == (None, "Trip")
    assert found.keys() == {(a, b) for a in ("root", "tip", "left") for b in ("archived", "pinned")}
    assert {(bool(was), bool(becomes)) for was, becomes in found.values()} == {(False, True)}
    desk.edit("tip", **request)
    assert desk.maintenance.preview_edit("tip", **request) == ()


def test_preview_refuses_invalid_edit(desk: Desk):
    desk.edit("left", title="Taken")
    with pytest.raises(TitleTaken):
        desk.maintenance.preview_edit("root", title="Taken")
    with pytest.raises(NotFound):
        desk.maintenance.preview_edit("nobody", pinned=True)


def test_empty_edit_and_unknown_session_raise(desk: Desk):
    with pytest.raises(InvalidInput, match="nothing to edit"):
        desk.edit("root")
    with pytest.raises(NotFound) as raised:
        desk.edit("roo", title="x")
    assert "root" in raised.value.nearest


@pytest.mark.requirement("maintenance:edits")
def test_edits_are_in_audit_log(desk: Desk):
    desk.edit("root", archived=True)
    (line,) = desk.ledger.list_audit_entries().items
    assert (line.client, line.what) == ("test", "edit")
    assert line.counts == {"session": "root", "archived": True, "reopen": False, "rows": 3}


def test_audit_log_omits_title_text(desk: Desk):
    desk.edit("root", title="What somebody said")
    (line,) = desk.ledger.list_audit_entries().items
    assert line.counts["title"] is True
    assert "somebody" not in str(line)


def test_undo_restores_non_utf8_text(desk: Desk):
    with connect(desk.db.path) as connection:
        connection.execute("UPDATE sessions SET title = CAST(x'ff41' AS TEXT) WHERE id = 'other'")
    edited = desk.edit("other", title="Readable")
    desk.undo(edited)
    image = desk.db.rows.read_row_images("sessions", {"id": "other"})
    assert image.rows[0][image.columns.index("title")].stored == b"\xffA"


def test_undo_keeps_and_reports_later_change(desk: Desk):
    edited = desk.edit("other", title="Ours", archived=True)
    desk.db.set_session_title("other", "Mine")
    (unfit,) = desk.undo(edited).unfit
    assert "it was changed again since" in unfit.why
    row = desk.rows()["other"]
    assert (row["title"], row["archived"]) == ("Mine", 0)


@pytest.mark.requirement("maintenance:edits")
def test_several_sessions_share_one_undo(desk: Desk):
    edited = desk.edit(["root", "tip", "other", "root"], archived=True, pinned=True)
    assert [row.id for row in edited.sessions] == ["root", "tip", "other"]
    assert {row.status for row in edited.sessions} == {"archived"}
    (batch,) = desk.maintenance.batches().items
    assert batch.id == edited.batch
    desk.undo(edited)
    for name in ("root", "tip", "other"):
        row = desk.db.summarize_session(name)
        assert (row.status, row.pinned) != ("archived", True)


@pytest.mark.requirement("maintenance:edits")
def test_title_of_several_sessions_is_refused(desk: Desk):
    with pytest.raises(InvalidInput, match="a title is set on one session, got 2"):
        desk.edit(["root", "other"], title="Both")
    assert desk.edit(["root", "root"], title="Once").sessions[0].title == "Once"
