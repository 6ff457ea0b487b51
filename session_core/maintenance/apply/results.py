"""Compute the results of plans: the removed, ended, skipped and remaining members."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from session_core.ledger.execute import suppress_note_errors
from session_core.ledger.types import Member, StoredPlan
from session_core.maintenance import disk, kinds, members, space_reclaim
from session_core.maintenance.apply import home_files
from session_core.maintenance.home_context import HomeContext
from session_core.maintenance.planner import PLUGINS_WARNING
from session_core.maintenance.types import ApplyResult, SkippedItem

NOT_RESET_WARNING = "could not start a new session; it does with its next message"

VACUUM_KEY = "room"
"""The key in a step's result with the outcome of the vacuum."""

_NOT_REMOVED_REASON = "it could not be removed, or was used just then"


def build_result(home: HomeContext, plan: StoredPlan) -> ApplyResult:
    """Return the result of a plan so far."""
    skipped = [
        SkippedItem(members.get_name(member), member.skipped)
        for member in plan.members
        if member.skipped is not None and not member.half
    ]
    unfinished = _find_unfinished_steps(home, plan)
    finished = [
        member
        for member in plan.members
        if member.step not in {None, *unfinished} and members.get_part(member) != "index"
    ]
    # Routes and files go after the commit, so a finished step does not prove that they are gone.
    still_present = [member for member in finished if _is_still_present(home, member)]
    skipped += [
        SkippedItem(members.get_name(member), _NOT_REMOVED_REASON) for member in still_present
    ]
    ended = sum(kinds.PLAN_PARTS[members.get_part(member)].ends_sessions for member in finished)
    warnings = (
        [PLUGINS_WARNING] if ended and home.db.admin.get_capabilities().foreign_gateway else []
    )
    if plan.about["wanted"]["start_new"]:
        warnings += [
            f"{key} {NOT_RESET_WARNING}"
            for member in finished
            for key in _list_chats_not_reset(home, member)
        ]
    warnings += _list_file_warnings(home, plan)
    in_progress = sum(member.step in unfinished for member in plan.members)
    remaining = len(plan.remaining) + len(plan.partial_members) + in_progress
    vacuumed = _get_vacuum_result(home, plan)
    if vacuumed is not None and vacuumed["in_the_way"] is not None:
        warnings.append(vacuumed["in_the_way"])
    return ApplyResult(
        outcome="partial" if remaining else "applied",
        plan=plan.handle,
        batch=plan.batch,
        removed=len(finished) - ended - len(still_present),
        finalized=ended,
        skipped=tuple(skipped),
        remaining=remaining,
        warnings=tuple(warnings),
    )


def add_measured_bytes(home: HomeContext, plan: StoredPlan, result: ApplyResult) -> ApplyResult:
    """Return a result with the sizes measured since the plan was begun."""
    with suppress_note_errors("the measured disk space"):
        sizes = home.db.admin.measure_sizes(tables=False)
        size = disk.measure_size_change(plan.about.get(disk.BEFORE_KEY, {}), sizes)
        returned = size.returned_to_disk + _sum_deleted_file_bytes(home, plan)
        trash = home.ledger.get_batch(plan.batch_id).bytes
        size = replace(size, returned_to_disk=returned, trash=trash)
        can_shrink = space_reclaim.find_rewrite_obstacle(home.gather_activity().company) is None
        shrinks = disk.is_worth_freeing(
            disk.estimate_freeable_bytes(sizes, shrinks=can_shrink), sizes
        )
        return replace(result, bytes=size, shrinks=shrinks and result.removed > 0)
    return result


def _find_unfinished_steps(home: HomeContext, plan: StoredPlan) -> set[str]:
    """Return the steps that another process has started but not finished, and may still abort."""
    return {
        step.id
        for step in home.ledger.list_unsettled_steps()
        if step.batch == plan.batch and step.state in ("writing", "prepared")
    }


def _list_file_warnings(home: HomeContext, plan: StoredPlan) -> list[str]:
    """Return warnings about files of removed sessions that still exist."""
    folder = home.session_folder
    if folder is None:
        return []
    skipped = (member for member in plan.members if member.skipped is not None)
    ids = {session_id for member in skipped for session_id in members.get_session_ids(member)}
    steps = home.ledger.list_steps(plan.batch_id)
    return home_files.list_file_warnings(steps, folder, exempt=ids)


def _sum_deleted_file_bytes(home: HomeContext, plan: StoredPlan) -> int:
    """Return the size of the deleted files that the plan lists."""
    file_members = [member for member in plan.members if members.get_part(member) == "files"]
    if not file_members:
        return 0
    unfinished = _find_unfinished_steps(home, plan)
    return sum(
        member.revision["bytes"]
        for member in file_members
        if member.step not in {None, *unfinished} and not _is_still_present(home, member)
    )


def _get_vacuum_result(home: HomeContext, plan: StoredPlan) -> dict[str, Any] | None:
    """Return the outcome of the vacuum if the plan has run one."""
    step = next((m.step for m in plan.members if members.get_part(m) == "index"), None)
    result = None if step is None else home.ledger.get_step(step).result
    return None if result is None else dict(result[VACUUM_KEY])


def _list_chats_not_reset(home: HomeContext, member: Member) -> list[str]:
    """Return the chats that are still routed to the finalized sessions."""
    store = home.store
    if store is None or not kinds.PLAN_PARTS[members.get_part(member)].ends_sessions:
        return []
    session_by_chat: dict[str, str] = member.revision["routes"]
    return [
        key
        for key, session_id in session_by_chat.items()
        if store.peek_session_id(key) == session_id
    ]


def _is_still_present(home: HomeContext, member: Member) -> bool:
    """Return True if a route or a file still exists although it was to be removed."""
    part, record = members.get_part(member), member.revision
    if part == "files":
        folder = home.session_folder
        return folder is not None and (folder / members.get_name(member)).exists()
    if part != "routes" or home.store is None or record["scope"]:
        return False
    session_id = home.store.peek_session_id(record["key"])
    return session_id is not None and session_id == record["session"]
