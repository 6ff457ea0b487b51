"""Restore: what the steps of a batch have kept is put back, the newest step first.

A row is put where there is none of its key, and what was only changed is changed back where it is
still as it was left. Whatever does not fit is said and stays in the trash, and its step stays open:
another restore of the batch tries that, and only that, once more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

from session_core.alive import Alive
from session_core.errors import Changed, Conflict, InvalidInput, NotFound
from session_core.hooks import Hooks
from session_core.ledger.ledger import Ledger
from session_core.ledger.records import Batch, Member, Step
from session_core.ledger.steps import clear_marks, noting, run_step
from session_core.maintenance import files, present, rerouting
from session_core.maintenance.answers import BackFn, Restored, StopFn
from session_core.maintenance.changes import Change
from session_core.maintenance.contents import SESSIONS, Contents, Left
from session_core.maintenance.findings import folder_of
from session_core.maintenance.members import Outdated
from session_core.maintenance.putting import Rows, Unfits
from session_core.maintenance.records import Why
from session_core.maintenance.run import wait_for
from session_core.maintenance.sweeping import UNLINKED
from session_core.maintenance.tally import Tally
from session_core.models import Revision
from session_core.routing.store import SessionStore
from session_core.state.contract import StateDatabase

WHAT = "restore"

_PINNED: tuple[Why, ...] = ("pinned",)


class Restoring:
    """Takes batches of one home back."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        store: SessionStore | None,
        hooks: Hooks,
        *,
        client: str,
        take_up: Callable[[], None],
        gather: Callable[[], Alive],
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._store = store
        self._hooks = hooks
        self._pins = ledger.pins
        self._client = client
        self._take_up = take_up
        self._gather = gather

    def restore(
        self, batch_id: str, for_s: float, progress: BackFn | None, stop: StopFn | None
    ) -> Restored:
        """Put back what a batch has changed, or go on with that."""
        until = time.monotonic() + for_s
        self._take_up()
        batch = self._ledger.undoable(batch_id)
        left = self._left(batch)
        tally = Tally(batch, self._members(batch), sum(tried is None for _, tried in left))
        undoing = self._ledger.add_batch(WHAT).id if left else ""
        for step, tried in left:
            tally.note(step, tried, self._undo(undoing, step, tried))
            if time.monotonic() >= until or (stop is not None and stop()):
                break
            if progress is not None:
                progress(tally.answer())
        clear_marks(self._db, self._ledger)
        back = tally.answer()
        counts = {"restored": back.restored, "rows": back.rows}
        counts |= {"unfit": len(back.unfit), "remaining": back.remaining}
        with noting(f"the restore of {batch_id}"):
            self._ledger.audit(self._client, f"restore {batch_id}", None, counts)
        return back

    def _left(self, batch: Batch) -> list[tuple[Step, Left | None]]:
        """Return the steps that are not undone, and what of them did not fit; those come last.

        Nobody begins another step of the batch once its plan is closed.
        """
        if batch.plan is not None:
            with suppress(Conflict):  # it has ended, or was never of a plan
                self._ledger.close_plan(batch.plan)
            wait_for(self._ledger, batch.id, self._take_up)
        steps = self._ledger.steps(batch.id)
        if any(step.undoes is not None for step in steps):
            raise InvalidInput(
                f"batch {batch.id} has itself taken something back; to have that gone again, make "
                "the change anew"
            )
        left = [step for step in reversed(steps) if step.undone_at is None]
        found = [(step, Left.of(self._ledger.tried(step.id))) for step in left]
        return sorted(found, key=lambda each: each[1] is not None)

    def _members(self, batch: Batch) -> dict[str, Member]:
        if batch.plan is not None:
            with suppress(Conflict, NotFound):  # nobody remembers it
                return {each.id: each for each in self._ledger.plan(batch.plan).members}
        return {}

    def _undo(self, batch: str, step: Step, tried: Left | None) -> dict[str, Any]:
        contents = Contents.of_step(self._ledger.trash(step.id), tried)
        there = self._gather() if contents.ended_again() else None
        left = Left()
        result = run_step(
            self._db,
            self._ledger,
            batch,
            before=lambda _: (),
            change=partial(self._put, step, contents, left, there),
            undoes=step.id,
            within=partial(self._within, step, contents, left),
        )
        return dict(result)

    @contextmanager
    def _within(self, step: Step, contents: Contents, left: Left) -> Iterator[None]:
        """Files are put back before, and what is beside the home behind it."""
        if contents.has_files:
            contents.lost += self._put_files(step, contents)
        self._unpin(contents)  # a restore that is cut short here is made again, not one behind it
        with ExitStack() as stack:
            if (step.result or {}).get(UNLINKED):
                stack.enter_context(self._db.transaction(linked=False))
            elif contents.routes and self._store is not None:
                stack.enter_context(self._store.together(*rerouting.keys_of(contents.routes)))
            yield
        begun = {
            each.key.get("id")
            for place, each in contents.changes.items()
            if place not in left.changes
        }
        for end in (step.result or {}).get("ended", ()):
            if end["session_id"] in begun:
                self._hooks.reopened(end["session_id"])
                if self._store is not None and self._db.kind == "hermes":
                    self._store.marks.forget(end["session_id"])

    def _put(
        self, step: Step, contents: Contents, left: Left, there: Alive | None, db: StateDatabase
    ) -> dict[str, Any]:
        unfit = [(f"the file {name}", "another one has its name by now") for name in contents.lost]
        left.files += contents.lost
        rows = Rows(db, contents, left, unfit, self._ledger.holder).put()
        for place, change in reversed(contents.changes.items()):
            why = self._change_back(db, step, change, there)
            if why is not None:
                key = ", ".join(map(str, change.key.values()))
                unfit.append((f"{', '.join(change.after)} of {key} in {change.table}", why))
                left.changes[place] = key
        self._put_routes(db, step, contents, left, unfit)
        return {"rows": rows, "unfit": unfit, "left": left.stored()}

    def _change_back(
        self, db: StateDatabase, step: Step, change: Change, there: Alive | None
    ) -> str | None:
        """Change columns back; say why not where they were changed since."""
        session_id = change.key.get("id")
        ends = change.table == SESSIONS and change.before.get("ended_at") is not None
        if there is not None and ends and change.after.get("ended_at", 0) is None:
            why = _why_not_ended(db, str(session_id), step, there)
            if why is not None:
                return why
        try:
            change.reversed().write(db)
        except Changed:
            return "it was changed again since"
        return None

    def _put_routes(
        self, db: StateDatabase, step: Step, contents: Contents, left: Left, unfit: Unfits
    ) -> None:
        led: dict[str, str | None] = dict((step.result or {}).get("led", {}))
        for end in (step.result or {}).get("ended", ()) if self._store is not None else ():
            led |= {key: rerouting.text_if_unused(db, self._store, key) for key in end["later"]}
        for value in contents.routes:
            why = (
                "this home has no routes"
                if self._store is None
                else rerouting.put_back(db, self._store, value, led.get(value["key"]))
            )
            if why is not None:
                unfit.append((f"the route of {value['key']}", why))
                left.routes.append(value["key"])

    def _put_files(self, step: Step, contents: Contents) -> Iterator[str]:
        """Put files back; yield those in whose place there is another one."""
        kept, store = self._ledger.trash(step.id), folder_of(self._db, self._store)
        for one in kept:
            if one.what != files.FILE or self._db.folder is None:
                continue
            name = one.value["name"]
            if (
                contents.wants_file(name)
                and files.put_back(one.value, kept, self._db.folder, store) == "taken"
            ):
                yield name

    def _unpin(self, contents: Contents) -> None:
        if contents.pins:
            here = self._pins.all()
            same = {k: was for k, (was, became) in contents.pins.items() if (k in here) == became}
            self._pins.set(same)


def _why_not_ended(db: StateDatabase, session_id: str, step: Step, there: Alive) -> str | None:
    """Say why a session that was reopened is not ended again: somebody is in it, or was since."""
    row = db.get_session(session_id)
    if row is None:
        return None
    reopened = (step.result or {}).get("reopened", {}).get(session_id)
    if reopened is not None and not present.is_at(db, session_id, Revision(*reopened)):
        return "it has gone on since; end it by a plan"
    at = db.revision(session_id)
    try:
        present.require_unprotected(session_id, row, at, there, removed=False, but=_PINNED)
        present.require_nobody_came(db, {session_id: session_id}, there, ())
    except Outdated as error:
        return str(error)
    return None
