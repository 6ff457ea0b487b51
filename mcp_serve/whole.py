"""All that a message says, in one line, and where secrets lie in it.

A search finds the values in tool calls as well, cut out of what says what they are: a value that is
a secret only beside its name is one here too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mcp_serve.quoting import textual
from mcp_serve.redaction import spans
from session_core import MessageRow, plain_text

_DEPTH = 50
_LEAST = 6
"""Shorter values are of no secret that is known."""


def text_of(row: MessageRow) -> tuple[str, list[tuple[int, int]]]:
    """Return what a message says, as a search has it, and from where to where secrets are."""
    shaped = _secrets_of_calls(row)
    shown, found = "", []
    for piece in _pieces(row):
        line = " ".join(piece.split())
        start = len(shown) + 1 if shown else 0
        shown = f"{shown} {line}" if shown else line
        if any(_inner(piece) in secret for secret in shaped if len(line) >= _LEAST):
            found.append((start, len(shown)))
    return shown, sorted([*found, *spans(shown)])


def secrets(row: MessageRow) -> set[str]:
    """Return the secrets that stand in a message, each as it stands there."""
    shown, found = text_of(row)
    return {shown[start:stop] for start, stop in found} | _secrets_of_calls(row)


def _pieces(row: MessageRow) -> list[str]:
    pieces = [plain_text(row["content"]), textual(row.get("tool_name") or "")]
    for call in _calls(row):
        pieces += _values(call)
    return [piece for piece in pieces if piece.strip()]


def _secrets_of_calls(row: MessageRow) -> set[str]:
    written = (json.dumps(call, ensure_ascii=False) for call in _calls(row))
    return {text[start:stop] for text in written for start, stop in spans(text)}


def _calls(row: MessageRow) -> Iterator[Any]:
    """Yield the calls of a message as the name and the decoded arguments of each."""
    calls = row.get("tool_calls")
    for call in calls if isinstance(calls, list) else [calls] if calls else []:
        inner = call.get("function") if isinstance(call, Mapping) else None
        said = inner if isinstance(inner, Mapping) else call
        if not isinstance(said, Mapping):
            yield said
            continue
        rest = {key: value for key, value in said.items() if key != "arguments"}
        yield {**rest, "arguments": _decoded(said.get("arguments"))}


def _decoded(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _values(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, (Mapping, list)):
        if depth < _DEPTH:
            for each in value.values() if isinstance(value, Mapping) else value:
                yield from _values(each, depth + 1)
    elif value is not None and not isinstance(value, bool):
        yield textual(value)


def _inner(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
