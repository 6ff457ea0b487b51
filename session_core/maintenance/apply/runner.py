"""Applies plans: one step after another for as long as there is time, and goes on another time.

What a step does behind its commit, the hooks that are told and the files and routes that go, is
done once more by whoever takes up what a crash has left.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict, replace

from session_core.errors import Conflict
from session_core.hooks import Hooks
from session_core.ledger.execute import clear_marks, noting, resume, run_step, wait_for
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import Batch, Plan, Step
from session_core.maintenance import disk, health, members, vacuum
from session_core.maintenance.apply import files, finalize, routes
from session_core.maintenance.apply.context import Means
from session_core.maintenance.apply.run import ROOM, Outcome, Returning, Run
from session_core.maintenance.members import Progress
from session_core.maintenance.planner import Planner
from session_core.maintenance.restore.restore import Restoring
from session_core.maintenance.restore.step import Undoing
from session_core.maintenance.transfer.store import IMPORT
from session_core.maintenance.types import Applied, ProgressFn, StopFn
from session_core.routing.store import SessionStore
from session_core.state.protocol import StateDatabase

STOPPED = "its plan ended half-way"

_TELL_S = 0.5
"""So often is said how far it is."""


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
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._store = store
        self._hooks = hooks
        self._client = client
        self._outcome = Outcome(db, ledger, store)
        self._means = Means(db, ledger, store, hooks, planner, clock, self.settle)
        undoing = Undoing(db, ledger, store, hooks, self._means.gather)
        self._returning = Returning(ledger, undoing, self.settle)
        self.restoring = Restoring(
            db, ledger, undoing, client=client, stop=self.stop, settle=self.settle
        )

    def apply(
        self,
        handle: str,
        for_s: float,
        progress: ProgressFn | None,
        stop: StopFn | None,
    ) -> Applied:
        """Apply a plan, or go on with it."""
        until = time.monotonic() + for_s
        self.take_up(but=handle)
        plan = self._ledger.plan(handle)
        if plan.state == "finished":
            return Applied.of(plan.result)
        self._require_no_gateway(plan)
        before = {disk.BEFORE: disk.measure_files(self._db)} if plan.state == "planned" else None
        batch = self._ledger.begin(handle, before)
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
        with closing(Run(self._means, self._returning, batch, plan)) as run:
            while not (done := run.is_done(wait=True)):
                run.step()
                if time.monotonic() >= until or (stop is not None and stop()):
                    break
                if progress is not None and time.monotonic() - told_at > _TELL_S:
                    progress(self._outcome.of(batch, self._ledger.plan(handle)))
                    told_at = time.monotonic()
            done = done or run.is_done(wait=False)
        if done:
            self._win_room(batch, handle, until, progress, stop)
        return self._ended(batch, handle)

    def note(self, batch: Batch, client: str | None = None) -> None:
        """Note in the log how far the plan of a batch was done, which a crash may have left out."""
        with noting(f"how far batch {batch.id} was done"), suppress(Conflict):  # it has run out
            plan = None if batch.plan is None else self._ledger.plan(batch.plan)
            if plan is not None and plan.state != "finished" and "wanted" in plan.about:
                self._audit(client, plan, self._outcome.of(batch, plan))

    def _audit(self, client: str | None, plan: Plan, done: Applied) -> None:
        what = plan.kind if done.outcome == "applied" else f"{plan.kind}, in part"
        counts = {"removed": done.removed, "finalized": done.finalized}
        counts |= {"skipped": len(done.skipped), "remaining": done.remaining}
        self._ledger.audit(client, what, plan.handle, counts)

    def take_up(self, but: str | None = None) -> None:
        """Do what a crash has left, but what is to be put back of a plan that is the caller's."""
        self.settle()
        for plan in self._ledger.stopped():
            if "wanted" not in plan.about and plan.kind != IMPORT:
                continue  # it is not one of those that are applied here
            with noting(f"that plan {plan.handle} is ended"), suppress(Conflict):
                self._end_stopped(plan)
        for half in self._ledger.halves():
            if half.plan != but:
                with noting(f"that {half.member.id} is put back"), suppress(Conflict):
                    for _ in self._returning.steps(half):
                        pass  # a conflict is that somebody else puts it back

    def stop(self, handle: str) -> None:
        """Let a plan go no further; what it has begun to remove is put back by `take_up`.

        Raises:
            Conflict: it has ended already.
        """
        self._ledger.stop(handle)
        self._end_stopped(self._ledger.plan(handle))

    def _end_stopped(self, plan: Plan) -> None:
        """End a plan of which no step begins any more, and note what is owed to its members."""
        if plan.state == "closed" or plan.batch is None:
            return
        if plan.state == "applying":  # and has run out
            self._ledger.stop(plan.handle)
        wait_for(self._ledger, plan.batch, self.settle)
        progress = Progress()
        for step in self._ledger.steps(plan.batch):
            progress.note(step.result if isinstance(step.result, dict) else {})
        left = self._ledger.plan(plan.handle).remaining
        begun = [member.id for member in left if progress.has_begun(member)]
        self._ledger.end_stopped(plan.handle, begun, STOPPED)

    def settle(self) -> None:
        """Decide the steps that a crash has left, and do what was to follow them."""
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
            routes.finish(self._store, step.result)
        if self._db.folder is not None:
            folder = health.folder_of(self._db, self._store)
            files.finish_deletions(self._ledger, step, self._db.folder, folder)

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
        so_far = self._outcome.of(batch, plan) if left and progress is not None else None

        def tell() -> None:
            if progress is not None and so_far is not None:
                progress(so_far)

        won = vacuum.win(self._db, self._means.clock(), until, stop, tell) if left else None
        if won is not None:
            with suppress(Conflict):  # somebody else applies the plan, and has noted it
                run_step(
                    self._db,
                    self._ledger,
                    batch.id,
                    before=lambda _: (),
                    change=lambda _: {ROOM: asdict(won)},
                    members=[left[0].id],
                )
        # Whoever else does this has perhaps taken it, and not noted it yet.
        wait_for(self._ledger, batch.id, self.settle)

    def _require_no_gateway(self, plan: Plan) -> None:
        """Refuse what a live gateway would overwrite.

        Raises:
            Denied: one lives.
        """
        starts_new = plan.about["wanted"]["start_new"]
        parts = {members.part_of(member) for member in plan.remaining}
        if "routes" in parts or (starts_new and "ended" in parts):
            routes.require_no_gateway(self._means.gather())

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
        done = self._with_bytes(batch, plan, self._outcome.of(batch, plan))
        with noting(f"what plan {handle} came to"):
            if done.outcome == "applied":
                with suppress(Conflict):  # whoever else applies it has ended it
                    self._ledger.finish(handle, done.stored())
            self._audit(self._client, plan, done)
        return done

    def _with_bytes(self, batch: Batch, plan: Plan, done: Applied) -> Applied:
        """Return a result with what was measured since the plan was begun."""
        with noting("how much room there is"):
            sizes = self._db.sizes()
            size = disk.measured_since(plan.about.get(disk.BEFORE, {}), sizes)
            gone = size.returned_to_disk + self._outcome.bytes_of_files(batch, plan)
            size = replace(size, returned_to_disk=gone, trash=self._ledger.batch(batch.id).bytes)
            can_shrink = vacuum.in_the_way(self._means.gather().company) is None
            shrinks = disk.is_worth_freeing(disk.freeable(sizes, shrinks=can_shrink), sizes)
            return replace(done, bytes=size, shrinks=shrinks and done.removed > 0)
        return done
