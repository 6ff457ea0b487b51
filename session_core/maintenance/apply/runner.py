"""Apply plans step by step within a time limit, and continue them in later calls."""

from __future__ import annotations

import time
from contextlib import closing, suppress
from dataclasses import asdict, replace
from functools import partial

from session_core.errors import Conflict
from session_core.ledger.execute import (
    clear_marks,
    run_step,
    suppress_note_errors,
    wait_for_steps,
)
from session_core.ledger.types import StoredPlan
from session_core.maintenance import disk, members, vacuum
from session_core.maintenance.apply import finalize, recovery, results, routes
from session_core.maintenance.apply.run import PlanRun
from session_core.maintenance.context import HomeContext
from session_core.maintenance.types import ApplyRequest, ApplyResult

_PROGRESS_INTERVAL_S = 0.5
"""The interval of progress reports."""


def apply_plan(home: HomeContext, plan: StoredPlan, request: ApplyRequest) -> ApplyResult:
    """Apply a plan, or continue it.

    The members and the state of `plan` may be old: what is applied is read again when it begins.
    """
    deadline = time.monotonic() + request.for_s
    # The run itself restores the partial members of its own plan.
    recovery.recover_from_crash(home, except_plan=plan.handle)
    if plan.state == "finished":
        return ApplyResult.from_json(plan.result)
    # Before the plan begins, so that a refused call leaves it as it is.
    _require_no_gateway(home, plan)
    was_planned = plan.state == "planned"
    plan = disk.begin_plan(home.ledger, plan, lambda: disk.measure_files(home.db))
    if was_planned:
        with suppress_note_errors(f"that plan {plan.handle} is begun"):
            home.ledger.add_audit_entry(request.client, f"{plan.kind}, begun", plan.handle, {})
    try:
        if not was_planned:
            # A killed run may have committed a step and not deleted its files or routes.
            for step in home.ledger.list_steps(plan.batch_id):
                recovery.finish_step(home, step)
        return _run_steps(home, plan, request, deadline)
    except BaseException:
        recovery.log_progress(home, plan.handle, request.client)
        raise


def _run_steps(
    home: HomeContext, plan: StoredPlan, request: ApplyRequest, deadline: float
) -> ApplyResult:
    reported_at = time.monotonic()
    with closing(PlanRun(home, plan)) as run:
        # At least one step runs, however short the time is.
        while not (done := run.is_done(wait=True)):
            run.run_next_step()
            if time.monotonic() >= deadline or (request.stop is not None and request.stop()):
                break
            if (
                request.progress is not None
                and time.monotonic() - reported_at > _PROGRESS_INTERVAL_S
            ):
                request.progress(results.build_result(home, _reload_members(home, plan)))
                reported_at = time.monotonic()
        done = done or run.is_done(wait=False)
    # Last, since the other parts free the pages that it returns.
    if done and any(members.get_part(member) == "index" for member in plan.members):
        _reclaim_space(home, plan, request, deadline)
    return _finish_run(home, plan, request)


def _reload_members(home: HomeContext, plan: StoredPlan) -> StoredPlan:
    """Return a plan with the outcome of its members so far."""
    return replace(plan, members=home.ledger.list_members(plan.handle))


def _reclaim_space(
    home: HomeContext, plan: StoredPlan, request: ApplyRequest, deadline: float
) -> None:
    """Merge the index and rewrite the file: a step without trash."""
    plan = _reload_members(home, plan)
    index_members = members.list_remaining_members(plan, "index")
    if index_members:
        so_far = results.build_result(home, plan)
        report = None if request.progress is None else partial(request.progress, so_far)
        outcome = vacuum.reclaim_space(home.db, home.clock(), deadline, request.stop, report)
        if outcome is not None:
            with suppress(Conflict):  # another process applies the plan and has recorded it
                run_step(
                    home.db,
                    home.ledger,
                    plan.batch_id,
                    before=lambda _: (),
                    change=lambda _: {results.VACUUM_KEY: asdict(outcome)},
                    members=[index_members[0].id],
                )
    # Another process may have claimed the member and not recorded the result yet.
    wait_for_steps(home.ledger, plan.batch_id, partial(recovery.settle_steps, home))


def _require_no_gateway(home: HomeContext, plan: StoredPlan) -> None:
    """Refuse route changes that a running gateway would overwrite.

    Raises:
        Denied: a gateway is running.
    """
    starts_new = plan.about["wanted"]["start_new"]
    parts = {members.get_part(member) for member in plan.remaining}
    if "routes" in parts or (starts_new and "ended" in parts):
        routes.require_no_gateway(home.gather_activity())


def _finish_run(home: HomeContext, plan: StoredPlan, request: ApplyRequest) -> ApplyResult:
    """Return the result, and end the plan if no member remains."""
    clear_marks(home.db, home.ledger)
    plan = _reload_members(home, plan)
    # A killed run may have left chats whose routes are in a file.
    if plan.about["wanted"]["start_new"] and not home.db.routes.is_available:
        for step in home.ledger.list_steps(plan.batch_id):
            for end in (step.result or {}).get("ended", ()):
                finalize.reset_deferred_chats(home.store, end)
    result = results.add_measured_bytes(home, plan, results.build_result(home, plan))
    with suppress_note_errors(f"what plan {plan.handle} came to"):
        if result.outcome == "applied":
            try:
                home.ledger.finish_plan(plan.handle, result.to_json())
            except Conflict:  # another process has ended it
                ended = home.ledger.get_plan(plan.handle)
                if ended.state == "finished":
                    return ApplyResult.from_json(ended.result)
        recovery.add_audit_entry(home, request.client, plan, result)
    return result
