"""To-do lists of agents: open items, and only those, are listed as open."""

from __future__ import annotations

import itertools
import json
from typing import Any

from session_core.compression.extractive.summarize import summarize
from session_core.compression.extractive.written_form import HEADINGS as NAMES
from tests.compression.test_summarize import user

HEADINGS = [f"{name}:" for name in NAMES.values()]


def make_todo_calls(number: int, *items: tuple[str, str]) -> list[dict[str, Any]]:
    """Return a call of a to-do tool, and its answer, which repeats the list."""
    listed = [
        {"id": f"{n}", "content": text, "status": state} for n, (text, state) in enumerate(items)
    ]
    function = {"name": "todo", "arguments": json.dumps({"todos": listed})}
    calls = [{"id": f"c{number}", "type": "function", "function": function}]
    return [
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_call_id": f"c{number}", "content": json.dumps(listed)},
    ]


def list_below_heading(summary: str, heading: str) -> list[str]:
    """Return the lines below a heading."""
    lines = summary.splitlines()
    below = lines[lines.index(heading) + 1 :]
    return list(itertools.takewhile(lambda line: line not in HEADINGS, below))


def test_open_todos_are_listed_under_open() -> None:
    items = ("rotate the key", "pending"), ("mail Jean", "in progress"), ("write it", "completed")
    summary = summarize([user("set up the relay"), *make_todo_calls(1, *items)], 800)
    assert list_below_heading(summary, "Open:") == ["[ ] rotate the key", "[ ] mail Jean"]


def test_completed_todos_are_dropped_first() -> None:
    first = make_todo_calls(1, ("rotate the key", "pending"), ("mail Jean-Luc", "pending"))
    later = make_todo_calls(2, ("rotate the key", "completed"), ("mail Jean-Luc", "pending"))
    summary = summarize([user("go on"), *first, *later], 45)
    assert "[ ] mail Jean-Luc" in summary
    assert "[ ] rotate the key" not in summary


def test_reopened_todo_is_open() -> None:
    states = ("pending", "completed", "pending")
    lists = [
        message
        for number, state in enumerate(states)
        for message in make_todo_calls(
            number, ("rotate the key", state), ("mail Jean-Luc", "completed")
        )
    ]
    summary = summarize([user("go on"), *lists], 45)
    assert "[ ] rotate the key" in summary
