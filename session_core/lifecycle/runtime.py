"""`SessionRuntime`: the turns of all chats, and the other verbs of a session's life."""

from __future__ import annotations

from session_core.errors import NotFound, SessionError
from session_core.keys import platform_of
from session_core.lifecycle.run import Run
from session_core.lifecycle.turns import Agent, Factory, Reply, Result, Turns
from session_core.routing.entries import SessionEntry

__all__ = ["VIEWERS", "Agent", "Factory", "Reply", "Result", "SessionRuntime"]

VIEWERS = frozenset(
    {
        "", "tui", "cli", "webui", "desktop", "cron", "subagent", "test", "local", "acp",
        "webhook", "api_server", "msgraph_webhook",
    }
)  # fmt: skip
"""Sources that are no chat platform: closing a view of such a session ends it."""

_INTERRUPTED = "shutdown_timeout"


class SessionRuntime(Turns):
    """Runs the agents of all chats.

    `build(run)` makes the agent of a session, `agent(run, message)` answers a message: with text,
    or with a mapping that may hold `final_response`, `session_id` (where a compression went on in
    another session), `failed`, `partial`, `interrupted`, `error`, `api_calls`,
    `last_prompt_tokens` and `compression_exhausted`. Both may be async.
    """

    def set_title(self, session_key: str, title: str) -> None:
        """Title the session of a chat, once it is there: after its next turn that succeeds."""
        self._titles.ask(session_key, title)
        session_id = self.store.peek_session_id(session_key)
        if session_id is not None:
            self._titles.apply(session_key, session_id)

    def reset(self, session_key: str) -> str:
        """Begin a new session because somebody asked, and say so, whatever a hook did."""
        entry = self.store.reset_session(session_key)
        self._leave(session_key)
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
        self._leave(session_key)
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
        self._leave(session_key)
        self.cache.evict(session_key)
        return session_id

    def shutdown(self, drain_s: float = 0.0) -> list[str]:
        """Take no more messages, wait for the agents at work, and close; return who was cut off.

        Those are marked as interrupted before the wait, so that a kill in the middle is no loss,
        and their next message goes on where they were. Where agents run on a loop, call this in a
        thread beside it.
        """
        with self._changed:
            self._stopping = True
        marked = [key for key in self.running if self._mark(key)]
        with self._changed:
            self._changed.wait_for(lambda: not self._runs, drain_s)
            left = [runs[-1] for runs in self._runs.values()]
            for run in left:
                self._supersede(run.session_key)
        for run in left:
            self._tell_cut_off(run)
        cut_off = [run.session_key for run in left]
        for key in set(marked).difference(cut_off):
            self._unmark(key)
        self.cache.clear()
        self.store.close()
        return cut_off

    def _begin_afresh(self, run: Run) -> None:
        try:
            self.reset(run.session_key)
        except SessionError as error:
            self._report(f"{run.session_key} could not be reset", error)

    def _leave(self, session_key: str) -> None:
        """Note that a chat has left its session, whoever is still at work there."""
        self._titles.drop(session_key)
        self._supersede(session_key)

    def _session_of(self, session_key: str) -> str:
        with self._changed:
            runs = self._runs.get(session_key)
            if runs:
                return runs[-1].session_id
        return self.store.peek_session_id(session_key) or session_key

    def _tell_cut_off(self, run: Run) -> None:
        self.hooks.once(
            "on_session_finalize",
            session_id=run.session_id,
            platform=run.platform,
            reason="shutdown",
        )

    def _mark(self, session_key: str) -> bool:
        try:
            return self.store.mark_resume_pending(session_key, _INTERRUPTED)
        except SessionError as error:
            self._report(f"{session_key} could not be marked as interrupted", error)
            return False

    def _unmark(self, session_key: str) -> None:
        """Take the mark back, which may have come just after the turn had ended."""
        try:
            entry = self.store.get(session_key)
            if entry is not None and entry.resume_reason == _INTERRUPTED:
                self.store.clear_resume_pending(session_key)
        except SessionError as error:
            self._report(f"{session_key} stays marked as interrupted", error)
