"""The searchable text of a message, its folded words, and snippets, the same for every engine.

The text is the readable content, the name of a tool and the values of its arguments. The names of
the arguments and the ids of the calls are searched too, but never shown. In scripts without spaces
(and for emoji) every character is a word, so that a piece of any length is a phrase. Folding makes
spellings equal in every script: case, accents and points, composed or not, wide or narrow. Vowels
that are written as marks stay. A snippet is the part of a text that shows best why it matches.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from session_core.state.content import (
    JSON_MARKER,
    MAX_DEPTH,
    decode_content,
    decode_json,
    extract_plain_text,
    load_json,
)

SPACELESS_CHARS = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2600-\u27bf\u2e80-\u2fdf\u3005-\u3007"
    "\u3040-\u30ff\u3105-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U0001b000-\U0001b16f\U0001f000-\U0001faff"
    "\U00020000-\U0003ffff"
)
"""Han, kana, Hangul, Thai, Lao, Burmese, Khmer and emoji, as the inside of a character class."""

_SPACELESS_RUN = re.compile(f"[{SPACELESS_CHARS}]+")
_FOLDABLE_CHARS = re.compile(
    "[^\x00-\x7f\u2010\u2012-\u2016\u2018-\u2023\u3000-\u3029\u302e-\u3035\u303b-\u3130\u31a0-\u31ff"
    "\u3400-\ua4cf\uac00-\ud7ff\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
    "\U0001f000-\U0001f0ff\U0001f300-\U0001ffff\U00020000-\U0002f7ff]+"
)
"""Characters that folding may change. All others are skipped at once."""

_UNCERTAIN_CHARS = re.compile(rf"[^\x00-\x7f\w{SPACELESS_CHARS}]+")
"""Characters that are separators, or marks, which are part of words."""

_WORD = re.compile("[a-z0-9\x80-\U0010ffff]+")
_MARK_CATEGORIES = ("Mn", "Mc", "Co")
_VARIATION_SELECTORS = (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
_NUKTA, _POINTS, _ACCENTS = 7, range(10, 37), 202
"""Combining classes of optional marks. Vowels and voicing have other classes."""

_ID_KEY = re.compile("(^|_)id$")
"""Keys of the ids of a tool call. It can have one for each side."""

_MAX_TEXT_LENGTH = 4096
"""A longer value without a space is data (an image, a key), not text."""


class _FoldTable(dict[int, str]):
    """The folded form of each character, computed once."""

    def __missing__(self, code: int) -> str:
        self[code] = folded = _fold_character(chr(code))
        return folded


def _fold_character(character: str) -> str:
    # An invisible character would separate the halves of a word.
    if unicodedata.category(character) == "Cf" or ord(character) in _VARIATION_SELECTORS:
        return ""
    parts = unicodedata.normalize("NFKD", character).casefold()
    return unicodedata.normalize(
        "NFC", "".join(part for part in parts if not _is_dropped_mark(part))
    )


def _is_dropped_mark(mark: str) -> bool:
    combining_class = unicodedata.combining(mark)
    return combining_class == _NUKTA or combining_class in _POINTS or combining_class >= _ACCENTS


class _SpacingTable(dict[int, str]):
    """The form of each character in a word index: itself, or a blank between words."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        inside = (
            char.isalnum()
            or unicodedata.category(char) in _MARK_CATEGORIES
            or _SPACELESS_RUN.match(char)
        )
        self[code] = spaced = char if inside else " "
        return spaced


class _JoiningTable(dict[str, bool]):
    """The characters that continue a word next to them."""

    def __missing__(self, char: str) -> bool:
        self[char] = joined = not is_separator(char) and not has_spaceless(char)
        return joined


_FOLD_TABLE = _FoldTable()
_SPACING_TABLE = _SpacingTable()
_JOINING_TABLE = _JoiningTable()


def build_search_text(content: Any, tool_name: Any, tool_calls: Any) -> str:
    """Build the searchable text of a stored row."""
    shown, hidden = build_text_parts(content, tool_name, tool_calls)
    return f"{shown}\n{hidden}" if hidden else shown


def build_text_parts(content: Any, tool_name: Any, tool_calls: Any) -> tuple[str, str]:
    """Build the readable part of the searchable text, and the part that is not shown."""
    text = _extract_content_text(content)
    if tool_name:
        text = f"{text}\n{extract_plain_text(tool_name)}" if text else extract_plain_text(tool_name)
    if not tool_calls:
        return text, ""
    stored = extract_plain_text(tool_calls)
    calls = decode_json(stored)
    if not isinstance(calls, list):
        return "\n".join(filter(None, (text, stored))), ""
    shown, hidden = [text], list[str]()
    for call in calls:
        _collect_texts(_list_ids(call), hidden, hidden)
        _collect_texts(_extract_call_values(call), shown, hidden)
    # Many calls share the names of their arguments. Each name is indexed once.
    return "\n".join(filter(None, shown)), "\n".join(dict.fromkeys(hidden))


def fold_text(text: str) -> str:
    """Fold a text, so that all spellings of a word are equal."""
    if text.isascii():
        return text.lower()
    normalized = unicodedata.normalize("NFC", text).casefold()
    folded = _FOLDABLE_CHARS.sub(lambda match: match[0].translate(_FOLD_TABLE), normalized)
    return unicodedata.normalize("NFC", folded)


def space_words(folded: str) -> str:
    """Return folded text for a word index that recognises only ASCII separators."""
    if folded.isascii():
        return folded
    return _SPACELESS_RUN.sub(lambda run: f" {' '.join(run[0])} ", blank_separators(folded))


def blank_separators(folded: str) -> str:
    """Return folded text with a blank for each separator that is not ASCII."""
    return _UNCERTAIN_CHARS.sub(lambda match: match[0].translate(_SPACING_TABLE), folded)


def split_words(text: str) -> list[str]:
    """Return the folded words of a text."""
    return _WORD.findall(space_words(fold_text(text)))


def list_spellings(text: str) -> list[str]:
    """Return the spellings of a text for an index that does not fold."""
    if text.isascii():
        return [text]
    forms = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    return list(dict.fromkeys((text, *forms, fold_text(text))))


def has_spaceless(text: str) -> bool:
    """Return True if a character of the text is a word by itself."""
    return not text.isascii() and _SPACELESS_RUN.search(text) is not None


def find_spaceless_runs(text: str) -> list[str]:
    """Return the runs of a text in scripts without spaces."""
    return [] if text.isascii() else _SPACELESS_RUN.findall(text)


def is_word_char(char: str) -> bool:
    """Return True if a folded character continues the word next to it."""
    return _JOINING_TABLE[char]


def is_separator(char: str) -> bool:
    """Return True if a folded character is between words."""
    return _SPACING_TABLE[ord(char)] == " "


def _extract_content_text(content: Any) -> str:
    if isinstance(content, str) and not content.startswith(JSON_MARKER):
        return content
    decoded = decode_content(content)
    text = extract_plain_text(decoded)
    # Content without a text part is found by its values.
    if not text and isinstance(decoded, (list, dict)):
        texts = list[str]()
        _collect_texts(decoded, texts, [])
        return "\n".join(texts)
    return text


def _extract_call_values(call: Any) -> Any:
    """Return the name and the decoded arguments of a tool call of any provider."""
    if not isinstance(call, Mapping):
        return call
    inner = call.get("function")
    if isinstance(inner, Mapping):
        return [inner.get("name"), _decode_arguments(inner.get("arguments"))]
    return [
        _decode_arguments(value) if key == "arguments" else value
        for key, value in call.items()
        if key != "type" and not _ID_KEY.search(key)
    ]


def _decode_arguments(stored: Any) -> Any:
    if not isinstance(stored, str):
        return stored
    try:
        return load_json(stored)
    except ValueError:
        return stored


def _list_ids(call: Any) -> list[Any]:
    if not isinstance(call, Mapping):
        return []
    return [value for key, value in call.items() if _ID_KEY.search(key)]


def _collect_texts(value: Any, texts: list[str], names: list[str], depth: int = 0) -> None:
    """Append the texts in a value to `texts` and its keys to `names`."""
    if isinstance(value, str):
        if len(value) <= _MAX_TEXT_LENGTH or " " in value[:_MAX_TEXT_LENGTH]:
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
            _collect_texts(item, texts, names, depth + 1)


SNIPPET_LENGTH = 200
_LEAD_LENGTH = 50
_MAX_PLACES = 40
_MAX_EXACT_LENGTH = 50_000
"""In a longer text the position of a character that folding moved is estimated."""


class TextFinder(Protocol):
    """A word or phrase that can be searched for in folded text."""

    def find(self, folded: str, start: int = 0) -> tuple[int, int] | None:
        """Return the bounds of the next match at or after `start`, or None."""


def cut_snippet(
    text: str, words: Iterable[TextFinder], literal: str = "", *, folded: str | None = None
) -> str:
    """Cut about 200 characters around the place with the most words close together."""
    if len(text) <= SNIPPET_LENGTH:
        return " ".join(text.split())
    folded = fold_text(text) if folded is None else folded
    places = _find_places(folded, words, literal)
    starts = {at for at, _ in places}
    if len(starts) > 1:
        best = max(starts, key=lambda at: _score_window(at, places))
    else:
        best = next(iter(starts), 0)
    start = _unfold_position(text, folded, best)
    begin = 0 if start <= _LEAD_LENGTH * 2 else _find_word_start(text, start - _LEAD_LENGTH)
    end = begin + SNIPPET_LENGTH
    piece = " ".join(text[begin : end + SNIPPET_LENGTH].split())[:SNIPPET_LENGTH].strip()
    return ("…" if begin else "") + piece + ("…" if end < len(text) else "")


def _find_places(folded: str, words: Iterable[TextFinder], literal: str) -> list[tuple[int, int]]:
    """Return the positions of the words, each with its number."""
    places: list[tuple[int, int]] = []
    for number, word in enumerate(words):
        bounds = word.find(folded)
        while bounds is not None and len(places) < _MAX_PLACES * (number + 1):
            places.append((bounds[0], number))
            bounds = word.find(folded, bounds[1])
    literal_at = folded.find(literal) if literal else -1
    if literal_at >= 0:
        # The literal query counts as three words.
        places += [(literal_at, -number) for number in range(1, 4)]
    return places


def _score_window(start: int, places: list[tuple[int, int]]) -> tuple[int, int]:
    """Return the number of different words near a position, to choose the best window.

    Of two equal windows the earlier one wins.
    """
    near = {number for at, number in places if start <= at < start + SNIPPET_LENGTH - _LEAD_LENGTH}
    return len(near), -start


def _unfold_position(text: str, folded: str, at: int) -> int:
    """Return the position in a text for a position in its folded form."""
    if len(text) == len(folded):
        return at
    if len(text) > _MAX_EXACT_LENGTH:
        return at * len(text) // max(1, len(folded))
    # Folding changes lengths, so the position is found by bisection over folded prefixes.
    low, high = 0, len(text)
    while low < high:
        middle = (low + high) // 2
        if len(fold_text(text[:middle])) < at:
            low = middle + 1
        else:
            high = middle
    return low


def _find_word_start(text: str, at: int) -> int:
    """Return the beginning of the word at a position, if it is near."""
    for offset in range(20):
        if text[at - offset].isspace():
            return at - offset + 1
    return at
