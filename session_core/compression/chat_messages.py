"""Reading the text, tool calls and results of messages, and estimating their tokens.

Messages have the OpenAI or the Anthropic shape, and a conversation may mix both. Input is not
trusted: ids may be missing or repeated, arguments may not be JSON, and content may have any type.
Unreadable parts are ignored.

The default token estimate counts characters by script. It needs no vocabulary and no download,
takes microseconds per message, and counts everything that is sent again on the next turn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from session_core.state.content import extract_plain_text

Message = Mapping[str, Any]
Turn = Literal["system", "user", "assistant", "tool", "other"]

_TURN_BY_ROLE: dict[Any, Turn] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_RESULT_ROLES = ("tool", "function")
_IMAGE_PART_TYPES = frozenset(("image", "image_url", "input_image"))


@dataclass(frozen=True, slots=True)
class MessageToolCall:
    """One tool call. Some providers give it two ids, and a result may name either."""

    ids: tuple[str, ...]
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class MessageToolResult:
    """One tool result. `id` is None if the result does not name its call."""

    id: str | None
    name: str | None
    text: str


def get_text(message: Message) -> str:
    """Return the readable text of a message, including tool results."""
    return extract_plain_text(message.get("content"))


def get_turn(message: Message) -> Turn:
    """Return the turn to which a message belongs.

    A user message that contains only tool results belongs to the turn `tool`.
    """
    role = message.get("role")
    if role == "user":
        content = message.get("content")
        if content and isinstance(content, list) and all(map(_is_result, content)):
            return "tool"
        return "user"
    return _TURN_BY_ROLE.get(role, "other") if isinstance(role, str) else "other"


def list_calls(message: Message) -> list[MessageToolCall]:
    """Return the tool calls of an assistant message."""
    return [
        *map(_parse_function_call, _list_function_calls(message)),
        *map(_parse_tool_use, _list_tool_uses(message)),
    ]


def list_call_ids(message: Message) -> list[tuple[str, ...]]:
    """Return the ids of each tool call of an assistant message."""
    listed = [_read_function_ids(call) for call in _list_function_calls(message)]
    return listed + [_collect_ids(part.get("id")) for part in _list_tool_uses(message)]


def list_results(message: Message) -> list[MessageToolResult]:
    """Return the tool results in a message."""
    if message.get("role") in _RESULT_ROLES:
        # Homes name the tool in `tool_name`, providers in `name`.
        name = message.get("tool_name") or message.get("name")
        return [
            MessageToolResult(
                _read_id(message.get("tool_call_id")), _read_name(name) or None, get_text(message)
            )
        ]
    return [
        MessageToolResult(
            _read_id(part.get("tool_use_id")), None, extract_plain_text(part.get("content"))
        )
        for part in list_parts(message)
        if _is_result(part)
    ]


def list_result_ids(message: Message) -> list[str | None]:
    """Return, for each result in a message, the id of the call that it answers."""
    if message.get("role") in _RESULT_ROLES:
        return [_read_id(message.get("tool_call_id"))]
    if not isinstance(message.get("content"), list):
        return []
    return [_read_id(part.get("tool_use_id")) for part in list_parts(message) if _is_result(part)]


def count_images(message: Message) -> int:
    """Return the number of images in a message, including images in results."""
    return _count_content_images(message.get("content"))


def list_parts(message: Message) -> list[Message]:
    """Return the parts of a message whose content is a list."""
    content = message.get("content")
    if not isinstance(content, list):
        return []
    return [part for part in content if isinstance(part, Mapping)]


def is_image(part: Message) -> bool:
    """Return True if a part of a message is an image."""
    kind = part.get("type")
    return isinstance(kind, str) and kind in _IMAGE_PART_TYPES


def to_json_text(value: Any) -> str:
    """Return a text unchanged, and any other value as JSON."""
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


def _list_function_calls(message: Message) -> list[Message]:
    """Return the calls in the `tool_calls` field."""
    calls = message.get("tool_calls")
    if not calls or message.get("role") != "assistant":
        return []
    call_list = calls if isinstance(calls, list) else [calls]
    return [call for call in call_list if isinstance(call, Mapping)]


def _list_tool_uses(message: Message) -> list[Message]:
    """Return the calls that are parts of the content."""
    if not isinstance(message.get("content"), list) or message.get("role") != "assistant":
        return []
    return [part for part in list_parts(message) if part.get("type") == "tool_use"]


def _parse_function_call(call: Message) -> MessageToolCall:
    function = call.get("function")
    fields = function if isinstance(function, Mapping) else call
    return MessageToolCall(
        _read_function_ids(call),
        _read_name(fields.get("name")),
        to_json_text(fields.get("arguments")),
    )


def _read_function_ids(call: Message) -> tuple[str, ...]:
    return _collect_ids(call.get("call_id")) + _collect_ids(call.get("id"))


def _parse_tool_use(part: Message) -> MessageToolCall:
    return MessageToolCall(
        _collect_ids(part.get("id")), _read_name(part.get("name")), to_json_text(part.get("input"))
    )


def _collect_ids(value: Any) -> tuple[str, ...]:
    call_id = _read_id(value)
    return () if call_id is None else (call_id,)


def _read_id(value: Any) -> str | None:
    return str(value) if isinstance(value, (str, int)) and value != "" else None


def _read_name(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count_content_images(content: Any) -> int:
    if not isinstance(content, list):
        return 0
    return sum(
        1 if is_image(part) else _count_content_images(part.get("content"))
        for part in content
        if isinstance(part, Mapping)
    )


TokenEstimator = Callable[[Mapping[str, Any]], int]

MESSAGE_TOKENS = 4
CALL_TOKENS = 16
IMAGE_TOKENS = 1600

_REPLAYED_FIELDS = ("reasoning_details", "codex_reasoning_items", "codex_message_items")


def estimate_tokens(message: Mapping[str, Any]) -> int:
    """Return the approximate number of tokens of a message."""
    get = message.get
    count = MESSAGE_TOKENS + _estimate_content_tokens(get("api_content") or get("content"))
    calls = get("tool_calls")
    if calls:
        count += (
            sum(map(_estimate_call_tokens, calls))
            if isinstance(calls, list)
            else _estimate_call_tokens(calls)
        )
    reasoning = get("reasoning_content") or get("reasoning")
    if reasoning:
        count += _estimate_content_tokens(reasoning)
    for key in _REPLAYED_FIELDS:
        value = get(key)
        if value:
            count += estimate_text_tokens(to_json_text(value))
    return count


def estimate_text_tokens(text: str) -> int:
    """Return the approximate number of tokens of a text.

    Four ASCII characters count as one token, and one CJK character as one.
    """
    size = len(text)
    if text.isascii():
        return (size + 3) // 4
    # The UTF-8 length shows the script: Cyrillic has one extra byte, CJK two, an emoji three.
    ascii_count = len(text.encode("ascii", "ignore"))
    extra_bytes = len(text.encode("utf-8", "surrogatepass")) - size
    return (ascii_count + 3) // 4 + (extra_bytes + 1) // 2


def _estimate_content_tokens(content: Any) -> int:
    if isinstance(content, str):
        return estimate_text_tokens(content)
    if content is None:
        return 0
    if isinstance(content, list):
        return sum(map(_estimate_part_tokens, content))
    return estimate_text_tokens(to_json_text(content))


def _estimate_part_tokens(part: Any) -> int:
    if not isinstance(part, Mapping):
        return _estimate_content_tokens(part)
    kind = part.get("type")
    if is_image(part):
        return IMAGE_TOKENS
    if kind == "tool_use":
        return CALL_TOKENS + estimate_text_tokens(to_json_text(part.get("input")))
    if kind == "tool_result":
        return CALL_TOKENS + _estimate_content_tokens(part.get("content"))
    text = part.get("text")
    return estimate_text_tokens(text if isinstance(text, str) else to_json_text(part))


def _estimate_call_tokens(call: Any) -> int:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return CALL_TOKENS + estimate_text_tokens(to_json_text(call))
    arguments = function.get("arguments")
    return CALL_TOKENS + estimate_text_tokens(
        arguments if isinstance(arguments, str) else to_json_text(arguments)
    )
