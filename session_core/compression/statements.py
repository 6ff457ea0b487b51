"""What a person has written into a result, among the lines that a program printed.

A decision or a task often has no name, no number and no word that says what it is. It is a
sentence where the lines beside it are none: little words hold it together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from session_core.compression import cues, forms
from session_core.compression import patterns as p
from session_core.compression.facts import STATEMENTS
from session_core.compression.passages import Passage

_WORD = re.compile(r"[^\W\d_]+")
_LITTLE = frozenset(cues.LITTLE.split())
_ENDS = ".!?。"
_PROSE = 2
"""A line with so many little words is prose."""
_WIDE_MIN = 3

_OF_LINE = 0.6
_BASE = -0.8
_ODD = 2.9
_SENTENCE = 2.8
_TASK = 1.4
_MARKED = 3.0


def odds(group: Sequence[Passage], of_line: Sequence[float]) -> Iterator[float]:
    """Yield the odds of each line of a result, given those that it has as any line."""
    little = [_little(passage.text) for passage in group]
    plain = sum(count < _PROSE for count in little) / len(group)
    for passage, count, value in zip(group, little, of_line, strict=True):
        if _is_statement(passage):
            odd = _ODD * plain * (count >= _PROSE)
            task = _TASK * any(fact.kind == "task" for fact in passage.facts)
            task += _MARKED * _is_marked(passage)
            sentence = _SENTENCE * (count > 0 and _is_sentence(passage.text))
            yield _BASE + _OF_LINE * value + odd + sentence + task
        else:
            yield value


def _is_statement(passage: Passage) -> bool:
    """Whether a line has no fact but what it says, or says a decision or a task."""
    return not passage.facts or any(fact.kind in STATEMENTS for fact in passage.facts)


def _is_marked(passage: Passage) -> bool:
    """Whether a sign says that something is open, as in a comment or a list of an agent."""
    text = passage.text
    return bool(p.TO_DO_SIGN.match(text) or ('"stat' in text and p.LISTED_OPEN.search(text)))


def _is_sentence(text: str) -> bool:
    return text[-1] in _ENDS and text[0].isupper()


def _little(text: str) -> int:
    """Return how many little words a text has; one of a script without spaces has enough."""
    words = _WORD.findall(text.lower())
    if not text.isascii() and forms.words(text) - len(words) >= _WIDE_MIN:
        return _PROSE
    return sum(word in _LITTLE for word in words)
