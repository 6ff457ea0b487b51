"""What a message says, calls and answers, in the OpenAI and in the Anthropic shape.

Both may be mixed in one conversation, and nothing in it is trusted: ids may be missing or used
twice, arguments may be no JSON, content may be anything. What cannot be read is not there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from session_core.state.content import plain_text

Message = Mapping[str, Any]
Turn = Literal["system", "user", "assistant", "tool", "other"]

_TURNS: dict[Any, Turn] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_RESULTS = ("tool", "function")
_IMAGE_PARTS = frozenset(("image", "image_url", "input_image"))


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool; some providers give it two ids, and an answer may name either."""

    ids: tuple[str, ...]
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One result of a tool; `id` is None where it does not say which call it answers."""

    id: str | None
    name: str | None
    text: str


def text(message: Message) -> str:
    """Return what a person would read of it, results included."""
    return plain_text(message.get("content"))


def turn(message: Message) -> Turn:
    """Return whose turn it is; a user message of nothing but results is an answer."""
    role = message.get("role")
    if role == "user":
        content = message.get("content")
        if content and isinstance(content, list) and all(map(_is_result, content)):
            return "tool"
        return "user"
    return _TURNS.get(role, "other") if isinstance(role, str) else "other"


def calls(message: Message) -> list[Call]:
    """Return the tools that an assistant message calls."""
    return [*map(_function_call, _listed(message)), *map(_part_call, _used(message))]


def call_ids(message: Message) -> list[tuple[str, ...]]:
    """Return the ids of each tool that an assistant message calls, and read nothing else."""
    listed = [_function_ids(call) for call in _listed(message)]
    return listed + [_ids(part.get("id")) for part in _used(message)]


def answers(message: Message) -> list[Answer]:
    """Return the results that a message brings."""
    if message.get("role") in _RESULTS:
        name = message.get("tool_name") or message.get("name")
        return [Answer(_id(message.get("tool_call_id")), _name(name) or None, text(message))]
    return [
        Answer(_id(part.get("tool_use_id")), None, plain_text(part.get("content")))
        for part in parts(message)
        if _is_result(part)
    ]


def answer_ids(message: Message) -> list[str | None]:
    """Return the call that each result of a message answers, and read nothing else."""
    if message.get("role") in _RESULTS:
        return [_id(message.get("tool_call_id"))]
    if not isinstance(message.get("content"), list):
        return []
    return [_id(part.get("tool_use_id")) for part in parts(message) if _is_result(part)]


def images(message: Message) -> int:
    """Return how many images are in it, those of results included."""
    return _images(message.get("content"))


def parts(message: Message) -> list[Message]:
    """Return the parts of a message of parts."""
    content = message.get("content")
    if not isinstance(content, list):
        return []
    return [part for part in content if isinstance(part, Mapping)]


def is_image(part: Message) -> bool:
    """Tell whether a part of a message is an image."""
    kind = part.get("type")
    return isinstance(kind, str) and kind in _IMAGE_PARTS


def as_json(value: Any) -> str:
    """Return arguments as text: text as it is, all else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        return str(value)
    except RecursionError:
        return ""


def _is_result(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "tool_result"


def _listed(message: Message) -> list[Message]:
    """Return the calls that stand beside the content."""
    given = message.get("tool_calls")
    if not given or message.get("role") != "assistant":
        return []
    listed = given if isinstance(given, list) else [given]
    return [call for call in listed if isinstance(call, Mapping)]


def _used(message: Message) -> list[Message]:
    """Return the calls that are parts of the content."""
    if not isinstance(message.get("content"), list) or message.get("role") != "assistant":
        return []
    return [part for part in parts(message) if part.get("type") == "tool_use"]


def _function_call(call: Message) -> Call:
    function = call.get("function")
    said = function if isinstance(function, Mapping) else call
    return Call(_function_ids(call), _name(said.get("name")), as_json(said.get("arguments")))


def _function_ids(call: Message) -> tuple[str, ...]:
    return _ids(call.get("call_id")) + _ids(call.get("id"))


def _part_call(part: Message) -> Call:
    return Call(_ids(part.get("id")), _name(part.get("name")), as_json(part.get("input")))


def _ids(value: Any) -> tuple[str, ...]:
    found = _id(value)
    return () if found is None else (found,)


def _id(value: Any) -> str | None:
    return str(value) if isinstance(value, (str, int)) and value != "" else None


def _name(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _images(content: Any) -> int:
    if not isinstance(content, list):
        return 0
    return sum(
        1 if is_image(part) else _images(part.get("content"))
        for part in content
        if isinstance(part, Mapping)
    )
