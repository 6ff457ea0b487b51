"""A plan changes only items that are as planned. It keeps and reports all changed items."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from session_core.errors import Conflict, NotFound
from session_core.maintenance.apply import route_removal
from session_core.types import RowImages
from tests.maintenance.changed_homes import Changing, list_skip_reasons
from tests.maintenance.homes import BRANCH, DAY, NOW, Home


@pytest.mark.requirement("maintenance:apply")
def test_reapplied_plan_returns_same_result(changed: Changing) -> None:
    changed.home.session("old", 140, reason="idle")
    planned = changed.plan()
    result = changed.apply(planned)
    changed.home.session("old", 140, reason="idle")
    assert changed.apply(planned) == result
    assert changed.sessions() == {"old"}


@pytest.mark.requirement("maintenance:apply")
def test_unplanned_items_stay(changed: Changing) -> None:
    changed.home.session("old", 140, reason="idle")
    planned = changed.plan()
    changed.home.session("older", 200, reason="idle")
    changed.apply(planned)
    assert changed.sessions() == {"older"}


def append_message(home: Home) -> None:
    home.db.append_message("old", "user", "one more thing")


def reopen_session(home: Home) -> None:
    home.db.reopen_session("old")


def delete_session(home: Home) -> None:
    home.db.delete_session("old")


def add_route(home: Home) -> None:
    home.route("1", "old", 0)


def add_lock(home: Home) -> None:
    home.db.try_acquire_compression_lock("old", "somebody", 300)


def add_continuation(home: Home) -> None:
    home.session("new", 0, parent_session_id="old", config=BRANCH)


CHANGES: dict[Callable[[Home], None], str] = {
    append_message: "session old was changed since",
    reopen_session: "session old was changed since",
    delete_session: "session old does not exist any more",
    add_route: "session old: a chat is routed to it",
    add_lock: "session old: it is being compressed",
    add_continuation: "session new was created from old since",
}


@pytest.mark.requirement("maintenance:apply")
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_sessions_active_since_plan_are_skipped(
    changed: Changing, change: Callable[[Home], None]
) -> None:
    for name in ("first", "old", "last"):
        changed.home.session(name, 140, reason="idle")
    planned = changed.plan()
    change(changed.home)
    before = changed.sessions()
    result = changed.apply(planned)
    assert (result.removed, list_skip_reasons(result)) == (2, {"old": CHANGES[change]})
    assert changed.sessions() == before - {"first", "last"}
    assert changed.apply(planned) == result


# -- how it goes on ------------------------------------------------------------------------


@pytest.fixture
def large(changed: Changing) -> Changing:
    """A home with a session that is larger than a step, and a small one after it."""
    changed.home.session("large", 150, reason="idle", messages=0)
    changed.home.clock.now = NOW - 150 * DAY
    for number in range(12):
        changed.home.db.append_message("large", "user", f"says {number} " + "x" * 30_000)
    changed.home.clock.now = NOW
    changed.home.session("small", 140, reason="idle")
    return changed


@pytest.mark.requirement("maintenance:steps")
def test_large_session_takes_several_steps(large: Changing) -> None:
    before = large.read_everything()
    result = large.plan_and_apply()
    assert (result.removed, large.sessions()) == (2, set())
    assert len(large.ledger.list_steps(result.batch)) > 2
    large.restore(result)
    assert large.read_everything() == before


@pytest.mark.requirement("maintenance:steps")
def test_stopped_run_reports_remaining_and_resumes(large: Changing) -> None:
    before = large.read_everything()
    planned = large.plan()
    part = large.apply(planned, 0)
    assert (part.outcome, part.removed, part.remaining) == ("partial", 0, 2)
    stopped = large.apply(planned, stop=lambda: True)
    assert (stopped.outcome, stopped.batch) == ("partial", part.batch)
    assert 0 < large.home.db.message_count("large") < 12
    result = large.apply(planned)
    assert (result.outcome, result.removed, result.remaining) == ("applied", 2, 0)
    large.restore(result)
    assert large.read_everything() == before


def test_plan_continues_after_restore_of_first_member(large: Changing) -> None:
    planned = large.plan()
    part = large.apply(planned, 0)
    assert 0 < large.home.db.message_count("large") < 12
    large.home.db.append_message("large", "user", "one more")
    result = large.apply(planned)
    assert (result.outcome, result.batch, result.removed) == ("applied", part.batch, 1)
    assert set(list_skip_reasons(result)) == {"large"}
    assert large.home.db.message_count("large") == 13


@pytest.mark.requirement("maintenance:steps")
def test_restored_partial_plan_cannot_resume(large: Changing) -> None:
    before = large.read_everything()
    planned = large.plan()
    part = large.apply(planned, 0)
    large.restore(part)
    assert large.read_everything() == before
    assert large.ledger.get_plan(part.plan).state == "closed"
    with pytest.raises(Conflict):
        large.apply(planned)
    assert large.read_everything() == before


def test_partial_plan_trash_stays_until_restored(
    large: Changing,
) -> None:
    before = large.read_everything()
    planned = large.plan()
    part = large.apply(planned, 0)
    large.home.clock.now += 40 * DAY
    assert large.ledger.list_expired_batches() == large.ledger.list_expired_batches(0) == []
    assert large.ledger.empty_trash(batches=[part.batch]).batches == 0
    large.home.clock.now = NOW
    large.restore(part)
    assert large.read_everything() == before
    assert large.ledger.list_expired_batches(0) == []
    assert large.ledger.get_batch(str(part.batch)).bytes == 0


def test_resumable_plan_trash_is_not_emptied(
    changed: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        changed.home.route(str(number), "nobody", 40)
    monkeypatch.setattr(route_removal, "_BATCH_ROUTES", 1)
    planned = changed.plan("routes")
    part = changed.apply(planned, 0)
    assert changed.ledger.list_expired_batches(0) == []
    assert changed.ledger.empty_trash(batches=[part.batch]).batches == 0
    assert changed.apply(planned).removed == 3
    assert [batche.id for batche in changed.ledger.list_expired_batches(0)] == [part.batch]


def test_resumed_and_finished_plan_is_emptied(large: Changing) -> None:
    planned = large.plan()
    large.apply(planned, 0)
    result = large.apply(planned)
    assert [batche.id for batche in large.ledger.list_expired_batches(0)] == [result.batch]


def test_unremovable_session_blocks_no_other(
    changed: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        changed.home.session(f"s{number}", 140, reason="idle")
    planned = changed.plan()
    usual = type(changed.home.db.rows).read_session_images

    def one_more(self: Any, session_id: str) -> list[RowImages]:
        """Add a row again and again, right after each read."""
        found = usual(self, session_id)
        if session_id == "s3":
            changed.home.db.update_session("s3", model=str(time.monotonic_ns()))
        return found

    monkeypatch.setattr(type(changed.home.db.rows), "read_session_images", one_more)
    result = changed.apply(planned)
    assert (result.removed, list(list_skip_reasons(result))) == (5, ["s3"])
    assert changed.sessions() == {"s3"}


def test_batch_counts_members_not_steps(changed: Changing) -> None:
    changed.home.session("large", 150, reason="idle", messages=0)
    for number in range(6):
        said = f"{number} " + "x" * 40_000
        changed.home.db.append_message("large", "user", said, timestamp=NOW - 150 * DAY)
    planned = changed.plan(ids=("large",))
    part = changed.apply(planned, 0)
    assert (part.outcome, changed.ledger.get_batch(str(part.batch)).count) == ("partial", 1)
    result = changed.apply(planned)
    assert len(changed.ledger.list_steps(str(result.batch))) > 1
    assert changed.ledger.get_batch(str(result.batch)).count == 1


def test_expired_plan_is_refused(changed: Changing) -> None:
    changed.home.session("old", 140, reason="idle")
    planned = changed.plan()
    changed.home.clock.now = NOW + DAY
    with pytest.raises(Conflict):
        changed.apply(planned)
    assert changed.sessions() == {"old"}


def test_unknown_plan_raises_not_found(changed: Changing) -> None:
    with pytest.raises(NotFound):
        changed.maintenance.apply("p-nothing")


@pytest.mark.requirement("maintenance:apply")
def test_applied_change_is_in_audit_log(changed: Changing) -> None:
    changed.home.session("old", 140, reason="idle")
    planned = changed.plan()
    result = changed.apply(planned)
    changed.restore(result)
    log = [
        (line.what, line.plan, line.counts) for line in changed.ledger.list_audit_entries().items
    ]
    counts = {"removed": 1, "finalized": 0, "skipped": 0, "remaining": 0}
    assert log[1] == ("prune sessions", planned.plan, counts)
    assert log[0][0] == f"restore {result.batch}"


def test_index_merge_reports_progress(changed: Changing) -> None:
    changed.home.session("old", 140, reason="idle")
    planned = changed.plan("all")
    reports: list[int] = []
    changed.apply(planned, progress=lambda so_far: reports.append(so_far.removed))
    assert reports[-1:] == [1]


def test_apply_reports_progress(changed: Changing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("session_core.maintenance.apply.run._PROGRESS_INTERVAL_S", -1.0)
    for number in range(3):
        changed.home.session(f"old_{number}", 140, reason="idle")
        changed.home.clock.now = NOW - 140 * DAY
        changed.home.db.append_message(f"old_{number}", "user", "x" * 80_000)
    changed.home.clock.now = NOW
    reports: list[int] = []
    changed.apply(changed.plan(), progress=lambda so_far: reports.append(so_far.done))
    assert reports == sorted(reports)
    assert len(reports) > 1


def add_many_sessions(changed: Changing) -> list[str]:
    """Add sessions of which a step removes a few at most."""
    names = [f"s{number}" for number in range(8)]
    with changed.home.db.transaction():
        for name in names:
            changed.home.session(name, 140, reason="idle", messages=0)
            said = [
                {"role": "user", "content": f"{n} {'x' * 2000}", "timestamp": NOW - 140 * DAY}
                for n in range(12)
            ]
            changed.home.db.append_messages(name, said)
    changed.home.clock.now = NOW
    return names


def test_session_changed_after_prefetch_is_skipped(changed: Changing) -> None:
    names = add_many_sessions(changed)
    planned = changed.plan()
    said: list[str] = []

    def say() -> bool:
        if not said:
            left = [name for name in names if name in changed.sessions()]
            said.extend(left[:3])
            for name in said:
                changed.home.db.append_message(name, "user", "one more thing")
        return False

    result = changed.apply(planned, stop=say)
    assert len(said) == 3
    assert set(list_skip_reasons(result)) == set(said)
    assert changed.sessions() == set(said)
    texts = [row["content"] for row in changed.home.db.get_messages(said[-1])]
    assert texts[-1] == "one more thing"
    assert len(texts) == 13


def test_many_steps_are_restored_exactly(changed: Changing) -> None:
    names = add_many_sessions(changed)
    before = {name: changed.home.db.get_messages(name) for name in names}
    result = changed.apply(changed.plan())
    assert result.removed == len(names)
    assert len(changed.ledger.list_steps(result.batch)) > 2
    changed.maintenance.restore(result.batch)
    assert {name: changed.home.db.get_messages(name) for name in names} == before


def test_finished_plan_of_other_process_wins(
    changed: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed.home.session("old", 140, reason="idle")
    planned = changed.plan()
    finish = changed.ledger.finish_plan

    def finish_twice(handle: str, result: dict[str, Any]) -> None:
        finish(handle, {**result, "warnings": ["of the first to end it"]})
        finish(handle, result)

    monkeypatch.setattr(changed.ledger, "finish_plan", finish_twice)
    assert changed.apply(planned).warnings == ("of the first to end it",)
    assert changed.apply(planned).warnings == ("of the first to end it",)


def test_loaded_plan_is_checked_when_begun(changed: Changing) -> None:
    changed.home.session("old", 140, reason="idle")
    planned = changed.plan()
    loaded = changed.ledger.get_plan(str(planned.plan))
    changed.maintenance.close_plan(loaded.handle)
    with pytest.raises(Conflict, match="closed"):
        changed.maintenance.apply(loaded)
    assert changed.sessions() == {"old"}
