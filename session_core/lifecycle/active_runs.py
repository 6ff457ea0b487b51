"""Which runs are at work in which chats, and when no more of them begin."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from session_core.errors import Denied
from session_core.lifecycle.agent_turn import AgentTurn


class ActiveRuns:
    """The runs by the keys of their chats, the one whose message came last at the end."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._runs: dict[str, list[AgentTurn]] = {}
        self._stopping = False
        self._arrived = 0

    def list_session_keys(self) -> list[str]:
        """Return the chats in which somebody is at work."""
        with self._changed:
            return list(self._runs)

    def list_runs(self, session_key: str) -> list[AgentTurn]:
        """Return who is at work in a chat."""
        with self._changed:
            return list(self._runs.get(session_key, ()))

    def register_message(self) -> int:
        """Let a message come in; return its number, by which later ones are known.

        Raises:
            Denied: nobody begins any more.
        """
        with self._changed:
            self._refuse_if_stopping()
            self._arrived += 1
            return self._arrived

    @contextmanager
    def enter_run(self, run: AgentTurn) -> Iterator[None]:
        """Be at work in a chat, in place of whoever is at work there on an earlier message.

        Raises:
            Denied: nobody begins any more.
        """
        with self._changed:
            self._refuse_if_stopping()
            runs = self._runs.setdefault(run.session_key, [])
            runs.append(run)
            runs.sort(key=lambda each: each.number)
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
        """Let those at work in a chat write nothing back."""
        with self._changed:
            for run in self._runs.get(session_key, ()):
                run.superseded = True

    def claim_end(self, run: AgentTurn) -> bool:
        """Return whether the end of a turn is to be told by the caller, as it is once."""
        with self._changed:
            told, run.told_end = run.told_end, True
        return not told

    def stop(self) -> None:
        """Let nobody begin any more."""
        with self._changed:
            self._stopping = True

    def _refuse_if_stopping(self) -> None:
        if self._stopping:
            raise Denied("shutting down; send the message again in a moment")

    def drain(self, wait_s: float) -> dict[str, list[AgentTurn]]:
        """Wait until nobody is at work; return who still is, superseded."""
        with self._changed:
            self._changed.wait_for(lambda: not self._runs, wait_s)
            left = {key: list(runs) for key, runs in self._runs.items()}
            for key in left:
                self.supersede(key)
            return left
