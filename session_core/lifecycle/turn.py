"""Calls of agents and of their factories, each of which may be sync or async.

What a turn of an agent leaves behind: the reply, its session and route, and who is told.

A turn of an agent, from a message to its reply.

Only the agent itself is awaited or called in between; what comes before and after it is the same
for sync and async. A run that was superseded by a later message of its chat, or whose chat was put
into another session meanwhile, writes nothing back; the later one has an agent of its own.

The end of a turn whose coroutine may be cancelled while a call of it still runs in a thread.
"""

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
from session_core.errors import InvalidInput, NotFound, SessionError
from session_core.event_loops import get_running_loop
from session_core.hooks import Hooks
from session_core.hooks.calls import Reporter, log_fault
from session_core.lifecycle.active_runs import ActiveRuns
from session_core.lifecycle.agent_cache import AgentCache
from session_core.lifecycle.agent_turn import AgentTurn
from session_core.lifecycle.cache_table import CachedTurn
from session_core.lifecycle.replies import PendingTitles, normalize_empty_agent_response
from session_core.lifecycle.types import (
    Agent,
    AgentFactory,
    AgentResult,
    Reply,
    get_model,
    normalize_result,
    pick_known,
)
from session_core.routing.entries import SessionEntry
from session_core.routing.leases import create_token
from session_core.routing.store import SessionStore, check_database
from session_core.state.protocol import StateDatabase


def resolve_awaitable(value: Any) -> Any:
    """Return a value, waiting for it on a loop of its own where it is awaitable.

    Raises:
        InvalidInput: a loop runs in this thread, which cannot be waited for.
    """
    if not inspect.isawaitable(value):
        return value
    if get_running_loop() is not None:
        if inspect.iscoroutine(value):
            value.close()
        raise InvalidInput("an async agent is not run by `handle` inside a loop; await `ahandle`")

    async def settle() -> Any:
        return await value

    return anyio.run(settle)


def check_agent(made: Any) -> Any:
    """Return the agent that a factory has made.

    Raises:
        InvalidInput: it is none.
    """
    if not callable(made):
        raise InvalidInput(
            f"build(run) has returned {_describe_type(made)}; let it return the agent of the "
            "session, "
            "a function of run and message"
        )
    return made


def check_result(result: Any) -> Any:
    """Return what an agent has answered with.

    Raises:
        InvalidInput: that is nothing that a person can be answered.
    """
    told = result.get("final_response") if isinstance(result, Mapping) else result
    if told is not None and not isinstance(told, str):
        raise InvalidInput(
            f"the agent has answered with {_describe_type(told)}; let it return text, None, "
            "or a mapping "
            "whose final_response is one of these"
        )
    return result


def _describe_type(given: Any) -> str:
    return "None" if given is None else f"something of the type {type(given).__name__}"


async def call_function(
    function: Callable[..., Any], *args: Any, threads: WorkerThreads, ending: SharedExitStack
) -> Any:
    """Call a function; one that is sync runs in a worker thread and keeps the turn open."""
    if inspect.iscoroutinefunction(function):
        return await function(*args)
    ending.hold()
    value = await threads.run(partial(function, *args), on_end=ending.release)
    return await value if inspect.isawaitable(value) else value


class TurnFinisher:
    """Writes back what turns have changed, unless a later one of the chat has begun."""

    def __init__(
        self,
        store: SessionStore,
        build: AgentFactory,
        *,
        db: StateDatabase | None = None,
        cache: AgentCache[Agent] | None = None,
        hooks: Hooks | None = None,
        signature: Callable[[SessionEntry], Any] = get_model,
        report: Reporter = log_fault,
    ) -> None:
        state = store.db if db is None else db
        if state is None:
            raise NotFound("a runtime keeps what is said, and needs a state database")
        check_database(store, state)
        if None not in {hooks, store.hooks} and hooks is not store.hooks:
            raise InvalidInput(
                "the store has hooks of its own; give it none, or give both the same"
            )
        self.store = store
        self.db = state
        self.hooks = store.hooks = hooks or store.hooks or Hooks(report=report)
        self.cache: AgentCache[Agent] = AgentCache(state, report=report) if cache is None else cache
        self._build = build
        self._signature = signature
        self._report = store.report = report
        self._at_work = ActiveRuns()
        self._closings: set[Future[Any]] = set()
        self._titles = PendingTitles(state, report)
        if state.kind == "hermes":
            from session_core.ledger.hook_deliveries import persist_marks  # noqa: PLC0415 -- the others need none

            persist_marks(store, state, report)
        with self._report_errors("what was owed to the hooks is told later"):
            store.deliver_pending_hooks()
        if state.kind == "own":
            with self._report_errors("the routes could not be checked against their sessions"):
                store.repair_routes()

    def reset(self, session_key: str) -> str:
        """Begin a new session because somebody asked, and say so, whatever a hook did."""
        entry = self.store.reset_session(session_key)
        self._leave_session(session_key)
        self.cache.evict(session_key)
        if entry is None:
            return "New session: your next message begins it."
        return f"Session reset. New session {entry.session_id} begins with your next message."

    def _clear_turn_note(self, run: AgentTurn) -> None:
        """Take the note back, unless that is done or a later turn has put its own there."""
        token, run.token = run.token, None
        if token is not None:
            with self._report_errors(f"{run.session_key} stays noted as at work"):
                self.store.drop_turn(run.session_key, token)

    def _leave_session(self, session_key: str) -> None:
        """Note that a chat has left its session, whoever is still at work there."""
        self._titles.drop_title(session_key)
        self._at_work.supersede(session_key)

    def _finish_turn(self, run: AgentTurn, result: AgentResult) -> Reply:
        """Write back what the turn has changed, and say what a person is answered."""
        told = normalize_result(result)
        failed = bool(told.get("failed"))
        whole = not any(told.get(flag) for flag in ("failed", "partial", "interrupted"))
        history_len = 0
        with self._report_errors(f"how long the session of {run.session_key} is cannot be told"):
            history_len = self.db.message_count(run.session_id) if failed else 0
        text = normalize_empty_agent_response(
            told, told.get("final_response"), history_len=history_len
        )
        # The reply is there, and is worth more than what cannot be stored beside it.
        with self._report_errors(f"what a turn of {run.session_key} has changed is not stored"):
            self._write_back(run, told, whole=whole)
        superseded = run.superseded
        if told.get("compression_exhausted") and not superseded:
            with self._report_errors(f"{run.session_key} could not be reset"):
                self.reset(run.session_key)
        self._end_turn(
            run,
            completed=whole,
            interrupted=bool(told.get("interrupted")),
            **pick_known(told, "model", "task_id", "turn_id"),
        )
        return Reply(text, run.session_id, run.session_key, superseded, failed)

    def _write_back(self, run: AgentTurn, told: Mapping[str, Any], *, whole: bool) -> None:
        with self._report_errors(f"{run.session_key} does not follow its agent"):
            self._follow_agent(run, told.get("session_id"))
        if not run.superseded:
            run.catch_up()
        if run.superseded:
            return
        tokens, token = told.get("last_prompt_tokens"), run.token
        if not self.store.end_turn(
            run.session_key, run.session_id, tokens, finished=whole, token=token
        ):
            run.superseded = True
            return
        run.token = None
        if whole:
            self._titles.apply_title(run.session_key, run.session_id)

    def _follow_agent(self, run: AgentTurn, goes_on_in: str | None) -> None:
        """Go where the agent says that it is; one that is elsewhere is kept no longer."""
        if not goes_on_in:
            return
        try:
            if self.db.get_compression_tip(check_session_id(goes_on_in)) != run.session_id:
                run.follow(goes_on_in)
        except (InvalidInput, NotFound):
            if run.turn is not None:
                run.turn.forget_agent()
            raise

    @contextmanager
    def _report_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except (SessionError, OSError) as error:
            self._report(what, error)

    def _end_turn(
        self, run: AgentTurn, *, completed: bool, interrupted: bool = False, **more: Any
    ) -> None:
        """Tell that a turn has ended, once: whoever cut it off has told it already."""
        with self._report_errors(f"the start of {run.session_id} is not told"):
            run.announce_start()
        self._clear_turn_note(run)
        if run.superseded and run.turn is not None:
            run.turn.forget_agent()
        if self._at_work.claim_end(run):
            self.hooks.call(
                "on_session_end",
                session_id=run.session_id,
                platform=run.platform,
                completed=completed,
                interrupted=interrupted,
                **more,
            )


T = TypeVar("T")


class TurnRunner(TurnFinisher):
    """Runs the agents of all chats, and knows which of them are at work."""

    @property
    def running(self) -> list[str]:
        """The keys of the chats in which an agent is at work."""
        return self._at_work.list_session_keys()

    def handle(self, source: SessionSource, message: Any) -> Reply:
        """Answer a message of a chat; an async agent runs on a loop of its own.

        Raises:
            Denied: the runtime is shutting down.
        """
        run = self._begin_turn(source)
        try:
            with self._enter_turn(run):
                return self._answer_message(run, message)
        finally:
            self._clear_turn_note(run)

    async def ahandle(self, source: SessionSource, message: Any) -> Reply:
        """Answer a message of a chat; the loop goes on meanwhile, also while the agent is sync.

        A cancelled caller gets control back at once. A sync agent cannot be stopped: its turn ends
        when it has returned, and its result is dropped.

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
            closing = self._close_in_thread(ending.release)
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
                return self._finish_turn(run, result)
        except BaseException:
            self._end_turn(run, completed=False)
            raise

    async def _begin_turn_in_thread(
        self, source: SessionSource, ending: SharedExitStack
    ) -> AgentTurn:
        def begin() -> AgentTurn:
            run = self._begin_turn(source)
            ending.stack.callback(self._clear_turn_note, run)
            return run

        ending.hold()
        run = await get_worker_threads(self, "calls").run(begin, on_end=ending.release)
        ending.stack.enter_context(self._at_work.enter_run(run))
        ending.stack.callback(self._end_turn, run, completed=False)  # unless it has ended otherwise
        return run

    async def _call_agent(
        self, run: AgentTurn, message: Any, ending: SharedExitStack
    ) -> AgentResult:
        call = partial(call_function, threads=get_worker_threads(self, "agents"), ending=ending)
        turn = await self._claim_agent(run).__aenter__()
        ending.stack.push(turn)
        agent = turn.agent
        if agent is None:
            agent = turn.keep_agent(check_agent(await call(self._build, run)))
        return cast("AgentResult", check_result(await call(agent, run, message)))

    def _close_in_thread(self, function: Callable[[], T]) -> Future[T]:
        """Run the end of a turn in a thread; a shutdown waits for it as it waits for no agent."""
        closing = get_worker_threads(self, "calls").submit(function)
        self._closings.add(closing)
        closing.add_done_callback(self._closings.discard)
        return closing

    def _finish_and_release(
        self, run: AgentTurn, result: AgentResult, ending: SharedExitStack
    ) -> Reply:
        try:
            return self._finish_turn(run, result)
        finally:
            ending.release()

    def _begin_turn(self, source: SessionSource) -> AgentTurn:
        """Let a message come in; the step that stores this notes that a turn has begun.

        From then on no watcher, of whatever process, ends the session in the middle of the turn.
        """
        number = self._at_work.register_message()
        token = create_token()
        entry = self.store.get_or_create_session(source, turn=token)
        try:
            run = AgentTurn(entry, self.store, self.db, source)
            run.token, run.number = token, number
            self._prepare_start(run, entry)
        except BaseException:
            self.store.drop_turn(entry.key, token)
            raise
        return run

    def _prepare_start(self, run: AgentTurn, entry: SessionEntry) -> None:
        """Let a run tell that its session begins; one that is in use has no end that was told."""
        self.hooks.mark_reopened(run.session_id)
        if entry.is_fresh_reset or entry.was_auto_reset:
            # It would take along what was said before the reset, where that was never stored.
            self.cache.evict(run.session_key, unless=run.session_id)
        # The append that creates the session decides: several processes may begin a turn in it.
        run.tell_start = partial(
            self.hooks.call_once,
            "on_session_start",
            session_id=run.session_id,
            platform=run.platform,
            **pick_known(entry.model_override or {}, "model"),
        )

    def _claim_agent(self, run: AgentTurn) -> CachedTurn[Agent]:
        signature = self._signature(run.entry)
        run.turn = self.cache.claim(run.session_key, signature, run.session_id, alone=True)
        return run.turn

    @contextmanager
    def _enter_turn(self, run: AgentTurn) -> Iterator[None]:
        with self._at_work.enter_run(run), run.context():
            run.make_current()
            yield


class SharedExitStack:
    """Closes a stack when the last holder lets go: the coroutine of a turn, or a call of it."""

    def __init__(self) -> None:
        self.stack = ExitStack()
        self._lock = threading.Lock()
        self._holders = 1

    def hold(self) -> None:
        """Keep the turn open until the same holder lets go."""
        with self._lock:
            self._holders += 1

    def release(self) -> None:
        """Let go; the last holder closes the stack, and so never does this on an event loop."""
        with self._lock:
            self._holders -= 1
            is_last = self._holders == 0
        if is_last:
            self.stack.close()
