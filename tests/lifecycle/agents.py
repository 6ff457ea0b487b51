"""Agents for tests, which know their number and whether they were closed, and a hook that notes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

from session_core.lifecycle.agent_cache import AgentCache


class Agent:
    """An agent that only counts."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.closed = threading.Event()

    def __repr__(self) -> str:
        return f"Agent({self.number})"

    def close(self) -> None:
        """Remember that it was closed."""
        assert not self.closed.is_set()
        self.closed.set()


class Factory:
    """Builds agents with rising numbers."""

    def __init__(self) -> None:
        self.built: list[Agent] = []
        self._numbers = itertools.count(1)

    def __call__(self) -> Agent:
        """Build one."""
        agent = Agent(next(self._numbers))
        self.built.append(agent)
        return agent


class Monotonic:
    """The clock of a cache or a watcher, which stands still until it is set."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Tell the time."""
        return self.now


def how(cache: AgentCache[Any], key: str, signature: Any, session_id: str | None) -> str:
    """Return what a look-up decides, building where it has to."""
    with cache.claim(key, signature, session_id) as turn:
        if turn.agent is None:
            turn.keep_agent(Agent())
        return turn.how


def noting(seen: list[Any]) -> Callable[[str], None]:
    """Return an implementation that notes for which session it was called."""

    def note(session_id: str) -> None:
        seen.append(session_id)

    return note
