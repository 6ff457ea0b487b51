"""Applies plans: one step after another for as long as there is time, and goes on another time.

What a step does behind its commit, the hooks that are told and the files and routes that go, is
done once more by whoever takes up what a crash has left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, suppress
from dataclasses import asdict
from typing import Any

from session_core.alive import Alive
from session_core.errors import Conflict
from session_core.hooks import Hooks
from session_core.ledger.ledger import Ledger
from session_core.ledger.records import Batch, Member, Plan, Step
from session_core.ledger.steps import clear_marks, noting, resume, run_step
from session_core.maintenance import finalize, findings, members, reclaim, rerouting, unlinking
from session_core.maintenance.answers import Applied, ProgressFn, Skipped, StopFn
from session_core.maintenance.members import Progress
from session_core.maintenance.planner import PLUGINS, Planner
from session_core.maintenance.run import Means, Run
from session_core.routing.store import SessionStore
from session_core.state.contract import StateDatabase

_TELL_S = 0.5
"""So often is said how far it is."""

NOT_AFRESH = "could not begin afresh, and does with its next message"

_ROOM = "room"

_LEFT = "it could not be removed, or was used just then"


class Runner:
    """Applies the plans of one home."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        store: SessionStore | None,
        hooks: Hooks,
        planner: Planner,
        *,
        client: str,
        clock: Callable[[], float],
        pinned: Callable[[], Collection[str]],
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._store = store
        self._hooks = hooks
        self._client = client
        self._means = Means(db, ledger, store, hooks, planner, clock, pinned, self.take_up)

    def apply(
        self,
        handle: str,
        for_s: float,
        progress: ProgressFn | None,
        stop: StopFn | None,
    ) -> Applied:
        """Apply a plan, or go on with it."""
        until = time.monotonic() + for_s
        self.take_up()
        plan = self._ledger.plan(handle)
        if plan.state == "finished":
            return Applied.of(plan.result)
        self._require_no_gateway(plan)
        batch = self._ledger.begin(handle)
        if plan.state == "planned":
            with noting(f"that plan {handle} is begun"):
                self._ledger.audit(self._client, f"{plan.kind}, begun", handle, {})
        try:
            return self._run(batch, plan, until, progress, stop)
        except BaseException:
            self.note(batch, self._client)
            raise

    def _run(
        self,
        batch: Batch,
        plan: Plan,
        until: float,
        progress: ProgressFn | None,
        stop: StopFn | None,
    ) -> Applied:
        handle = plan.handle
        if plan.state == "applying":
            for step in self._ledger.steps(batch.id):
                self._finish_step(step)
        told_at = time.monotonic()
        with closing(Run(self._means, batch, plan)) as run:
            while not run.is_done:
                run.step()
                if time.monotonic() >= until or (stop is not None and stop()):
                    break
                if progress is not None and time.monotonic() - told_at > _TELL_S:
                    progress(self._answer(batch, self._ledger.plan(handle)))
                    told_at = time.monotonic()
        if run.is_done:
            self._win_room(batch, handle, until, progress, stop)
        return self._ended(batch, handle)

    def gather(self) -> Alive:
        """Return who is alive now."""
        return self._means.gather()

    def note(self, batch: Batch, client: str | None = None) -> None:
        """Note in the log how far the plan of a batch was done, which a crash may have left out."""
        with noting(f"how far batch {batch.id} was done"), suppress(Conflict):  # it has run out
            plan = None if batch.plan is None else self._ledger.plan(batch.plan)
            if plan is not None and plan.state != "finished" and "wanted" in plan.about:
                self._audit(client, plan, self._answer(batch, plan))

    def _audit(self, client: str | None, plan: Plan, done: Applied) -> None:
        what = plan.kind if done.outcome == "applied" else f"{plan.kind}, in part"
        counts = {"removed": done.removed, "finalized": done.finalized}
        counts |= {"skipped": len(done.skipped), "remaining": done.remaining}
        self._ledger.audit(client, what, plan.handle, counts)

    def take_up(self) -> None:
        """Decide what a crash has left, and do what was to follow it."""
        if self._store is not None:
            with noting("that what was owed to hooks is told"):
                self._store.tell_untold()
        for step in resume(self._db, self._ledger):
            self._finish_step(step)
            for end in (step.result or {}).get("ended", ()):
                told = end.get("told") in {True, finalize.BY_STORE}
                if not finalize.begin_later(self._store, end) and not told:
                    finalize.tell(self._hooks, self._store, end)
            self.note(self._ledger.batch(step.batch))

    def _finish_step(self, step: Step) -> None:
        """Do what a step does behind its commit; what was done is not done again."""
        if not isinstance(step.result, dict) or step.undone_at is not None:
            return
        if self._store is not None and step.result.get("routes"):
            rerouting.finish(self._store, step.result)
        if self._db.folder is not None:
            folder = findings.folder_of(self._db, self._store)
            unlinking.finish(self._ledger, step, self._db.folder, folder)

    def _win_room(
        self,
        batch: Batch,
        handle: str,
        until: float,
        progress: ProgressFn | None,
        stop: StopFn | None,
    ) -> None:
        """Win back the room of what is gone, where the plan has that: a step without trash."""
        plan = self._ledger.plan(handle)
        left = members.of_part(plan, "index")
        so_far = self._answer(batch, plan) if left and progress is not None else None

        def tell() -> None:
            if progress is not None and so_far is not None:
                progress(so_far)

        won = reclaim.win(self._db, self._means.clock(), until, stop, tell) if left else None
        if won is not None:
            with suppress(Conflict):  # somebody else applies the plan, and has noted it
                run_step(
                    self._db,
                    self._ledger,
                    batch.id,
                    before=lambda _: (),
                    change=lambda _: {_ROOM: asdict(won)},
                    members=[left[0].id],
                )

    def _require_no_gateway(self, plan: Plan) -> None:
        """Refuse what a live gateway would overwrite.

        Raises:
            Denied: one lives.
        """
        starts_new = plan.about["wanted"]["start_new"]
        parts = {members.part_of(member) for member in plan.remaining}
        if "routes" in parts or (starts_new and "ended" in parts):
            rerouting.require_no_gateway(self._means.gather())

    def _ended(self, batch: Batch, handle: str) -> Applied:
        """Return what was done, and end the plan where nothing remains."""
        clear_marks(self._db, self._ledger)
        plan = self._ledger.plan(handle)
        if plan.state == "finished":
            return Applied.of(plan.result)
        if plan.about["wanted"]["start_new"] and not self._db.has_routing:
            for step in self._ledger.steps(batch.id):
                for end in (step.result or {}).get("ended", ()):
                    finalize.begin_later(self._store, end)
        done = self._answer(batch, plan)
        with noting(f"what plan {handle} came to"):
            if done.outcome == "applied":
                with suppress(Conflict):  # whoever else applies it has ended it
                    self._ledger.finish(handle, done.stored())
            self._audit(self._client, plan, done)
        return done

    def _answer(self, batch: Batch, plan: Plan) -> Applied:
        skipped = [
            Skipped(members.name_of(member), member.skipped)
            for member in plan.members
            if member.skipped is not None
        ]
        done = [
            member
            for member in plan.members
            if member.step is not None and members.part_of(member) != "index"
        ]
        left = [each for each in done if self._is_left(each)]
        skipped += [Skipped(members.name_of(each), _LEFT) for each in left]
        ended = sum(members.part_of(member) == "ended" for member in done)
        warnings = [PLUGINS] if self._db.kind == "hermes" and ended else []
        if plan.about["wanted"]["start_new"]:
            warnings += [f"{key} {NOT_AFRESH}" for each in done for key in self._not_afresh(each)]
        warnings += self._halves(batch, plan)
        folder = findings.folder_of(self._db, self._store)
        if folder is not None:
            warnings += unlinking.staying(self._ledger.steps(batch.id), folder)
        room = self._room(plan)
        if room is not None and room["in_the_way"] is not None:
            warnings.append(room["in_the_way"])
        return Applied(
            outcome="partial" if plan.remaining else "applied",
            plan=plan.handle,
            batch=batch.id,
            removed=len(done) - ended - len(left),
            finalized=ended,
            skipped=tuple(skipped),
            remaining=len(plan.remaining),
            warnings=tuple(warnings),
            won=0 if room is None else room["bytes"],
        )

    def _halves(self, batch: Batch, plan: Plan) -> Iterator[str]:
        """Say of which conversations that were left a part is gone already."""
        left = [member for member in plan.members if member.skipped is not None]
        progress = Progress()
        for step in self._ledger.steps(batch.id) if left else ():
            progress.note(step.result or {})
        for member in left:
            if progress.has_begun(member):
                name = members.name_of(member)
                yield f"a part of {name} is in the trash; restore {batch.id} brings it back"

    def _room(self, plan: Plan) -> dict[str, Any] | None:
        """Return what was won back, where the plan has done that."""
        step = next((m.step for m in plan.members if members.part_of(m) == "index"), None)
        result = None if step is None else self._ledger.step(step).result
        return None if result is None else dict(result[_ROOM])

    def _not_afresh(self, member: Member) -> list[str]:
        """Return the chats that are still in what was ended."""
        if self._store is None or members.part_of(member) != "ended":
            return []
        led: dict[str, str] = member.revision["routes"]
        return [key for key, each in led.items() if self._store.peek_session_id(key) == each]

    def _is_left(self, member: Member) -> bool:
        """Whether a route or a file is still there although it was to be removed."""
        part, noted = members.part_of(member), member.revision
        if part == "files":
            folder = findings.folder_of(self._db, self._store)
            return folder is not None and (folder / members.name_of(member)).exists()
        if part != "routes" or self._store is None or noted["scope"]:
            return False
        there = self._store.peek_session_id(noted["key"])
        return there is not None and there == noted["session"]
