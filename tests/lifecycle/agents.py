"""Agents, a factory and a clock for the tests of the agent cache."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

from session_core.lifecycle.agent_cache import AgentCache


class Agent:
    """An agent with a number that records whether it was closed."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.closed = threading.Event()

    def __repr__(self) -> str:
        return f"Agent({self.number})"

    def close(self) -> None:
        """Record the close. A second one is an error."""
        assert not self.closed.is_set()
        self.closed.set()


class Factory:
    """A factory of agents with increasing numbers."""

    def __init__(self) -> None:
        self.built: list[Agent] = []
        self._numbers = itertools.count(1)

    def __call__(self) -> Agent:
        """Build an agent."""
        agent = Agent(next(self._numbers))
        self.built.append(agent)
        return agent


class Monotonic:
    """A clock for a cache or a watcher that tests set by hand."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def how(cache: AgentCache[Any], key: str, signature: Any, session_id: str | None) -> str:
    """Return the reason of a look-up, building an agent if necessary."""
    with cache.claim(key, signature, session_id) as turn:
        if turn.agent is None:
            turn.keep_agent(Agent())
        return turn.how


def noting(seen: list[Any]) -> Callable[[str], None]:
    """Return a hook that records the session ids of its calls."""

    def note(session_id: str) -> None:
        seen.append(session_id)

    return note
