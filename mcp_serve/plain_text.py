"""Plain text of one line or several lines, without terminal sequences and hidden characters."""

from __future__ import annotations

import re
from typing import Any

from mcp_serve.redaction.normalized_text import TERMINAL

# Characters that are invisible or change the direction of text.
HIDDEN = re.compile(
    "[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)

_TERMINAL_PATTERN = re.compile(TERMINAL)
_BREAKS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")

# All control characters but line ends and tabs.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


# Lone surrogates, which JSON may contain and UTF-8 cannot encode.
_SURROGATES = re.compile("[\ud800-\udfff]")


def to_text(value: Any) -> str:
    """Return a database value as text, since text columns may hold other types."""
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "replace")
    text = value if isinstance(value, str) else str(value)
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def to_plain_line(value: Any) -> str:
    """Return a value as one line without terminal sequences, control and hidden characters."""
    line = to_text(value)
    if not (line.isascii() and line.isprintable()):
        line = _BREAKS.sub(" ", HIDDEN.sub("", _TERMINAL_PATTERN.sub("", line)))
    return " ".join(line.split())


def to_plain_text(text: str) -> str:
    """Return text of several lines that a terminal shows without obeying it."""
    return _CONTROLS.sub("", HIDDEN.sub("", text))


def shorten_text(text: str, most: int = 200) -> str:
    """Return a text cut to at most `most` characters."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
