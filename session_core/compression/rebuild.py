"""The new list of messages: what is before a range, its summary, and what is behind it.

What is kept is kept word for word, results without their call and calls without results included:
those were there before, whoever sends them mends them, and none is made here. A summary that
would not be shorter than what it replaces is refused.

What a summariser reads of a range: trimmed copies, in the shape of the originals.

A long result becomes one line, a result that was seen before a reference to the first, long
arguments are cut and images are a word. What people and the assistant said is whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from session_core.compression import chat_messages, ranges, summary_message
from session_core.compression.chat_messages import (
    Message,
    MessageToolCall,
    MessageToolResult,
    TokenEstimator,
    Turn,
    is_image,
    to_json_text,
)
from session_core.compression.ranges import Refusal
from session_core.errors import InvalidInput

_FAULT_REASONS = {
    "empty_summary": "the summary is empty; write one",
    "redacted_summary": "the summary holds the redaction mark {mark}, which would take the place "
    "of a fact: write what it stands for, or say it without the mark",
}


@dataclass(frozen=True, slots=True)
class RebuiltMessages:
    """The new list, the one or two new messages in it, and what it weighed and weighs."""

    messages: tuple[Message, ...]
    summary: tuple[dict[str, Any], ...]
    tokens_before: int
    tokens_after: int


def rebuild_messages(
    messages: Sequence[Message],
    start: int,
    end: int,
    text: str,
    estimate: TokenEstimator = chat_messages.estimate_tokens,
) -> RebuiltMessages | Refusal:
    """Return the list in which `text` stands for `messages[start:end]`, or why there is none.

    Raises:
        InvalidInput: that is no range of these messages.
    """
    if not 0 <= start < end <= len(messages):
        raise InvalidInput(f"no range of {len(messages)} messages: {start} to {end}")
    fault = summary_message.find_fault(text)
    if fault is not None:
        return Refusal(
            fault, _FAULT_REASONS[fault].format(mark=summary_message.find_redaction_mark(text))
        )
    may_cut = ranges.list_cuts(messages)
    if not (may_cut[start] and may_cut[end]):
        return Refusal("split_pair", "the range would part a call from its results; plan it again")
    head, tail = messages[:start], messages[end:]
    summary = summary_message.build_messages(
        text, _find_nearest_turn(reversed(head)), _find_nearest_turn(tail)
    )
    replaced, added = (
        _estimate_total(messages[start:end], estimate),
        _estimate_total(summary, estimate),
    )
    if added >= replaced:
        return Refusal(
            "not_smaller", f"the summary weighs {added} tokens, what it would replace {replaced}"
        )
    before = replaced + _estimate_total(head, estimate) + _estimate_total(tail, estimate)
    return RebuiltMessages(
        messages=(*head, *summary, *tail),
        summary=tuple(summary),
        tokens_before=before,
        tokens_after=before - replaced + added,
    )


def _find_nearest_turn(messages: Iterable[Message]) -> Turn | None:
    """Return whose turn is beside the summary; what is nobody's turn does not count."""
    turns = map(chat_messages.get_turn, messages)
    return next((turn for turn in turns if turn not in ("system", "other")), None)


def _estimate_total(messages: Iterable[Message], estimate: TokenEstimator) -> int:
    return sum(map(estimate, messages))


MAX_RESULT_CHARS = 200
MAX_ARGUMENT_CHARS = 500
IMAGE_PLACEHOLDER = "[image]"

_COPIED_FIELDS = (
    "id",
    "role",
    "content",
    "tool_calls",
    "tool_call_id",
    "tool_name",
    "name",
    "timestamp",
)
_MAX_LINE_CHARS = 120
_MAX_VALUE_CHARS = 100
_MAX_SHORT_CHARS = 60
_MAX_DEPTH = 4


def condense_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return what a summariser reads; the messages themselves are not changed."""
    seen = _SeenCalls()
    return [_copy_message(message, seen) for message in messages]


def describe_call(call: MessageToolCall) -> str:
    """Return a call in short: `read_file(path=src/app.py)`."""
    given = _parse_json(call.arguments)
    if isinstance(given, dict):
        said = ", ".join(f"{name}={_shorten_value(value)}" for name, value in given.items())
    else:
        said = _shorten_value(given)
    return f"{call.name or 'tool'}({_truncate_text(said, _MAX_LINE_CHARS)})"


class _SeenCalls:
    """The calls of a range, and the results that were already read."""

    def __init__(self) -> None:
        self._calls: dict[str, str] = {}
        self._results: dict[str, str] = {}

    def add_call(self, call: MessageToolCall) -> None:
        """Know a call, for the results behind it."""
        self._calls.update(dict.fromkeys(call.ids, describe_call(call)))

    def describe_result(self, answer: MessageToolResult) -> str:
        """Return one line that stands for a long result."""
        origin = self._calls.get(answer.id or "") or answer.name or "tool"
        size = f"{len(answer.text):,} characters"
        if answer.text in self._results:
            return f"[{origin}: the same {size} as from {self._results[answer.text]} above]"
        self._results[answer.text] = origin
        lines = (" ".join(line.split()) for line in answer.text.splitlines())
        opening = next(filter(None, lines), "")
        return f"[{origin}: {size}, beginning: {_truncate_text(opening, _MAX_LINE_CHARS)}]"


def _copy_message(message: Message, seen: _SeenCalls) -> dict[str, Any]:
    copy = {key: message[key] for key in _COPIED_FIELDS if message.get(key) is not None}
    for call in chat_messages.list_calls(message):
        seen.add_call(call)
    calls = copy.get("tool_calls")
    if isinstance(calls, list):
        copy["tool_calls"] = [_trim_call(call) for call in calls]
    content = copy.get("content")
    if message.get("role") in ("tool", "function"):
        copy["content"] = _trim_result(content, chat_messages.list_results(message)[0], seen)
    elif isinstance(content, list):
        copy["content"] = [_trim_part(part, seen) for part in content]
    return copy


def _trim_result(content: Any, answer: MessageToolResult, seen: _SeenCalls) -> Any:
    if len(answer.text) > MAX_RESULT_CHARS:
        images = chat_messages.count_images({"content": content})
        line = " ".join([seen.describe_result(answer), *[IMAGE_PLACEHOLDER] * images])
        return min(line, answer.text, key=len)
    if isinstance(content, list):
        return [_trim_part(part, seen) for part in content]
    return content


def _trim_part(part: Any, seen: _SeenCalls) -> Any:
    if not isinstance(part, Mapping) or isinstance(part.get("text"), str):
        return part
    kind = part.get("type")
    if kind == "tool_use":
        return {**part, "input": _trim_arguments(part["input"])} if "input" in part else part
    if kind == "tool_result":
        answer = chat_messages.list_results({"role": "user", "content": [part]})[0]
        return {**part, "content": _trim_result(part.get("content"), answer, seen)}
    if not isinstance(kind, str):
        return part
    return {"type": "text", "text": IMAGE_PLACEHOLDER if is_image(part) else f"[{kind}]"}


def _trim_call(call: Any) -> Any:
    if not isinstance(call, Mapping):
        return call
    if isinstance(call.get("function"), Mapping):
        return {**call, "function": _trim_call(call["function"])}
    return (
        {**call, "arguments": _trim_arguments(call["arguments"])} if "arguments" in call else call
    )


def _trim_arguments(given: Any) -> Any:
    """Trim arguments so that JSON stays JSON, and text or a mapping what it was."""
    text = to_json_text(given)
    if len(text) <= MAX_ARGUMENT_CHARS:
        return given
    value = _parse_json(given) if isinstance(given, str) else given
    if not isinstance(value, (dict, list)):
        return _truncate_with_count(text, MAX_ARGUMENT_CHARS)
    trimmed = _trim_value(value, _MAX_DEPTH)
    if len(to_json_text(trimmed)) > MAX_ARGUMENT_CHARS:
        trimmed = {"trimmed": _truncate_with_count(text, MAX_ARGUMENT_CHARS // 2)}
    return to_json_text(trimmed) if isinstance(given, str) else trimmed


def _trim_value(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return _truncate_with_count(value, _MAX_VALUE_CHARS)
    if isinstance(value, dict) and depth:
        return {key: _trim_value(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list) and depth:
        return [_trim_value(item, depth - 1) for item in value]
    return (
        _truncate_with_count(to_json_text(value), _MAX_VALUE_CHARS)
        if isinstance(value, (dict, list))
        else value
    )


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _shorten_value(value: Any) -> str:
    return _truncate_text(" ".join(to_json_text(value).split()), _MAX_SHORT_CHARS)


def _truncate_text(text: str, size: int) -> str:
    return text if len(text) <= size else text[:size] + "…"


def _truncate_with_count(text: str, size: int) -> str:
    more = len(text) - size
    return text if more <= 0 else f"{text[:size]}… ({more:,} more characters)"
