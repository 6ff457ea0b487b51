"""A turn of an agent, from a message to its reply.

Only the agent itself is awaited or called in between; what comes before and after it is the same
for sync and async. A run that was superseded by a later message of its chat, or whose chat was put
into another session meanwhile, writes nothing back.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anyio
from anyio import to_thread

from session_core.errors import Denied, NotFound, SessionError
from session_core.hooks import Hooks
from session_core.isolated import Report, log_fault
from session_core.keys import SessionSource
from session_core.lifecycle.agent_cache import AgentCache
from session_core.lifecycle.replies import normalize_empty_agent_response
from session_core.lifecycle.run import Run
from session_core.lifecycle.titles import PendingTitles
from session_core.routing.entries import SessionEntry
from session_core.routing.store import SessionStore
from session_core.state.contract import StateDatabase

Result = Mapping[str, Any] | str | None
Agent = Callable[[Run, Any], "Result | Awaitable[Result]"]
Factory = Callable[[Run], "Agent | Awaitable[Agent]"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a person is answered, and in which session that was."""

    text: str
    session_id: str
    session_key: str
    superseded: bool = False
    failed: bool = False


class Turns:
    """Runs the agents of all chats, and knows which of them are at work."""

    def __init__(
        self,
        store: SessionStore,
        build: Factory,
        *,
        db: StateDatabase | None = None,
        cache: AgentCache[Agent] | None = None,
        hooks: Hooks | None = None,
        signature: Callable[[SessionEntry], Any] = lambda _: None,
        report: Report = log_fault,
    ) -> None:
        state = store.db if db is None else db
        if state is None:
            raise NotFound("a runtime keeps what is said, and needs a state database")
        if hooks is None:
            hooks = Hooks() if store.hooks is None else store.hooks
        self.store = store
        self.db = state
        self.hooks = store.hooks = hooks
        self.cache: AgentCache[Agent] = AgentCache(state) if cache is None else cache
        self._build = build
        self._signature = signature
        self._report = report
        self._changed = threading.Condition()
        self._runs: dict[str, list[Run]] = {}
        self._titles = PendingTitles(state, report)
        self._stopping = False

    @property
    def running(self) -> list[str]:
        """The keys of the chats in which an agent is at work."""
        with self._changed:
            return list(self._runs)

    def handle(self, source: SessionSource, message: Any) -> Reply:
        """Answer a message of a chat; an async agent runs on a loop of its own.

        Raises:
            Denied: the runtime is shutting down.
        """
        with self._running(self._begin(source)) as run:
            signature = self._signature(run.entry)
            with self.cache.claim(run.session_key, signature, run.session_id) as turn:
                run.turn = turn
                agent = turn.agent
                if agent is None:
                    agent = turn.keep(_wait_for(self._build(run)))
                result = _wait_for(agent(run, message))
                run.make_current()
                return self._finish(run, result)

    async def ahandle(self, source: SessionSource, message: Any) -> Reply:
        """Answer a message of a chat; the loop goes on meanwhile, also while the agent is sync.

        Raises:
            Denied: the runtime is shutting down.
        """
        with self._running(await to_thread.run_sync(self._begin, source)) as run:
            signature = self._signature(run.entry)
            async with self.cache.claim(run.session_key, signature, run.session_id) as turn:
                run.turn = turn
                agent = turn.agent
                if agent is None:
                    agent = turn.keep(await _called(self._build, run))
                result = await _called(agent, run, message)
                run.make_current()
                return await to_thread.run_sync(self._finish, run, result)

    def _begin(self, source: SessionSource) -> Run:
        with self._changed:
            self._refuse_if_stopping()
        entry = self.store.get_or_create_session(source)
        run = Run(entry, self.store, self.db, source)
        if self.db.get_session(entry.session_id) is None:
            self.hooks.once("on_session_start", session_id=run.session_id, platform=run.platform)
        return run

    def _refuse_if_stopping(self) -> None:
        if self._stopping:
            raise Denied("shutting down; send the message again in a moment")

    @contextmanager
    def _running(self, run: Run) -> Iterator[Run]:
        """Be at work in a chat, in place of whoever is at work there already."""
        with self._changed:
            self._refuse_if_stopping()
            self._supersede(run.session_key)
            self._runs.setdefault(run.session_key, []).append(run)
        try:
            with run.context():
                run.make_current()
                try:
                    yield run
                except BaseException:
                    self._tell_end(run, completed=False)
                    raise
        finally:
            with self._changed:
                runs = self._runs[run.session_key]
                runs.remove(run)
                if not runs:
                    del self._runs[run.session_key]
                    self._changed.notify_all()

    def _supersede(self, session_key: str) -> None:
        """Let those at work in a chat write nothing back."""
        with self._changed:
            for run in self._runs.get(session_key, ()):
                run.superseded = True

    def _finish(self, run: Run, result: Result) -> Reply:
        """Write back what the turn has changed, and say what a person is answered."""
        told = _told(result)
        failed = bool(told.get("failed"))
        history_len = self.db.message_count(run.session_id) if failed else 0
        text = normalize_empty_agent_response(
            told, told.get("final_response"), history_len=history_len
        )
        whole = not any(told.get(flag) for flag in ("failed", "partial", "interrupted"))
        try:
            self._write_back(run, told, whole=whole)
        except (SessionError, OSError) as error:  # the reply is there, and is worth more
            self._report(f"what a turn of {run.session_key} has changed is not stored", error)
        superseded = run.superseded
        if told.get("compression_exhausted") and not superseded:
            self._begin_afresh(run)
        self._tell_end(run, completed=whole, interrupted=bool(told.get("interrupted")))
        return Reply(text, run.session_id, run.session_key, superseded, failed)

    def _write_back(self, run: Run, told: Mapping[str, Any], *, whole: bool) -> None:
        if told.get("session_id"):
            run.follow(told["session_id"])
        if run.superseded:
            return
        tokens = told.get("last_prompt_tokens")
        if not self.store.end_turn(run.session_key, run.session_id, tokens, finished=whole):
            run.superseded = True
        elif whole:
            self._titles.apply(run.session_key, run.session_id)

    def _begin_afresh(self, run: Run) -> None:
        """Reset a chat whose session can be compressed no further."""
        raise NotImplementedError

    def _tell_end(self, run: Run, *, completed: bool, interrupted: bool = False) -> None:
        self.hooks.call(
            "on_session_end",
            session_id=run.session_id,
            platform=run.platform,
            completed=completed,
            interrupted=interrupted,
        )


def _told(result: Result) -> Mapping[str, Any]:
    """Return what an agent told; one that answers with text alone did its work."""
    if isinstance(result, Mapping):
        return result
    return {"final_response": result, "api_calls": 1}


def _wait_for(value: Any) -> Any:
    """Return a value, waiting for it on a loop of its own where it is awaitable."""
    if not inspect.isawaitable(value):
        return value

    async def settle() -> Any:
        return await value

    return anyio.run(settle)


async def _called(function: Callable[..., Any], *args: Any) -> Any:
    """Call what may be sync or async; sync code runs in a worker thread."""
    if inspect.iscoroutinefunction(function):
        return await function(*args)
    value = await to_thread.run_sync(function, *args)
    return await value if inspect.isawaitable(value) else value
