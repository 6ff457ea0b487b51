"""Finish the work that a crash has left: steps, stopped plans and partly removed members.

A step's follow-up work after its commit (hooks, files, routes) is repeated here. Every change of a
home begins with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from session_core.errors import Conflict, Corrupt
from session_core.ledger.execute import resume_steps, suppress_note_errors, wait_for_steps
from session_core.ledger.types import PartialMember, Step, StoredPlan
from session_core.maintenance.apply import home_files, results, route_removal, session_finalizer
from session_core.maintenance.home_context import HomeContext
from session_core.maintenance.members import PlanProgress, get_session_ids
from session_core.maintenance.restore import step_undo
from session_core.maintenance.restore.unrestored_items import UnrestoredItems
from session_core.maintenance.transfer.import_writer import IMPORT_KIND
from session_core.maintenance.types import ApplyResult

STOPPED_REASON = "its plan was stopped half-way"

RESTORED_SUFFIX = "; its removed part was restored"


def recover_from_crash(home: HomeContext, except_plan: str | None = None) -> None:
    """Finish the work that a crash has left, except restores of `except_plan`."""
    settle_steps(home)
    # Ending a plan records its partial members, which are restored below.
    for plan in home.ledger.list_stopped_plans():
        if "wanted" not in plan.about and plan.kind != IMPORT_KIND:
            continue  # other components apply that kind of plan
        with suppress_note_errors(f"the end of plan {plan.handle}"), suppress(Conflict):
            _end_stopped_plan(home, plan)
    for partial_member in home.ledger.list_partial_members():
        if partial_member.plan != except_plan:
            with (
                suppress_note_errors(f"the restore of {partial_member.member.id}"),
                suppress(Conflict),
            ):
                for _ in restore_member(home, partial_member):
                    pass  # a conflict means that another process restores it


def settle_steps(home: HomeContext) -> None:
    """Settle the steps that a crash has left, and run their follow-up work."""
    if home.store is not None:
        with suppress_note_errors("the delivery of pending hook calls"):
            home.store.deliver_pending_hooks()
    # Steps of dead processes alone: a living one does its own follow-up work.
    for step in resume_steps(home.db, home.ledger):
        finish_step(home, step)
        for end in (step.result or {}).get("ended", ()):
            hooks_called = end.get("told") in {True, session_finalizer.CALLED_BY_STORE}
            if not session_finalizer.reset_deferred_chats(home.store, end) and not hooks_called:
                session_finalizer.call_end_hooks(home.hooks, home.store, end)
        log_progress(home, home.ledger.get_batch(step.batch).plan)


def finish_step(home: HomeContext, step: Step) -> None:
    """Do the work of a step that follows its commit, unless it was done already."""
    if not isinstance(step.result, dict) or step.undone_at is not None:
        return
    if home.store is not None and step.result.get("routes"):
        route_removal.finish_removal(home.store, step.result)
    if home.db.folder is not None:
        home_files.finish_deletions(home.ledger, step, home.db.folder, home.session_folder)


def stop_plan(home: HomeContext, handle: str) -> None:
    """Stop a plan.

    `recover_from_crash` restores the members that it has removed in part.

    Raises:
        Conflict: the plan has ended already.
    """
    home.ledger.stop_plan(handle)
    _end_stopped_plan(home, home.ledger.get_plan(handle))


def _end_stopped_plan(home: HomeContext, plan: StoredPlan) -> None:
    """End a plan that begins no more steps, and record its partly removed members."""
    if plan.state == "closed" or plan.batch is None:
        return
    if plan.state == "applying":  # and has expired
        home.ledger.stop_plan(plan.handle)
    wait_for_steps(home.ledger, plan.batch, partial(settle_steps, home))
    progress = PlanProgress()
    for step in home.ledger.list_steps(plan.batch):
        progress.add_result(step.result if isinstance(step.result, dict) else {})
    # The steps that this call has waited for may have decided members.
    remaining = home.ledger.get_plan(plan.handle).remaining
    partial_ids = [member.id for member in remaining if progress.has_begun(member)]
    home.ledger.end_stopped_plan(plan.handle, partial_ids, STOPPED_REASON)


def restore_member(home: HomeContext, member: PartialMember) -> Iterator[None]:
    """Restore a partly removed member, its newest removal step first, and yield after each change.

    Raises:
        Conflict: another process is restoring it.
    """
    ids = get_session_ids(member.member)
    # A step that is under way may still remove more of it.
    wait_for_steps(home.ledger, member.batch, partial(settle_steps, home))
    refused = 0
    removals = [step for step in home.ledger.list_steps(member.batch) if _has_removed(step, ids)]
    batch = home.ledger.add_batch(step_undo.RESTORE_KIND).id if removals else ""
    for step in reversed(removals):
        tried = UnrestoredItems.from_result(home.ledger.get_last_attempt(step.id))
        try:
            result = step_undo.undo_step_for_sessions(home, batch, step, ids)
        except Corrupt:
            refused += 1
            continue
        if result is None:
            continue
        refused += len(result["unfit"])
        # A call may end here, and the next call begins again: without progress it would not end.
        if UnrestoredItems.from_result(result) != tried:
            yield
    note = f" except items that do not fit: restore {member.batch} lists them" if refused else ""
    home.ledger.finish_partial(member.plan, member.member.id, RESTORED_SUFFIX + note)


def _has_removed(step: Step, ids: frozenset[str]) -> bool:
    """Return True if a step has removed rows of these sessions and is not undone."""
    result = step.result or {}
    return step.undone_at is None and not ids.isdisjoint(
        {*result.get("after", ()), *result.get("sessions", ())}
    )


def log_progress(home: HomeContext, handle: str | None, client: str | None = None) -> None:
    """Record the present counts of a plan in the audit log, which a crash may have left out."""
    with (
        suppress_note_errors(f"the progress of plan {handle}"),
        suppress(Conflict),
    ):  # the plan has expired
        plan = None if handle is None else home.ledger.get_plan(handle)
        if plan is None or plan.state == "finished" or "wanted" not in plan.about:
            return
        result = results.build_result(home, plan)
        # Without a step that was done, the entry that the plan was begun stays.
        if result.skipped or (plan.batch is not None and home.ledger.list_steps(plan.batch)):
            add_audit_entry(home, client, plan, result)


def add_audit_entry(
    home: HomeContext, client: str | None, plan: StoredPlan, result: ApplyResult
) -> None:
    """Record the counts of a plan in the audit log, replacing an earlier entry of the plan."""
    action = plan.kind if result.outcome == "applied" else f"{plan.kind}, in part"
    counts = {"removed": result.removed, "finalized": result.finalized}
    counts |= {"skipped": len(result.skipped), "remaining": result.remaining}
    home.ledger.add_audit_entry(client, action, plan.handle, counts)
