"""To-do lists: what is open and what is ticked off, also where an agent keeps them as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from session_core.compression.patterns import BOX

_TEXTS = ("content", "task", "title", "text", "description", "name", "step", "subject")
_STATES = ("status", "state")
_OPEN = frozenset(
    ("pending", "in_progress", "open", "todo", "to_do", "not_started", "blocked", "waiting")
)
_DONE = frozenset(("completed", "complete", "done", "finished", "closed"))
_AROUND = frozenset(("id", *_TEXTS, *_STATES))


def line(item: Mapping[Any, Any]) -> str | None:
    """Return what an item says, with a box in front of it; None if it is no item."""
    text = next((item[key] for key in _TEXTS if isinstance(item.get(key), str)), "")
    state = next((item[key] for key in _STATES if isinstance(item.get(key), str)), "")
    state = state.lower().replace(" ", "_").replace("-", "_")
    if not text or state not in _OPEN | _DONE:
        return None
    return f"[{' ' if state in _OPEN else 'x'}] {text}"


def is_ticked(text: str) -> bool:
    """Whether a line is ticked off."""
    box = BOX.match(text)
    return box is not None and box["done"] is not None


def rest(item: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return what else an item has."""
    return {key: value for key, value in item.items() if key not in _AROUND}
