"""`TurnRunner`: runs one turn for each message of a chat, with sync or async agents."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, TypeVar, cast

import anyio

from session_core.aio import WorkerThreads, get_worker_threads, wait_until_finished
from session_core.chats import SessionSource, check_session_id
from session_core.errors import Denied, InvalidInput, NotFound, SessionError
from session_core.event_loops import get_running_loop
from session_core.hooks import Hooks
from session_core.hooks.foreign_calls import Reporter, log_fault
from session_core.lifecycle.agent_cache import AgentCache
from session_core.lifecycle.agent_turn import Agent, AgentFactory, AgentTurn
from session_core.lifecycle.cache_table import CachedTurn
from session_core.lifecycle.replies import (
    AgentResult,
    PendingTitles,
    Reply,
    get_selected_model,
    normalize_empty_agent_response,
    normalize_result,
    pick_hook_arguments,
)
from session_core.routing.entries import SessionEntry
from session_core.routing.leases import create_token
from session_core.routing.session_store import SessionStore, check_database
from session_core.state.protocol import StateDatabase


class ActiveRuns:
    """The active turns by session key, in the order in which their messages arrived."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._runs: dict[str, list[AgentTurn]] = {}
        self._stopping = False
        self._arrived = 0

    def list_session_keys(self) -> list[str]:
        """Return the session keys of the chats that have an active turn."""
        with self._changed:
            return list(self._runs)

    def list_runs(self, session_key: str) -> list[AgentTurn]:
        """Return the active turns of a chat, newest last."""
        with self._changed:
            return list(self._runs.get(session_key, ()))

    def register_message(self) -> int:
        """Register an incoming message.

        Return its number, which orders the turns.

        Raises:
            Denied: the runtime is shutting down.
        """
        with self._changed:
            self._refuse_if_stopping()
            self._arrived += 1
            return self._arrived

    @contextmanager
    def enter_run(self, run: AgentTurn) -> Iterator[None]:
        """Register a turn while the block runs, and supersede earlier turns of its chat.

        Raises:
            Denied: the runtime is shutting down.
        """
        with self._changed:
            self._refuse_if_stopping()
            runs = self._runs.setdefault(run.session_key, [])
            # A message that arrived earlier may enter later, so runs are sorted by arrival.
            runs.append(run)
            runs.sort(key=lambda turn: turn.number)
            for earlier in runs[:-1]:
                earlier.superseded = True
        try:
            yield
        finally:
            with self._changed:
                runs = self._runs[run.session_key]
                runs.remove(run)
                if not runs:
                    del self._runs[run.session_key]
                    self._changed.notify_all()

    def supersede_turns(self, session_key: str) -> None:
        """Mark the active turns of a chat as superseded, so that they no longer change the chat."""
        with self._changed:
            for run in self._runs.get(session_key, ()):
                run.superseded = True

    def claim_end(self, run: AgentTurn) -> bool:
        """Return True to the first caller, which then reports the end of the turn."""
        with self._changed:
            is_reported, run.is_end_reported = run.is_end_reported, True
        return not is_reported

    def refuse_new_turns(self) -> None:
        """Refuse all further messages and turns."""
        with self._changed:
            self._stopping = True

    def _refuse_if_stopping(self) -> None:
        if self._stopping:
            raise Denied("shutting down; send the message again in a moment")

    def drain_turns(self, wait_s: float) -> dict[str, list[AgentTurn]]:
        """Wait up to `wait_s` until no turn is active.

        Return the others, marked as superseded.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._runs, wait_s)
            remaining = {key: list(runs) for key, runs in self._runs.items()}
            for key in remaining:
                # A turn that outlives the shutdown writes nothing back.
                self.supersede_turns(key)
            return remaining


def resolve_awaitable(value: Any) -> Any:
    """Return a value, or run an awaitable on a new event loop and return its result.

    Raises:
        InvalidInput: an event loop runs in this thread.
    """
    if not inspect.isawaitable(value):
        return value
    if get_running_loop() is not None:
        if inspect.iscoroutine(value):
            value.close()
        raise InvalidInput("an async agent cannot run in an event loop here; await `ahandle`")

    async def await_value() -> Any:
        return await value

    return anyio.run(await_value)


def check_agent(agent: Any) -> Any:
    """Return the agent that a factory made, if it is callable.

    Raises:
        InvalidInput: the value is not callable.
    """
    if not callable(agent):
        raise InvalidInput(
            "build(run) must return an agent, a function of run and message, "
            f"got {_describe_type(agent)}"
        )
    return agent


def check_result(result: Any) -> Any:
    """Return the result of an agent, if it is valid.

    Raises:
        InvalidInput: the result is not text, None, or a mapping whose `final_response` is text
            or None.
    """
    text = result.get("final_response") if isinstance(result, Mapping) else result
    if text is not None and not isinstance(text, str):
        raise InvalidInput(
            "an agent must return text, None, or a mapping whose final_response is text or "
            f"None, got {_describe_type(text)}"
        )
    return result


def _describe_type(value: Any) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


async def call_function(
    function: Callable[..., Any], *args: Any, threads: WorkerThreads, ending: SharedExitStack
) -> Any:
    """Call a sync function in a worker thread that keeps the turn open, or await an async one."""
    if inspect.iscoroutinefunction(function):
        return await function(*args)
    # Before the thread begins: a cancelled coroutine must not close the turn under it.
    ending.add_holder()
    value = await threads.run(partial(function, *args), on_end=ending.release_holder)
    return await value if inspect.isawaitable(value) else value


class TurnFinisher:
    """Stores the results of turns, unless a later turn of the chat has begun.

    It owns the registry of active turns and the titles that wait for their session.
    """

    def __init__(
        self,
        store: SessionStore,
        db: StateDatabase,
        hooks: Hooks,
        report: Reporter,
        reset: Callable[[str], object],
    ) -> None:
        self.active_runs = ActiveRuns()
        self.titles = PendingTitles(db, report)
        self._store = store
        self._db = db
        self._hooks = hooks
        self._report = report
        self._reset = reset

    def release_lease(self, run: AgentTurn) -> None:
        """Release the lease of a turn, if the turn still holds it."""
        token, run.token = run.token, None
        if token is not None:
            with self.report_errors(f"the turn lease of {run.session_key} was not released"):
                self._store.drop_turn(run.session_key, token)

    def leave_session(self, session_key: str) -> None:
        """Supersede the active turns of a chat that has left its session."""
        self.titles.drop_title(session_key)
        self.active_runs.supersede_turns(session_key)

    def finish_turn(self, run: AgentTurn, result: AgentResult) -> Reply:
        """Store the results of a turn and return the reply."""
        outcome = normalize_result(result)
        failed = bool(outcome.get("failed"))
        is_complete = not any(outcome.get(flag) for flag in ("failed", "partial", "interrupted"))
        history_len = 0
        with self.report_errors(f"the message count of {run.session_key} is not available"):
            history_len = self._db.message_count(run.session_id) if failed else 0
        text = normalize_empty_agent_response(
            outcome, outcome.get("final_response"), history_len=history_len
        )
        # A reply is returned even if the results of the turn cannot be stored.
        with self.report_errors(f"the results of a turn of {run.session_key} were not stored"):
            self._store_results(run, outcome, whole=is_complete)
        # Read before the reset below, which supersedes this turn itself.
        superseded = run.superseded
        if outcome.get("compression_exhausted") and not superseded:
            with self.report_errors(f"{run.session_key} could not be reset"):
                self._reset(run.session_key)
        self.end_turn(
            run,
            completed=is_complete,
            interrupted=bool(outcome.get("interrupted")),
            **pick_hook_arguments(outcome, "model", "task_id", "turn_id"),
        )
        return Reply(text, run.session_id, run.session_key, superseded, failed)

    def _store_results(self, run: AgentTurn, outcome: Mapping[str, Any], *, whole: bool) -> None:
        with self.report_errors(f"{run.session_key} did not move to the session of its agent"):
            self._follow_agent(run, outcome.get("session_id"))
        if not run.superseded:
            run.catch_up()
        # Moving the route may have shown that a later turn owns the chat.
        if run.superseded:
            return
        tokens, token = outcome.get("last_prompt_tokens"), run.token
        if not self._store.turns.end_turn(
            run.session_key, run.session_id, tokens, finished=whole, token=token
        ):
            run.superseded = True
            return
        run.token = None
        if whole:
            self.titles.apply_title(run.session_key, run.session_id)

    def _follow_agent(self, run: AgentTurn, session_id: str | None) -> None:
        """Move a turn to the session that its agent names.

        Drop the agent if that fails.
        """
        if not session_id:
            return
        try:
            if self._db.get_compression_tip(check_session_id(session_id)) != run.session_id:
                run.follow(session_id)
        except (InvalidInput, NotFound):
            if run.turn is not None:
                run.turn.forget_agent()
            raise

    @contextmanager
    def report_errors(self, what: str) -> Iterator[None]:
        """Report an error of the block instead of raising it."""
        try:
            yield
        except (SessionError, OSError) as error:
            self._report(what, error)

    def end_turn(
        self, run: AgentTurn, *, completed: bool, interrupted: bool = False, **details: Any
    ) -> None:
        """Report the end of a turn once, and release its lease."""
        with self.report_errors(f"the start of {run.session_id} was not reported"):
            run.announce_start()
        self.release_lease(run)
        # The later turn has an agent of its own, which the cache keeps.
        if run.superseded and run.turn is not None:
            run.turn.forget_agent()
        if self.active_runs.claim_end(run):
            self._hooks.call(
                "on_session_end",
                session_id=run.session_id,
                platform=run.platform,
                completed=completed,
                interrupted=interrupted,
                **details,
            )


T = TypeVar("T")


class TurnRunner:
    """Runs the agents of all chats and keeps track of active turns.

    Only the agent call differs between sync and async; the steps before and after it are shared. A
    superseded turn no longer changes the chat; the later turn has an agent of its own.
    """

    def __init__(
        self,
        store: SessionStore,
        build: AgentFactory,
        *,
        db: StateDatabase | None = None,
        cache: AgentCache[Agent] | None = None,
        hooks: Hooks | None = None,
        signature: Callable[[SessionEntry], Any] = get_selected_model,
        report: Reporter = log_fault,
    ) -> None:
        state = store.db if db is None else db
        if state is None:
            raise NotFound("the runtime needs a state database; pass db or a store with one")
        check_database(store, state)
        if None not in {hooks, store.hooks} and hooks is not store.hooks:
            raise InvalidInput(
                "the store has other hooks; pass the same hooks to both, or to one only"
            )
        self.store = store
        self.db = state
        self.hooks = store.hooks = hooks or store.hooks or Hooks(report=report)
        self.cache: AgentCache[Agent] = AgentCache(state, report=report) if cache is None else cache
        self._build = build
        self._signature = signature
        store.report = report
        self._closings: set[Future[Any]] = set()
        self._finisher = TurnFinisher(store, state, self.hooks, report, self.reset)
        # Before the first delivery, which asks the marks of all processes.
        if state.kind == "hermes":
            from session_core.ledger.hermes_delivery_marks import persist_marks  # noqa: PLC0415 -- for Hermes homes only

            persist_marks(store, state, report)
        with self._finisher.report_errors("pending hook calls will be delivered later"):
            store.deliver_pending_hooks()
        # After the delivery, since the check leaves a route with a pending boundary as it is.
        if state.kind == "own":
            with self._finisher.report_errors(
                "the routes could not be compared with their sessions"
            ):
                store.repair_routes()

    @property
    def running(self) -> list[str]:
        """The session keys of the chats with an active turn."""
        return self._finisher.active_runs.list_session_keys()

    def reset(self, session_key: str) -> str:
        """Start a new session for a chat on request and return the confirmation text."""
        entry = self.store.reset_session(session_key)
        self._finisher.leave_session(session_key)
        self.cache.evict(session_key)
        if entry is None:
            return "New session: your next message begins it."
        return f"Session reset. New session {entry.session_id} begins with your next message."

    def handle(self, source: SessionSource, message: Any) -> Reply:
        """Answer a message of a chat, and return the reply.

        An async agent runs on a new event loop. On an event loop, use `ahandle`.

        Args:
            source: the chat and the sender of the message.
            message: the message, which is passed to the agent.

        Raises:
            Denied: the runtime is shutting down.
        """
        run = self._begin_turn(source)
        try:
            with self._enter_turn(run):
                return self._answer_message(run, message)
        finally:
            # A turn that the shutdown refuses has a lease and no end.
            self._finisher.release_lease(run)

    async def ahandle(self, source: SessionSource, message: Any) -> Reply:
        """Answer a message of a chat without blocking the event loop, also for a sync agent.

        A caller that is cancelled gets control back at once. A sync agent cannot be stopped: its
        turn ends when the agent returns, and its result is dropped.

        Raises:
            Denied: the runtime is shutting down.
        """
        ending = SharedExitStack()
        try:
            run = await self._begin_turn_in_thread(source, ending)
            with run.context():
                run.make_current()
                result = await self._call_agent(run, message, ending)
                run.make_current()
                finishing = self._close_in_thread(
                    partial(self._finish_and_release, run, result, ending)
                )
        except BaseException as error:
            closing = self._close_in_thread(ending.release_holder)
            # The turn must end even if its coroutine is cancelled, so a thread closes it.
            if isinstance(error, Exception):  # a cancelled caller does not wait
                await wait_until_finished(closing)
            raise
        await wait_until_finished(finishing)
        return finishing.result()

    def _answer_message(self, run: AgentTurn, message: Any) -> Reply:
        try:
            with self._claim_agent(run) as turn:
                agent = turn.agent
                if agent is None:
                    agent = turn.keep_agent(check_agent(resolve_awaitable(self._build(run))))
                result = check_result(resolve_awaitable(agent(run, message)))
                run.make_current()
                return self._finisher.finish_turn(run, result)
        except BaseException:
            self._finisher.end_turn(run, completed=False)
            raise

    async def _begin_turn_in_thread(
        self, source: SessionSource, ending: SharedExitStack
    ) -> AgentTurn:
        def begin_turn() -> AgentTurn:
            run = self._begin_turn(source)
            # Registered here, because a coroutine that is cancelled meanwhile never gets the turn.
            ending.stack.callback(self._finisher.release_lease, run)
            return run

        ending.add_holder()
        run = await get_worker_threads(self, "calls").run(begin_turn, on_end=ending.release_holder)
        ending.stack.enter_context(self._finisher.active_runs.enter_run(run))
        ending.stack.callback(
            self._finisher.end_turn, run, completed=False
        )  # no effect if already ended
        return run

    async def _call_agent(
        self, run: AgentTurn, message: Any, ending: SharedExitStack
    ) -> AgentResult:
        call_in_turn = partial(
            call_function, threads=get_worker_threads(self, "agents"), ending=ending
        )
        turn = await self._claim_agent(run).__aenter__()
        ending.stack.push(turn)
        agent = turn.agent
        if agent is None:
            agent = turn.keep_agent(check_agent(await call_in_turn(self._build, run)))
        return cast("AgentResult", check_result(await call_in_turn(agent, run, message)))

    def _close_in_thread(self, function: Callable[[], T]) -> Future[T]:
        """Run the end of a turn in a thread, for which a shutdown always waits."""
        closing = get_worker_threads(self, "calls").submit(function)
        self._closings.add(closing)
        closing.add_done_callback(self._closings.discard)
        return closing

    def _finish_and_release(
        self, run: AgentTurn, result: AgentResult, ending: SharedExitStack
    ) -> Reply:
        try:
            return self._finisher.finish_turn(run, result)
        finally:
            ending.release_holder()

    def _begin_turn(self, source: SessionSource) -> AgentTurn:
        """Find the session of a message and record its turn, in one commit.

        After the commit no watcher of any process ends the session during the turn.
        """
        # Before the first wait for the database, so that turns are in the order of arrival.
        number = self._finisher.active_runs.register_message()
        # The token is stored with the route, so that watchers of other processes see the turn.
        token = create_token()
        routed = self.store.router.route_message(source, turn=token)
        entry = routed.entry
        try:
            run = AgentTurn(entry, self.store, self.db, source, has_session=routed.has_session)
            run.token, run.number = token, number
            self._prepare_start(run, entry)
        except BaseException:
            # The lease is stored, and no turn would release it while this process lives.
            self.store.drop_turn(entry.key, token)
            raise
        return run

    def _prepare_start(self, run: AgentTurn, entry: SessionEntry) -> None:
        """Prepare the report of a session start, which follows the creating append."""
        self.hooks.mark_reopened(run.session_id)
        if entry.is_fresh_reset or entry.was_auto_reset:
            # The agent may hold messages from before the reset that were never stored.
            self.cache.evict(run.session_key, unless=run.session_id)
        # Several processes may begin a turn in a session; only the append that creates it reports.
        run.report_start = partial(
            self.hooks.call_once,
            "on_session_start",
            session_id=run.session_id,
            platform=run.platform,
            **pick_hook_arguments(entry.model_override or {}, "model"),
        )

    def _claim_agent(self, run: AgentTurn) -> CachedTurn[Agent]:
        signature = self._signature(run.entry)
        run.turn = self.cache.claim(run.session_key, signature, run.session_id, alone=True)
        return run.turn

    @contextmanager
    def _enter_turn(self, run: AgentTurn) -> Iterator[None]:
        with self._finisher.active_runs.enter_run(run), run.context():
            run.make_current()
            yield


class SharedExitStack:
    """An exit stack that closes after its last holder has released it.

    The holders are the coroutine of a turn and the calls that it runs in threads, which may outlive
    a cancelled coroutine.
    """

    def __init__(self) -> None:
        self.stack = ExitStack()
        self._lock = threading.Lock()
        self._holders = 1

    def add_holder(self) -> None:
        """Add a holder, which must call `release_holder`."""
        with self._lock:
            self._holders += 1

    def release_holder(self) -> None:
        """Remove a holder.

        The last holder closes the stack. Never called on an event loop.
        """
        with self._lock:
            self._holders -= 1
            is_last = self._holders == 0
        if is_last:
            self.stack.close()
