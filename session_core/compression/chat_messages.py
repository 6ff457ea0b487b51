"""What a message says, calls and answers, in the OpenAI and in the Anthropic shape.

Both may be mixed in one conversation, and nothing in it is trusted: ids may be missing or used
twice, arguments may be no JSON, content may be anything. What cannot be read is not there.

The estimate of tokens that is used where the caller gives none.

It counts characters by script, needs no vocabulary and no download, and takes microseconds a
message. It counts all that is sent again on the next turn, not only what a person reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
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


Estimate = Callable[[Mapping[str, Any]], int]

MESSAGE_TOKENS = 4
CALL_TOKENS = 16
IMAGE_TOKENS = 1600

_REPLAYED = ("reasoning_details", "codex_reasoning_items", "codex_message_items")


def estimate(message: Mapping[str, Any]) -> int:
    """Return about how many tokens a message costs."""
    get = message.get
    count = MESSAGE_TOKENS + _of_content(get("api_content") or get("content"))
    calls = get("tool_calls")
    if calls:
        count += sum(map(_of_call, calls)) if isinstance(calls, list) else _of_call(calls)
    thought = get("reasoning_content") or get("reasoning")
    if thought:
        count += _of_content(thought)
    for key in _REPLAYED:
        value = get(key)
        if value:
            count += of_text(as_json(value))
    return count


def of_text(text: str) -> int:
    """Return about how many tokens a text is: a quarter of its ASCII, all of its CJK."""
    size = len(text)
    if text.isascii():
        return (size + 3) // 4
    # UTF-8 says the script: Cyrillic is one byte more than ASCII, CJK two, an emoji three.
    ascii_count = len(text.encode("ascii", "ignore"))
    more = len(text.encode("utf-8", "surrogatepass")) - size
    return (ascii_count + 3) // 4 + (more + 1) // 2


def _of_content(content: Any) -> int:
    if isinstance(content, str):
        return of_text(content)
    if content is None:
        return 0
    if isinstance(content, list):
        return sum(map(_of_part, content))
    return of_text(as_json(content))


def _of_part(part: Any) -> int:
    if not isinstance(part, Mapping):
        return _of_content(part)
    kind = part.get("type")
    if is_image(part):
        return IMAGE_TOKENS
    if kind == "tool_use":
        return CALL_TOKENS + of_text(as_json(part.get("input")))
    if kind == "tool_result":
        return CALL_TOKENS + _of_content(part.get("content"))
    text = part.get("text")
    return of_text(text if isinstance(text, str) else as_json(part))


def _of_call(call: Any) -> int:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return CALL_TOKENS + of_text(as_json(call))
    arguments = function.get("arguments")
    return CALL_TOKENS + of_text(arguments if isinstance(arguments, str) else as_json(arguments))
