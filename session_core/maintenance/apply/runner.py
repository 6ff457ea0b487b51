"""Apply plans step by step within a time limit, and continue them in later calls.

A step's follow-up work after its commit (hooks, files, routes) is repeated by the process that
recovers from a crash.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict, replace

from session_core.errors import Conflict
from session_core.hooks import Hooks
from session_core.ledger.execute import (
    clear_marks,
    resume_steps,
    run_step,
    suppress_note_errors,
    wait_for_steps,
)
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import Batch, Step, StoredPlan
from session_core.maintenance import disk, health, members, vacuum
from session_core.maintenance.apply import files, finalize, routes
from session_core.maintenance.apply.context import ApplyContext
from session_core.maintenance.apply.run import (
    VACUUM_KEY,
    PartialMemberRestorer,
    PlanOutcomes,
    PlanRun,
)
from session_core.maintenance.members import PlanProgress
from session_core.maintenance.planner import Planner
from session_core.maintenance.restore.restore import BatchRestorer
from session_core.maintenance.restore.step import StepUndoer
from session_core.maintenance.transfer.store import IMPORT_KIND
from session_core.maintenance.types import ApplyResult, ProgressFn, StopFn
from session_core.routing.store import SessionStore
from session_core.state.protocol import StateDatabase

STOPPED_REASON = "its plan was stopped half-way"

_PROGRESS_INTERVAL_S = 0.5
"""The interval of progress reports."""


class PlanRunner:
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
        self._outcome = PlanOutcomes(db, ledger, store)
        self._context = ApplyContext(db, ledger, store, hooks, planner, clock, self.settle_steps)
        undoer = StepUndoer(db, ledger, store, hooks, self._context.gather_activity)
        self._restorer = PartialMemberRestorer(ledger, undoer, self.settle_steps)
        self.restoring = BatchRestorer(
            db, ledger, undoer, client=client, stop_plan=self.stop_plan, settle=self.settle_steps
        )

    def apply_plan(
        self,
        handle: str,
        for_s: float,
        progress: ProgressFn | None,
        stop: StopFn | None,
    ) -> ApplyResult:
        """Apply a plan, or continue it."""
        deadline = time.monotonic() + for_s
        # The run itself restores the partial members of its own plan.
        self.recover_from_crash(except_plan=handle)
        plan = self._ledger.get_plan(handle)
        if plan.state == "finished":
            return ApplyResult.from_json(plan.result)
        self._require_no_gateway(plan)
        before = (
            {disk.BEFORE_KEY: disk.measure_files(self._db)} if plan.state == "planned" else None
        )
        batch = self._ledger.begin_plan(handle, before)
        if plan.state == "planned":
            with suppress_note_errors(f"that plan {handle} is begun"):
                self._ledger.add_audit_entry(self._client, f"{plan.kind}, begun", handle, {})
        try:
            return self._run_steps(batch, plan, deadline, progress, stop)
        except BaseException:
            self.log_progress(batch, self._client)
            raise

    def _run_steps(
        self,
        batch: Batch,
        plan: StoredPlan,
        deadline: float,
        progress: ProgressFn | None,
        stop: StopFn | None,
    ) -> ApplyResult:
        handle = plan.handle
        if plan.state == "applying":
            for step in self._ledger.list_steps(batch.id):
                self._finish_step(step)
        reported_at = time.monotonic()
        with closing(PlanRun(self._context, self._restorer, batch, plan)) as run:
            # At least one step runs, however short the time is.
            while not (done := run.is_done(wait=True)):
                run.run_next_step()
                if time.monotonic() >= deadline or (stop is not None and stop()):
                    break
                if progress is not None and time.monotonic() - reported_at > _PROGRESS_INTERVAL_S:
                    progress(self._outcome.build_result(batch, self._ledger.get_plan(handle)))
                    reported_at = time.monotonic()
            done = done or run.is_done(wait=False)
        if done:
            self._reclaim_space(batch, handle, deadline, progress, stop)
        return self._finish_run(batch, handle)

    def log_progress(self, batch: Batch, client: str | None = None) -> None:
        """Log how far the plan of a batch is, which a crash may have left out."""
        with (
            suppress_note_errors(f"how far batch {batch.id} was done"),
            suppress(Conflict),
        ):  # the plan has expired
            plan = None if batch.plan is None else self._ledger.get_plan(batch.plan)
            if plan is not None and plan.state != "finished" and "wanted" in plan.about:
                self._add_audit_entry(client, plan, self._outcome.build_result(batch, plan))

    def _add_audit_entry(self, client: str | None, plan: StoredPlan, result: ApplyResult) -> None:
        action = plan.kind if result.outcome == "applied" else f"{plan.kind}, in part"
        counts = {"removed": result.removed, "finalized": result.finalized}
        counts |= {"skipped": len(result.skipped), "remaining": result.remaining}
        self._ledger.add_audit_entry(client, action, plan.handle, counts)

    def recover_from_crash(self, except_plan: str | None = None) -> None:
        """Finish the work that a crash has left, except restores of `except_plan`."""
        self.settle_steps()
        # Ending a plan records its partial members, which are restored below.
        for plan in self._ledger.list_stopped_plans():
            if "wanted" not in plan.about and plan.kind != IMPORT_KIND:
                continue  # other components apply that kind of plan
            with suppress_note_errors(f"that plan {plan.handle} is ended"), suppress(Conflict):
                self._end_stopped_plan(plan)
        for partial in self._ledger.list_partial_members():
            if partial.plan != except_plan:
                with (
                    suppress_note_errors(f"that {partial.member.id} is put back"),
                    suppress(Conflict),
                ):
                    for _ in self._restorer.restore_member(partial):
                        pass  # a conflict means that another process restores it

    def stop_plan(self, handle: str) -> None:
        """Stop a plan; `recover_from_crash` restores the members that it has removed in part.

        Raises:
            Conflict: the plan has ended already.
        """
        self._ledger.stop_plan(handle)
        self._end_stopped_plan(self._ledger.get_plan(handle))

    def _end_stopped_plan(self, plan: StoredPlan) -> None:
        """End a plan that begins no more steps, and record its partly removed members."""
        if plan.state == "closed" or plan.batch is None:
            return
        if plan.state == "applying":  # and has expired
            self._ledger.stop_plan(plan.handle)
        wait_for_steps(self._ledger, plan.batch, self.settle_steps)
        progress = PlanProgress()
        for step in self._ledger.list_steps(plan.batch):
            progress.add_result(step.result if isinstance(step.result, dict) else {})
        remaining = self._ledger.get_plan(plan.handle).remaining
        partial_ids = [member.id for member in remaining if progress.has_begun(member)]
        self._ledger.end_stopped_plan(plan.handle, partial_ids, STOPPED_REASON)

    def settle_steps(self) -> None:
        """Settle the steps that a crash has left, and run their follow-up work."""
        if self._store is not None:
            with suppress_note_errors("that what was owed to hooks is told"):
                self._store.deliver_pending_hooks()
        for step in resume_steps(self._db, self._ledger):
            self._finish_step(step)
            for end in (step.result or {}).get("ended", ()):
                hooks_called = end.get("told") in {True, finalize.CALLED_BY_STORE}
                if not finalize.reset_deferred_chats(self._store, end) and not hooks_called:
                    finalize.call_end_hooks(self._hooks, self._store, end)
            self.log_progress(self._ledger.get_batch(step.batch))

    def _finish_step(self, step: Step) -> None:
        """Do a step's work after its commit; finished work is not repeated."""
        if not isinstance(step.result, dict) or step.undone_at is not None:
            return
        if self._store is not None and step.result.get("routes"):
            routes.finish_removal(self._store, step.result)
        if self._db.folder is not None:
            folder = health.get_session_folder(self._db, self._store)
            files.finish_deletions(self._ledger, step, self._db.folder, folder)

    def _reclaim_space(
        self,
        batch: Batch,
        handle: str,
        deadline: float,
        progress: ProgressFn | None,
        stop: StopFn | None,
    ) -> None:
        """Merge the index and rewrite the file if the plan includes that: a step without trash."""
        plan = self._ledger.get_plan(handle)
        index_members = members.list_remaining_members(plan, "index")
        so_far = (
            self._outcome.build_result(batch, plan)
            if index_members and progress is not None
            else None
        )

        def report() -> None:
            if progress is not None and so_far is not None:
                progress(so_far)

        outcome = (
            vacuum.reclaim_space(self._db, self._context.clock(), deadline, stop, report)
            if index_members
            else None
        )
        if outcome is not None:
            with suppress(Conflict):  # another process applies the plan and has recorded it
                run_step(
                    self._db,
                    self._ledger,
                    batch.id,
                    before=lambda _: (),
                    change=lambda _: {VACUUM_KEY: asdict(outcome)},
                    members=[index_members[0].id],
                )
        # Another process may have claimed the member and not recorded the result yet.
        wait_for_steps(self._ledger, batch.id, self.settle_steps)

    def _require_no_gateway(self, plan: StoredPlan) -> None:
        """Refuse route changes that a running gateway would overwrite.

        Raises:
            Denied: a gateway is running.
        """
        starts_new = plan.about["wanted"]["start_new"]
        parts = {members.get_part(member) for member in plan.remaining}
        if "routes" in parts or (starts_new and "ended" in parts):
            routes.require_no_gateway(self._context.gather_activity())

    def _finish_run(self, batch: Batch, handle: str) -> ApplyResult:
        """Return the result, and end the plan if no member remains."""
        clear_marks(self._db, self._ledger)
        plan = self._ledger.get_plan(handle)
        if plan.state == "finished":
            return ApplyResult.from_json(plan.result)
        if plan.about["wanted"]["start_new"] and not self._db.routes.is_available:
            for step in self._ledger.list_steps(batch.id):
                for end in (step.result or {}).get("ended", ()):
                    finalize.reset_deferred_chats(self._store, end)
        result = self._add_measured_bytes(batch, plan, self._outcome.build_result(batch, plan))
        with suppress_note_errors(f"what plan {handle} came to"):
            if result.outcome == "applied":
                with suppress(Conflict):  # another process has ended it
                    self._ledger.finish_plan(handle, result.to_json())
            self._add_audit_entry(self._client, plan, result)
        return result

    def _add_measured_bytes(
        self, batch: Batch, plan: StoredPlan, result: ApplyResult
    ) -> ApplyResult:
        """Return a result with the sizes measured since the plan was begun."""
        with suppress_note_errors("how much room there is"):
            sizes = self._db.admin.measure_sizes()
            size = disk.measure_change(plan.about.get(disk.BEFORE_KEY, {}), sizes)
            returned = size.returned_to_disk + self._outcome.sum_deleted_file_bytes(batch, plan)
            size = replace(
                size, returned_to_disk=returned, trash=self._ledger.get_batch(batch.id).bytes
            )
            can_shrink = vacuum.find_obstacle(self._context.gather_activity().company) is None
            shrinks = disk.is_worth_freeing(
                disk.estimate_freeable(sizes, shrinks=can_shrink), sizes
            )
            return replace(result, bytes=size, shrinks=shrinks and result.removed > 0)
        return result
