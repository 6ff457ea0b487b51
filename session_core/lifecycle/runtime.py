"""`SessionRuntime`: runs the agents of all chats and changes their sessions."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import wait
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from session_core._typing import Self
from session_core.aio import get_worker_threads
from session_core.chats import get_key_platform
from session_core.errors import InvalidInput, NotFound
from session_core.event_loops import get_running_loop
from session_core.lifecycle.agent_turn import Agent, AgentFactory, AgentTurn
from session_core.lifecycle.replies import AgentResult, Reply
from session_core.lifecycle.turn import TurnRunner
from session_core.routing.entries import SessionEntry
from session_core.routing.recovery import is_finally_ended
from session_core.routing.session_store import SessionStore

__all__ = ["VIEWER_SOURCES", "Agent", "AgentFactory", "AgentResult", "Reply", "SessionRuntime"]

VIEWER_SOURCES = frozenset(
    {
        "", "tui", "cli", "webui", "desktop", "cron", "subagent", "test", "local", "acp",
        "webhook", "api_server", "msgraph_webhook",
    }
)  # fmt: skip
"""Sources other than chat platforms. Closing the viewer of such a session ends it."""

_CLOSING_TIMEOUT_S = 5.0
"""The time that a shutdown waits for turns whose agent has ended or was cancelled."""

_INTERRUPTED_REASON = "shutdown_timeout"

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")


def _make_async_verb(
    verb: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Return a coroutine function for a method, which finishes even if the caller is cancelled."""

    @wraps(verb)
    async def call_in_thread(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await get_worker_threads(self, "calls").run(partial(verb, self, *args, **kwargs))

    return call_in_thread


class SessionRuntime(TurnRunner):
    """Runs the agents of all chats.

    `handle` finds the session of a message, gets or builds its agent, calls it, and returns the
    reply. Agents append the messages of a turn themselves. Both `build` and the agents may be
    async. The answer of an agent is text, or a mapping that may have `final_response`, `session_id`
    (if a compression continued in another session), `failed`, `partial`, `interrupted`, `error`,
    `api_calls`, `last_prompt_tokens` and `compression_exhausted`. Its `model`, `task_id` and
    `turn_id` are passed to hooks.

    If `run.turn.how` is "switched", the agent is in another session and must reload its history. No
    agent is in two turns at once: if a message arrives during a turn of the same chat, it gets a
    new agent, which becomes the agent of the chat.

    Args:
        store: the session store of the home.
        build: a function that receives an `AgentTurn` and returns the agent of its session.
        db: the database of the home; by default, the database of the store.
        cache: the cache of agents; by default, a new `AgentCache`.
        hooks: the hooks to call; by default, the hooks of the store.
        signature: a function that receives the entry of a chat. If its value changes, the agent is
            built again. By default it returns the model that the chat has selected.
        report: a function that receives a message and an error that does not stop a turn.

    Example:
        >>> from session_core import SessionDB, SessionRuntime, SessionSource, SessionStore
        >>> def build(run):
        ...     def agent(run, message):
        ...         run.append("user", message)
        ...         return f"{len(run.history())} messages"
        ...     return agent
        >>> chat = SessionSource(platform="telegram", chat_id="42")
        >>> with SessionDB(":memory:") as db, SessionStore(db=db) as store:
        ...     with SessionRuntime(store, build) as runtime:
        ...         [runtime.handle(chat, text).text for text in ("hello", "again")]
        ['1 messages', '2 messages']
    """

    def set_title(self, session_key: str, title: str) -> None:
        """Set the title of a chat's session.

        If the session does not exist yet, the title is set after the next successful turn.
        """
        self._finisher.titles.request_title(session_key, title)
        session_id = self.store.peek_session_id(session_key)
        if session_id is not None:
            self._finisher.titles.apply_title(session_key, session_id)

    def switch(self, session_key: str, target_session_id: str) -> SessionEntry:
        """Move a chat to the tip of another session and reopen that session.

        Raises:
            NotFound: the session or the chat does not exist.
        """
        target = self.db.get_compression_tip(target_session_id)
        entry = self.store.switch_session(session_key, target)
        if entry is None:
            raise NotFound(f"session key {session_key!r} has no route")
        self._finisher.leave_session(session_key)
        return entry

    def resume(self, session_key: str, session: str) -> SessionEntry:
        """Move a chat to an earlier session, given by its id, a unique prefix or its title.

        Raises:
            InvalidInput: `session` is empty.
            NotFound: the session or the chat does not exist.
        """
        if not isinstance(session, str) or not session.strip():
            raise InvalidInput("session must be an id, a unique prefix of one, or a title")
        session_id = self.db.resolve_session_id(session) or self.db.resolve_session_by_title(
            session
        )
        if session_id is None:
            raise NotFound(f"session {session!r} does not exist; pass its id or its title")
        return self.switch(session_key, session_id)

    def finalize(
        self, session_key: str, end_reason: str = "closed", *, viewer: bool = False
    ) -> str | None:
        """End the session of a chat, call the hooks and return the id of the session.

        The session is the session of the newest active turn; without a turn, the session of the
        route; and without a route, the session whose id is `session_key`. If any process has
        reported the end already, it is not reported again.

        Args:
            session_key: the session key of the chat, or a session id.
            end_reason: the reason to store with the session.
            viewer: True if the caller only shows the session. Then a session of a chat platform is
                not ended, and None is returned.
        """
        runs = self._finisher.active_runs.list_runs(session_key)
        entry = self.store.get(session_key)
        session_id = runs[-1].session_id if runs else self._get_session_id(session_key, entry)
        row = self.db.get_session(session_id)
        platform = str(
            (row and row["source"]) or (entry and entry.platform) or get_key_platform(session_key)
        )
        if viewer and platform not in VIEWER_SOURCES:
            return None
        self._end_interrupted_turns(runs)
        # Otherwise the process that ended it delivers the end.
        if not is_finally_ended(row):
            self._deliver_session_end(session_key, session_id, platform, end_reason)
        self._finisher.leave_session(session_key)
        for run in runs:
            run.closed_as = end_reason
        self.db.end_session(session_id, end_reason)
        self._record_session_end(session_key, session_id)
        self.cache.evict(session_key)
        return session_id

    def shutdown(self, drain_s: float = 0.0) -> list[str]:
        """Refuse new messages, wait for active turns and close.

        Return the interrupted chats. Active chats are marked as interrupted before the wait, so
        that a kill during the wait loses nothing; their next message resumes the session. Hooks
        with a backlog get a short time to finish.

        Raises:
            InvalidInput: an event loop runs in this thread, and its agents could not end.
        """
        _refuse_in_event_loop("await ashutdown()")
        # First, so that no turn begins while this call waits for active turns.
        self._finisher.active_runs.refuse_new_turns()
        wait(list(self._closings), _CLOSING_TIMEOUT_S)  # let turns finish that are ending now
        # Marked before the wait: a kill during the wait must not lose the interruption.
        marked = [key for key in self.running if self._mark_interrupted(key)]
        interrupted = self._finisher.active_runs.drain_turns(drain_s)
        for key, runs in interrupted.items():
            self._end_interrupted_turns(runs)
            session_id = runs[-1].session_id
            self._deliver_session_end(key, session_id, runs[-1].platform, "shutdown")
            self._record_session_end(key, session_id)
        # These turns have ended during the wait.
        for key in set(marked).difference(interrupted):
            self._clear_interrupted(key)
        self.cache.clear()
        self.hooks.drain()
        self.store.close()
        return list(interrupted)

    # -- coroutine twins ---------------------------------------------------------------------

    aset_title = _make_async_verb(set_title)
    areset = _make_async_verb(TurnRunner.reset)
    aswitch = _make_async_verb(switch)
    aresume = _make_async_verb(resume)
    afinalize = _make_async_verb(finalize)
    ashutdown = _make_async_verb(shutdown)

    def close(self) -> None:
        """Shut down without waiting for active turns.

        The state database stays open.
        """
        self.shutdown()

    def __enter__(self) -> Self:
        _refuse_in_event_loop("use `async with`")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.ashutdown()

    def _get_session_id(self, session_key: str, entry: SessionEntry | None) -> str:
        if entry is None:
            return session_key
        return self.db.get_compression_tip(entry.session_id)

    def _end_interrupted_turns(self, runs: list[AgentTurn]) -> None:
        """Report the end of turns, before the end of their session is reported."""
        for run in runs:
            self._finisher.end_turn(run, completed=False, interrupted=True)

    def _deliver_session_end(
        self, session_key: str, session_id: str, platform: str, reason: str
    ) -> None:
        """Report the end of a session, unless another process reports it.

        A process that has moved the chat has reported the end of the session that the chat left. If
        the database cannot be read, the end is reported: twice is better than never.
        """
        begins = None
        with self._finisher.report_errors("pending hook calls will be delivered later"):
            self.store.deliver_pending_hooks(session_key)
        with self._finisher.report_errors(
            f"the session of {session_key} could be finalized a second time"
        ):
            if self.store.peek_session_id(session_key) != session_id:
                if is_finally_ended(self.db.get_session(session_id)):
                    return
            elif self.store.claim_end(session_key, session_id):
                begins = partial(_begin_session_end, self.store, session_key, session_id)
            else:
                return
        self.hooks.call_once(
            "on_session_finalize", begins, session_id=session_id, platform=platform, reason=reason
        )

    def _record_session_end(self, session_key: str, session_id: str) -> None:
        with self._finisher.report_errors(
            f"the session of {session_key} could be finalized a second time"
        ):
            self.store.set_end_delivered(session_key, session_id)

    def _mark_interrupted(self, session_key: str) -> bool:
        """Mark a chat as interrupted if one of its active turns is in its current session."""
        with self._finisher.report_errors(f"{session_key} could not be marked as interrupted"):
            session_id = self._get_session_id(session_key, self.store.get(session_key))
            runs = (
                run
                for run in self._finisher.active_runs.list_runs(session_key)
                if not run.superseded
            )
            if any(self.db.get_compression_tip(run.session_id) == session_id for run in runs):
                return self.store.mark_resume_pending(session_key, _INTERRUPTED_REASON)
        return False

    def _clear_interrupted(self, session_key: str) -> None:
        """Remove the interruption of a chat whose turn has finished during the shutdown."""
        with self._finisher.report_errors(f"{session_key} stays marked as interrupted"):
            entry = self.store.get(session_key)
            if entry is not None and entry.resume_reason == _INTERRUPTED_REASON:
                self.store.clear_resume_pending(session_key)


def _begin_session_end(store: SessionStore, session_key: str, session_id: str, _: str) -> bool:
    return store.begin_end_delivery(session_key, session_id)


def _refuse_in_event_loop(instead: str) -> None:
    if get_running_loop() is not None:
        raise InvalidInput(f"this call would block the event loop of this thread; {instead}")
