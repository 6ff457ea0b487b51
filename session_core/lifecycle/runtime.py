"""`SessionRuntime`: a turn from message to reply, and the other verbs of a session's life.

Only the agent itself is awaited or called in between; what comes before and after it is the same
for sync and async. A run that was superseded by a later message of its chat writes nothing back.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anyio
from anyio import to_thread

from session_core.errors import Denied, NotFound, SessionError
from session_core.hooks import Hooks
from session_core.isolated import Report, log_fault
from session_core.keys import SessionSource, platform_of
from session_core.lifecycle.agent_cache import AgentCache
from session_core.lifecycle.replies import normalize_empty_agent_response
from session_core.lifecycle.run import Run
from session_core.routing.entries import SessionEntry
from session_core.routing.store import SessionStore
from session_core.state.contract import StateDatabase

VIEWERS = frozenset(
    {
        "", "tui", "cli", "webui", "desktop", "cron", "subagent", "test", "local", "acp",
        "webhook", "api_server", "msgraph_webhook",
    }
)  # fmt: skip
"""Sources that are no chat platform: closing a view of such a session ends it."""

_POLL_S = 0.02

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


class SessionRuntime:
    """Runs the agents of all chats.

    `build(run)` makes the agent of a session, `agent(run, message)` answers a message: with text,
    or with a mapping that may hold `final_response`, `session_id` (where a compression went on in
    another session), `failed`, `partial`, `interrupted`, `error`, `api_calls`,
    `last_prompt_tokens` and `compression_exhausted`. Both may be async.
    """

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
        state = db or store.db
        if state is None:
            raise NotFound("a runtime keeps what is said, and needs a state database")
        self.store = store
        self.db = state
        self.hooks = hooks or store.hooks or Hooks()
        store.hooks = self.hooks
        self.cache: AgentCache[Agent] = AgentCache(state) if cache is None else cache
        self._build = build
        self._signature = signature
        self._report = report
        self._lock = threading.Lock()
        self._runs: dict[str, list[Run]] = {}
        self._titles: dict[str, str] = {}
        self._stopping = False

    # -- a turn ------------------------------------------------------------------------------

    def handle(self, source: SessionSource, message: Any) -> Reply:
        """Answer a message of a chat; an async agent runs on a loop of its own.

        Raises:
            Denied: the runtime is shutting down.
        """
        with self._running(self._begin(source)) as run:
            key = run.session_key
            with self.cache.claim(key, self._signature(run.entry), run.session_id) as turn:
                run.turn = turn
                agent = turn.agent or turn.keep(_wait_for(self._build(run)))
                result = _wait_for(agent(run, message))
                return self._finish(run, result)

    async def ahandle(self, source: SessionSource, message: Any) -> Reply:
        """Answer a message of a chat; the loop goes on meanwhile, also while the agent is sync.

        Raises:
            Denied: the runtime is shutting down.
        """
        begun = await to_thread.run_sync(self._begin, source)
        with self._running(begun) as run:
            key = run.session_key
            async with self.cache.claim(key, self._signature(run.entry), run.session_id) as turn:
                run.turn = turn
                agent = turn.agent or turn.keep(await _called(self._build, run))
                result = await _called(agent, run, message)
                return await to_thread.run_sync(self._finish, run, result)

    def _begin(self, source: SessionSource) -> Run:
        with self._lock:
            if self._stopping:
                raise Denied("shutting down; send the message again in a moment")
        entry = self.store.get_or_create_session(source)
        run = Run(entry, self.store, self.db)
        if self.db.get_session(entry.session_id) is None:
            self.hooks.once("on_session_start", session_id=run.session_id, platform=run.platform)
        with self._lock:
            for earlier in self._runs.get(run.session_key, ()):
                earlier.superseded = True
            self._runs.setdefault(run.session_key, []).append(run)
        return run

    @contextmanager
    def _running(self, run: Run) -> Iterator[Run]:
        try:
            with run.context():
                yield run
        except BaseException:
            self._tell_end(run, completed=False)
            raise
        finally:
            with self._lock:
                runs = self._runs[run.session_key]
                runs.remove(run)
                if not runs:
                    del self._runs[run.session_key]

    def _finish(self, run: Run, result: Result) -> Reply:
        """Write back what the turn has changed, and say what a person is answered."""
        told = _told(result)
        failed = bool(told.get("failed"))
        history_len = self.db.message_count(run.session_id) if failed else 0
        text = normalize_empty_agent_response(
            told, told.get("final_response"), history_len=history_len
        )
        whole = not any(told.get(flag) for flag in ("failed", "partial", "interrupted"))
        if not run.superseded:
            self._write_back(run, told, whole=whole)
        self._tell_end(run, completed=whole, interrupted=bool(told.get("interrupted")))
        return Reply(text, run.session_id, run.session_key, run.superseded, failed)

    def _tell_end(self, run: Run, *, completed: bool, interrupted: bool = False) -> None:
        self.hooks.call(
            "on_session_end",
            session_id=run.session_id,
            platform=run.platform,
            completed=completed,
            interrupted=interrupted,
        )

    def _write_back(self, run: Run, told: Mapping[str, Any], *, whole: bool) -> None:
        moved_to = told.get("session_id")
        if moved_to:
            run.follow(moved_to)
        self.store.update_session(run.session_key, told.get("last_prompt_tokens"))
        if whole:
            self.store.clear_resume_pending(run.session_key)
            self._apply_title(run.session_key, run.session_id)
        if told.get("compression_exhausted"):
            self.reset(run.session_key)

    # -- titles ------------------------------------------------------------------------------

    def set_title(self, session_key: str, title: str) -> None:
        """Title the session of a chat, once it is there: after its next turn that succeeds."""
        self._titles[session_key] = title
        session_id = self.store.peek_session_id(session_key)
        if session_id is not None:
            self._apply_title(session_key, session_id)

    def _apply_title(self, session_key: str, session_id: str) -> None:
        """A title that is refused is dropped; after another fault it is tried at the next turn."""
        title = self._titles.get(session_key)
        if title is None:
            return
        try:
            if not self.db.set_session_title(session_id, title):
                return
        except ValueError as error:
            self._report(f"the title of {session_key} was refused", error)
        except SessionError as error:
            self._report(f"the title of {session_key} is not set yet", error)
            return
        self._titles.pop(session_key, None)

    # -- the other verbs ---------------------------------------------------------------------

    def reset(self, session_key: str) -> str:
        """Begin a new session because somebody asked, and say so, whatever a hook did."""
        entry = self.store.reset_session(session_key)
        self._titles.pop(session_key, None)
        self.cache.evict(session_key)
        if entry is None:
            return "New session: your next message begins it."
        return f"Session reset. New session {entry.session_id} begins with your next message."

    def switch(self, session_key: str, target_session_id: str) -> SessionEntry:
        """Put a chat into another session, which is reopened, at its tip.

        Raises:
            NotFound: there is no such session, or no such chat.
        """
        target = self.db.get_compression_tip(target_session_id)
        entry = self.store.switch_session(session_key, target)
        if entry is None:
            raise NotFound(f"no route for {session_key!r}")
        self._titles.pop(session_key, None)
        return entry

    def finalize(
        self, session_key: str, end_reason: str = "closed", *, viewer: bool = False
    ) -> str | None:
        """End the session of a chat and tell the hooks; return its id.

        It is the one in which the agent is by now; without an agent, the one that the key leads to
        or is. A viewer that closes leaves the session of a chat platform as it is.
        """
        session_id = self._session_of(session_key)
        row = self.db.get_session(session_id)
        if viewer and row is not None and row["source"] not in VIEWERS:
            return None
        platform = row["source"] if row is not None else platform_of(session_key)
        self.hooks.once(
            "on_session_finalize", session_id=session_id, platform=platform, reason=end_reason
        )
        self.db.end_session(session_id, end_reason)
        self.cache.evict(session_key)
        return session_id

    def _session_of(self, session_key: str) -> str:
        with self._lock:
            runs = self._runs.get(session_key)
            if runs:
                return runs[-1].session_id
        return self.store.peek_session_id(session_key) or session_key

    @property
    def running(self) -> list[str]:
        """The keys of the chats in which an agent is at work."""
        with self._lock:
            return list(self._runs)

    def shutdown(self, drain_s: float = 0.0) -> list[str]:
        """Take no more messages, wait for the agents at work, and close; return who was cut off.

        Those are marked as interrupted before the wait, so that a kill in the middle is no loss,
        and their next message goes on where they were.
        """
        with self._lock:
            self._stopping = True
        for key in self.running:
            self.store.mark_resume_pending(key, "shutdown_timeout")
        deadline = time.monotonic() + drain_s
        while self.running and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        cut_off = []
        with self._lock:
            left = [runs[-1] for runs in self._runs.values()]
        for run in left:
            run.superseded = True
            cut_off.append(run.session_key)
            self.hooks.once(
                "on_session_finalize",
                session_id=run.session_id,
                platform=run.platform,
                reason="shutdown",
            )
        self.cache.clear()
        self.store.close()
        return cut_off


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
