"""A conversation that is used during its removal is restored automatically."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from session_core.errors import Changed, Conflict
from session_core.ledger.ledger import Ledger
from session_core.maintenance.apply.crash_recovery import RESTORED_SUFFIX
from session_core.maintenance.apply.run import PlanRun
from session_core.maintenance.restore import step_undo
from session_core.maintenance.types import ApplyResult
from tests.maintenance.changed_homes import Changing
from tests.maintenance.homes import BRANCH, DAY, NOW
from tests.maintenance.test_run_concurrency import open_other_maintainer


class _Killed(BaseException):
    """The process ends here."""


def raise_killed(*_: object, **__: object) -> None:
    raise _Killed


@pytest.fixture
def long(changed: Changing) -> Changing:
    """A home with a conversation whose root is larger than a step, and two others around it."""
    home = changed.home
    home.session("other", 190, reason="idle")
    home.session("root", 180, reason="compression", messages=0)
    home.clock.now = NOW - 180 * DAY
    for number in range(12):
        home.db.append_message("root", "user", f"says {number} " + "x" * 30_000)
    home.clock.now = NOW
    home.session("tip", 150, reason="idle", parent_session_id="root")
    home.session("branch", 1, reason="idle", parent_session_id="tip", config=BRANCH)
    home.file("session_tip.json", 150, "its file")
    home.session("small", 140, reason="idle")
    return changed


def apply_until_half(long: Changing) -> ApplyResult:
    """Apply a plan until the tip and a part of the root are gone."""
    planned = long.plan()

    def is_half() -> bool:
        return "tip" not in long.sessions() and long.home.db.message_count("root") < 12

    half = long.apply(planned, stop=is_half)
    assert is_half()
    assert "root" in long.sessions()
    return half


def apply_again(
    long: Changing, half: ApplyResult, for_s: float = 60.0, **options: Any
) -> ApplyResult:
    return long.maintenance.apply(str(half.plan), for_s, **options)


def list_skip_reasons(done: ApplyResult) -> dict[str, str]:
    return {item.id: item.why for item in done.skipped}


def read_rows(long: Changing, *tables: str) -> list[Any]:
    rows = long.read_everything()["rows"]
    return [rows[table] for table in tables]


# -- put back --------------------------------------------------------------------------------------


@pytest.mark.requirement("maintenance:coming-alive")
def test_append_during_removal_restores_conversation(
    long: Changing,
) -> None:
    before = read_rows(long, "messages", "session_model_usage")
    half = apply_until_half(long)
    with closing(long.home.open_again()) as other:
        other.append_message("root", "user", "not yet")
    result = apply_again(long, half)
    assert (result.outcome, result.removed, result.remaining, result.warnings) == (
        "applied",
        2,
        0,
        (),
    )
    assert list_skip_reasons(result) == {"root": f"session root was changed since{RESTORED_SUFFIX}"}
    assert long.sessions() == {"root", "tip", "branch"}
    assert [row["content"].split()[1] for row in long.home.db.get_messages("root")] == [
        *map(str, range(12)),
        "yet",
    ]
    long.restore(result)
    long.home.sql("DELETE FROM messages WHERE content = 'not yet'")
    assert read_rows(long, "messages", "session_model_usage") == before


def pin_session(long: Changing) -> None:
    long.ledger.pins.set_pins({"root": True})


def add_route(long: Changing) -> None:
    long.home.route("1", "root", 0)


def reopen_session(long: Changing) -> None:
    long.home.db.reopen_session("root")


COMES: dict[Callable[[Changing], None], str] = {
    pin_session: "session root: it is pinned",
    add_route: "session root: a chat is routed to it",
    reopen_session: "session root was changed since",
}


@pytest.mark.requirement("maintenance:coming-alive")
@pytest.mark.parametrize("come", COMES, ids=lambda come: come.__name__)
def test_use_during_removal_restores_conversation(
    long: Changing, come: Callable[[Changing], None]
) -> None:
    messages, files = read_rows(long, "messages"), long.read_everything()["files"]
    half = apply_until_half(long)
    come(long)
    result = apply_again(long, half)
    assert (result.removed, list_skip_reasons(result)) == (
        2,
        {"root": COMES[come] + RESTORED_SUFFIX},
    )
    assert long.home.db.get_session("branch")["parent_session_id"] == "tip"
    long.restore(result)
    assert read_rows(long, "messages") == messages
    assert long.read_everything()["files"] == files
    assert long.home.db.get_session("tip")["parent_session_id"] == "root"
    assert long.home.db.get_session("branch")["parent_session_id"] == "tip"


@pytest.mark.requirement("maintenance:coming-alive")
def test_other_members_of_restored_steps_stay_removed(
    long: Changing,
) -> None:
    before = long.read_everything()
    half = apply_until_half(long)
    shared = [
        step for step in long.ledger.list_steps(half.batch) if "tip" in step.result["sessions"]
    ]
    assert any(set(step.result["sessions"]) - {"tip"} for step in shared)
    pin_session(long)
    result = apply_again(long, half)
    assert long.sessions() == {"root", "tip", "branch"}
    assert long.restore(result).restored == 2
    assert long.read_everything() == before


def test_restore_of_rest_counts_remaining(long: Changing) -> None:
    before = long.read_everything()
    half = apply_until_half(long)
    pin_session(long)
    result = apply_again(long, half)
    for _ in long.ledger.list_steps(result.batch):
        back = long.restore(result, 0)
        if back.outcome == "applied":
            break
        assert back.remaining > 0
    assert long.read_everything() == before


@pytest.mark.needs_files
def test_restored_files_stay_when_plan_resumes(long: Changing) -> None:
    half = apply_until_half(long)
    pin_session(long)
    tip = long.home.store.sessions_dir / "session_tip.json"
    part = apply_again(long, half, stop=tip.exists)
    assert (part.outcome, tip.exists()) == ("partial", True)
    result = apply_again(long, half)
    assert (result.outcome, tip.read_text()) == ("applied", "its file")


def test_partial_restore_stops_and_resumes(long: Changing) -> None:
    half = apply_until_half(long)
    pin_session(long)
    part = apply_again(long, half, stop=lambda: bool(long.ledger.list_partial_members()))
    assert (part.outcome, part.skipped) == ("partial", ())
    assert part.remaining > 0
    result = apply_again(long, half)
    assert (result.outcome, result.remaining) == ("applied", 0)
    assert list_skip_reasons(result) == {"root": COMES[pin_session] + RESTORED_SUFFIX}


@pytest.mark.requirement("maintenance:coming-alive")
def test_partial_restore_keeps_replacement_and_reports_misfit(long: Changing) -> None:
    half = apply_until_half(long)
    pin_session(long)
    long.home.db.create_session("tip", "cli")
    result = apply_again(long, half)
    why = (
        f"{COMES[pin_session]}{RESTORED_SUFFIX} except items that do not fit: "
        f"restore {half.batch} lists them"
    )
    assert list_skip_reasons(result) == {"root": why}
    assert long.home.db.message_count("tip") == 0
    assert long.home.db.message_count("root") == 12
    long.home.db.delete_session("tip")
    assert long.restore(result).unfit == ()
    assert long.home.db.message_count("tip") == 2


def apply_in_short_calls(changed: Changing, half: ApplyResult) -> ApplyResult:
    """Continue a plan in calls that end after one step each, until it is applied."""
    for _ in range(100):
        result = apply_again(changed, half, for_s=0)
        if result.outcome == "applied":
            return result
    raise AssertionError("the plan does not end")


def test_short_calls_finish_partial_restore(long: Changing) -> None:
    half = apply_until_half(long)
    pin_session(long)
    result = apply_in_short_calls(long, half)
    assert list_skip_reasons(result) == {"root": COMES[pin_session] + RESTORED_SUFFIX}
    assert long.home.db.message_count("root") == 12


def test_short_calls_finish_restore_with_misfit(long: Changing) -> None:
    half = apply_until_half(long)
    pin_session(long)
    long.home.db.create_session("tip", "cli")
    result = apply_in_short_calls(long, half)
    (reason,) = list_skip_reasons(result).values()
    assert reason.endswith("lists them")
    assert long.home.db.message_count("root") == 12


@pytest.mark.needs_files
def test_damaged_trash_blocks_no_other_restore(long: Changing) -> None:
    half = apply_until_half(long)
    pin_session(long)
    first = long.ledger.list_steps(half.batch)[0].id
    long.ledger._file.write(
        lambda rows: rows.execute_update("UPDATE trash SET data = x'00' WHERE step = ?", (first,))
    )
    result = apply_again(long, half)
    assert result.outcome == "applied"
    assert "except items that do not fit" in list_skip_reasons(result)["root"]


# -- several, and one that dies --------------------------------------------------------------------


@pytest.mark.requirement("maintenance:coming-alive")
def test_two_maintainers_share_partial_restore(long: Changing) -> None:
    before = read_rows(long, "messages", "sessions")
    half = apply_until_half(long)
    pin_session(long)
    together, done = threading.Barrier(2), []

    def run(maintenance: Any) -> None:
        together.wait(10)
        done.append(maintenance.apply(half.plan, 60.0))

    with open_other_maintainer(long) as another:
        threads = [
            threading.Thread(target=run, args=(item,)) for item in (long.maintenance, another)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert [(item.outcome, item.removed) for item in done] == [("applied", 2)] * 2
    assert (
        list_skip_reasons(done[0])
        == list_skip_reasons(done[1])
        == {"root": COMES[pin_session] + RESTORED_SUFFIX}
    )
    long.restore(done[0])
    assert read_rows(long, "messages", "sessions") == before


def test_second_maintainer_stops_removing_restored_member(
    long: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = read_rows(long, "messages")
    half = apply_until_half(long)
    part = step_undo.undo_step_for_sessions
    with open_other_maintainer(long) as another:
        plan = another._ledger.get_plan(half.plan)
        with closing(PlanRun(another._require_home(), plan)) as run:

            def step_first(*args: Any) -> Any:
                monkeypatch.setattr(step_undo, "undo_step_for_sessions", part)
                run.run_next_step()
                return part(*args)

            monkeypatch.setattr(step_undo, "undo_step_for_sessions", step_first)
            long.ledger.skip_members(half.plan, ["sessions/root"], "left", half=True)
            edit_session(long, half)
    result = apply_again(long, half)
    assert list_skip_reasons(result) == {"root": "left" + RESTORED_SUFFIX}
    assert long.home.db.message_count("root") == 12
    long.restore(result)
    assert read_rows(long, "messages") == messages


def test_member_restored_elsewhere_is_not_repeated(long: Changing) -> None:
    half = apply_until_half(long)
    home = long.maintenance._require_home()
    step = long.ledger.list_steps(half.batch)[-1]
    batch = long.ledger.add_batch("restore").id
    step_undo.undo_step_for_sessions(home, batch, step, {"root"})
    with pytest.raises(Changed, match="another process"):
        step_undo.undo_step(home, batch, step, None, step_undo.read_contents(home, step, None))
    assert step_undo.undo_step_for_sessions(home, batch, step, {"root"}) is None


POINTS: dict[str, tuple[Any, str]] = {
    "before it": (step_undo, "undo_step_for_sessions"),
    "before a step": (Ledger, "prepare_step"),
    "behind a step": (Ledger, "finish_step"),
    "at its end": (Ledger, "finish_partial"),
}


def apply_plan(long: Changing, half: ApplyResult) -> None:
    apply_again(long, half)


def restore_batch(long: Changing, half: ApplyResult) -> None:
    long.restore(half)


def edit_session(long: Changing, _: ApplyResult) -> None:
    long.maintenance.edit("branch", title="Something else")


@pytest.mark.requirement("maintenance:coming-alive")
@pytest.mark.parametrize(
    "go_on", [apply_plan, restore_batch, edit_session], ids=lambda act: act.__name__
)
@pytest.mark.parametrize("when", POINTS)
def test_next_call_restores_partial_member_after_crash(
    long: Changing,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
    go_on: Callable[[Changing, ApplyResult], None],
) -> None:
    messages = read_rows(long, "messages")
    half = apply_until_half(long)
    pin_session(long)
    place, name = POINTS[when]
    usual = getattr(place, name)

    def die(self: Any, *args: Any, **more: Any) -> Any:
        return raise_killed() if long.ledger.list_partial_members() else usual(self, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(place, name, die)
        with pytest.raises(_Killed):
            apply_again(long, half)
    long.ledger._file.write(lambda rows: rows.execute_update("UPDATE steps SET pid = 0"))
    assert half.batch not in {batche.id for batche in long.ledger.list_expired_batches(0)}
    go_on(long, half)
    assert {"root", "tip"} <= long.sessions()
    assert (long.home.db.message_count("root"), long.home.db.message_count("tip")) == (12, 2)
    if go_on is not restore_batch:
        assert long.ledger.list_partial_members() == []
        long.restore(half)
    assert read_rows(long, "messages") == messages


def test_expired_trash_of_partial_member_stays(
    long: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = apply_until_half(long)
    pin_session(long)
    with monkeypatch.context() as patch:
        patch.setattr(step_undo, "undo_step_for_sessions", raise_killed)
        with pytest.raises(_Killed):
            apply_again(long, half)
    long.home.clock.now += 31 * DAY
    assert long.ledger.list_expired_batches() == []
    edit_session(long, half)
    assert long.home.db.message_count("root") == 12
    assert [batche.id for batche in long.ledger.list_expired_batches()] == [half.batch]


# -- plans that end half-way -----------------------------------------------------------------------


@pytest.mark.requirement("maintenance:coming-alive")
def test_closed_plan_restores_partial_conversation(long: Changing) -> None:
    before = long.read_everything()
    half = apply_until_half(long)
    long.maintenance.close_plan(half.plan)
    assert {"root", "tip"} <= long.sessions()
    assert long.home.db.message_count("root") == 12
    assert long.ledger.get_plan(half.plan).state == "closed"
    long.restore(half)
    assert long.read_everything() == before


def test_next_call_restores_partial_expired_plan(
    long: Changing,
) -> None:
    half = apply_until_half(long)
    long.home.clock.now += 2 * DAY
    with pytest.raises(Conflict, match="has expired"):
        apply_again(long, half)
    edit_session(long, half)
    assert {"root", "tip"} <= long.sessions()
    assert long.home.db.message_count("root") == 12


def test_next_call_ends_plan_of_dead_process(
    long: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = apply_until_half(long)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "end_stopped_plan", raise_killed)
        with pytest.raises(_Killed):
            long.maintenance.close_plan(half.plan)
    assert half.batch not in {batche.id for batche in long.ledger.list_expired_batches(0)}
    edit_session(long, half)
    assert long.home.db.message_count("root") == 12
    assert long.ledger.get_plan(half.plan).state == "closed"


def test_closed_plan_trash_stays_until_restored(
    long: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = apply_until_half(long)
    with monkeypatch.context() as patch:
        patch.setattr(step_undo, "undo_step_for_sessions", raise_killed)
        with pytest.raises(_Killed):
            long.maintenance.close_plan(half.plan)
    assert long.ledger.get_plan(half.plan).state == "closed"
    assert half.batch not in {batche.id for batche in long.ledger.list_expired_batches(0)}
    edit_session(long, half)
    assert half.batch in {batche.id for batche in long.ledger.list_expired_batches(0)}


def test_restore_continues_after_concurrent_partial_restore(
    long: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_rows(long, "messages", "sessions")
    half = apply_until_half(long)
    usual, tries = step_undo.undo_step, 0

    def undo(self: step_undo, *args: Any) -> dict[str, Any]:
        nonlocal tries
        tries += 1
        if tries == 1:  # the restore has read what remains; here another process restores it
            long.maintenance.edit("other" if "other" in long.sessions() else "branch", pinned=True)
        return usual(self, *args)

    monkeypatch.setattr(step_undo, "undo_step", undo)
    with open_other_maintainer(long) as another:
        back = another.restore(half.batch)
    assert tries > 1
    assert (back.outcome, back.unfit) == ("applied", ())
    assert read_rows(long, "messages", "sessions") == before
