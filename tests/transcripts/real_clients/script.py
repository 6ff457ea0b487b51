"""The script of a model: which reply follows from a conversation."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

SUMMARY = "<summary>The files were listed and a note was written.</summary>"
NOTHING = "There is nothing more to do."

_DIRECTIVE = re.compile(r"^\s*!(tool|say|think) (.*)$", re.MULTILINE)
_SUMMARY_REQUEST = re.compile("summar|compress|checkpoint|snapshot", re.IGNORECASE)


@dataclass(frozen=True)
class Turn:
    """One message of a request: the text of the user, or a number of tool results."""

    role: str
    text: str = ""
    result_count: int = 0


@dataclass(frozen=True)
class Reply:
    """An answer of the model: reasoning, text and tool calls."""

    text: str = ""
    thought: str = ""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    input_tokens: int = 1200
    """Few when a client goes on after a summary, so that one with a small window compacts once."""


def choose_reply(turns: Sequence[Turn], *, has_tools: bool) -> Reply:
    """Return the next step of the newest prompt: a call for each result so far, then the text."""
    position = max((i for i, turn in enumerate(turns) if _is_prompt(turn)), default=-1)
    directives = _DIRECTIVE.findall(turns[position].text) if position >= 0 and has_tools else []
    if not directives:
        return _answer_client(turns[position].text if position >= 0 else "")
    step = sum(turn.result_count for turn in turns[position:])
    calls = [line for kind, line in directives if kind == "tool"]
    thought = "".join(line for kind, line in directives if kind == "think") if not step else ""
    if step < len(calls):
        name, _, arguments = calls[step].partition(" ")
        call = (name, json.loads(arguments))
        return Reply(f"Step {step + 1}.", thought, [call])
    return Reply("".join(line for kind, line in directives if kind == "say"), thought)


def _answer_client(prompt: str) -> Reply:
    """Return the answer to a request of the client itself: a summary, a title, or to continue."""
    if prompt.lstrip().startswith("<task-notification"):
        return Reply(NOTHING)
    if _SUMMARY_REQUEST.search(prompt):
        return Reply(SUMMARY)
    return Reply(NOTHING, input_tokens=40)


def _is_prompt(turn: Turn) -> bool:
    return turn.role == "user" and bool(turn.text.strip())
