"""Plans: stored, applied once, returned with their result, and deleted after their time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from session_core.errors import Conflict, InvalidInput, NotFound
from session_core.ledger.ledger import Ledger
from session_core.ledger.plans import PLAN_VALID_S
from session_core.ledger.state_folder import StateFolder, list_bindings
from session_core.ledger.storage import make_step_id
from session_core.ledger.types import Member, StoredPlan, TrashItem
from tests.ledger.conftest import START, Clock

MEMBERS = (
    Member("a", [7, 3, None], "ended 90 days ago"),
    Member("b", {"ended_at": 1.5}, "is empty"),
    Member("c"),
)
ABOUT = {"bytes": {"free_in_file": 12}, "protected": [["pinned", 2]]}


def make_plan(ledger: Ledger) -> StoredPlan:
    return ledger.add_plan("sessions", MEMBERS, ABOUT, 1.7e9)


def prepare(ledger: Ledger, batch: str, *members: str) -> str:
    step = make_step_id()
    ledger.prepare_step(step, batch, [TrashItem("row", {"id": 1})], members=members)
    return step


@pytest.mark.requirement("ledger:plans")
def test_plan_matches_record(ledger: Ledger, open_ledger: Callable[..., Ledger]) -> None:
    plan = make_plan(ledger)
    expected = StoredPlan(
        plan.handle, "sessions", "planned", MEMBERS, ABOUT, 1.7e9, START, START + PLAN_VALID_S
    )
    assert plan == expected
    assert open_ledger().get_plan(plan.handle) == expected
    assert plan.remaining == MEMBERS


def test_last_results_exclude_undone_plans(ledger: Ledger) -> None:
    for number in range(4):
        plan = ledger.add_plan("compress", [Member(f"s{number % 2}")], None)
        step = prepare(ledger, ledger.begin_plan(plan.handle).batch_id, f"s{number % 2}")
        ledger.finish_step(step, number)
        ledger.finish_plan(plan.handle, number)
    ledger.add_plan("compress", [Member("s0")], None)
    assert ledger.list_results("compress", ["s0", "s1"], 3) == [3, 2, 1]
    assert ledger.list_results("compress", ["s1"], 3) == [3, 1]
    assert ledger.list_results("prune", ["s1"], 3) == []
    undo = make_step_id()
    ledger.prepare_step(undo, ledger.add_batch("undo").id, [TrashItem("row", 1)], undoes=step)
    ledger.finish_step(undo, None)
    assert ledger.list_results("compress", ["s1"], 3) == [1]


def test_plan_handle_is_short_and_random(ledger: Ledger) -> None:
    handles = [make_plan(ledger).handle for _ in range(50)]
    assert len(set(handles)) == 50
    assert all(len(handle) == 10 and handle.startswith("p-") for handle in handles)
    assert not set("".join(handles)) & set("01ilo")
    assert handles != sorted(handles)


def test_unknown_plan_error_names_nearest(ledger: Ledger) -> None:
    handle = make_plan(ledger).handle
    wrong = handle[:-1] + ("2" if handle[-1] != "2" else "3")
    for ask in (ledger.get_plan, ledger.begin_plan, ledger.close_plan):
        with pytest.raises(NotFound, match=handle) as caught:
            ask(wrong)
        assert caught.value.nearest == (handle,)


def test_plan_lookup_creates_no_files(ledger: Ledger, folder: StateFolder) -> None:
    for ask in (ledger.get_plan, ledger.get_batch, ledger.get_step, ledger.get_undoable_batch):
        with pytest.raises(NotFound):
            ask("p-22222222")
    assert (
        ledger.list_batches().items
        == ledger.list_audit_entries().items
        == ledger.list_unsettled_steps()
        == []
    )
    assert (ledger.count_trash_bytes(), ledger.empty_trash().batches) == (0, 0)
    assert (folder.find(), list_bindings()) == (None, [])


def test_unrecordable_plan_is_refused(ledger: Ledger) -> None:
    with pytest.raises(InvalidInput, match="unique"):
        ledger.add_plan("sessions", [Member("a"), Member("a")], None)
    with pytest.raises(InvalidInput, match="JSON"):
        ledger.add_plan("sessions", [Member("a", object())], None)
    with pytest.raises(InvalidInput, match="JSON"):
        ledger.add_plan("sessions", [Member("a")], {"a": {1}})


@pytest.mark.requirement("ledger:plans")
def test_expired_plan_is_reported(ledger: Ledger, clock: Clock) -> None:
    handle = make_plan(ledger).handle
    clock.now = START + PLAN_VALID_S - 1
    assert ledger.get_plan(handle).state == "planned"
    clock.now = START + PLAN_VALID_S
    for ask in (ledger.get_plan, ledger.begin_plan):
        with pytest.raises(Conflict, match="expired"):
            ask(handle)


def test_expired_running_plan_names_undo_batch(ledger: Ledger, clock: Clock) -> None:
    handle = make_plan(ledger).handle
    batch = ledger.begin_plan(handle).batch_id
    clock.now = START + PLAN_VALID_S
    with pytest.raises(Conflict, match=batch):
        ledger.begin_plan(handle)


def test_repeated_begin_uses_same_batch(ledger: Ledger) -> None:
    handle = make_plan(ledger).handle
    plan = ledger.begin_plan(handle)
    assert ledger.begin_plan(handle) == plan
    assert ledger.get_plan(handle) == plan
    assert plan.state == ledger.get_plan_state(handle) == "applying"
    batch = ledger.get_batch(plan.batch_id)
    assert (batch.what, batch.plan, batch.count) == ("sessions", handle, 0)


@pytest.mark.requirement("ledger:plans")
def test_finished_plan_keeps_result(ledger: Ledger, clock: Clock) -> None:
    handle = make_plan(ledger).handle
    ledger.begin_plan(handle)
    ledger.finish_plan(handle, {"removed": 2})
    clock.now = START + 20 * PLAN_VALID_S
    assert (ledger.get_plan(handle).state, ledger.get_plan(handle).result) == (
        "finished",
        {"removed": 2},
    )
    for ask in (ledger.begin_plan, ledger.close_plan, lambda plan: ledger.finish_plan(plan, None)):
        with pytest.raises(Conflict, match="finished"):
            ask(handle)


def test_closed_plan_is_not_applied(ledger: Ledger) -> None:
    handle = make_plan(ledger).handle
    ledger.close_plan(handle)
    assert ledger.get_plan(handle).state == "closed"
    with pytest.raises(Conflict, match="closed"):
        ledger.begin_plan(handle)
    with pytest.raises(Conflict, match="closed"):
        ledger.finish_plan(handle, {})


def test_closed_running_plan_refuses_steps(ledger: Ledger) -> None:
    handle = make_plan(ledger).handle
    batch = ledger.begin_plan(handle).batch_id
    ledger.close_plan(handle)
    with pytest.raises(Conflict, match="no longer being applied"):
        prepare(ledger, batch, "a")


def test_members_report_outcome(ledger: Ledger) -> None:
    handle = make_plan(ledger).handle
    batch = ledger.begin_plan(handle).batch_id
    step = prepare(ledger, batch, "a")
    ledger.finish_step(step, None)
    ledger.skip_members(handle, ["b", "a"], "it is pinned now")
    states = {
        member.id: (member.step, member.skipped) for member in ledger.get_plan(handle).members
    }
    assert states == {"a": (step, None), "b": (None, "it is pinned now"), "c": (None, None)}
    assert [member.id for member in ledger.get_plan(handle).remaining] == ["c"]


@pytest.mark.requirement("ledger:plans")
def test_member_belongs_to_single_step(ledger: Ledger) -> None:
    batch = ledger.begin_plan(make_plan(ledger).handle).batch_id
    prepare(ledger, batch, "a")
    with pytest.raises(Conflict, match="another process"):
        prepare(ledger, batch, "b", "a")
    prepare(ledger, batch, "b")


@pytest.mark.requirement("ledger:plans")
def test_step_refuses_members_outside_plan(ledger: Ledger) -> None:
    batch = ledger.begin_plan(make_plan(ledger).handle).batch_id
    for members in (("stranger",), ("a", "stranger"), ("a", "a")):
        with pytest.raises(InvalidInput, match="different members"):
            prepare(ledger, batch, *members)
    assert ledger.list_unsettled_steps() == []


def test_aborted_step_releases_members(ledger: Ledger) -> None:
    handle = make_plan(ledger).handle
    batch = ledger.begin_plan(handle).batch_id
    ledger.abort_step(prepare(ledger, batch, "a"))
    assert ledger.get_plan(handle).remaining == MEMBERS
    ledger.abort_step(prepare(ledger, batch, "a"), skipped="it was changed")
    assert ledger.get_plan(handle).members[0].skipped == "it was changed"


def test_old_plans_are_deleted(ledger: Ledger, clock: Clock) -> None:
    old = make_plan(ledger).handle
    clock.now = START + 32 * PLAN_VALID_S
    new = make_plan(ledger).handle
    with pytest.raises(NotFound):
        ledger.get_plan(old)
    assert ledger.get_plan(new).members == MEMBERS


def test_plan_can_have_many_members(ledger: Ledger) -> None:
    members = [Member(f"s{number:06}", number) for number in range(20_000)]
    handle = ledger.add_plan("sessions", members, None).handle
    batch = ledger.begin_plan(handle).batch_id
    prepare(ledger, batch, *(member.id for member in members[:5000]))
    assert [member.id for member in ledger.get_plan(handle).remaining] == [
        member.id for member in members[5000:]
    ]
