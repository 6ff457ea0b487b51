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
from session_core.ledger.execute import clear_marks, resume
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import Batch, Step
from session_core.maintenance.apply.runner import Runner
from session_core.maintenance.planner import Draft, Planner
from session_core.maintenance.select import protection
from session_core.maintenance.select.conversations import Conversation
from session_core.maintenance.select.snapshot import Scene
from session_core.maintenance.transfer.store import IMPORT, MARK, brought_by, state_of
from session_core.maintenance.types import (
    Applied,
    Chosen,
    Preview,
    ProgressFn,
    Selection,
    StopFn,
    Wanted,
    Why,
)
from session_core.state.protocol import StateDatabase
from session_core.types import Stock

_WHY = "imported, and not used since"
_GONE = "nothing that this import brought is here any more"
_MOST_NAMES = 5

Brought = Mapping[str, Sequence[Any]]


class ImportUndo:
    """Takes imports of one home back."""

    KIND = "undo an import"
    """The plans that are applied here."""

    def __init__(self, db: StateDatabase, ledger: Ledger, planner: Planner, runner: Runner) -> None:
        self._db = db
        self._ledger = ledger
        self._planner = planner
        self._runner = runner

    def has(self, batch_id: str) -> bool:
        """Return whether a batch is one of an import.

        Raises:
            NotFound: there is no such batch.
        """
        return self._ledger.batch(batch_id).what == IMPORT

    def plan(self, batch_id: str) -> Preview:
        """Record what taking an import back would remove, or return the plan that has begun to.

        Raises:
            NotFound: there is no such batch.
            Conflict: it was taken back already, or it has expired.
        """
        resume(self._db, self._ledger, {IMPORT})
        batch = self._ledger.undoable(batch_id)
        for begun in self._ledger.applied(self.KIND):
            if begun.about["undoes"] == batch.id:  # another plan would find half of it changed
                return Preview.of(begun)
        brought = brought_by(self._left(batch))
        scene = self._planner.scene()
        there = {
            each: state for each, state in brought.items() if each in scene.conversations.stocks
        }
        if not there:
            return Preview("nothing", None, None, 0, (), warnings=(_GONE,))
        selection, used = _choose(scene, there)
        draft = Draft(scene)
        draft.add("sessions", selection)
        wanted = Wanted("sessions")
        return self._planner.record(self.KIND, draft, wanted, _named(used), undoes=batch.id)

    def apply(
        self, plan: str, for_s: float, progress: ProgressFn | None, stop: StopFn | None
    ) -> Applied:
        """Remove what was planned; the import itself brings no more from now on."""
        batch = self._ledger.batch(self._ledger.plan(plan).about["undoes"])
        if batch.plan is not None:
            with suppress(Conflict):  # it has ended
                self._ledger.close_plan(batch.plan)
        done = self._runner.apply(plan, for_s, progress, stop)
        self.note(batch.id)
        return done

    def note(self, batch_id: str) -> None:
        """Note which steps of an import are undone: nothing is left of what they brought."""
        there = {stock.id for stock in self._db.inventory()}
        steps = self._left(self._ledger.batch(batch_id))
        gone = [step for step in steps if there.isdisjoint(brought_by([step]))]
        if gone:
            self._forget(brought_by(gone))
            self._ledger.note_undone(batch_id, [step.id for step in gone])

    def _left(self, batch: Batch) -> list[Step]:
        return [step for step in self._ledger.steps(batch.id) if step.undone_at is None]

    def _forget(self, session_ids: Brought) -> None:
        """Delete the notes of how far sessions were imported that were never imported whole."""
        begun = [MARK + each for each in session_ids if self._db.get_meta(MARK + each) is not None]
        if begun:
            with self._db.transaction():
                for key in begun:
                    self._db.delete_meta(key)
        clear_marks(self._db, self._ledger)


def _choose(scene: Scene, brought: Brought) -> tuple[Selection[Chosen], list[str]]:
    """Return what goes, and the conversations that were used since."""
    chosen: list[Chosen] = []
    protected: Counter[Why] = Counter()
    used: list[str] = []
    conversations = {
        conversation.id: conversation
        for each in brought
        if (conversation := scene.conversations.of(each)) is not None
    }
    for conversation in conversations.values():
        sessions = tuple(each for each in conversation.removal if each.id in brought)
        why = protection.of_sessions(conversation.sessions, scene.alive, removed=True)
        if _is_used(conversation, sessions, brought):
            used.append(conversation.id)
            why = "used since"
        if why is not None:
            protected[why] += 1
            continue
        left_behind = tuple(each.id for each in scene.conversations.left_behind(sessions))
        title = conversation.title
        chosen.append(Chosen(sessions[-1].id, title, _WHY, sessions, left_behind))
    return Selection.of(chosen, protected), used


def _is_used(conversation: Conversation, sessions: Sequence[Stock], brought: Brought) -> bool:
    """Return whether a session is not as the import left it, or another one came from it."""
    if any(
        state_of(each.revision, each.title, each.archived) != [*brought[each.id]]
        for each in sessions
    ):
        return True
    return any(
        each.id not in brought and each.parent_id in brought for each in conversation.sessions
    )


def _named(used: Sequence[str]) -> Iterator[str]:
    if used:
        more = ", ..." if used[_MOST_NAMES:] else ""
        names = ", ".join(used[:_MOST_NAMES])
        yield f"{len(used)} conversations were used since the import and stay: {names}{more}"
