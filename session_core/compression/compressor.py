"""`Compressor`: plans, briefs, summaries and their commit, for the sessions of a home.

What is planned is recorded with a digest of the range; applying it looks again, holds the lock that
Hermes knows, and changes all in one step of the ledger, which undoes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args

from session_core.compression import chat_messages
from session_core.compression import ranges as compression_shape
from session_core.compression.apply import CompressionExecutor
from session_core.compression.chat_messages import TokenEstimator
from session_core.compression.commit import CompressionCommitter
from session_core.compression.locks import CompressionLocks
from session_core.compression.plan import CompressionPlanner
from session_core.compression.ranges import CompressionLimits, RequestedShape
from session_core.compression.routes import ChatRoutes
from session_core.compression.summarizers import Summarizer, SummaryAttempt
from session_core.compression.types import (
    Clean,
    CompressionPlan,
    CompressionResult,
    Method,
    NotCompressed,
    StopFn,
    UndoPlan,
    UndoResult,
    close_plan,
)
from session_core.compression.undo import CompressionUndo
from session_core.errors import Changed, InvalidInput
from session_core.event_loops import AsyncioLoop, get_waiting_loop
from session_core.hooks import Hooks
from session_core.ledger.ledger import Ledger
from session_core.routing.store import SessionStore, check_database
from session_core.state.protocol import StateDatabase

if TYPE_CHECKING:
    import asyncio
    from types import TracebackType

    from typing_extensions import Self

_MAX_ATTEMPTS = 3


class Compressor:
    """Compresses the sessions of one home.

    Without a `store` the routes are those of the home's own session store, which is closed with
    this. `clean(messages)` returns what a text that is made of them here, a brief or a summary
    without a model, passes before it is shown or stored; without it, it says what they say.
    Instances are safe to share between threads.

    Raises:
        InvalidInput: the ledger is that of another home, or the store is.
        Denied: the ledger would write into a Hermes home.
    """

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        *,
        store: SessionStore | None = None,
        hooks: Hooks | None = None,
        limits: CompressionLimits | None = None,
        estimate: TokenEstimator = chat_messages.estimate_tokens,
        clean: Clean = lambda _: str,
        client: str = "library",
        clock: Callable[[], float] = time.time,
    ) -> None:
        ledger.check_home(db)
        if store is not None:
            check_database(store, db)
        self._given: dict[str, Any] = {
            "store": store,
            "hooks": hooks,
            "limits": limits,
            "estimate": estimate,
            "clean": clean,
            "client": client,
            "clock": clock,
        }
        self._default_hooks = hooks or Hooks()
        self._own_store = _open_store(db) if store is None else None
        store = store or self._own_store
        self._db = db
        self._ledger = ledger
        self._limits = limits or CompressionLimits()
        self._estimate = estimate
        self._clock = clock
        self._locks = CompressionLocks(db)
        self._planner = CompressionPlanner(
            db, ledger, store, limits=self._limits, estimate=estimate, clean=clean, clock=clock
        )
        routes = ChatRoutes(db, store)
        committer = CompressionCommitter(db, ledger, routes, self._get_hooks, estimate)
        self._applying = CompressionExecutor(
            db, ledger, self._locks, self._planner, committer, client=client
        )
        self._undo = CompressionUndo(db, ledger, routes, self._locks, client=client, clock=clock)

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

    def with_store(self, store: SessionStore) -> Compressor:
        """Return a compressor with a store and its hooks, if this one was given neither.

        The store of another database gives its hooks alone: a route is moved in one transaction
        with the session.
        """
        missing: dict[str, Any] = {"hooks": store.hooks} if self._given["hooks"] is None else {}
        if self._given["store"] is None and store.db is self._db:
            missing["store"] = store
        if not any(missing.values()):
            return self
        return type(self)(self._db, self._ledger, **{**self._given, **missing})

    def _get_hooks(self) -> Hooks:
        """Return the hooks: a runtime gives its own to the store, perhaps after this was made."""
        store: SessionStore | None = self._given["store"]
        hooks: Hooks | None = self._given["hooks"]
        of_store = None if store is None else store.hooks
        return hooks or of_store or self._default_hooks

    def is_due(self, session_id: str) -> bool:
        """Whether a conversation has grown to where it should be compressed."""
        rows = self._db.get_messages(self._db.get_compression_tip(session_id))
        return sum(map(self._estimate, rows)) >= self._limits.threshold_tokens

    def plan(
        self,
        session_id: str,
        *,
        shape: RequestedShape = "auto",
        keep_last: int | None = None,
        method: Method | None = None,
        force: bool = False,
    ) -> CompressionPlan:
        """Record what would be compressed and how, and say what a summary of it has to hold.

        `method` is who writes that: without one, whoever applies the plan decides. `force` is for a
        person who insists where the last two compressions came to nothing.

        Raises:
            InvalidInput: there is no such shape or method, or `keep_last` is below 0.
            NotFound: there is no such session.
            NotCompressed: it cannot be, or nothing would be won.
            Unsupported: an index of the home needs an extension that is not loaded.
        """
        compression_shape.check_shape(shape)
        if method not in (None, *get_args(Method)):
            raise InvalidInput(f"method is {method!r}; one of {', '.join(get_args(Method))}")
        planned, _ = self._planner.plan(session_id, shape, keep_last, method, force=force)
        return planned

    def check(self, plan: str, summary: str | None = None) -> None:
        """Make sure that a plan can be applied with this summary, before anybody is asked.

        Raises:
            NotFound: there is no such plan.
            Conflict: it has run out.
            InvalidInput: it is a plan of something else, or for a summary by another method.
            NotCompressed: the plan was closed.
        """
        self._applying.check(plan, summary)

    def apply(
        self, plan: str, summary: str | None = None, *, stop: StopFn | None = None
    ) -> CompressionResult:
        """Put a summary in the place of what was planned; without one, one made without a model.

        A plan that was applied answers what it came to, and changes nothing. `stop` is asked once
        the summary is there: nothing is changed then, and the plan stays open.

        Raises:
            NotFound: there is no such plan.
            Conflict: it has run out.
            InvalidInput: it is a plan of something else, or for a summary by another method, or the
                summary is no text.
            Changed: the range is not what it was; plan it again.
            NotCompressed: the summary is none or no shorter, the session has ended, somebody is at
                work in it by now or compresses it, it was stopped, or the plan was closed.
        """
        return self._applying.apply(plan, summary, stop)

    def compress(
        self,
        session_id: str,
        summarizer: Summarizer | None = None,
        *,
        shape: RequestedShape = "auto",
        keep_last: int | None = None,
        timeout_s: float = 120.0,
        force: bool = False,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> CompressionResult:
        """Plan, have a summary written, and apply it; again where somebody was faster.

        `summarizer(request)` may be async: it runs on `loop`, which must not be that of the caller,
        else on the loop of asyncio or trio whose task waits for this thread, as with
        `AsyncCompressor`, else on a loop of its own. Where there is none, or it fails, the summary
        is made without a model; where its failure is one of network, quota or permission, nothing
        is done. `force` is for a person who insists: after failures, and where the last two came to
        nothing.

        Raises:
            InvalidInput: there is no such shape, or `keep_last` is below 0.
            NotFound: there is no such session.
            NotCompressed: nothing was changed; its code says why.
            Unsupported: an index of the home needs an extension that is not loaded.
        """
        compression_shape.check_shape(shape)
        tip = self._db.get_compression_tip(session_id)
        asked = SummaryAttempt(self._db, tip, self._clock)
        beside = get_waiting_loop() if loop is None else AsyncioLoop(loop)
        if summarizer is not None:
            asked.require_allowed(force=force)

        def run() -> CompressionResult:
            for left in reversed(range(_MAX_ATTEMPTS)):
                planned, part = self._planner.plan(tip, shape, keep_last, force=force)
                text = None
                try:
                    if summarizer is not None:
                        text = asked.request_summary(
                            summarizer, planned.brief, part, timeout_s, beside
                        )
                    done = self._applying.apply_open_plan(planned.plan, text, shape)
                except Changed as error:
                    if not left:
                        raise NotCompressed("changed", f"{error}, when nobody writes") from error
                except BaseException:
                    close_plan(self._db, self._ledger, planned.plan)
                    raise
                else:
                    asked.record_commit(done.session_id)
                    return done
            raise AssertionError

        return self._locks.run_locked([tip], run)

    def undo(self, batch: str) -> UndoResult | UndoPlan:
        """Take a compression back; where that would drop what was said since, plan that.

        Raises:
            NotFound: there is no such batch.
            Unsupported: an index of the home needs an extension that is not loaded.
            InvalidInput: it is one of something else.
            Conflict: it was undone, or what it changed was changed again since.
            Changed: somebody writes to the conversation just now; undo again.
            NotCompressed: somebody compresses it, or is at work in what would be deleted.
        """
        return self._undo.undo(batch)

    def plan_undo(self, batch: str) -> UndoPlan | None:
        """Plan to take a compression back; None where `undo` would drop nothing.

        Raises:
            NotFound: there is no such batch.
            Unsupported: an index of the home needs an extension that is not loaded.
            InvalidInput: it is one of something else.
            Conflict: it was undone, or the session that was compressed is gone.
            NotCompressed: somebody compresses it.
        """
        return self._undo.plan(batch)

    def apply_undo(self, plan: str) -> UndoResult:
        """Take a compression back, with what was said since; its trash keeps that.

        A plan that was applied answers what it came to, and changes nothing.

        Raises:
            NotFound: there is no such plan.
            InvalidInput: it is a plan of something else.
            Conflict: it has run out, or the compression was undone otherwise.
            Changed: the conversation has gone on since; plan the undo again.
            NotCompressed: somebody compresses it, or is at work in what would be deleted.
        """
        return self._undo.apply(plan)


def _open_store(db: StateDatabase) -> SessionStore | None:
    if db.folder is None:
        return None
    from session_core.config import GatewayConfig  # noqa: PLC0415 -- costs an import of pydantic

    config = GatewayConfig.load(db.folder)
    return SessionStore(config.sessions_dir or db.folder / "sessions", config=config, db=db)
