"""`Compressor`: plans, briefs, summaries and their commit, for the sessions of a home.

What is planned is recorded with a digest of the range; applying it looks again, holds the lock that
Hermes knows, and changes all in one step of the ledger, which undoes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from session_core.compression import extractive, placement, tokens
from session_core.compression.applied import close, taken_up
from session_core.compression.asked import Asked
from session_core.compression.boundaries import Limits
from session_core.compression.callables import Summarizer
from session_core.compression.commit import Committer
from session_core.compression.locks import Locks
from session_core.compression.placement import Wanted
from session_core.compression.planning import COMPRESS, Planner
from session_core.compression.records import (
    Compressed,
    NotCompressed,
    Planned,
    Undone,
    UndoPlanned,
)
from session_core.compression.routes import Routes
from session_core.compression.tokens import Estimate
from session_core.compression.undo import Undo
from session_core.compression.work import Ready, Work
from session_core.errors import Changed, InvalidInput
from session_core.hooks import Hooks
from session_core.ledger.ledger import Ledger
from session_core.ledger.records import Plan
from session_core.ledger.steps import noting
from session_core.routing.store import SessionStore
from session_core.state.contract import StateDatabase

if TYPE_CHECKING:
    import asyncio
    from types import TracebackType

    from typing_extensions import Self

_TRIES = 3
_PATIENCE_S = 10.0
"""So long does a plan wait for the lock: another may be applying the same one."""


class Compressor:
    """Compresses the sessions of one home.

    Without a `store` the routes are those of the home's own session store, which is closed with
    this. Instances are safe to share between threads.

    Raises:
        InvalidInput: the ledger is that of another home.
    """

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        *,
        store: SessionStore | None = None,
        hooks: Hooks | None = None,
        limits: Limits | None = None,
        estimate: Estimate = tokens.estimate,
        client: str = "library",
        clock: Callable[[], float] = time.time,
    ) -> None:
        ledger.check_home(db)
        self._own_store = _store_of(db) if store is None else None
        store = store or self._own_store
        self._db = db
        self._ledger = ledger
        self._limits = limits or Limits()
        self._estimate = estimate
        self._client = client
        self._clock = clock
        self._locks = Locks(db)
        self._planner = Planner(
            db, ledger, store, limits=self._limits, estimate=estimate, clock=clock
        )
        routes = Routes(db, store)
        self._committer = Committer(db, ledger, routes, hooks or Hooks(), estimate)
        self._undo = Undo(db, ledger, routes, self._locks, client=client, clock=clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the session store that was made here, and nothing that was given."""
        if self._own_store is not None:
            self._own_store.close()

    def is_due(self, session_id: str) -> bool:
        """Whether a conversation has grown to where it should be compressed."""
        rows = self._db.get_messages(self._db.get_compression_tip(session_id))
        return sum(map(self._estimate, rows)) >= self._limits.threshold_tokens

    def plan(
        self,
        session_id: str,
        *,
        shape: Wanted = "auto",
        keep_last: int | None = None,
        force: bool = False,
    ) -> Planned:
        """Record what would be compressed and how, and say what a summary of it has to hold.

        `force` is for a person who insists where the last two compressions came to nothing.

        Raises:
            InvalidInput: there is no such shape, or `keep_last` is below 0.
            NotFound: there is no such session.
            NotCompressed: it cannot be, or nothing would be won.
        """
        placement.check(shape)
        planned, _ = self._planner.plan(session_id, shape, keep_last, force=force)
        return planned

    def apply(self, plan: str, summary: str | None = None) -> Compressed:
        """Put a summary in the place of what was planned; without one, one made without a model.

        A plan that was applied answers what it came to, and changes nothing.

        Raises:
            NotFound: there is no such plan.
            Conflict: it has run out.
            InvalidInput: it is a plan of something else.
            Changed: the range is not what it was; plan it again.
            NotCompressed: the summary is none or no shorter, the session has ended, somebody is at
                work in it by now or compresses it, or the plan was closed.
        """
        found = self._plan(plan)
        if found.state != "finished":
            with self._locks.of(found.members[0].id, _PATIENCE_S):
                found = self._plan(plan)
                if found.state != "finished":
                    return self._apply(plan, summary, Work(**found.about).shape)
        return self._audited(Compressed.of(found.result["compressed"]), plan)

    def compress(
        self,
        session_id: str,
        summarizer: Summarizer | None = None,
        *,
        shape: Wanted = "auto",
        keep_last: int | None = None,
        timeout_s: float = 120.0,
        force: bool = False,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> Compressed:
        """Plan, have a summary written, and apply it; again where somebody was faster.

        `summarizer(request)` may be async: it runs on `loop`, which must not be that of the caller,
        or on a loop of its own. Where there is none, or it fails, the summary is made without a
        model; where its failure is one of network, quota or permission, nothing is done. `force` is
        for a person who insists: after failures, and where the last two came to nothing.

        Raises:
            InvalidInput: there is no such shape, or `keep_last` is below 0.
            NotFound: there is no such session.
            NotCompressed: nothing was changed; its code says why.
        """
        placement.check(shape)
        tip = self._db.get_compression_tip(session_id)
        asked = Asked(self._db, tip, self._clock)
        if summarizer is not None:
            asked.require_allowed(force=force)
        with self._locks.of(tip):
            for left in reversed(range(_TRIES)):
                planned, part = self._planner.plan(tip, shape, keep_last, force=force)
                text = None
                try:
                    if summarizer is not None:
                        text = asked.summary(summarizer, planned.brief, part, timeout_s, loop)
                    done = self._apply(planned.plan, text, shape)
                except Changed as error:
                    if not left:
                        raise NotCompressed("changed", f"{error}, when nobody writes") from error
                except BaseException:
                    close(self._db, self._ledger, planned.plan)
                    raise
                else:
                    asked.committed(done.session_id)
                    return done
        raise AssertionError

    def undo(self, batch: str) -> Undone | UndoPlanned:
        """Take a compression back; where that would drop what was said since, plan that.

        Raises:
            NotFound: there is no such batch.
            Conflict: it was undone, or what it changed was changed again since.
        """
        return self._undo.undo(batch)

    def apply_undo(self, plan: str) -> Undone:
        """Take a compression back, with what was said since; its trash keeps that."""
        return self._undo.apply(plan)

    def _plan(self, handle: str) -> Plan:
        plan = self._ledger.plan(handle)
        if plan.kind != COMPRESS:
            raise InvalidInput(f"plan {handle} is one to {plan.kind}; it is not applied here")
        if plan.state == "applying":
            plan = taken_up(self._db, self._ledger, plan)
        if plan.state == "closed":
            raise NotCompressed("changed", f"plan {handle} was closed; plan again")
        return plan

    def _apply(self, plan: str, summary: str | None, wanted: Wanted) -> Compressed:
        work = Work(**self._ledger.plan(plan).about)
        try:
            with self._locks.of(work.session_id):
                ready = self._ready(work, summary, wanted)
                self._locks.keep(work.session_id)
                done = self._committer.commit(plan, ready)
        except Changed:
            close(self._db, self._ledger, plan)
            raise
        return self._audited(done, plan)

    def _ready(self, work: Work, summary: str | None, wanted: Wanted) -> Ready:
        if summary is None:
            rows = self._planner.look_again(work).rows
            summary = extractive.summarize(rows[work.start : work.end], work.target_chars)
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


def _store_of(db: StateDatabase) -> SessionStore | None:
    if db.folder is None:
        return None
    from session_core.settings import GatewayConfig  # noqa: PLC0415 -- costs an import of pydantic

    config = GatewayConfig.load(db.folder)
    return SessionStore(config.sessions_dir or db.folder / "sessions", config=config, db=db)
