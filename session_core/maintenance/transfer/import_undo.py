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
from session_core.ledger.execute import clear_marks, resume_steps
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import Batch, Step
from session_core.maintenance.apply.runner import PlanRunner
from session_core.maintenance.planner import PlanDraft, Planner
from session_core.maintenance.select import protection
from session_core.maintenance.select.conversations import Conversation
from session_core.maintenance.select.snapshot import MaintenanceSnapshot
from session_core.maintenance.transfer.store import (
    IMPORT_KIND,
    MARK_PREFIX,
    collect_imported,
    encode_state,
)
from session_core.maintenance.types import (
    ApplyResult,
    PlanPreview,
    PlanRequest,
    ProgressFn,
    ProtectionReason,
    SelectedSessions,
    Selection,
    StopFn,
)
from session_core.state.protocol import StateDatabase
from session_core.types import InventoryItem

_MEMBER_REASON = "imported, and not used since"
_NOTHING_LEFT_TEXT = "no session of this import exists any more"
_MAX_NAMES = 5

ImportedStates = Mapping[str, Sequence[Any]]


class ImportUndo:
    """Undoes imports of one home."""

    KIND = "undo an import"
    """The kind of plans that this class applies."""

    def __init__(
        self, db: StateDatabase, ledger: Ledger, planner: Planner, runner: PlanRunner
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._planner = planner
        self._runner = runner

    def is_import(self, batch_id: str) -> bool:
        """Return True if a batch is an import.

        Raises:
            NotFound: the batch does not exist.
        """
        return self._ledger.get_batch(batch_id).what == IMPORT_KIND

    def plan_undo(self, batch_id: str) -> PlanPreview:
        """Plan to remove the sessions of an import, or return the plan that is being applied.

        Raises:
            NotFound: the batch does not exist.
            Conflict: the import was restored already, or it has expired.
        """
        resume_steps(self._db, self._ledger, {IMPORT_KIND})
        batch = self._ledger.get_undoable_batch(batch_id)
        for plan in self._ledger.list_applied_plans(self.KIND):
            if plan.about["undoes"] == batch.id:  # a new plan would skip the changed half
                return PlanPreview.from_plan(plan)
        imported = collect_imported(self._list_open_steps(batch))
        snapshot = self._planner.take_snapshot()
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
        return self._planner.record_plan(
            self.KIND, draft, request, _iter_used_warnings(used), undoes=batch.id
        )

    def apply_undo(
        self, plan: str, for_s: float, progress: ProgressFn | None, stop: StopFn | None
    ) -> ApplyResult:
        """Apply a plan to undo an import; the import itself stores no more sessions from now on."""
        batch = self._ledger.get_batch(self._ledger.get_plan(plan).about["undoes"])
        # A stopped import must not continue after its undo.
        if batch.plan is not None:
            with suppress(Conflict):  # the import has ended
                self._ledger.close_plan(batch.plan)
        result = self._runner.apply_plan(plan, for_s, progress, stop)
        self.note_undone_steps(batch.id)
        return result

    def note_undone_steps(self, batch_id: str) -> None:
        """Mark the steps of an import as undone if none of their sessions exists."""
        present = {session.id for session in self._db.admin.list_inventory()}
        steps = self._list_open_steps(self._ledger.get_batch(batch_id))
        undone = [step for step in steps if present.isdisjoint(collect_imported([step]))]
        if undone:
            self._delete_marks(collect_imported(undone))
            self._ledger.mark_steps_undone(batch_id, [step.id for step in undone])

    def _list_open_steps(self, batch: Batch) -> list[Step]:
        return [step for step in self._ledger.list_steps(batch.id) if step.undone_at is None]

    def _delete_marks(self, session_ids: ImportedStates) -> None:
        """Delete the progress marks of sessions that were imported in part."""
        keys = [
            MARK_PREFIX + session_id
            for session_id in session_ids
            if self._db.get_meta(MARK_PREFIX + session_id) is not None
        ]
        if keys:
            with self._db.transaction():
                for key in keys:
                    self._db.delete_meta(key)
        clear_marks(self._db, self._ledger)


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
