"""The undo of an import: a plan that removes what came in and is still as it came.

What it removes goes to the trash, with a batch of its own. A conversation that was used since the
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
_NOTHING_LEFT_TEXT = "nothing that this import brought is here any more"
_MAX_NAMES = 5

ImportedStates = Mapping[str, Sequence[Any]]


class ImportUndo:
    """Takes imports of one home back."""

    KIND = "undo an import"
    """The plans that are applied here."""

    def __init__(
        self, db: StateDatabase, ledger: Ledger, planner: Planner, runner: PlanRunner
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._planner = planner
        self._runner = runner

    def is_import(self, batch_id: str) -> bool:
        """Return whether a batch is one of an import.

        Raises:
            NotFound: there is no such batch.
        """
        return self._ledger.get_batch(batch_id).what == IMPORT_KIND

    def plan_undo(self, batch_id: str) -> PlanPreview:
        """Record what taking an import back would remove, or return the plan that has begun to.

        Raises:
            NotFound: there is no such batch.
            Conflict: it was taken back already, or it has expired.
        """
        resume_steps(self._db, self._ledger, {IMPORT_KIND})
        batch = self._ledger.get_undoable_batch(batch_id)
        for begun in self._ledger.list_applied_plans(self.KIND):
            if begun.about["undoes"] == batch.id:  # another plan would find half of it changed
                return PlanPreview.from_plan(begun)
        brought = collect_imported(self._list_open_steps(batch))
        scene = self._planner.take_snapshot()
        there = {
            each: state for each, state in brought.items() if each in scene.conversations.stocks
        }
        if not there:
            return PlanPreview("nothing", None, None, 0, (), warnings=(_NOTHING_LEFT_TEXT,))
        selection, used = _select_members(scene, there)
        draft = PlanDraft(scene)
        draft.add_sessions("sessions", selection)
        wanted = PlanRequest("sessions")
        return self._planner.record_plan(
            self.KIND, draft, wanted, _iter_used_warnings(used), undoes=batch.id
        )

    def apply_undo(
        self, plan: str, for_s: float, progress: ProgressFn | None, stop: StopFn | None
    ) -> ApplyResult:
        """Remove what was planned; the import itself brings no more from now on."""
        batch = self._ledger.get_batch(self._ledger.get_plan(plan).about["undoes"])
        if batch.plan is not None:
            with suppress(Conflict):  # it has ended
                self._ledger.close_plan(batch.plan)
        done = self._runner.apply_plan(plan, for_s, progress, stop)
        self.note_undone_steps(batch.id)
        return done

    def note_undone_steps(self, batch_id: str) -> None:
        """Note which steps of an import are undone: nothing is left of what they brought."""
        there = {stock.id for stock in self._db.list_inventory()}
        steps = self._list_open_steps(self._ledger.get_batch(batch_id))
        gone = [step for step in steps if there.isdisjoint(collect_imported([step]))]
        if gone:
            self._delete_marks(collect_imported(gone))
            self._ledger.mark_steps_undone(batch_id, [step.id for step in gone])

    def _list_open_steps(self, batch: Batch) -> list[Step]:
        return [step for step in self._ledger.list_steps(batch.id) if step.undone_at is None]

    def _delete_marks(self, session_ids: ImportedStates) -> None:
        """Delete the notes of how far sessions were imported that were never imported whole."""
        begun = [
            MARK_PREFIX + each
            for each in session_ids
            if self._db.get_meta(MARK_PREFIX + each) is not None
        ]
        if begun:
            with self._db.transaction():
                for key in begun:
                    self._db.delete_meta(key)
        clear_marks(self._db, self._ledger)


def _select_members(
    scene: MaintenanceSnapshot, brought: ImportedStates
) -> tuple[Selection[SelectedSessions], list[str]]:
    """Return what goes, and the conversations that were used since."""
    chosen: list[SelectedSessions] = []
    protected: Counter[ProtectionReason] = Counter()
    used: list[str] = []
    conversations = {
        conversation.id: conversation
        for each in brought
        if (conversation := scene.conversations.find_conversation(each)) is not None
    }
    for conversation in conversations.values():
        sessions = tuple(each for each in conversation.removal_order if each.id in brought)
        why = protection.find_protection(conversation.sessions, scene.alive, removed=True)
        if _is_used(conversation, sessions, brought):
            used.append(conversation.id)
            why = "used since"
        if why is not None:
            protected[why] += 1
            continue
        left_behind = tuple(each.id for each in scene.conversations.list_left_behind(sessions))
        title = conversation.title
        chosen.append(
            SelectedSessions(sessions[-1].id, title, _MEMBER_REASON, sessions, left_behind)
        )
    return Selection.from_items(chosen, protected), used


def _is_used(
    conversation: Conversation, sessions: Sequence[InventoryItem], brought: ImportedStates
) -> bool:
    """Return whether a session is not as the import left it, or another one came from it."""
    if any(
        encode_state(each.revision, each.title, each.archived) != [*brought[each.id]]
        for each in sessions
    ):
        return True
    return any(
        each.id not in brought and each.parent_id in brought for each in conversation.sessions
    )


def _iter_used_warnings(used: Sequence[str]) -> Iterator[str]:
    if used:
        more = ", ..." if used[_MAX_NAMES:] else ""
        names = ", ".join(used[:_MAX_NAMES])
        yield f"{len(used)} conversations were used since the import and stay: {names}{more}"
