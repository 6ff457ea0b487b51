"""`Compressor`: plan, summarize, commit and undo compressions of sessions.

A plan stores a digest of its range. Applying the plan reads the range again, holds the compression
lock of Hermes, and makes all changes in one step of the ledger, which can be undone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, get_args

from session_core._typing import Self
from session_core.aio import AsyncWrapper, make_async
from session_core.compression import chat_messages, ranges
from session_core.compression.apply import CompressionExecutor
from session_core.compression.chat_messages import TokenEstimator
from session_core.compression.chat_routes import ChatRoutes
from session_core.compression.commit import CompressionCommitter
from session_core.compression.locks import CompressionLocks
from session_core.compression.plan import CompressionPlanner
from session_core.compression.ranges import CompressionLimits, RequestedShape
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
from session_core.ledger.types import StoredPlan
from session_core.routing.session_store import SessionStore, check_database
from session_core.state.protocol import StateDatabase

DEFAULT_CLIENT = "library"
"""The client of a change in the audit log."""

_MAX_ATTEMPTS = 3


class Compressor:
    """Compresses the sessions of one home.

    A compression replaces the middle of a conversation with a summary. The replaced messages are
    kept, and `undo` restores them. Instances may be shared between threads. The `client` of a
    change is its name in the audit log.

    Args:
        db: the database of the home.
        ledger: the ledger of the same home.
        store: the session store of the home. Without it, a store is opened, which `close` closes.
        hooks: the hooks to call; by default, the hooks of the store.
        limits: the sizes that decide if a conversation is compressed, and which messages stay.
        estimate: a function that returns the number of tokens of a message.
        clean: a function that receives the messages and returns a function. That function is
            applied to each brief and each extractive summary of these messages before it is shown
            or stored, for example to remove secrets.
        clock: a function that returns the current time in seconds.

    Raises:
        InvalidInput: the ledger or the store belongs to another home.
        Denied: the ledger would write into a Hermes home.

    Example:
        >>> from session_core import open_home
        >>> with open_home(":memory:") as home:
        ...     for number in range(40):
        ...         text = f"ticket ABC-{number}: use port {8000 + number}. " + "More text. " * 200
        ...         _ = home.db.append_message("s1", "user", text, create={"source": "cli"})
        ...     result = home.compressor.compress("s1", keep_last=10)
        ...     undone = home.compressor.undo(result.batch)
        ...     result.tokens_after < result.tokens_before, len(home.db.get_messages("s1"))
        (True, 40)
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
        clock: Callable[[], float] = time.time,
    ) -> None:
        ledger.check_home(db)
        if store is not None:
            check_database(store, db)
        self._arguments: dict[str, Any] = {
            "store": store,
            "hooks": hooks,
            "limits": limits,
            "estimate": estimate,
            "clean": clean,
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
        self._executor = CompressionExecutor(db, ledger, self._locks, self._planner, committer)
        self._undo = CompressionUndo(db, ledger, routes, self._locks, clock=clock)

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
        """Close the session store if this object opened it."""
        if self._own_store is not None:
            self._own_store.close()

    def with_store(self, store: SessionStore) -> Compressor:
        """Return a compressor that uses a session store and its hooks.

        A store or hooks that were given to this compressor are kept. Only the hooks are taken from
        a store of another database, because a route and its session move in one transaction.
        """
        missing: dict[str, Any] = {"hooks": store.hooks} if self._arguments["hooks"] is None else {}
        if self._arguments["store"] is None and store.db is self._db:
            missing["store"] = store
        if not any(missing.values()):
            return self
        return type(self)(self._db, self._ledger, **{**self._arguments, **missing})

    def _get_hooks(self) -> Hooks:
        """Return the hooks of the caller, else of the store, else of this object."""
        store: SessionStore | None = self._arguments["store"]
        hooks: Hooks | None = self._arguments["hooks"]
        # Read at each call: a runtime may give the store its hooks after this object is made.
        store_hooks = None if store is None else store.hooks
        return hooks or store_hooks or self._default_hooks

    def is_due(self, session_id: str) -> bool:
        """Return True if a conversation has reached the size at which it should be compressed."""
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
        """Store a plan for a compression, and return it with the brief for its summary.

        The brief has the range of messages, the statements that the summary must contain, and the
        target length. `apply` replaces the range with the summary.

        Args:
            session_id: the session; its tip is compressed.
            shape: `in_place` keeps the session, `continuation` continues in a new session, and
                `auto` chooses.
            keep_last: the number of last messages that stay as they are. By default, the limits of
                the compressor in tokens apply.
            method: `summary` if the caller passes a summary to `apply`, or `extractive`. By
                default, `apply` decides.
            force: plan even if the last two compressions had no effect.

        Raises:
            InvalidInput: the shape or method is unknown, or `keep_last` is below 0.
            NotFound: the session does not exist.
            NotCompressed: the session cannot be compressed, or a summary would not be shorter.
            Unsupported: an index of the home needs an extension that is not loaded.
        """
        ranges.check_shape(shape)
        if method not in (None, *get_args(Method)):
            raise InvalidInput(
                f"method must be one of {', '.join(get_args(Method))}, got {method!r}"
            )
        planned, _ = self._planner.plan_compression(
            session_id, shape, keep_last, method, force=force
        )
        return planned

    def check(self, plan: str | StoredPlan, summary: str | None = None) -> None:
        """Check that a plan can be applied with this summary, before the user is asked.

        Raises:
            NotFound: the plan does not exist.
            Conflict: the plan has expired.
            InvalidInput: the plan is of another kind, or needs another method.
            NotCompressed: the plan was closed.
        """
        self._executor.check_plan(plan, summary)

    def apply(
        self,
        plan: str | StoredPlan,
        summary: str | None = None,
        *,
        client: str = DEFAULT_CLIENT,
        stop: StopFn | None = None,
    ) -> CompressionResult:
        """Replace the planned range with `summary`, or with an extractive summary if it is None.

        If the plan was applied before, its result is returned and nothing is changed.

        Args:
            plan: the handle of the plan, or a `StoredPlan`, which is not loaded again.
            summary: the summary, which must be shorter than the range.
            client: the name of the caller in the audit log.
            stop: called after the summary exists. If it returns True, nothing is changed and the
                plan stays open.

        Raises:
            NotFound: the plan does not exist.
            Conflict: the plan has expired.
            InvalidInput: the plan is of another kind or needs another method, or the summary is not
                text.
            Changed: the range has changed; plan it again.
            NotCompressed: the summary is empty or not shorter, the session has ended, another agent
                uses or compresses it, the call was stopped, or the plan was closed.
        """
        return self._executor.apply_plan(plan, summary, client, stop)

    def compress(
        self,
        session_id: str,
        summarizer: Summarizer | None = None,
        *,
        shape: RequestedShape = "auto",
        keep_last: int | None = None,
        timeout_s: float = 120.0,
        force: bool = False,
        client: str = DEFAULT_CLIENT,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> CompressionResult:
        """Plan a compression, request its summary and apply it.

        If the session changes meanwhile, the compression is planned again. If there is no
        summarizer, or it fails, the summary is extractive. After a failure of network, quota or
        permission nothing is changed.

        Args:
            session_id: the session; its tip is compressed.
            summarizer: a function that receives a `SummaryRequest` and returns the summary. It may
                be async.
            shape: as in `plan`.
            keep_last: as in `plan`.
            timeout_s: the number of seconds to wait for the summarizer.
            force: ignore earlier failures and earlier compressions without effect.
            client: the name of the caller in the audit log.
            loop: the asyncio loop for an async summarizer, which must not be the caller's own loop.
                By default, it is the asyncio or trio loop whose task waits for this thread, as with
                `AsyncCompressor`, or else a new loop.

        Raises:
            InvalidInput: the shape is unknown, or `keep_last` is below 0.
            NotFound: the session does not exist.
            NotCompressed: nothing was changed; `code` is the reason.
            Unsupported: an index of the home needs an extension that is not loaded.
        """
        ranges.check_shape(shape)
        tip = self._db.get_compression_tip(session_id)
        attempt = SummaryAttempt(self._db, tip, self._clock)
        event_loop = get_waiting_loop() if loop is None else AsyncioLoop(loop)
        if summarizer is not None:
            attempt.require_no_cooldown(force=force)

        def plan_and_apply() -> CompressionResult:
            for attempts_left in reversed(range(_MAX_ATTEMPTS)):
                plan, messages = self._planner.plan_compression(tip, shape, keep_last, force=force)
                summary = None
                try:
                    if summarizer is not None:
                        summary = attempt.request_summary(
                            summarizer, plan.brief, messages, timeout_s, event_loop
                        )
                    result = self._executor.apply_open_plan(plan.plan, summary, shape, client)
                # A message was changed or rewound after the plan; plan again.
                except Changed as error:
                    if not attempts_left:
                        raise NotCompressed(
                            "changed", f"{error} when no other process writes to it"
                        ) from error
                except BaseException:
                    close_plan(self._db, self._ledger, plan.plan)
                    raise
                else:
                    attempt.record_commit(result.session_id)
                    return result
            raise AssertionError

        # Held from the plan to the commit, so that two processes do not pay for the same summary.
        return self._locks.run_locked([tip], plan_and_apply)

    def undo(self, batch: str, *, client: str = DEFAULT_CLIENT) -> UndoResult:
        """Undo a compression, or only plan the undo if it would drop later messages.

        The result then has the outcome `planned`, and its `plan` is passed to `apply_undo`.

        Raises:
            NotFound: the batch does not exist.
            Unsupported: an index of the home needs an extension that is not loaded.
            InvalidInput: the batch is not a compression.
            Conflict: it was undone, or its changes were changed again since.
            Changed: another process is writing to the conversation; undo again.
            NotCompressed: another process compresses it, or uses a session that would be deleted.
        """
        return self._undo.undo_compression(batch, client)

    def plan_undo(self, batch: str) -> UndoPlan | None:
        """Plan to undo a compression.

        Return None if `undo` would drop nothing.

        Raises:
            NotFound: the batch does not exist.
            Unsupported: an index of the home needs an extension that is not loaded.
            InvalidInput: the batch is not a compression.
            Conflict: it was undone, or the compressed session was deleted.
            NotCompressed: another process compresses it.
        """
        return self._undo.plan_undo(batch)

    def apply_undo(self, plan: str, *, client: str = DEFAULT_CLIENT) -> UndoResult:
        """Apply a plan to undo a compression.

        Messages that were added since the compression are moved to the trash of the undo. A plan
        that was applied before returns its result and changes nothing.

        Raises:
            NotFound: the plan does not exist.
            InvalidInput: the plan is of another kind.
            Conflict: the plan has expired, or the compression was undone in another way.
            Changed: the conversation has grown since; plan the undo again.
            NotCompressed: another process compresses it, or uses a session that would be deleted.
        """
        return self._undo.apply_undo_plan(plan, client)


def _open_store(db: StateDatabase) -> SessionStore | None:
    if db.folder is None:
        return SessionStore(db=db) if db.routes.is_available else None
    from session_core.config import GatewayConfig  # noqa: PLC0415 -- imports pydantic

    config = GatewayConfig.load(db.folder)
    return SessionStore(config.sessions_dir or db.folder / "sessions", config=config, db=db)


class AsyncCompressor(AsyncWrapper[Compressor]):
    """The methods of a `Compressor` as coroutines, each in a worker thread.

    `Compressor` documents them. A caller that is cancelled gets control back at once; a change that
    has begun is still finished. An async summarizer runs on the caller's loop.
    """

    def __init__(self, compressor: Compressor) -> None:
        super().__init__(compressor)
        self.compressor = compressor

    def with_store(self, store: SessionStore) -> AsyncCompressor:
        """Return a compressor that uses a session store and its hooks."""
        return AsyncCompressor(self.compressor.with_store(store))

    is_due = make_async(Compressor.is_due)
    plan = make_async(Compressor.plan)
    check = make_async(Compressor.check)
    apply = make_async(Compressor.apply)
    undo = make_async(Compressor.undo)
    plan_undo = make_async(Compressor.plan_undo)
    compress = make_async(Compressor.compress)
    apply_undo = make_async(Compressor.apply_undo)
