"""Takes one step back, all of it or what belongs to some sessions.

A row is put where there is none of its key, and what was only changed is changed back where it is
still as it was left. Whatever does not fit is said and stays in the trash, and the step stays open.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from session_core.activity import ActivitySnapshot
from session_core.errors import Changed
from session_core.hooks import Hooks
from session_core.ledger.execute import run_step
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import Step
from session_core.maintenance.apply import files, preconditions, routes
from session_core.maintenance.apply.orphans import UNLINKED_KEY
from session_core.maintenance.health import get_session_folder
from session_core.maintenance.members import MemberOutdated, RowChange
from session_core.maintenance.restore.remainder import Remainder
from session_core.maintenance.restore.rows import SESSIONS, RefusedPairs, RowRestorer, TrashContents
from session_core.maintenance.types import ProtectionReason
from session_core.routing.store import SessionStore
from session_core.state.protocol import StateDatabase
from session_core.types import Revision

_PIN_REASONS: tuple[ProtectionReason, ...] = ("pinned",)


@dataclass(frozen=True, slots=True)
class _StepUndo:
    """One step that is taken back."""

    step: Step
    tried: Remainder | None
    contents: TrashContents
    others: Remainder | None = None
    """What is left in the trash since it belongs to sessions that were not asked for."""
    left: Remainder = field(default_factory=Remainder)
    """What does not fit."""

    @property
    def result(self) -> Mapping[str, Any]:
        """What the step had come to."""
        return self.step.result or {}


class StepUndoer:
    """Takes steps of one home back."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        store: SessionStore | None,
        hooks: Hooks,
        gather: Callable[[], ActivitySnapshot],
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._store = store
        self._hooks = hooks
        self._gather = gather

    def read_contents(self, step: Step, tried: Remainder | None) -> TrashContents:
        """Return what a step has kept, or what of it an earlier try has left.

        Raises:
            Corrupt: it is damaged.
        """
        return TrashContents.from_trash(self._ledger.read_trash(step.id), tried)

    def undo_step(
        self, batch: str, step: Step, tried: Remainder | None, contents: TrashContents
    ) -> dict[str, Any]:
        """Take a step back as one of a batch."""
        return self._run_undo(batch, _StepUndo(step, tried, contents))

    def undo_part(self, batch: str, step: Step, ids: Collection[str]) -> dict[str, Any] | None:
        """Take back what a step has done to some sessions; return None where nothing is left.

        Raises:
            Changed: somebody else does that just now.
        """
        tried = Remainder.from_result(self._ledger.get_last_attempt(step.id))
        contents = TrashContents.from_trash(self._ledger.read_trash(step.id), tried)
        theirs, others = contents.split_by_sessions(ids)
        if theirs == Remainder():
            return None
        contents = TrashContents.from_trash(self._ledger.read_trash(step.id), theirs)
        return self._run_undo(batch, _StepUndo(step, tried, contents, others))

    def _run_undo(self, batch: str, undo: _StepUndo) -> dict[str, Any]:
        there = self._gather() if undo.contents.list_sessions_to_end() else None
        result = run_step(
            self._db,
            self._ledger,
            batch,
            before=lambda _: (),
            change=partial(self._restore_contents, undo, there),
            undoes=undo.step.id,
            within=partial(self._wrap_step, undo),
        )
        return dict(result)

    @contextmanager
    def _wrap_step(self, undo: _StepUndo) -> Iterator[None]:
        """Files are put back before, and what is beside the home behind it."""
        contents = undo.contents
        if Remainder.from_result(self._ledger.get_last_attempt(undo.step.id)) != undo.tried:
            raise Changed("somebody else has just put a part of that back; try again")
        if contents.files:
            contents.lost += self._restore_files(undo)
        self._restore_pins(
            contents
        )  # a restore that is cut short here is made again, not one behind it
        with ExitStack() as stack:
            if undo.result.get(UNLINKED_KEY):
                stack.enter_context(self._db.transaction(linked=False))
            elif contents.routes and self._store is not None:
                stack.enter_context(
                    self._store.transaction(*routes.list_route_keys(contents.routes))
                )
            yield
        self._call_hooks(undo)

    def _call_hooks(self, undo: _StepUndo) -> None:
        """Let the hooks know of sessions that go on."""
        changes, left = undo.contents.changes, undo.left.changes
        begun = {each.key.get("id") for place, each in changes.items() if place not in left}
        for end in undo.result.get("ended", ()):
            if end["session_id"] in begun:
                self._hooks.mark_reopened(end["session_id"])
                if self._store is not None and self._db.kind == "hermes":
                    self._store.marks.forget(end["session_id"])

    def _restore_contents(
        self, undo: _StepUndo, there: ActivitySnapshot | None, db: StateDatabase
    ) -> dict[str, Any]:
        contents, left = undo.contents, undo.left
        unfit = [(f"the file {name}", "another one has its name by now") for name in contents.lost]
        left.files += contents.lost
        rows = RowRestorer(
            db, contents, left, unfit, self._ledger.find_batch_of_session
        ).restore_rows()
        for place, change in reversed(contents.changes.items()):
            why = self._restore_columns(db, undo, change, there)
            if why is not None:
                what = f"{', '.join(change.after)} of {change.name} in {change.table}"
                unfit.append((what, why))
                left.changes[place] = change.name
        self._restore_routes(db, undo, unfit)
        kept = left if undo.others is None else left.merge_untried(undo.others)
        return {"rows": rows, "unfit": unfit, "left": kept.to_json()}

    def _restore_columns(
        self, db: StateDatabase, undo: _StepUndo, change: RowChange, there: ActivitySnapshot | None
    ) -> str | None:
        """Change columns back; say why not where they were changed since."""
        session_id = change.key.get("id")
        ends = change.table == SESSIONS and change.before.get("ended_at") is not None
        if there is not None and ends and change.after.get("ended_at", 0) is None:
            why = self._find_reason_open(db, str(session_id), undo, there)
            if why is not None:
                return why
        try:
            change.reverse().write_row(db)
        except Changed:
            return "it was changed again since"
        return None

    def _restore_routes(self, db: StateDatabase, undo: _StepUndo, unfit: RefusedPairs) -> None:
        led: dict[str, str | None] = dict(undo.result.get("led", {}))
        for end in undo.result.get("ended", ()) if self._store is not None else ():
            led |= {
                key: routes.read_unused_route_text(db, self._store, key) for key in end["later"]
            }
        for value in undo.contents.routes:
            why = (
                "this home has no routes"
                if self._store is None
                else routes.restore_route(db, self._store, value, led.get(value["key"]))
            )
            if why is not None:
                unfit.append((f"the route of {value['key']}", why))
                undo.left.routes.append(value["key"])

    def _restore_files(self, undo: _StepUndo) -> Iterator[str]:
        """Put files back; yield those in whose place there is another one."""
        kept, store = (
            self._ledger.read_trash(undo.step.id),
            get_session_folder(self._db, self._store),
        )
        for one in kept:
            if one.what != files.FILE_KIND or self._db.folder is None:
                continue
            name = one.value["name"]
            if (
                undo.contents.is_wanted_file(name)
                and files.restore_file(one.value, kept, self._db.folder, store) == "taken"
            ):
                yield name

    def _restore_pins(self, contents: TrashContents) -> None:
        if contents.pins:
            pins = self._ledger.pins
            here = pins.list_pinned()
            same = {k: was for k, (was, became) in contents.pins.items() if (k in here) == became}
            pins.set_pins(same)

    def _find_reason_open(
        self, db: StateDatabase, session_id: str, undo: _StepUndo, there: ActivitySnapshot
    ) -> str | None:
        """Return why a reopened session is not ended again: it is in use, or was since."""
        row = db.get_session(session_id)
        if row is None:
            return None
        reopened = undo.result.get("reopened", {}).get(session_id)
        if reopened is not None and not preconditions.is_at_revision(
            db, session_id, Revision(*reopened)
        ):
            return "it has gone on since; end it by a plan"
        at = db.get_revision(session_id)
        # A chat that was in it all the time has not used it; it is where it was before.
        is_as_it_was = reopened is not None and self._has_same_chats(db, session_id, undo)
        but: tuple[ProtectionReason, ...] = (
            (*_PIN_REASONS, "routed") if is_as_it_was else _PIN_REASONS
        )
        try:
            preconditions.require_unprotected(session_id, row, at, there, removed=False, but=but)
            preconditions.require_not_in_use(db, {session_id: session_id}, there, (), but=but)
        except MemberOutdated as error:
            return str(error)
        return None

    def _has_same_chats(self, db: StateDatabase, session_id: str, undo: _StepUndo) -> bool:
        """Return True if only chats that were in a session when it was reopened are in it now."""
        then = undo.result.get("routed", {}).get(session_id, ())
        return set(routes.list_session_chats(db, self._store, session_id)) <= set(then)
