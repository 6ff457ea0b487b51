r"""The text by which a message is found, and how it is cut into words: the same for every engine.

It is what a person would read, the name of a tool and the values of its arguments; and what nobody
is shown: the names of the arguments and the ids of the calls. Scripts that are written without
spaces (and emoji) have every character as a word, so that a piece of any length is a phrase.
Folding makes spellings equal in every script: case, accents and points, composed or not, wide or
narrow. Vowels that are written as marks stay.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from session_core.state.content import MARKER, MAX_DEPTH, decode, decode_json, load, plain_text

SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2600-\u27bf\u2e80-\u2fdf\u3005-\u3007"
    "\u3040-\u30ff\u3105-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U0001b000-\U0001b16f\U0001f000-\U0001faff"
    "\U00020000-\U0003ffff"
)
"""Han, kana, Hangul, Thai, Lao, Burmese, Khmer and emoji, as the inside of a character class."""

_ONE = re.compile(f"[{SPACELESS}]")
_RUN = re.compile(f"[{SPACELESS}]+")
_UNEVEN = re.compile(
    "[^\x00-\x7f\u2010\u2012-\u2016\u2018-\u2023\u3000-\u3029\u302e-\u3035\u303b-\u3130\u31a0-\u31ff"
    "\u3400-\ua4cf\uac00-\ud7ff\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
    "\U0001f000-\U0001f0ff\U0001f300-\U0001ffff\U00020000-\U0002f7ff]+"
)
"""What is not the same in every spelling; all else is passed over at once."""

_UNSURE = re.compile(rf"[^\x00-\x7f\w{SPACELESS}]+")
"""Signs that are between words, or marks, which are part of them."""

_WORD = re.compile("[a-z0-9\x80-\U0010ffff]+")
_MARKS = ("Mn", "Mc", "Co")
_SELECTORS = (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
_NUKTA, _POINTS, _ACCENTS = 7, range(10, 37), 202
"""Classes of marks that a reader may leave out; vowels and voicing have others."""

_ID = re.compile("(^|_)id$")
"""What a tool call has its ids under, of which there may be one for each side."""

_LEAF_MAX = 4096
"""A longer value without a space is data (an image, a key), not text."""


class _Fold(dict[int, str]):
    """What each character is folded to, found out once."""

    def __missing__(self, code: int) -> str:
        self[code] = folded = _fold_character(chr(code))
        return folded


def _fold_character(character: str) -> str:
    if unicodedata.category(character) == "Cf" or ord(character) in _SELECTORS:
        return ""
    parts = unicodedata.normalize("NFKD", character).casefold()
    return unicodedata.normalize("NFC", "".join(part for part in parts if not _is_left_out(part)))


def _is_left_out(mark: str) -> bool:
    place = unicodedata.combining(mark)
    return place == _NUKTA or place in _POINTS or place >= _ACCENTS


class _Spaced(dict[int, str]):
    """What stands in a word index for a character: itself, or a blank where no word has it."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        inside = char.isalnum() or unicodedata.category(char) in _MARKS or _ONE.match(char)
        self[code] = spaced = char if inside else " "
        return spaced


class _Joined(dict[str, bool]):
    """Whether a character next to a word would make it another one."""

    def __missing__(self, char: str) -> bool:
        self[char] = joined = not is_between(char) and not has_spaceless(char)
        return joined


_FOLD = _Fold()
_SPACED = _Spaced()
_JOINED = _Joined()


def of(content: Any, tool_name: Any, tool_calls: Any) -> str:
    """Return the text by which a stored row is found."""
    shown, unshown = parts(content, tool_name, tool_calls)
    return f"{shown}\n{unshown}" if unshown else shown


def parts(content: Any, tool_name: Any, tool_calls: Any) -> tuple[str, str]:
    """Return of it what a person would read, and what nobody is shown."""
    text = _content_text(content)
    if tool_name:
        text = f"{text}\n{plain_text(tool_name)}" if text else plain_text(tool_name)
    if not tool_calls:
        return text, ""
    stored = plain_text(tool_calls)
    calls = decode_json(stored)
    if not isinstance(calls, list):
        return "\n".join(filter(None, (text, stored))), ""
    shown, unshown = [text], list[str]()
    for call in calls:
        _gather(_ids(call), unshown, unshown)
        _gather(_said(call), shown, unshown)
    return "\n".join(filter(None, shown)), "\n".join(dict.fromkeys(unshown))


def fold(text: str) -> str:
    """Return the text with spellings of one word made equal."""
    if text.isascii():
        return text.lower()
    even = unicodedata.normalize("NFC", text).casefold()
    folded = _UNEVEN.sub(lambda found: found[0].translate(_FOLD), even)
    return unicodedata.normalize("NFC", folded)


def spaced(folded: str) -> str:
    """Return folded text as it goes to a word index that tells words in ASCII alone."""
    if folded.isascii():
        return folded
    known = _UNSURE.sub(lambda found: found[0].translate(_SPACED), folded)
    return _RUN.sub(lambda run: f" {' '.join(run[0])} ", known)


def words(text: str) -> list[str]:
    """Return the folded words of a text."""
    return _WORD.findall(spaced(fold(text)))


def spellings(text: str) -> list[str]:
    """Return a text as it may be stored where nobody folds it."""
    if text.isascii():
        return [text]
    forms = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    return list(dict.fromkeys((text, *forms, fold(text))))


def has_spaceless(text: str) -> bool:
    """Whether a character of the text is a word by itself."""
    return not text.isascii() and _ONE.search(text) is not None


def runs(text: str) -> list[str]:
    """Return the pieces of a text that are written without spaces."""
    return [] if text.isascii() else _RUN.findall(text)


def is_joined(char: str) -> bool:
    """Whether a folded character next to a word would make it another word."""
    return _JOINED[char]


def is_between(char: str) -> bool:
    """Whether a folded character is of no word."""
    return _SPACED[ord(char)] == " "


def _content_text(content: Any) -> str:
    if isinstance(content, str) and not content.startswith(MARKER):
        return content
    decoded = decode(content)
    text = plain_text(decoded)
    if not text and isinstance(decoded, (list, dict)):
        texts = list[str]()
        _gather(decoded, texts, [])
        return "\n".join(texts)
    return text


def _said(call: Any) -> Any:
    """Return of a tool call what it says, whoever wrote it: the name, and the arguments decoded."""
    if not isinstance(call, Mapping):
        return call
    inner = call.get("function")
    if isinstance(inner, Mapping):
        return [inner.get("name"), _arguments(inner.get("arguments"))]
    return [
        _arguments(value) if key == "arguments" else value
        for key, value in call.items()
        if key != "type" and not _ID.search(key)
    ]


def _arguments(stored: Any) -> Any:
    if not isinstance(stored, str):
        return stored
    try:
        return load(stored)
    except ValueError:
        return stored


def _ids(call: Any) -> list[Any]:
    if not isinstance(call, Mapping):
        return []
    return [value for key, value in call.items() if _ID.search(key)]


def _gather(value: Any, texts: list[str], names: list[str], depth: int = 0) -> None:
    """Add the texts that are in a value, and the names under which they are."""
    if isinstance(value, str):
        if len(value) <= _LEAF_MAX or " " in value[:_LEAF_MAX]:
            texts.append(value)
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, (int, float)):
        texts.append(str(value))
    elif depth < MAX_DEPTH:
        if isinstance(value, Mapping):
            names += value
            value = value.values()
        for item in value:
            _gather(item, texts, names, depth + 1)
