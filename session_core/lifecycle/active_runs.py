"""The registry of active turns by chat, which also refuses new turns during shutdown."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from session_core.errors import Denied
from session_core.lifecycle.agent_turn import AgentTurn


class ActiveRuns:
    """Active turns by session key, ordered by the arrival of their messages."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._runs: dict[str, list[AgentTurn]] = {}
        self._stopping = False
        self._arrived = 0

    def list_session_keys(self) -> list[str]:
        """Return the session keys of the chats with an active turn."""
        with self._changed:
            return list(self._runs)

    def list_runs(self, session_key: str) -> list[AgentTurn]:
        """Return the active turns of a chat, the newest last."""
        with self._changed:
            return list(self._runs.get(session_key, ()))

    def register_message(self) -> int:
        """Register an incoming message and return its number, which orders turns.

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
            # A message that arrived earlier may enter later, so the order is that of arrival.
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

    def supersede(self, session_key: str) -> None:
        """Mark the active turns of a chat as superseded, so that they write nothing back."""
        with self._changed:
            for run in self._runs.get(session_key, ()):
                run.superseded = True

    def claim_end(self, run: AgentTurn) -> bool:
        """Return True for the first caller, which then reports the end of the turn."""
        with self._changed:
            is_reported, run.is_end_reported = run.is_end_reported, True
        return not is_reported

    def stop(self) -> None:
        """Refuse all further messages and turns."""
        with self._changed:
            self._stopping = True

    def _refuse_if_stopping(self) -> None:
        if self._stopping:
            raise Denied("shutting down; send the message again in a moment")

    def drain(self, wait_s: float) -> dict[str, list[AgentTurn]]:
        """Wait until no turn is active; return the remaining turns, marked as superseded."""
        with self._changed:
            self._changed.wait_for(lambda: not self._runs, wait_s)
            remaining = {key: list(runs) for key, runs in self._runs.items()}
            for key in remaining:
                # A turn that outlives the shutdown writes nothing back.
                self.supersede(key)
            return remaining
