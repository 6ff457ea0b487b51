r"""The text by which a message is found, and how it is cut into words: the same for every engine.

It is what a person would read, the name of a tool and the values of its arguments. Scripts that
are written without spaces (and emoji) have every character as a word, so that a piece of any length
is a phrase. Folding makes letters of one kind equal: case, accents, the final sigma.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from session_core.state.content import MARKER, decode, decode_json, plain_text

SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2600-\u27bf\u2e80-\u2fdf\u3005-\u3007"
    "\u3040-\u30ff\u3105-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U0001b000-\U0001b16f\U0001f000-\U0001faff"
    "\U00020000-\U0003ffff"
)
"""Han, kana, Hangul, Thai, Lao, Burmese, Khmer and emoji, as the inside of a character class."""

_ONE = re.compile(f"([{SPACELESS}])")
_RUN = re.compile(f"[{SPACELESS}]+")
_JOINERS = dict.fromkeys((0x200B, 0x200C, 0x200D, 0x2060, 0xFE0E, 0xFE0F, 0xFEFF, 0x00AD))
_FOLDED = re.compile(
    "[\u00aa-\u0233\u0300-\u036f\u0370-\u0587\u1e00-\u1fff\u200b-\u2060\ufe0e\ufe0f\ufeff]"
)
_LEAF_MAX = 4096
"""A longer value without a space is data (an image, a key), not text."""


class _Fold(dict[int, "str | None"]):
    """What each character is folded to, found out once."""

    def __missing__(self, code: int) -> str | None:
        self[code] = folded = _fold_character(chr(code))
        return folded


def _fold_character(character: str) -> str | None:
    if ord(character) in _JOINERS or "\u0300" <= character <= "\u036f":
        return None
    if character == "\u03c2":
        return "\u03c3"
    return unicodedata.normalize("NFD", character)[0] if character < "\u2e80" else character


_FOLD = _Fold()


def of(content: Any, tool_name: str | None, tool_calls: str | None) -> str:
    """Return the text by which a stored row is found."""
    text = _content_text(content)
    if tool_name:
        text = f"{text}\n{tool_name}" if text else tool_name
    if tool_calls:
        text = "\n".join(filter(None, (text, *_call_texts(tool_calls))))
    return text


def fold(text: str) -> str:
    """Return the text with letters of one kind made equal."""
    lowered = text.lower()
    if lowered.isascii() or not _FOLDED.search(lowered):
        return lowered
    return lowered.translate(_FOLD)


def spaced(text: str) -> str:
    """Return the text as it goes to a word index: each spaceless character a word."""
    if text.isascii():
        return text
    return _ONE.sub(r" \1 ", text.translate(_JOINERS))


def has_spaceless(text: str) -> bool:
    """Whether a character of the text is a word by itself."""
    return not text.isascii() and _ONE.search(text) is not None


def runs(text: str) -> list[str]:
    """Return the pieces of a text that are written without spaces."""
    return [] if text.isascii() else _RUN.findall(text)


def is_joined(char: str) -> bool:
    """Whether a character next to a word would make it another word."""
    return char.isalnum() and not has_spaceless(char)


def words(text: str) -> list[str]:
    """Return the folded words of a text."""
    folded = fold(text)
    if folded.isascii():
        return _ASCII_WORD.findall(folded)
    marked = "".join(char if _in_word(char) else " " for char in spaced(folded))
    return marked.split()


_ASCII_WORD = re.compile("[a-z0-9]+")
_MARKS = ("Mn", "Mc", "Co")


def _in_word(char: str) -> bool:
    return char.isalnum() or unicodedata.category(char) in _MARKS or _ONE.match(char) is not None


def _content_text(content: Any) -> str:
    if isinstance(content, str) and not content.startswith(MARKER):
        return content
    decoded = decode(content)
    text = plain_text(decoded)
    if not text and isinstance(decoded, (list, dict)):
        return "\n".join(_leaves(decoded))
    return text


def _call_texts(stored: str) -> Iterator[str]:
    calls = decode_json(stored)
    if not isinstance(calls, list):
        yield stored
        return
    for call in calls:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            yield from _leaves(call)
            continue
        name, arguments = function.get("name"), function.get("arguments")
        if isinstance(name, str):
            yield name
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except ValueError:
                yield str(arguments)
                continue
        yield from _leaves(arguments)


def _leaves(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        if len(value) <= _LEAF_MAX or " " in value[:_LEAF_MAX]:
            yield value
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, (int, float)):
        yield str(value)
    elif depth < 20:  # noqa: PLR2004 -- nobody nests arguments deeper
        inner = value.values() if isinstance(value, Mapping) else value
        for item in inner:
            yield from _leaves(item, depth + 1)
