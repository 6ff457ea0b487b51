"""Applying a plan: the range is looked at again, its lock held, and what was done is noted."""

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
    """Applies the plans of one home."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        locks: CompressionLocks,
        planner: CompressionPlanner,
        committer: CompressionCommitter,
        *,
        client: str,
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._locks = locks
        self._planner = planner
        self._committer = committer
        self._client = client

    def apply(self, handle: str, summary: str | None, stop: StopFn | None) -> CompressionResult:
        """Apply a plan once; one that was applied answers what it came to."""
        found = self.check(handle, summary)
        if found.state == "finished":
            return self._repeat_result(found)
        once = partial(self._apply_once, handle, summary, stop)
        return self._locks.run_locked([found.members[0].id], once, patient=True)

    def check(self, handle: str, summary: str | None) -> StoredPlan:
        """Return a plan that may be applied with this summary, or was applied."""
        if summary is not None and not isinstance(summary, str):
            raise InvalidInput("a summary is text; leave it out for one made without a model")
        found = self._get_plan(handle)
        if found.state != "finished":
            _require_method(found, summary)
        return found

    def apply_open_plan(
        self, handle: str, summary: str | None, wanted: RequestedShape, stop: StopFn | None = None
    ) -> CompressionResult:
        """Apply a plan that is open, in a shape that may be another by now.

        Raises:
            Changed: the range is not what it was; the plan is closed.
            NotCompressed: it cannot be done.
        """
        work = PlannedRange(**self._ledger.get_plan(handle).about)

        def commit() -> CompressionResult:
            ready = self._prepare_commit(work, summary, wanted)
            if stop is not None and stop():
                raise NotCompressed("stopped", f"plan {handle} was stopped; apply it again")
            self._locks.confirm_lock(work.session_id)
            return self._committer.commit(handle, ready)

        try:
            done = self._locks.run_locked([work.session_id], commit)
        except Changed:
            close_plan(self._db, self._ledger, handle)
            raise
        return self._audit_result(done, handle)

    def _apply_once(
        self, handle: str, summary: str | None, stop: StopFn | None
    ) -> CompressionResult:
        """Apply a plan unless somebody has while its lock was waited for."""
        found = self._get_plan(handle)
        if found.state == "finished":
            return self._repeat_result(found)
        return self.apply_open_plan(handle, summary, PlannedRange(**found.about).shape, stop)

    def _repeat_result(self, found: StoredPlan) -> CompressionResult:
        return self._audit_result(
            CompressionResult.from_json(found.result["compressed"]), found.handle
        )

    def _get_plan(self, handle: str) -> StoredPlan:
        plan = self._ledger.get_plan(handle)
        if plan.kind != COMPRESS:
            raise InvalidInput(f"plan {handle} is one to {plan.kind}; it is not applied here")
        if plan.state == "applying":
            plan = settle_plan(self._db, self._ledger, plan)
        if plan.state == "closed":
            raise NotCompressed("changed", f"plan {handle} was closed; plan again")
        return plan

    def _prepare_commit(
        self, work: PlannedRange, summary: str | None, wanted: RequestedShape
    ) -> PreparedCompression:
        if summary is None:
            summary = self._planner.write_summary(work)
        seen = self._planner.reread_session(work)
        # Much may have been said since the plan was made, and somebody may have come.
        work = replace(work, shape=self._planner.choose_shape(seen, (work.start, work.end), wanted))
        try:
            return self._committer.prepare_commit(work, seen.row, seen.rows, seen.revision, summary)
        except NotCompressed as refused:
            if refused.code != "not_smaller":
                raise
            most = f"{refused}; write at most {work.target_chars:,} characters"
            raise NotCompressed(refused.code, most) from None

    def _audit_result(self, done: CompressionResult, plan: str) -> CompressionResult:
        """Note a compression once, also one whose process died before it could."""
        with suppress_note_errors(f"the compression of {done.old_session_id}"):
            self._ledger.add_audit_entry(
                self._client,
                f"{COMPRESS} {done.session_id}",
                plan,
                {"rows": done.rows, "tokens": [done.tokens_before, done.tokens_after]},
            )
        return done


def _require_method(plan: StoredPlan, summary: str | None) -> None:
    method = PlannedRange(**plan.about).method
    if method == "summary" and summary is None:
        raise InvalidInput(
            f"plan {plan.handle} waits for a summary that you write: pass it with the plan, or "
            "make a plan with method=extractive"
        )
    if method == "extractive" and summary is not None:
        raise InvalidInput(
            f"plan {plan.handle} is for a summary that is made without a model: pass no summary, "
            "or make a plan with method=summary"
        )
