r"""How a message's content and its JSON columns are stored, and how they read.

Text is stored as it is; a list, a mapping, a number or a boolean as JSON behind the marker
``"\x00json:"``, which hides it from SQL text functions. Everything above this file sees decoded
content only.

What is not said to a model again: memory that was recalled for one call, and reviews.

Hermes has stored both beside the conversation: blocks of recalled memory inside of what was said,
and turns in which the agent was to learn from the conversation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from session_core.errors import InvalidInput

JSON_MARKER = "\x00json:"

MAX_DEPTH = 20
"""What is nested deeper is no text: nobody who means to be read does so."""

_TEXT_PARTS = ("text", "input_text", "output_text")


def encode_content(content: Any) -> str | bytes | None:
    """Return what is stored for `content`."""
    if content is None or isinstance(content, bytes):
        return content
    if isinstance(content, str) and not content.startswith(JSON_MARKER):
        return clean_text(content)
    # Also text that would else be taken for such JSON, and numbers: the column makes text of them.
    return JSON_MARKER + dump_json(content)


def decode_content(stored: Any) -> Any:
    """Return the content that was stored; what cannot be decoded is returned as it is."""
    if isinstance(stored, str) and stored.startswith(JSON_MARKER):
        try:
            return load_json(stored[len(JSON_MARKER) :])
        except ValueError:
            return stored
    return stored


def encode_json(value: Any) -> str | None:
    """Return the text of a JSON column: None and empty are NULL, text is taken as it is."""
    if value is None or value in ([], {}):
        return None
    return clean_text(value) if isinstance(value, str) else dump_json(value)


def load_json(stored: str | bytes) -> Any:
    """Return the value of a JSON text, without halves of characters.

    Raises:
        ValueError: it is broken, or nested too deep.
    """
    half = "\\ud" if isinstance(stored, str) else b"\\ud"
    try:
        value = json.loads(stored)
        # An escape may stand for half a character, which nothing above this could send or index.
        return _replace_surrogates(value) if half in stored.lower() else value  # type: ignore[operator]
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
        InvalidInput: JSON has no such value, as an object or a number that is none.
    """
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            "no JSON can be made of that value; it takes text, finite numbers, lists and mappings"
        ) from error


def decode_json(stored: Any) -> Any:
    """Return the value of a JSON column, or None where it is empty or broken."""
    if not stored:
        return None
    try:
        return load_json(stored)
    except (TypeError, ValueError):
        return None


def clean_text(text: str) -> str:
    """Replace lone surrogates, which no database takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
    return text


def count_tool_calls(stored: str | None) -> int:
    """Return how many tool calls the text of that column holds."""
    calls = decode_json(stored)
    return len(calls) if isinstance(calls, list) else int(isinstance(calls, dict))


def extract_plain_text(content: Any) -> str:
    """Return what a person would read of decoded content: its text parts, images left out."""
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
    """Return what was said, without the memory that was recalled into it."""
    return _MEMORY_TAG.sub("", _MEMORY_NOTE.sub("", _remove_memory_blocks(text))).strip()


def drop_reviews(messages: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Leave out where the agent was told to review the conversation, and what it replied."""
    reviewed = False
    for message in messages:
        is_reply = reviewed and message["role"] == "assistant"
        reviewed = _is_review(message)
        if not reviewed and not is_reply:
            yield message


def _remove_memory_blocks(text: str) -> str:
    """Return a text without its blocks; of several that are open the first one counts."""
    kept: list[str] = []
    end, opened = 0, -1
    for tag in _MEMORY_TAG.finditer(text):
        if not tag[1]:
            opened = tag.start() if opened < 0 else opened
        elif opened >= 0:
            kept.append(text[end:opened])
            end, opened = tag.end(), -1
    return "".join((*kept, text[end:]))


def _is_review(message: dict[str, Any]) -> bool:
    content = message["content"]
    by_others = message["role"] in ("user", "system")
    return by_others and isinstance(content, str) and content.lstrip().startswith(_REVIEW_PROMPTS)
