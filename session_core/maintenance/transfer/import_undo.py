"""Undo an import by a plan that removes the imported sessions if they are unchanged.

Removed sessions go to the trash, in a batch of its own. A conversation that was used since the
import stays, and so does one that is protected from a prune.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from session_core.errors import Conflict
from session_core.ledger.execute import delete_step_marks, resume_steps
from session_core.ledger.types import Batch, Step, StoredPlan
from session_core.maintenance import planner
from session_core.maintenance.apply import run
from session_core.maintenance.home_context import HomeContext
from session_core.maintenance.kinds import UNDO_IMPORT
from session_core.maintenance.members import PlanDraft
from session_core.maintenance.select import protection
from session_core.maintenance.select.conversations import Conversation
from session_core.maintenance.select.snapshot import MaintenanceSnapshot, take_snapshot
from session_core.maintenance.transfer.import_writer import (
    IMPORT_KIND,
    MARK_PREFIX,
    collect_imported,
    encode_state,
)
from session_core.maintenance.types import (
    ApplyRequest,
    ApplyResult,
    PlanPreview,
    PlanRequest,
    ProtectionReason,
    SelectedSessions,
    Selection,
)
from session_core.types import InventoryItem

_MEMBER_REASON = "imported, and not used since"
_NOTHING_LEFT_TEXT = "no session of this import exists any more"
_MAX_NAMES = 5

ImportedStates = Mapping[str, Sequence[Any]]


def is_import_batch(home: HomeContext, batch_id: str) -> bool:
    """Return True if a batch is an import.

    Raises:
        NotFound: the batch does not exist.
    """
    return home.ledger.get_batch(batch_id).what == IMPORT_KIND


def plan_undo(home: HomeContext, batch_id: str) -> PlanPreview:
    """Plan to remove the sessions of an import, or return the plan that is being applied.

    Raises:
        NotFound: the batch does not exist.
        Conflict: the import was restored already, or it has expired.
    """
    resume_steps(home.db, home.ledger, {IMPORT_KIND})
    batch = home.ledger.get_undoable_batch(batch_id)
    for plan in home.ledger.list_applied_plans(UNDO_IMPORT):
        if plan.about["undoes"] == batch.id:  # a new plan would skip the changed half
            return PlanPreview.from_plan(plan)
    imported = collect_imported(_list_open_steps(home, batch))
    snapshot = take_snapshot(home)
    present = {
        session_id: state
        for session_id, state in imported.items()
        if session_id in snapshot.conversations.sessions
    }
    if not present:
        return PlanPreview("nothing", None, None, 0, (), warnings=(_NOTHING_LEFT_TEXT,))
    selection, used = _select_members(snapshot, present)
    draft = PlanDraft(snapshot)
    draft.add_sessions("sessions", selection)
    request = PlanRequest("sessions")
    return planner.record_plan(
        home, UNDO_IMPORT, draft, request, _iter_used_warnings(used), undoes=batch.id
    )


def apply_plan(home: HomeContext, plan: StoredPlan, request: ApplyRequest) -> ApplyResult:
    """Apply a plan to undo an import.

    The import itself stores no more sessions from now on.
    """
    batch = home.ledger.get_batch(plan.about["undoes"])
    # A stopped import must not continue after its undo.
    if batch.plan is not None:
        with suppress(Conflict):  # the import has ended
            home.ledger.close_plan(batch.plan)
    result = run.apply_plan(home, plan, request)
    mark_undone_steps(home, batch.id)
    return result


def mark_undone_steps(home: HomeContext, batch_id: str) -> None:
    """Mark the steps of an import as undone if none of their sessions exists."""
    present = {session.id for session in home.db.admin.list_inventory()}
    steps = _list_open_steps(home, home.ledger.get_batch(batch_id))
    undone = [step for step in steps if present.isdisjoint(collect_imported([step]))]
    if undone:
        _delete_progress_marks(home, collect_imported(undone))
        home.ledger.mark_steps_undone(batch_id, [step.id for step in undone])


def _list_open_steps(home: HomeContext, batch: Batch) -> list[Step]:
    return [step for step in home.ledger.list_steps(batch.id) if step.undone_at is None]


def _delete_progress_marks(home: HomeContext, session_ids: ImportedStates) -> None:
    """Delete the progress marks of sessions that were imported in part."""
    keys = [
        MARK_PREFIX + session_id
        for session_id in session_ids
        if home.db.get_meta(MARK_PREFIX + session_id) is not None
    ]
    if keys:
        with home.db.transaction():
            for key in keys:
                home.db.delete_meta(key)
    delete_step_marks(home.db, home.ledger)


def _select_members(
    snapshot: MaintenanceSnapshot, imported: ImportedStates
) -> tuple[Selection[SelectedSessions], list[str]]:
    """Return the sessions to remove, and the conversations that were used since the import."""
    selected: list[SelectedSessions] = []
    protected: Counter[ProtectionReason] = Counter()
    used: list[str] = []
    conversations = {
        conversation.id: conversation
        for session_id in imported
        if (conversation := snapshot.conversations.find_conversation(session_id)) is not None
    }
    for conversation in conversations.values():
        sessions = tuple(item for item in conversation.removal_order if item.id in imported)
        reason = protection.find_protection(conversation.sessions, snapshot.activity, removed=True)
        if _is_used(conversation, sessions, imported):
            used.append(conversation.id)
            reason = "used since"
        if reason is not None:
            protected[reason] += 1
            continue
        left_behind = tuple(child.id for child in snapshot.conversations.list_left_behind(sessions))
        title = conversation.title
        selected.append(
            SelectedSessions(sessions[-1].id, title, _MEMBER_REASON, sessions, left_behind)
        )
    return Selection.from_items(selected, protected), used


def _is_used(
    conversation: Conversation, sessions: Sequence[InventoryItem], imported: ImportedStates
) -> bool:
    """Return True if a session has changed since the import, or has a new child."""
    if any(
        encode_state(session.revision, session.title, session.archived) != [*imported[session.id]]
        for session in sessions
    ):
        return True
    return any(
        session.id not in imported and session.parent_id in imported
        for session in conversation.sessions
    )


def _iter_used_warnings(used: Sequence[str]) -> Iterator[str]:
    if used:
        ellipsis = ", ..." if used[_MAX_NAMES:] else ""
        names = ", ".join(used[:_MAX_NAMES])
        yield f"{len(used)} conversations were used since the import and stay: {names}{ellipsis}"
