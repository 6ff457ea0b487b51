"""Applying a plan: the range is looked at again, its lock held, and what was done is noted."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from session_core.compression.commit import Committer
from session_core.compression.locks import Locks
from session_core.compression.plan import Planner
from session_core.compression.ranges import Wanted
from session_core.compression.types import (
    COMPRESS,
    Compressed,
    NotCompressed,
    Ready,
    StopFn,
    Work,
    close,
    taken_up,
)
from session_core.errors import Changed, InvalidInput
from session_core.ledger.execute import noting
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import Plan
from session_core.state.protocol import StateDatabase


class Applying:
    """Applies the plans of one home."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        locks: Locks,
        planner: Planner,
        committer: Committer,
        *,
        client: str,
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._locks = locks
        self._planner = planner
        self._committer = committer
        self._client = client

    def apply(self, handle: str, summary: str | None, stop: StopFn | None) -> Compressed:
        """Apply a plan once; one that was applied answers what it came to."""
        found = self.check(handle, summary)
        if found.state == "finished":
            return self._again(found)
        once = partial(self._once, handle, summary, stop)
        return self._locks.holding([found.members[0].id], once, patient=True)

    def check(self, handle: str, summary: str | None) -> Plan:
        """Return a plan that may be applied with this summary, or was applied."""
        if summary is not None and not isinstance(summary, str):
            raise InvalidInput("a summary is text; leave it out for one made without a model")
        found = self._plan(handle)
        if found.state != "finished":
            _require_method(found, summary)
        return found

    def run(
        self, handle: str, summary: str | None, wanted: Wanted, stop: StopFn | None = None
    ) -> Compressed:
        """Apply a plan that is open, in a shape that may be another by now.

        Raises:
            Changed: the range is not what it was; the plan is closed.
            NotCompressed: it cannot be done.
        """
        work = Work(**self._ledger.plan(handle).about)

        def commit() -> Compressed:
            ready = self._ready(work, summary, wanted)
            if stop is not None and stop():
                raise NotCompressed("stopped", f"plan {handle} was stopped; apply it again")
            self._locks.keep(work.session_id)
            return self._committer.commit(handle, ready)

        try:
            done = self._locks.holding([work.session_id], commit)
        except Changed:
            close(self._db, self._ledger, handle)
            raise
        return self._audited(done, handle)

    def _once(self, handle: str, summary: str | None, stop: StopFn | None) -> Compressed:
        """Apply a plan unless somebody has while its lock was waited for."""
        found = self._plan(handle)
        if found.state == "finished":
            return self._again(found)
        return self.run(handle, summary, Work(**found.about).shape, stop)

    def _again(self, found: Plan) -> Compressed:
        return self._audited(Compressed.of(found.result["compressed"]), found.handle)

    def _plan(self, handle: str) -> Plan:
        plan = self._ledger.plan(handle)
        if plan.kind != COMPRESS:
            raise InvalidInput(f"plan {handle} is one to {plan.kind}; it is not applied here")
        if plan.state == "applying":
            plan = taken_up(self._db, self._ledger, plan)
        if plan.state == "closed":
            raise NotCompressed("changed", f"plan {handle} was closed; plan again")
        return plan

    def _ready(self, work: Work, summary: str | None, wanted: Wanted) -> Ready:
        if summary is None:
            summary = self._planner.summary(work)
        seen = self._planner.look_again(work)
        # Much may have been said since the plan was made, and somebody may have come.
        work = replace(work, shape=self._planner.shape(seen, (work.start, work.end), wanted))
        try:
            return self._committer.ready(work, seen.row, seen.rows, seen.revision, summary)
        except NotCompressed as refused:
            if refused.code != "not_smaller":
                raise
            most = f"{refused}; write at most {work.target_chars:,} characters"
            raise NotCompressed(refused.code, most) from None

    def _audited(self, done: Compressed, plan: str) -> Compressed:
        """Note a compression once, also one whose process died before it could."""
        with noting(f"the compression of {done.old_session_id}"):
            self._ledger.audit(
                self._client,
                f"{COMPRESS} {done.session_id}",
                plan,
                {"rows": done.rows, "tokens": [done.tokens_before, done.tokens_after]},
            )
        return done


def _require_method(plan: Plan, summary: str | None) -> None:
    method = Work(**plan.about).method
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
