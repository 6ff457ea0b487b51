"""Types of agents, of the results that they return and of the replies to a message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from session_core.lifecycle.agent_turn import AgentTurn
from session_core.routing.entries import SessionEntry

AgentResult = Mapping[str, Any] | str | None
Agent = Callable[[AgentTurn, Any], "AgentResult | Awaitable[AgentResult]"]
AgentFactory = Callable[[AgentTurn], "Agent | Awaitable[Agent]"]


@dataclass(frozen=True, slots=True)
class Reply:
    """The text of a reply and the session in which the turn ended."""

    text: str
    session_id: str
    session_key: str
    superseded: bool = False
    failed: bool = False


def normalize_result(result: AgentResult) -> Mapping[str, Any]:
    """Return the result of an agent as a mapping; plain text or None becomes a completed turn."""
    if isinstance(result, Mapping):
        return result
    return {"final_response": result, "api_calls": 1}


def pick_known(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the named values that are set, as arguments of a hook."""
    return {name: values[name] for name in names if values.get(name) is not None}


def get_model(entry: SessionEntry) -> dict[str, str] | None:
    """Return the model that a chat has selected; an agent is rebuilt when it changes."""
    return dict(entry.model_override) if entry.model_override else None
