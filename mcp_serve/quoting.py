"""What others have said, made harmless where it stands in one line.

Texts of messages are quoted by JSON itself and stay as they are.
"""

from __future__ import annotations

import re
from typing import Any

from mcp_serve.normalized_text import TERMINAL

HIDDEN = re.compile(
    "[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
"""What turns the direction of text around, or cannot be seen at all."""

_TERMINAL = re.compile(TERMINAL)
_BREAKS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""All of these but line ends and tabs."""


_HALVES = re.compile("[\ud800-\udfff]")
"""Halves of characters, as JSON may have them, which nobody can be sent."""


def textual(value: Any) -> str:
    """Return a value of a database as text, which columns of text do not always hold."""
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "replace")
    text = value if isinstance(value, str) else str(value)
    return text if text.isascii() else _HALVES.sub("\ufffd", text)


def plain(value: Any) -> str:
    """Return a value as one line without terminal sequences, control and hidden characters.

    What joins emoji (U+200D) is hidden too and taken out with the rest: a title is no worse for it.
    """
    text = textual(value)
    if not (text.isascii() and text.isprintable()):
        text = _BREAKS.sub(" ", HIDDEN.sub("", _TERMINAL.sub("", text)))
    return " ".join(text.split())


def harmless(text: str) -> str:
    """Return a text of several lines that a terminal takes for nothing but text."""
    return _CONTROLS.sub("", HIDDEN.sub("", text))


def shorten(text: str, most: int = 200) -> str:
    """Return a text, cut where it is long."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
