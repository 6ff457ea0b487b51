r"""Message content and JSON columns as they are stored, and as they are read.

Text is stored as it is. A list, a mapping, a number or a boolean is stored as JSON after the
marker ``"\x00json:"``, which hides it from SQL text functions. All modules above see decoded
content only.

Hermes stores two things next to the conversation that a model must not see again: blocks of
recalled memory inside messages, and turns in which the agent reviews the conversation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from session_core.errors import InvalidInput

JSON_MARKER = "\x00json:"

MAX_DEPTH = 20
"""The depth to which content is searched for text. Deeper nesting is data."""

_TEXT_PARTS = ("text", "input_text", "output_text")

# Numbers stay text: large ones take long to convert, or cannot be converted.
_PAYLOAD_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)


def encode_content(content: Any) -> str | bytes | None:
    """Return the stored form of `content`."""
    if content is None or isinstance(content, bytes):
        return content
    if isinstance(content, str) and not content.startswith(JSON_MARKER):
        return clean_text(content)
    # Text that begins with the marker is encoded too, and numbers, which a TEXT column converts.
    return JSON_MARKER + dump_json(content)


def decode_content(stored: Any) -> Any:
    """Return the content of a stored value, or the value itself if it cannot be decoded."""
    if isinstance(stored, str) and stored.startswith(JSON_MARKER):
        try:
            return load_json(stored[len(JSON_MARKER) :])
        except ValueError:
            return stored
    return stored


def encode_json(value: Any) -> str | None:
    """Return the text of a JSON column: NULL for None and empty values, text unchanged."""
    if value is None or value in ([], {}):
        return None
    return clean_text(value) if isinstance(value, str) else dump_json(value)


def encode_payload(value: Any) -> str:
    """Return the stored form of opaque JSON: a text as it is, any other value as ASCII JSON.

    Raises:
        InvalidInput: the text is not JSON, or the value has no JSON form.
    """
    if not isinstance(value, str):
        return dump_json(value)
    try:
        value.encode()
        _PAYLOAD_DECODER.decode(value)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            "payload_json must be JSON text or a value with a JSON form; pass a text through "
            "json.dumps"
        ) from error
    return value


def load_json(stored: str | bytes) -> Any:
    """Return the value of a JSON text, without lone surrogates.

    Raises:
        ValueError: it is broken, or nested too deep.
    """
    surrogate_escape = "\\ud" if isinstance(stored, str) else b"\\ud"
    try:
        value = json.loads(stored)
        # An escape can encode a lone surrogate, which can be neither sent nor indexed.
        return _replace_surrogates(value) if surrogate_escape in stored.lower() else value  # type: ignore[operator]
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {clean_text(key): _replace_surrogates(item) for key, item in value.items()}
    return value


def dump_json(value: Any) -> str:
    """Return the JSON of a value.

    Raises:
        InvalidInput: the value has no JSON form, as an object or NaN.
    """
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            "value has no JSON form; use text, finite numbers, booleans, lists and mappings"
        ) from error


def decode_json(stored: Any) -> Any:
    """Return the value of a JSON column, or None if it is empty or broken."""
    if not stored:
        return None
    try:
        return load_json(stored)
    except (TypeError, ValueError):
        return None


def clean_text(text: str) -> str:
    """Replace lone surrogates, which no database accepts."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
    return text


def count_tool_calls(stored: str | None) -> int:
    """Return the number of tool calls in the text of their column."""
    calls = decode_json(stored)
    return len(calls) if isinstance(calls, list) else int(isinstance(calls, dict))


def extract_plain_text(content: Any) -> str:
    """Return the readable text of decoded content: its text parts, without images.

    Example:
        >>> from session_core import extract_plain_text
        >>> extract_plain_text([{"type": "text", "text": "look"}, {"type": "image_url"}])
        'look'
    """
    return _extract_text(content, 0)


def _extract_text(content: Any, depth: int) -> str:
    if content is None or depth > MAX_DEPTH:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, bytes):
        return content.decode("utf-8", "replace")
    if isinstance(content, list):
        return "\n".join(filter(None, (_extract_part_text(part, depth) for part in content)))
    if isinstance(content, Mapping):
        return _extract_part_text(content, depth)
    return str(content)


def _extract_part_text(part: Any, depth: int) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        return ""
    if part.get("type", "text") in _TEXT_PARTS or "text" in part:
        text = part.get("text")
        return text if isinstance(text, str) else ""
    return _extract_text(part.get("content"), depth + 1)


# Hermes puts recalled memory into the message that it sends to the model.
_MEMORY_TAG = re.compile(r"<(/?)\s*memory-context\s*>", re.IGNORECASE)
_MEMORY_NOTE = re.compile(
    r"\[System note:\s*The following is recalled memory context,\s*NOT new user input\."
    r"\s*Treat as (?:informational background data|authoritative reference data[^\]]*)\.\]\s*",
    re.IGNORECASE,
)
_REVIEW_PROMPTS = tuple(
    f"Review the conversation above and {task}"
    for task in ("update the skill library", "consider saving to memory")
)


def strip_recalled_memory(text: str) -> str:
    """Return a message without the memory that was recalled into it."""
    return _MEMORY_TAG.sub("", _MEMORY_NOTE.sub("", _remove_memory_blocks(text))).strip()


def drop_reviews(messages: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Leave out the prompts that ask for a review of the conversation, and the replies."""
    reviewed = False
    for message in messages:
        is_reply = reviewed and message["role"] == "assistant"
        reviewed = _is_review(message)
        if not reviewed and not is_reply:
            yield message


def _remove_memory_blocks(text: str) -> str:
    """Return a text without its memory blocks."""
    kept: list[str] = []
    end, opened = 0, -1
    for tag in _MEMORY_TAG.finditer(text):
        if not tag[1]:
            # Of nested opening tags the first one counts.
            opened = tag.start() if opened < 0 else opened
        elif opened >= 0:
            kept.append(text[end:opened])
            end, opened = tag.end(), -1
    return "".join((*kept, text[end:]))


def _is_review(message: dict[str, Any]) -> bool:
    content = message["content"]
    is_prompt = message["role"] in ("user", "system")
    return is_prompt and isinstance(content, str) and content.lstrip().startswith(_REVIEW_PROMPTS)
