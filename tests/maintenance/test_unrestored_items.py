"""Items that do not fit stay in the trash, and the same restore brings them back later."""

from __future__ import annotations

import pytest

from session_core.errors import Conflict
from tests.maintenance.changed_homes import Changing, live_gateway
from tests.maintenance.homes import BRANCH, NOW
from tests.maintenance.test_batch_restore import list_refused


def fill_large(changed: Changing) -> None:
    """Add an old session that is larger than a step."""
    changed.home.session("large", 150, reason="idle", messages=0)
    changed.home.clock.now = NOW - 150 * 86_400
    for number in range(6):
        changed.home.db.append_message("large", "user", f"{number} " + "x" * 40_000)
    changed.home.clock.now = NOW


def test_freed_id_restores_session(changed: Changing) -> None:
    changed.home.session("old", 140, reason="idle")
    before = changed.read_everything()
    result = changed.plan_and_apply()
    changed.home.db.create_session("old", "cli")
    restored = changed.restore(result)
    assert (restored.outcome, restored.restored, len(restored.unfit)) == ("applied", 0, 1)
    changed.home.db.delete_session("old")
    restored = changed.restore(result)
    assert (restored.restored, restored.unfit) == (1, ())
    assert changed.read_everything() == before
    with pytest.raises(Conflict, match="undone already"):
        changed.restore(result)


def test_freed_title_is_restored(changed: Changing) -> None:
    changed.home.session("old", 140, reason="idle")
    changed.home.db.set_session_title("old", "The schema")
    result = changed.plan_and_apply()
    changed.home.session("other", 1)
    changed.home.db.set_session_title("other", "The schema")
    changed.restore(result)
    second = changed.restore(result)
    assert list_refused(second) == [("title of sessions old", "another row has it now")]
    changed.home.db.set_session_title("other", "Another")
    assert changed.restore(result).unfit == ()
    assert changed.home.db.get_session("old")["title"] == "The schema"


def test_branch_parent_is_restored_by_second_try(
    changed: Changing,
) -> None:
    changed.home.session("trunk", 140, reason="branched")
    changed.home.session("branch", 140, reason="idle", parent_session_id="trunk", config=BRANCH)
    before = changed.read_everything()
    first, second = changed.plan_and_apply(ids=("branch",)), changed.plan_and_apply(ids=("trunk",))
    assert list_refused(changed.restore(first))[0][0] == "parent_session_id of sessions branch"
    again = changed.restore(first)
    reason = f"session trunk does not exist; restore batch {second.batch} first, then this again"
    assert list_refused(again) == [("parent_session_id of sessions branch", reason)]
    changed.restore(second)
    changed.restore(first)
    assert changed.read_everything() == before


def test_second_restore_keeps_continued_session(changed: Changing) -> None:
    for name in ("one", "two"):
        changed.home.session(name, 140, reason="idle")
    result = changed.plan_and_apply()
    assert len(changed.ledger.list_steps(result.batch)) == 1
    changed.home.db.create_session("two", "cli")
    assert changed.restore(result).restored == 1
    first = changed.home.db.get_messages("one")[0]["id"]
    changed.home.sql("DELETE FROM messages WHERE id = ?", first)
    changed.home.db.append_message("one", "user", "gone on")
    second = changed.restore(result)
    taken = "a session with this id was made since; prune it, then restore again"
    assert list_refused(second) == [("sessions two", taken)]
    assert first not in [row["id"] for row in changed.home.db.get_messages("one")]


@pytest.mark.needs_files
def test_freed_file_name_restores_file(changed: Changing) -> None:
    changed.home.session("old", 140, reason="idle")
    changed.home.file("session_old.json", 140, "mine")
    before = changed.read_everything()
    result = changed.plan_and_apply()
    path = changed.home.file("session_old.json", 0, "another")
    changed.restore(result)
    path.unlink()
    assert changed.restore(result).unfit == ()
    assert changed.read_everything() == before


@pytest.mark.needs_files
def test_refused_orphaned_file_is_not_counted(changed: Changing) -> None:
    name = "session_20260101_120000_abcdef01.json"
    changed.home.file(name, 50)
    result = changed.plan_and_apply("orphans")
    path = changed.home.file(name, 0, "another")
    assert (changed.restore(result).restored, path.read_text()) == (0, "another")
    path.unlink()
    assert changed.restore(result).restored == 1


def test_freed_route_is_restored(changed: Changing) -> None:
    changed.home.route("1", "nobody", 40)
    result = changed.plan_and_apply("routes")
    changed.home.session("s", 0)
    key = changed.home.route("1", "s", 0)
    assert changed.restore(result).restored == 0
    changed.home.store.remove(changed.home.store.load_entries())
    restored = changed.restore(result)
    assert (restored.restored, restored.unfit) == (1, ())
    assert changed.home.store.peek_session_id(key) == "nobody"


def test_misfit_blocks_no_other_restore(changed: Changing) -> None:
    fill_large(changed)
    changed.home.session("older", 200, reason="idle")
    result = changed.plan_and_apply()
    steps = len(changed.ledger.list_steps(result.batch))
    changed.home.db.create_session("large", "cli")
    for _ in range(steps):
        restored = changed.restore(result, 0)
    assert (restored.outcome, restored.remaining) == ("applied", 0)
    assert changed.sessions() == {"large", "older"}


def test_restore_reports_progress_and_stops(
    changed: Changing,
) -> None:
    fill_large(changed)
    before = changed.read_everything()
    result = changed.plan_and_apply()
    reports: list[int] = []
    part = changed.maintenance.restore(result.batch, stop=lambda: True)
    assert part.outcome == "partial"
    changed.maintenance.restore(
        result.batch, progress=lambda so_far: reports.append(so_far.remaining)
    )
    assert reports == sorted(reports, reverse=True)
    assert (len(reports), reports[-1]) == (part.remaining, 0)
    assert changed.read_everything() == before


def append_message(changed: Changing) -> None:
    changed.home.db.append_message("s", "user", "and on")


def add_route(changed: Changing) -> None:
    changed.home.route("1", "s", 0)


def add_lock(changed: Changing) -> None:
    changed.home.db.try_acquire_compression_lock("s", "somebody", 300)


@pytest.mark.parametrize(
    "come", [append_message, add_route, add_lock], ids=lambda come: come.__name__
)
def test_undo_of_reopen_keeps_session_in_use(changed: Changing, come) -> None:
    changed.home.session("s", 2, reason="idle")
    edited = changed.maintenance.edit("s", reopen=True)
    come(changed)
    with live_gateway(changed.home):
        restored = changed.maintenance.restore(edited.batch)
    assert (restored.restored, len(restored.unfit)) == (0, 1)
    assert changed.home.db.get_session("s")["ended_at"] is None
