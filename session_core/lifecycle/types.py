"""What an agent is to the runtime, what it tells of a turn, and what a person is answered."""

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
    """What a person is answered, and in which session that was."""

    text: str
    session_id: str
    session_key: str
    superseded: bool = False
    failed: bool = False


def normalize_result(result: AgentResult) -> Mapping[str, Any]:
    """Return what an agent told; one that answers with text alone did its work."""
    if isinstance(result, Mapping):
        return result
    return {"final_response": result, "api_calls": 1}


def pick_known(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return what is known of what a hook may be told."""
    return {name: given[name] for name in names if given.get(name) is not None}


def get_model(entry: SessionEntry) -> dict[str, str] | None:
    """Return the model that a chat has asked for: with another one its agent is built anew."""
    return dict(entry.model_override) if entry.model_override else None
