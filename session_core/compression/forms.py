"""The words of a text and its form; in a script without spaces two signs are a word."""

from __future__ import annotations

import re

from session_core.state.searchable import SPACELESS

_VARIABLE = re.compile(r"[^\W\d]{0,30}\d\w*")
_VARIABLE_WIDE = re.compile(rf"[^\W\d{SPACELESS}]{{0,30}}\d[^\W{SPACELESS}]*")
_WORD = re.compile(r"[^\W\d_]{2,}")
_LETTERS = re.compile(r"[^\W\d_]+")
_MIXED = re.compile(r"\w{2,}")
_DIGITS = re.compile(r"\d+")
_TOKEN = re.compile(r"[^\W\d_]+|[^\w\s]")
_WIDE = re.compile(f"[{SPACELESS}]+")
_PAIR = re.compile(f"(?=([{SPACELESS}]{{2}}))")


def template(text: str) -> str:
    """Return a text with all that varies in lines of one form made equal."""
    return (_VARIABLE if text.isascii() else _VARIABLE_WIDE).sub("0", text)


def form(text: str) -> str:
    """Return a text with each word, number and mixture of them made equal."""
    if not text.isascii():
        text = _WIDE.sub(_words_of_run, text)
    return _MIXED.sub("x", _DIGITS.sub("0", _LETTERS.sub("a", text)))


def tokens(text: str) -> set[str]:
    """Return the words and signs of a text, without numbers."""
    if text.isascii():
        return set(_TOKEN.findall(text))
    return {*_PAIR.findall(text), *_TOKEN.findall(_WIDE.sub(" ", text))}


def words(text: str) -> int:
    """Return how many words a text has."""
    if text.isascii():
        return len(_WORD.findall(text))
    wide = sum(map(len, _WIDE.findall(text)))
    return wide // 2 + len(_WORD.findall(_WIDE.sub(" ", text)))


def _words_of_run(run: re.Match[str]) -> str:
    return " a" * (len(run.group()) // 2 + 1) + " "
