"""Applying compression plans: read the range again under its lock, commit, record the result."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from session_core.compression.commit import CompressionCommitter
from session_core.compression.locks import CompressionLocks
from session_core.compression.plan import CompressionPlanner
from session_core.compression.ranges import RequestedShape
from session_core.compression.types import (
    COMPRESS,
    CompressionResult,
    NotCompressed,
    PlannedRange,
    PreparedCompression,
    StopFn,
    close_plan,
    settle_plan,
)
from session_core.errors import Changed, InvalidInput
from session_core.ledger.execute import suppress_note_errors
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import StoredPlan
from session_core.state.protocol import StateDatabase


class CompressionExecutor:
    """Applies the compression plans of one home."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        locks: CompressionLocks,
        planner: CompressionPlanner,
        committer: CompressionCommitter,
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._locks = locks
        self._planner = planner
        self._committer = committer

    def apply_plan(
        self, handle: str | StoredPlan, summary: str | None, client: str, stop: StopFn | None
    ) -> CompressionResult:
        """Apply a plan once.

        Return the stored result if it was applied before.
        """
        plan = self.check_plan(handle, summary)
        if plan.state == "finished":
            return self._load_earlier_result(plan, client)
        once = partial(self._apply_once, plan, summary, client, stop)
        return self._locks.run_locked([plan.members[0].id], once, patient=True)

    def check_plan(self, handle: str | StoredPlan, summary: str | None) -> StoredPlan:
        """Return a plan that can be applied with this summary, or that was applied already."""
        if summary is not None and not isinstance(summary, str):
            raise InvalidInput("summary must be text; omit it for an extractive summary")
        plan = handle if isinstance(handle, StoredPlan) else self._ledger.get_plan(handle)
        if plan.kind != COMPRESS:
            raise InvalidInput(f"plan {plan.handle} is not a compression but one to {plan.kind}")
        plan = self._settle_plan(plan)
        if plan.state != "finished":
            _require_written_summary(plan, summary)
        return plan

    def apply_open_plan(
        self, handle: str, summary: str | None, requested_shape: RequestedShape, client: str
    ) -> CompressionResult:
        """Apply an open plan, choosing again between in-place and continuation.

        Raises:
            Changed: the range has changed; the plan is closed.
            NotCompressed: the compression is not possible.
        """
        planned = PlannedRange(**self._ledger.get_plan(handle).about)
        result = self._commit_plan(handle, planned, summary, requested_shape)
        return self._audit_result(result, handle, client)

    def _commit_plan(
        self,
        handle: str,
        planned: PlannedRange,
        summary: str | None,
        requested_shape: RequestedShape,
        stop: StopFn | None = None,
    ) -> CompressionResult:
        def commit_under_lock() -> CompressionResult:
            ready = self._prepare_commit(planned, summary, requested_shape)
            # Asked after the summary, which takes longest, and before the first change.
            if stop is not None and stop():
                raise NotCompressed("stopped", f"plan {handle} was stopped; apply it again")
            # The lock may have expired while the summary was written.
            self._locks.confirm_lock(planned.session_id)
            return self._committer.commit_compression(handle, ready)

        try:
            return self._locks.run_locked([planned.session_id], commit_under_lock)
        except Changed:
            close_plan(self._db, self._ledger, handle)
            raise

    def _apply_once(
        self, plan: StoredPlan, summary: str | None, client: str, stop: StopFn | None
    ) -> CompressionResult:
        """Apply a plan under its lock, unless another process has applied it meanwhile."""
        # Before the lock was taken, its last holder may have begun or ended the plan.
        if plan.state == "applying" or self._ledger.get_plan_state(plan.handle) != plan.state:
            plan = self._settle_plan(self._ledger.get_plan(plan.handle))
        if plan.state == "finished":
            return self._load_earlier_result(plan, client)
        planned = PlannedRange(**plan.about)
        result = self._commit_plan(plan.handle, planned, summary, planned.shape, stop)
        return self._audit_result(result, plan.handle, client)

    def _load_earlier_result(self, plan: StoredPlan, client: str) -> CompressionResult:
        result = CompressionResult.from_json(plan.result["compressed"])
        return self._audit_result(result, plan.handle, client)

    def _settle_plan(self, plan: StoredPlan) -> StoredPlan:
        """Decide an interrupted step of a plan, and return the plan."""
        if plan.state == "applying":
            plan = settle_plan(self._db, self._ledger, plan)
        if plan.state == "closed":
            raise NotCompressed("changed", f"plan {plan.handle} was closed; plan again")
        return plan

    def _prepare_commit(
        self, planned: PlannedRange, summary: str | None, requested_shape: RequestedShape
    ) -> PreparedCompression:
        if summary is None:
            summary = self._planner.write_summary(planned)
        session = self._planner.reread_session(planned)
        # Since the plan was made, the session may have grown or an agent may have started in it.
        planned = replace(
            planned,
            shape=self._planner.choose_shape(
                session, (planned.start, planned.end), requested_shape
            ),
        )
        try:
            return self._committer.prepare_commit(
                planned, session.row, session.rows, session.revision, summary
            )
        except NotCompressed as error:
            if error.code != "not_smaller":
                raise
            message = f"{error}; write at most {planned.target_chars:,} characters"
            raise NotCompressed(error.code, message) from None

    def _audit_result(self, result: CompressionResult, plan: str, client: str) -> CompressionResult:
        """Record a compression in the audit log, once even after a crash."""
        with suppress_note_errors(f"the compression of {result.old_session_id}"):
            self._ledger.add_audit_entry(
                client,
                f"{COMPRESS} {result.session_id}",
                plan,
                {"rows": result.rows, "tokens": [result.tokens_before, result.tokens_after]},
            )
        return result


def _require_written_summary(plan: StoredPlan, summary: str | None) -> None:
    method = PlannedRange(**plan.about).method
    if method == "summary" and summary is None:
        raise InvalidInput(
            f"plan {plan.handle} waits for a summary that you write: pass it with the plan, or "
            "make a plan with method=extractive"
        )
    if method == "extractive" and summary is not None:
        raise InvalidInput(
            f"plan {plan.handle} is for an extractive summary: pass no summary, "
            "or make a plan with method=summary"
        )
