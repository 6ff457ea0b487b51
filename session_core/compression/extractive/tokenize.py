"""Split text into words and sentences, in scripts with and without spaces.

In a script without spaces two characters count as a word. A sentence never ends inside a code span,
a number, a name or an address, nor after an abbreviation: its end is followed by a space, or is a
full stop of a script without spaces.
"""

from __future__ import annotations

import re

from session_core.state.search_text import SPACELESS_CHARS

_VARIABLE = re.compile(r"[^\W\d]{0,30}\d\w*")
_VARIABLE_WIDE = re.compile(rf"[^\W\d{SPACELESS_CHARS}]{{0,30}}\d[^\W{SPACELESS_CHARS}]*")
_WORD = re.compile(r"[^\W\d_]{2,}")
_LETTERS = re.compile(r"[^\W\d_]+")
_MIXED = re.compile(r"\w{2,}")
_DIGITS = re.compile(r"\d+")
_TOKEN = re.compile(r"[^\W\d_]+|[^\w\s]")
_WIDE_RUN = re.compile(f"[{SPACELESS_CHARS}]+")
_WIDE_PAIR = re.compile(f"(?=([{SPACELESS_CHARS}]{{2}}))")


def make_template(text: str) -> str:
    """Return a text with its variable parts replaced, so that similar lines are equal."""
    return (_VARIABLE if text.isascii() else _VARIABLE_WIDE).sub("0", text)


def make_form(text: str) -> str:
    """Return a text with each word, number and mixture of them replaced by its class."""
    if not text.isascii():
        text = _WIDE_RUN.sub(_count_run_words, text)
    return _MIXED.sub("x", _DIGITS.sub("0", _LETTERS.sub("a", text)))


def extract_tokens(text: str) -> set[str]:
    """Return the words and signs of a text, without numbers."""
    if text.isascii():
        return set(_TOKEN.findall(text))
    return {*_WIDE_PAIR.findall(text), *_TOKEN.findall(_WIDE_RUN.sub(" ", text))}


def count_words(text: str) -> int:
    """Return the number of words in a text."""
    if text.isascii():
        return len(_WORD.findall(text))
    wide = sum(map(len, _WIDE_RUN.findall(text)))
    return wide // 2 + len(_WORD.findall(_WIDE_RUN.sub(" ", text)))


def _count_run_words(run: re.Match[str]) -> str:
    return " a" * (len(run.group()) // 2 + 1) + " "


_SENTENCE_END = re.compile(
    r"[.!?…]['\"”\u2019»)\]*]{0,3}\s+(?![\s&,;:=|])|[。\uff01\uff1f]+[」』”\uff09]?"
)
_UNIT = re.compile(r"\d\s?[a-z]$")
_MAX_LIST_NUMBER_CHARS = 6
_ABBREVIATION_LIST = """
e.g i.e etc approx ca cf vs no nr vol fig sec st dr mr mrs ms prof inc ltd co jr sr resp incl
excl z.b d.h u.a usw bzw ggf vgl p.ej ej ud uds p.ex env art al
"""
_ABBREVIATIONS = frozenset(_ABBREVIATION_LIST.split())


def find_sentence_spans(line: str) -> list[tuple[int, int]]:
    """Return start and end of each sentence without surrounding spaces."""
    found: list[tuple[int, int]] = []
    begin = ticked = 0
    in_code = False
    for match in _SENTENCE_END.finditer(line):
        in_code ^= line.count("`", ticked, match.start()) % 2 == 1
        ticked = match.start()
        if in_code or _is_abbreviation(line, match.start()):
            continue
        _add_span(found, line, begin, match.end())
        begin = match.end()
    _add_span(found, line, begin, len(line))
    return found


def _is_abbreviation(line: str, end: int) -> bool:
    if line[end] != ".":
        return False
    word = line[max(0, end - 10) : end].rsplit(None, 1)
    last = word[-1].lstrip("([\"'").lower() if word else ""
    # "1." and "A." begin an item of a list, or shorten a name.
    initial = len(last) == 1 and last.isalpha() and not _UNIT.search(line, max(0, end - 8), end)
    return last in _ABBREVIATIONS or initial or _is_list_number(line, end)


def _is_list_number(line: str, end: int) -> bool:
    return end < _MAX_LIST_NUMBER_CHARS and line[:end].strip().isdigit()


def _add_span(found: list[tuple[int, int]], line: str, begin: int, end: int) -> None:
    text = line[begin:end]
    stripped = text.strip()
    if stripped:
        start = begin + len(text) - len(text.lstrip())
        found.append((start, start + len(stripped)))
