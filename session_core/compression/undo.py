"""Taking a compression back: the rows, ids, flags, counters, title and routes of before.

In place what was said since stays. A continuation that is as it was left is deleted; where one has
gone on, that is a plan that says what it would drop, and what it drops is kept in the trash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from functools import partial
from typing import Any

from session_core.compression import dropping, placement
from session_core.compression.applied import KINDS, UNDO, finish, taken_up
from session_core.compression.dropping import Doomed
from session_core.compression.locks import Locks
from session_core.compression.past import Past, kept_in_place, revive
from session_core.compression.planning import TABLES
from session_core.compression.records import NotCompressed, Undone, UndoPlanned
from session_core.compression.routes import Led, Routes
from session_core.errors import Changed, InvalidInput
from session_core.ledger.ledger import Ledger
from session_core.ledger.records import Kept, Member, Plan
from session_core.ledger.steps import clear_marks, delete_content, noting, resume, run_step
from session_core.state.contract import StateDatabase

_GOES = "it goes on from the compression that is taken back"


class Undo:
    """Takes compressions of one home back."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        routes: Routes,
        locks: Locks,
        *,
        client: str,
        clock: Callable[[], float],
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._routes = routes
        self._locks = locks
        self._client = client
        self._clock = clock

    def undo(self, batch: str) -> Undone | UndoPlanned:
        """Take a compression back, or plan that where it would drop what was said since."""
        old = Past.of(self._ledger, batch).old
        return self._locks.holding([old], partial(self._undo, batch), patient=True)

    def plan(self, batch: str) -> UndoPlanned | None:
        """Plan to take a compression back where that would drop what was said since."""
        old = Past.of(self._ledger, batch).old
        return self._locks.holding([old], partial(self._look, batch), patient=True)

    def apply(self, handle: str) -> Undone:
        """Take back what a plan says, with what was said since."""
        plan = self._plan(handle)
        if plan.state != "finished":
            old = plan.about["session_id"]
            return self._locks.holding([old], partial(self._once, handle), patient=True)
        return Undone(**plan.result)

    def _undo(self, batch: str) -> Undone | UndoPlanned:
        # Who had the lock may have undone it, or have died over that.
        resume(self._db, self._ledger, KINDS)
        past = Past.of(self._ledger, batch)
        self._db.check_rows_writable(TABLES)
        if past.compressed.shape == "in_place":
            return self._run(past, partial(kept_in_place, past), partial(revive, past))
        doomed = dropping.look(self._db, past)
        if doomed.drops_nothing(past):
            return self._drop(past, doomed)
        return self._planned(past, doomed)

    def _look(self, batch: str) -> UndoPlanned | None:
        resume(self._db, self._ledger, KINDS)
        past = Past.of(self._ledger, batch)
        self._db.check_rows_writable(TABLES)
        if past.compressed.shape == "in_place":
            return None
        doomed = dropping.look(self._db, past)
        return None if doomed.drops_nothing(past) else self._planned(past, doomed)

    def _once(self, handle: str) -> Undone:
        """Apply a plan unless somebody has while its lock was waited for."""
        plan = self._plan(handle)
        return Undone(**plan.result) if plan.state == "finished" else self._apply(plan)

    def _plan(self, handle: str) -> Plan:
        resume(self._db, self._ledger, KINDS)
        plan = self._ledger.plan(handle)
        if plan.kind != UNDO:
            raise InvalidInput(f"plan {handle} is one to {plan.kind}; it is not applied here")
        return taken_up(self._db, self._ledger, plan) if plan.state == "applying" else plan

    def _apply(self, plan: Plan) -> Undone:
        past = Past.of(self._ledger, plan.about["batch"])
        self._db.check_rows_writable(TABLES)
        doomed = dropping.look(self._db, past)
        planned = {member.id: member.revision for member in plan.members}
        if doomed != Doomed(planned, tuple(plan.about["detached"])):
            self._ledger.close_plan(plan.handle)
            raise Changed("the conversation has gone on since; plan the undo again")
        done = self._drop(past, doomed, plan=plan.handle)
        finish(self._ledger, plan.handle, asdict(done))
        return done

    def _planned(self, past: Past, doomed: Doomed) -> UndoPlanned:
        members = [Member(each, state, _GOES) for each, state in doomed.sessions.items()]
        count = sum(self._db.message_count(each) for each in doomed.sessions)
        new, changed = max(count - len(past.done.made), 0), doomed.changed(past)
        about = {
            "batch": past.batch,
            "session_id": past.old,
            "detached": doomed.detached,
            "warnings": list(_warnings(new, changed, doomed.detached)),
        }
        plan = self._ledger.add_plan(UNDO, members, about)
        return UndoPlanned(
            plan=plan.handle,
            session_id=past.old,
            expires_at=plan.expires_at,
            sessions=tuple(doomed.sessions),
            messages=new,
            changed=changed,
            detached=doomed.detached,
        )

    def _drop(self, past: Past, doomed: Doomed, plan: str | None = None) -> Undone:
        def drop() -> Undone:
            led = self._routes.of(doomed.sessions or [past.done.session_id])
            self._require_alone(doomed, led)
            return self._run(
                past,
                partial(dropping.kept, doomed, past),
                partial(dropping.drop, doomed, past, self._routes, led),
                within=partial(self._within, doomed, led),
                plan=plan,
                members=tuple(doomed.sessions),
            )

        return self._locks.holding(tuple(doomed.sessions), drop, patient=True)

    def _run(
        self,
        past: Past,
        before: Callable[[StateDatabase], Iterable[Kept]],
        change: Callable[[StateDatabase], dict[str, Any]],
        *,
        within: Callable[[], AbstractContextManager[object]] = nullcontext,
        plan: str | None = None,
        members: Sequence[str] = (),
    ) -> Undone:
        """Run the step that takes a compression back; what it deletes is in the trash."""
        batch = self._ledger.begin(plan) if plan else self._ledger.add_batch(UNDO)
        result = run_step(
            self._db,
            self._ledger,
            batch.id,
            before=before,
            change=change,
            members=members if plan else (),
            undoes=past.step,
            within=within,
        )
        clear_marks(self._db, self._ledger)
        undone = Undone(**result)
        counts = {"restored": undone.restored, "dropped": undone.dropped}
        with noting(f"{UNDO} of {undone.session_id}"):
            self._ledger.audit(self._client, f"{UNDO} of {undone.session_id}", plan, counts)
        delete_content(self._ledger)
        return undone

    def _within(self, doomed: Doomed, led: Led) -> AbstractContextManager[object]:
        # Looking takes too long for a transaction; who comes after it and writes is seen in it.
        self._require_alone(doomed, led)
        return self._routes.together(led)

    def _require_alone(self, doomed: Doomed, led: Led) -> None:
        """Refuse to delete a session under somebody who may be at work in it."""
        for each in doomed.sessions:
            row = self._db.get_session(each)
            if row is None:
                continue
            last = self._db.read_window(each, limit=1).messages
            at = last[-1]["timestamp"] if last else row["started_at"]
            routed = bool(led.keys.get(each))
            at_work = placement.beside(self._db, row, at, routed=routed, now=self._clock())
            if at_work is not None:
                raise NotCompressed("live", f"{at_work}; stop it, then undo again")


def _warnings(new: int, changed: Sequence[str], detached: Sequence[str]) -> Iterator[str]:
    """Say what a plan drops, which is why it is one."""
    if new:
        yield f"{new:,} messages that were said since go to the trash"
    others = [name for name in changed if name != "messages" or not new]
    if others:
        yield f"what was changed since goes to the trash: {', '.join(others)}"
    if detached:
        yield f"{len(detached):,} sessions lose their parent"
