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

from session_core.activity import Alive
from session_core.errors import Changed
from session_core.hooks import Hooks
from session_core.ledger.execute import run_step
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import Step
from session_core.maintenance.apply import files, preconditions, routes
from session_core.maintenance.apply.orphans import UNLINKED
from session_core.maintenance.health import folder_of
from session_core.maintenance.members import Change, Outdated
from session_core.maintenance.restore.remainder import Left
from session_core.maintenance.restore.rows import SESSIONS, Contents, Rows, Unfits
from session_core.maintenance.types import Why
from session_core.routing.store import SessionStore
from session_core.state.protocol import StateDatabase
from session_core.types import Revision

_PINNED: tuple[Why, ...] = ("pinned",)


@dataclass(frozen=True, slots=True)
class _Undo:
    """One step that is taken back."""

    step: Step
    tried: Left | None
    contents: Contents
    others: Left | None = None
    """What is left in the trash since it belongs to sessions that were not asked for."""
    left: Left = field(default_factory=Left)
    """What does not fit."""

    @property
    def result(self) -> Mapping[str, Any]:
        """What the step had come to."""
        return self.step.result or {}


class Undoing:
    """Takes steps of one home back."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        store: SessionStore | None,
        hooks: Hooks,
        gather: Callable[[], Alive],
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._store = store
        self._hooks = hooks
        self._gather = gather

    def contents(self, step: Step, tried: Left | None) -> Contents:
        """Return what a step has kept, or what of it an earlier try has left.

        Raises:
            Corrupt: it is damaged.
        """
        return Contents.of_step(self._ledger.trash(step.id), tried)

    def undo(
        self, batch: str, step: Step, tried: Left | None, contents: Contents
    ) -> dict[str, Any]:
        """Take a step back as one of a batch."""
        return self._run(batch, _Undo(step, tried, contents))

    def part(self, batch: str, step: Step, ids: Collection[str]) -> dict[str, Any] | None:
        """Take back what a step has done to some sessions; return None where nothing is left.

        Raises:
            Changed: somebody else does that just now.
        """
        tried = Left.of(self._ledger.tried(step.id))
        contents = Contents.of_step(self._ledger.trash(step.id), tried)
        theirs, others = contents.parted(ids)
        if theirs == Left():
            return None
        contents = Contents.of_step(self._ledger.trash(step.id), theirs)
        return self._run(batch, _Undo(step, tried, contents, others))

    def _run(self, batch: str, undo: _Undo) -> dict[str, Any]:
        there = self._gather() if undo.contents.ended_again() else None
        result = run_step(
            self._db,
            self._ledger,
            batch,
            before=lambda _: (),
            change=partial(self._put, undo, there),
            undoes=undo.step.id,
            within=partial(self._within, undo),
        )
        return dict(result)

    @contextmanager
    def _within(self, undo: _Undo) -> Iterator[None]:
        """Files are put back before, and what is beside the home behind it."""
        contents = undo.contents
        if Left.of(self._ledger.tried(undo.step.id)) != undo.tried:
            raise Changed("somebody else has just put a part of that back; try again")
        if contents.files:
            contents.lost += self._put_files(undo)
        self._unpin(contents)  # a restore that is cut short here is made again, not one behind it
        with ExitStack() as stack:
            if undo.result.get(UNLINKED):
                stack.enter_context(self._db.transaction(linked=False))
            elif contents.routes and self._store is not None:
                stack.enter_context(self._store.together(*routes.keys_of(contents.routes)))
            yield
        self._tell(undo)

    def _tell(self, undo: _Undo) -> None:
        """Let the hooks know of sessions that go on."""
        changes, left = undo.contents.changes, undo.left.changes
        begun = {each.key.get("id") for place, each in changes.items() if place not in left}
        for end in undo.result.get("ended", ()):
            if end["session_id"] in begun:
                self._hooks.reopened(end["session_id"])
                if self._store is not None and self._db.kind == "hermes":
                    self._store.marks.forget(end["session_id"])

    def _put(self, undo: _Undo, there: Alive | None, db: StateDatabase) -> dict[str, Any]:
        contents, left = undo.contents, undo.left
        unfit = [(f"the file {name}", "another one has its name by now") for name in contents.lost]
        left.files += contents.lost
        rows = Rows(db, contents, left, unfit, self._ledger.holder).put()
        for place, change in reversed(contents.changes.items()):
            why = self._change_back(db, undo, change, there)
            if why is not None:
                what = f"{', '.join(change.after)} of {change.name} in {change.table}"
                unfit.append((what, why))
                left.changes[place] = change.name
        self._put_routes(db, undo, unfit)
        kept = left if undo.others is None else left.beside(undo.others)
        return {"rows": rows, "unfit": unfit, "left": kept.stored()}

    def _change_back(
        self, db: StateDatabase, undo: _Undo, change: Change, there: Alive | None
    ) -> str | None:
        """Change columns back; say why not where they were changed since."""
        session_id = change.key.get("id")
        ends = change.table == SESSIONS and change.before.get("ended_at") is not None
        if there is not None and ends and change.after.get("ended_at", 0) is None:
            why = self._why_not_ended(db, str(session_id), undo, there)
            if why is not None:
                return why
        try:
            change.reversed().write(db)
        except Changed:
            return "it was changed again since"
        return None

    def _put_routes(self, db: StateDatabase, undo: _Undo, unfit: Unfits) -> None:
        led: dict[str, str | None] = dict(undo.result.get("led", {}))
        for end in undo.result.get("ended", ()) if self._store is not None else ():
            led |= {key: routes.text_if_unused(db, self._store, key) for key in end["later"]}
        for value in undo.contents.routes:
            why = (
                "this home has no routes"
                if self._store is None
                else routes.put_back(db, self._store, value, led.get(value["key"]))
            )
            if why is not None:
                unfit.append((f"the route of {value['key']}", why))
                undo.left.routes.append(value["key"])

    def _put_files(self, undo: _Undo) -> Iterator[str]:
        """Put files back; yield those in whose place there is another one."""
        kept, store = self._ledger.trash(undo.step.id), folder_of(self._db, self._store)
        for one in kept:
            if one.what != files.FILE or self._db.folder is None:
                continue
            name = one.value["name"]
            if (
                undo.contents.wants_file(name)
                and files.put_back(one.value, kept, self._db.folder, store) == "taken"
            ):
                yield name

    def _unpin(self, contents: Contents) -> None:
        if contents.pins:
            pins = self._ledger.pins
            here = pins.all()
            same = {k: was for k, (was, became) in contents.pins.items() if (k in here) == became}
            pins.set(same)

    def _why_not_ended(
        self, db: StateDatabase, session_id: str, undo: _Undo, there: Alive
    ) -> str | None:
        """Return why a reopened session is not ended again: it is in use, or was since."""
        row = db.get_session(session_id)
        if row is None:
            return None
        reopened = undo.result.get("reopened", {}).get(session_id)
        if reopened is not None and not preconditions.is_at(db, session_id, Revision(*reopened)):
            return "it has gone on since; end it by a plan"
        at = db.revision(session_id)
        # A chat that was in it all the time has not used it; it is where it was before.
        is_as_it_was = reopened is not None and self._is_routed_as_then(db, session_id, undo)
        but: tuple[Why, ...] = (*_PINNED, "routed") if is_as_it_was else _PINNED
        try:
            preconditions.require_unprotected(session_id, row, at, there, removed=False, but=but)
            preconditions.require_nobody_came(db, {session_id: session_id}, there, (), but=but)
        except Outdated as error:
            return str(error)
        return None

    def _is_routed_as_then(self, db: StateDatabase, session_id: str, undo: _Undo) -> bool:
        """Return True if only chats that were in a session when it was reopened are in it now."""
        then = undo.result.get("routed", {}).get(session_id, ())
        return set(routes.chats_of(db, self._store, session_id)) <= set(then)
