"""Labels: titles, pins and archive marks of ours on transcripts, their undo and their log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from session_core import Conflict, Corrupt, InvalidInput, NotFound
from session_core.ledger import Labels
from session_core.transcripts import TranscriptSummary
from session_core.types import SessionFilter
from tests.transcripts.conftest import read_everything
from tests.transcripts.trees import ClaudeTree

DAY = 86_400.0


class Clock:
    """A clock that a test moves."""

    now = 1_760_000_000.0

    def read(self) -> float:
        """Return the time."""
        return self.now


class Desk:
    """A tree with two sessions, the store that reads it, and its labels."""

    def __init__(self, folder: Path) -> None:
        self.tree = ClaudeTree(folder)
        for name in ("one", "two"):
            self.tree.write(name, [f"question of {name}", "answer"])
        self.clock = Clock()
        self.store = self.tree.open_store()
        self.labels = Labels(self.tree.state, clock=self.clock.read)

    def get(self, name: str) -> TranscriptSummary:
        """Return a session as the store shows it."""
        row = self.store.get_session(name)
        assert row is not None
        return row

    def edit(self, *names: str, **values: object) -> str | None:
        """Edit sessions and return the batch."""
        rows = [self.get(name) for name in names]
        return self.labels.edit(rows, client="test", **values)  # type: ignore[arg-type]

    def list_ids(self, **where: object) -> list[str]:
        """Return the ids of a list."""
        sessions = self.store.list_sessions(SessionFilter(**where))  # type: ignore[arg-type]
        return sorted(row.id for row in sessions.items)

    def close(self) -> None:
        """Close the open objects."""
        self.store.close()
        self.labels.close()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Return a desk."""
    desk = Desk(tmp_path / "person")
    yield desk
    desk.close()


@pytest.mark.requirement("transcripts:labels")
def test_edit_shows_in_rows_and_filters(desk):
    desk.edit("one", title="The ledger", archived=True, pinned=True)
    row = desk.get("one")
    assert (row.title, row.status, row.pinned) == ("The ledger", "archived", True)
    assert desk.list_ids() == ["two"]
    assert desk.list_ids(status="archived") == ["one"]
    assert desk.list_ids(status="all", words="ledger") == ["one"]
    assert desk.store.resolve_session_id("the LEDGER") == "one"


@pytest.mark.requirement("transcripts:labels")
def test_labels_survive_rebuild_of_index(desk):
    desk.edit("one", title="Kept", pinned=True)
    desk.store.rebuild()
    while desk.store.index_pending():
        pass
    assert (desk.get("one").title, desk.get("one").pinned) == ("Kept", True)
    for path in desk.tree.state.glob("index-*"):
        path.unlink()
    with desk.tree.open_store() as anew:
        (row,) = anew.list_sessions(SessionFilter(words="kept")).items
        assert (row.id, row.pinned) == ("one", True)


@pytest.mark.requirement("transcripts:labels")
def test_unindexed_sessions_show_labels(desk):
    desk.edit("one", title="Seen", pinned=True)
    desk.edit("two", archived=True)
    for path in desk.tree.state.glob("index-*"):
        path.unlink()
    with desk.tree.open_store() as anew:
        (row,) = anew.list_sessions().items
        assert anew.measure_share() < 1.0  # the other one is not indexed
        assert (row.id, row.title, row.pinned) == ("one", "Seen", True)


@pytest.mark.requirement("transcripts:labels")
def test_search_hits_show_labels(desk):
    desk.edit("one", title="Named")
    desk.edit("two", archived=True)
    (hit,) = desk.store.search("question", where=SessionFilter()).hits
    assert (hit.session_id, hit.title) == ("one", "Named")


@pytest.mark.requirement("transcripts:labels")
def test_edit_of_several_is_one_batch(desk):
    batch = desk.edit("one", "two", archived=True)
    assert desk.list_ids() == []
    assert desk.labels.get_batch(batch).count == 2
    restored = desk.labels.restore(batch, client="test")
    assert (restored.restored, restored.skipped) == (("one", "two"), ())
    assert desk.list_ids() == ["one", "two"]
    with pytest.raises(Conflict, match="undone already"):
        desk.labels.restore(batch, client="test")


@pytest.mark.requirement("transcripts:labels")
def test_undo_skips_values_edited_since(desk):
    first = desk.edit("one", title="First")
    desk.edit("one", title="Second")
    assert desk.labels.restore(first, client="test").skipped == ("one",)
    assert desk.get("one").title == "Second"


def test_skipped_undo_is_not_used_up(desk):
    first = desk.edit("one", title="First")
    second = desk.edit("one", title="Second")
    assert desk.labels.restore(first, client="test").restored == ()
    desk.labels.restore(second, client="test")
    assert desk.labels.restore(first, client="test").restored == ("one",)
    assert desk.get("one").title is None


def test_undo_keeps_other_values(desk):
    batch = desk.edit("one", title="Named")
    desk.edit("one", pinned=True)
    desk.labels.restore(batch, client="test")
    assert (desk.get("one").title, desk.get("one").pinned) == (None, True)


def test_empty_title_shows_agents_title(desk):
    line = b'{"type": "ai-title", "aiTitle": "By the agent", "sessionId": "one"}\n'
    with desk.tree.get_path("one").open("ab") as file:
        file.write(line)
    assert desk.get("one").title == "By the agent"
    desk.edit("one", title="By me")
    desk.edit("one", title="")
    assert desk.get("one").title == "By the agent"
    assert desk.edit("one", title="") is None


def test_edit_without_change_creates_nothing(desk):
    assert desk.edit("one", archived=False, pinned=False) is None
    assert not (desk.tree.state / "labels.db").exists()
    with pytest.raises(NotFound, match="there is no batch"):
        desk.labels.get_batch("b-22222222")


def test_unarchive_removes_own_mark_only(desk):
    desk.edit("one", archived=True)
    desk.edit("one", archived=False)
    assert desk.get("one").status != "archived"
    (first, second) = desk.labels.list_batches(["claude-code"]).items
    assert [change.after.archived for change in desk.labels.list_changes(first.id)] == [None]
    assert [change.after.archived for change in desk.labels.list_changes(second.id)] == [True]


def test_batches_page_and_expire(desk):
    made = [desk.edit("one", title=f"T{number}") for number in range(5)]
    first = desk.labels.list_batches(["claude-code"], 3)
    rest = desk.labels.list_batches(["claude-code"], 3, first.next_cursor)
    assert [batch.id for batch in (*first.items, *rest.items)] == made[::-1]
    assert desk.labels.list_batches(["codex"]).items == []
    desk.clock.now += 31 * DAY
    assert desk.labels.list_batches(["claude-code"]).items == []
    with pytest.raises(Conflict, match="expired"):
        desk.labels.restore(made[0], client="test")


def test_log_has_no_titles(desk):
    batch = desk.edit("one", title="secret plan")
    desk.labels.restore(batch, client="test")
    undo, edit = desk.labels.list_audit_entries(["claude-code"]).items
    assert (edit.what, edit.counts) == ("edit", {"sessions": 1, "title": True})
    assert (undo.what, undo.counts["restored"]) == ("restore", 1)


def test_forgotten_label_leaves_no_bytes(desk):
    batch = desk.edit("one", title="zanzibar", pinned=True)
    desk.labels.forget("claude-code", "one")
    assert (desk.get("one").title, desk.get("one").pinned) == (None, False)
    assert desk.labels.list_changes(batch) == ()
    data = b"".join(path.read_bytes() for path in desk.tree.state.glob("labels.db*"))
    assert b"zanzibar" not in data


def test_long_title_is_refused(desk):
    with pytest.raises(InvalidInput, match="at most 100 characters"):
        desk.edit("one", title="x" * 101)


def test_empty_and_ambiguous_edits_are_refused(desk):
    with pytest.raises(InvalidInput, match="nothing to edit"):
        desk.edit("one")
    with pytest.raises(InvalidInput, match="a title is set on one session, got 2"):
        desk.edit("one", "two", title="Both")


def test_sessions_of_several_stores_are_refused(desk):
    one = desk.get("one")
    other = TranscriptSummary(
        **{name: getattr(one, name) for name in TranscriptSummary.__slots__} | {"source": "codex"}
    )
    with pytest.raises(InvalidInput, match="covers one store, got claude-code, codex"):
        desk.labels.edit([one, other], pinned=True, client="test")


@pytest.mark.requirement("transcripts:labels")
def test_damaged_file_leaves_answers_working(desk):
    desk.edit("one", title="Named")
    desk.store.close()
    desk.labels.close()
    for path in desk.tree.state.glob("labels.db*"):
        path.write_bytes(b"no database" * 1000)
    desk.store, desk.labels = desk.tree.open_store(), Labels(desk.tree.state)
    assert desk.list_ids() == ["one", "two"]
    with pytest.raises(Corrupt, match="file of labels"):
        desk.edit("one", title="Again")


@pytest.mark.requirement("transcripts:labels")
def test_labels_leave_agents_folder_unchanged(desk):
    before = read_everything(desk.tree.home / ".claude")
    batch = desk.edit("one", "two", archived=True, pinned=True)
    desk.labels.restore(batch, client="test")
    assert read_everything(desk.tree.home / ".claude") == before
