"""Replacing a range of messages with a summary, and condensing it for a summarizer.

Kept messages are unchanged, including results without a call and calls without a result: they were
there before, and the code that sends them repairs them. A summary that is not shorter than its
range is refused.

A condensed message has the shape of its original. A long result becomes one line and a repeated
result a reference to the first result; long arguments are truncated, and an image becomes a word.
Text of the user and the assistant is kept whole.
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
    "redacted_summary": "the summary contains the redaction mark {mark} in place of a fact; "
    "write the fact, or leave it out",
}


@dataclass(frozen=True, slots=True)
class RebuiltMessages:
    """All messages after the change, the summary messages, and the tokens before and after."""

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
    """Return the messages with `text` in place of `messages[start:end]`, or a refusal.

    Raises:
        InvalidInput: the range does not lie within the messages.
    """
    if not 0 <= start < end <= len(messages):
        raise InvalidInput(
            f"the range must lie within {len(messages)} messages, got {start} to {end}"
        )
    fault = summary_message.find_fault(text)
    if fault is not None:
        return Refusal(
            fault, _FAULT_REASONS[fault].format(mark=summary_message.find_redaction_mark(text))
        )
    # Providers refuse a call without its results, so a range may not end between them.
    may_cut = ranges.list_cuts(messages)
    if not (may_cut[start] and may_cut[end]):
        return Refusal("split_pair", "the range separates a call from its results; plan it again")
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
            "not_smaller",
            f"the summary has {added} tokens, and the messages it replaces {replaced}",
        )
    before = replaced + _estimate_total(head, estimate) + _estimate_total(tail, estimate)
    return RebuiltMessages(
        messages=(*head, *summary, *tail),
        summary=tuple(summary),
        tokens_before=before,
        tokens_after=before - replaced + added,
    )


def _find_nearest_turn(messages: Iterable[Message]) -> Turn | None:
    """Return the turn of the first message that is not a system message."""
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
    """Return condensed copies of messages for a summarizer."""
    seen_calls = _SeenCalls()
    return [_copy_message(message, seen_calls) for message in messages]


def describe_call(call: MessageToolCall) -> str:
    """Return a tool call in short form, such as `read_file(path=src/app.py)`."""
    arguments = _parse_json(call.arguments)
    if isinstance(arguments, dict):
        text = ", ".join(f"{name}={_shorten_value(value)}" for name, value in arguments.items())
    else:
        text = _shorten_value(arguments)
    return f"{call.name or 'tool'}({_truncate_text(text, _MAX_LINE_CHARS)})"


class _SeenCalls:
    """The tool calls of a range, and the results that were read so far."""

    def __init__(self) -> None:
        self._calls: dict[str, str] = {}
        self._results: dict[str, str] = {}

    def add_call(self, call: MessageToolCall) -> None:
        """Remember a call, whose description later results use."""
        self._calls.update(dict.fromkeys(call.ids, describe_call(call)))

    def describe_result(self, answer: MessageToolResult) -> str:
        """Return one line in place of a long result."""
        origin = self._calls.get(answer.id or "") or answer.name or "tool"
        size = f"{len(answer.text):,} characters"
        if answer.text in self._results:
            return f"[{origin}: the same {size} as from {self._results[answer.text]} above]"
        self._results[answer.text] = origin
        lines = (" ".join(line.split()) for line in answer.text.splitlines())
        opening = next(filter(None, lines), "")
        return f"[{origin}: {size}, beginning: {_truncate_text(opening, _MAX_LINE_CHARS)}]"


def _copy_message(message: Message, seen_calls: _SeenCalls) -> dict[str, Any]:
    copy = {key: message[key] for key in _COPIED_FIELDS if message.get(key) is not None}
    for call in chat_messages.list_calls(message):
        seen_calls.add_call(call)
    calls = copy.get("tool_calls")
    if isinstance(calls, list):
        copy["tool_calls"] = [_trim_call(call) for call in calls]
    content = copy.get("content")
    if message.get("role") in ("tool", "function"):
        copy["content"] = _trim_result(content, chat_messages.list_results(message)[0], seen_calls)
    elif isinstance(content, list):
        copy["content"] = [_trim_part(part, seen_calls) for part in content]
    return copy


def _trim_result(content: Any, answer: MessageToolResult, seen_calls: _SeenCalls) -> Any:
    if len(answer.text) > MAX_RESULT_CHARS:
        images = chat_messages.count_images({"content": content})
        line = " ".join([seen_calls.describe_result(answer), *[IMAGE_PLACEHOLDER] * images])
        # The line may be longer than a result just above the limit.
        return min(line, answer.text, key=len)
    if isinstance(content, list):
        return [_trim_part(part, seen_calls) for part in content]
    return content


def _trim_part(part: Any, seen_calls: _SeenCalls) -> Any:
    if not isinstance(part, Mapping) or isinstance(part.get("text"), str):
        return part
    kind = part.get("type")
    if kind == "tool_use":
        return {**part, "input": _trim_arguments(part["input"])} if "input" in part else part
    if kind == "tool_result":
        answer = chat_messages.list_results({"role": "user", "content": [part]})[0]
        return {**part, "content": _trim_result(part.get("content"), answer, seen_calls)}
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


def _trim_arguments(arguments: Any) -> Any:
    """Shorten arguments. JSON stays valid JSON, and a mapping stays a mapping."""
    text = to_json_text(arguments)
    if len(text) <= MAX_ARGUMENT_CHARS:
        return arguments
    value = _parse_json(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(value, (dict, list)):
        return _truncate_with_count(text, MAX_ARGUMENT_CHARS)
    trimmed = _trim_value(value, _MAX_DEPTH)
    if len(to_json_text(trimmed)) > MAX_ARGUMENT_CHARS:
        # Many short values can be too long together; a cut text would not be JSON any more.
        trimmed = {"trimmed": _truncate_with_count(text, MAX_ARGUMENT_CHARS // 2)}
    return to_json_text(trimmed) if isinstance(arguments, str) else trimmed


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
    extra = len(text) - size
    return text if extra <= 0 else f"{text[:size]}… ({extra:,} more characters)"
