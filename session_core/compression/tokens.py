"""The estimate of tokens that is used where the caller gives none.

It counts characters by script, needs no vocabulary and no download, and takes microseconds a
message. It counts all that is sent again on the next turn, not only what a person reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from session_core.compression.shapes import as_json, is_image

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
