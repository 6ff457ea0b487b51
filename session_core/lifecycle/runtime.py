"""`SessionRuntime`: the turns of all chats, and the other verbs of a session's life."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import wait
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from session_core.aio import get_worker_threads
from session_core.chats import get_key_platform
from session_core.errors import InvalidInput, NotFound
from session_core.event_loops import get_running_loop
from session_core.lifecycle.agent_turn import AgentTurn
from session_core.lifecycle.turn import TurnRunner
from session_core.lifecycle.types import Agent, AgentFactory, AgentResult, Reply
from session_core.routing.entries import SessionEntry
from session_core.routing.recovery import is_finally_ended
from session_core.routing.store import SessionStore

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["VIEWER_SOURCES", "Agent", "AgentFactory", "AgentResult", "Reply", "SessionRuntime"]

VIEWER_SOURCES = frozenset(
    {
        "", "tui", "cli", "webui", "desktop", "cron", "subagent", "test", "local", "acp",
        "webhook", "api_server", "msgraph_webhook",
    }
)  # fmt: skip
"""Sources that are no chat platform: closing a view of such a session ends it."""

_CLOSING_TIMEOUT_S = 5.0
"""How long a shutdown waits for turns whose agent has ended or was cancelled."""

_INTERRUPTED_REASON = "shutdown_timeout"

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")


def _make_async_verb(
    verb: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Return a verb for coroutines: once it has begun it finishes, also for a cancelled caller."""

    @wraps(verb)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await get_worker_threads(self, "calls").run(partial(verb, self, *args, **kwargs))

    return call


class SessionRuntime(TurnRunner):
    """Runs the agents of all chats.

    `build(run)` makes the agent of a session, `agent(run, message)` answers a message: with text,
    or with a mapping that may hold `final_response`, `session_id` (where a compression went on in
    another session), `failed`, `partial`, `interrupted`, `error`, `api_calls`,
    `last_prompt_tokens` and `compression_exhausted`; what it says of `model`, `task_id` and
    `turn_id` is told to hooks. Both may be async. An agent that keeps what was said reads it anew
    where `run.turn.how` is "switched": then it is in another session. No agent is in two turns at
    once: a message that comes while another is being answered has an agent of its own, which then
    is the one of its chat.

    A runtime is closed by `with` or, where a loop runs, by `async with`. Each verb that waits has
    a twin for coroutines, `areset` of `reset`, which does the same while the loop goes on.
    """

    def set_title(self, session_key: str, title: str) -> None:
        """Title the session of a chat, once it is there: after its next turn that succeeds."""
        self._titles.request_title(session_key, title)
        session_id = self.store.peek_session_id(session_key)
        if session_id is not None:
            self._titles.apply_title(session_key, session_id)

    def switch(self, session_key: str, target_session_id: str) -> SessionEntry:
        """Put a chat into another session, which is reopened, at its tip.

        Raises:
            NotFound: there is no such session, or no such chat.
        """
        target = self.db.get_compression_tip(target_session_id)
        entry = self.store.switch_session(session_key, target)
        if entry is None:
            raise NotFound(f"no route for {session_key!r}")
        self._leave_session(session_key)
        return entry

    def resume(self, session_key: str, session: str) -> SessionEntry:
        """Put a chat into a session of before, by its id, the beginning of that, or its title.

        Raises:
            InvalidInput: no session is named.
            NotFound: there is no such session, or no such chat.
        """
        if not isinstance(session, str) or not session.strip():
            raise InvalidInput("name the session: by its id, the beginning of that, or its title")
        found = self.db.resolve_session_id(session) or self.db.resolve_session_by_title(session)
        if found is None:
            raise NotFound(f"no session {session!r}; name it by its id or its title")
        return self.switch(session_key, found)

    def finalize(
        self, session_key: str, end_reason: str = "closed", *, viewer: bool = False
    ) -> str | None:
        """End the session of a chat and tell the hooks; return its id.

        It is the one in which the agent is by now; without an agent, the one that the key leads to
        or is. One whose end was told already, by whatever process, is not told again. A viewer
        that closes leaves the session of a chat platform as it is.
        """
        at_work = self._at_work.list_runs(session_key)
        entry = self.store.get(session_key)
        session_id = at_work[-1].session_id if at_work else self._get_session_id(session_key, entry)
        row = self.db.get_session(session_id)
        platform = str(
            (row and row["source"]) or (entry and entry.platform) or get_key_platform(session_key)
        )
        if viewer and platform not in VIEWER_SOURCES:
            return None
        self._end_interrupted_turns(at_work)
        if not is_finally_ended(row):
            self._deliver_session_end(session_key, session_id, platform, end_reason)
        self._leave_session(session_key)
        for run in at_work:
            run.closed_as = end_reason
        self.db.end_session(session_id, end_reason)
        self._record_session_end(session_key, session_id)
        self.cache.evict(session_key)
        return session_id

    def shutdown(self, drain_s: float = 0.0) -> list[str]:
        """Take no more messages, wait for the agents at work, and close; return who was cut off.

        Those are marked as interrupted before the wait, so that a kill in the middle is no loss,
        and their next message goes on where they were. Hooks that are behind are given a moment.

        Raises:
            InvalidInput: a loop runs in this thread, whose agents could not end meanwhile.
        """
        _refuse_in_event_loop("await ashutdown()")
        self._at_work.stop()
        wait(list(self._closings), _CLOSING_TIMEOUT_S)  # turns that end just now are not cut off
        marked = [key for key in self.running if self._mark_interrupted(key)]
        left = self._at_work.drain(drain_s)
        for key, runs in left.items():
            self._end_interrupted_turns(runs)
            session_id = runs[-1].session_id
            self._deliver_session_end(key, session_id, runs[-1].platform, "shutdown")
            self._record_session_end(key, session_id)
        for key in set(marked).difference(left):
            self._clear_interrupted(key)
        self.cache.clear()
        self.hooks.drain()
        self.store.close()
        return list(left)

    # -- the same while a loop goes on -------------------------------------------------------

    aset_title = _make_async_verb(set_title)
    areset = _make_async_verb(TurnRunner.reset)
    aswitch = _make_async_verb(switch)
    aresume = _make_async_verb(resume)
    afinalize = _make_async_verb(finalize)
    ashutdown = _make_async_verb(shutdown)

    def close(self) -> None:
        """Shut down without waiting for anybody; the state database stays open."""
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
        """Tell of turns that they have ended, before their session does."""
        for run in runs:
            self._end_turn(run, completed=False, interrupted=True)

    def _deliver_session_end(
        self, session_key: str, session_id: str, platform: str, reason: str
    ) -> None:
        """Tell that a session ends, unless another process does.

        Who has led the chat elsewhere has told the end of what he ended. Where that cannot be
        asked it is told, better twice than never.
        """
        begins = None
        with self._report_errors("what was owed to the hooks is told later"):
            self.store.deliver_pending_hooks(session_key)
        with self._report_errors(f"the session of {session_key} could be finalized a second time"):
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
        with self._report_errors(f"the session of {session_key} could be finalized a second time"):
            self.store.set_end_delivered(session_key, session_id)

    def _mark_interrupted(self, session_key: str) -> bool:
        """Mark a chat as interrupted, unless the agents at work are where it is no more."""
        with self._report_errors(f"{session_key} could not be marked as interrupted"):
            is_in = self._get_session_id(session_key, self.store.get(session_key))
            at_work = (run for run in self._at_work.list_runs(session_key) if not run.superseded)
            if any(self.db.get_compression_tip(run.session_id) == is_in for run in at_work):
                return self.store.mark_resume_pending(session_key, _INTERRUPTED_REASON)
        return False

    def _clear_interrupted(self, session_key: str) -> None:
        """Take the mark back, which may have come just after the turn had ended."""
        with self._report_errors(f"{session_key} stays marked as interrupted"):
            entry = self.store.get(session_key)
            if entry is not None and entry.resume_reason == _INTERRUPTED_REASON:
                self.store.clear_resume_pending(session_key)


def _begin_session_end(store: SessionStore, session_key: str, session_id: str, _: str) -> bool:
    return store.begin_end_delivery(session_key, session_id)


def _refuse_in_event_loop(instead: str) -> None:
    if get_running_loop() is not None:
        raise InvalidInput(f"a loop runs in this thread and would stand still; {instead}")
