"""How likely each passage is one that somebody who continues the work will want again.

What is written once, in a form of its own, is what a person would notice; what repeats, in its
words or in its form, is bulk. The odds are those of a regression over generated sessions and ones
made of real files, rounded; those of files and settings were set by hand.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from session_core.compression import forms, statements
from session_core.compression.facts import Fact
from session_core.compression.passages import Passage
from session_core.compression.patterns import LOOKS, OF_CODE
from session_core.compression.reading import READ_OF_EACH, Reading

NAMED = frozenset(("path", "url", "identifier", "number"))

_NAME_RUN = re.compile(r"[^\W_]+")
_DIGITS = re.compile(r"\d+")
_PLAIN_NUMBER = re.compile(r"(?<![^\W\d])\d+(?![^\W\d])")
_CODE = re.compile(r"[(){};=]")
_NUMBERED = re.compile(r"\s*\d{1,6}(?:[|→\t]|:\s)")
_ITEM = re.compile(r"\s*(?:[-*>|#☐]|\d{1,3}[.)]\s)")

_SOME = 3
"""In so many lines of a result a word belongs to their form."""
_TWICE = 2
"""A form that is there twice is no bulk yet."""
_WORDS_MOST = 15
_LINES_MOST = 40
_SENTENCES_MOST = 5
_IN_TALK_MIN = 5


class _Odds(NamedTuple):
    """Log-odds: what a passage starts with, and what each of its traits adds or takes away."""

    base: float
    form: float
    same: float
    factless: float


_BROUGHT = _Odds(base=2.2, form=-2.6, same=-1.9, factless=-3.2)
_COMMON = -7.8
_SIGNS = -28.0
_ERROR = 1.9
_SETS = 4.0
_OF_FILE = -2.0
"""What stands in a file can be read again, where it is no setting and no task."""
_PER_DIGIT = 8.0
_PER_WORD = 0.15
_PER_LINE = 0.09
_OF_BULK = -0.2
_IN_TALK = 1.1

_SAID = _Odds(base=3.0, form=-1.6, same=-2.9, factless=-2.6)
_WITH_DIGIT = 1.8
_WITH_COLON = 1.2
_LISTED = 2.5
_PER_SENTENCE = -0.4


def chances(reading: Reading) -> dict[int, float]:
    """Return the chance of each passage that is read, by its `id`."""
    of: dict[str, list[Passage]] = {"result": [], "call": [], "talk": []}
    for passage in reading.passages:
        of.get(passage.speaker, of["talk"]).append(passage)
    named = {fact.text for each in (of["talk"], of["call"]) for p in each for fact in p.facts}
    odds = (*_brought(of["result"], named), *_said(of["talk"]), *_said(of["call"]))
    return {at: 1 / (1 + math.exp(-value)) for at, value in odds}


def _brought(passages: Sequence[Passage], named: set[str]) -> Iterator[tuple[int, float]]:
    often, same = _repetition(passages, _BROUGHT)
    bulk = _bulk(passages)
    for group in _by_place(passages):
        most = _PER_LINE * min(len(group), _LINES_MOST)
        values = [
            most + often[id(it)] + same[id(it)] + _COMMON * common + _of_line(it, bulk, named)
            for it, common in zip(group, _common(group), strict=True)
        ]
        yield from zip(map(id, group), statements.odds(group, values), strict=True)


def _of_line(passage: Passage, bulk: Mapping[str, int], named: set[str]) -> float:
    text = passage.text
    odds = _BROUGHT.base if passage.facts else _BROUGHT.base + _BROUGHT.factless
    odds += _ERROR * any(fact.kind == "error" for fact in passage.facts)
    if any(fact.kind == "number" and fact.text[0].isalpha() for fact in passage.facts):
        odds += _SETS
    elif not any(fact.kind == "task" for fact in passage.facts):
        odds += _OF_FILE * bool(_NUMBERED.match(text) or OF_CODE.match(text))
    odds += _PER_WORD * min(forms.words(text), _WORDS_MOST)
    odds += _PER_DIGIT * sum(map(len, _DIGITS.findall(text))) / len(text)
    odds += _SIGNS * len(_CODE.findall(text)) / len(text)
    return odds + _of_names(passage, bulk, named)


def _of_names(passage: Passage, bulk: Mapping[str, int], named: set[str]) -> float:
    names = [fact for fact in passage.facts if fact.kind in NAMED]
    if not names:
        return 0.0
    odds = _OF_BULK * math.log(min(bulk[name_form(fact)] for fact in names))
    used = any(len(fact.text) > _IN_TALK_MIN and fact.text in named for fact in names)
    return odds + _IN_TALK * used


def _said(passages: Sequence[Passage]) -> Iterator[tuple[int, float]]:
    often, same = _repetition(passages, _SAID)
    sentences = Counter(passage.place for passage in passages)
    for passage in passages:
        text = passage.text
        odds = _SAID.base if passage.facts else _SAID.base + _SAID.factless
        odds += often[id(passage)] + same[id(passage)]
        odds += _PER_SENTENCE * min(sentences[passage.place], _SENTENCES_MOST)
        odds += _WITH_DIGIT * any(map(str.isdigit, text)) + _WITH_COLON * (":" in text)
        if passage.speaker == "call":
            odds += _OF_FILE * bool(OF_CODE.match(text) or LOOKS.match(text))
        yield id(passage), odds + _LISTED * (_ITEM.match(text) is not None)


def _repetition(
    passages: Sequence[Passage], odds: _Odds
) -> tuple[dict[int, float], dict[int, float]]:
    """Return what it takes away that others have the form, or all the words, of each passage."""
    shapes = [forms.form(passage.text) for passage in passages]
    often: Counter[str] = Counter()
    same: Counter[str] = Counter()
    for passage, own in zip(passages, shapes, strict=True):
        often[own] += _weight(passage)
        same[_sameness(passage)] += _weight(passage)
    pairs = list(zip(passages, shapes, strict=True))
    return (
        {id(one): odds.form * math.log(max(often[own] / _TWICE, 1)) for one, own in pairs},
        {id(one): odds.same * math.log(max(same[_sameness(one)], 1)) for one, _ in pairs},
    )


def _sameness(passage: Passage) -> str:
    """Return what two passages have in common that say the same: of talk all but plain numbers."""
    if passage.speaker == "result":
        return passage.template or passage.text
    return _PLAIN_NUMBER.sub("0", passage.text)


def _weight(passage: Passage) -> int:
    """Return for how many lines a passage stands: of a result only the first alike are read."""
    return max(passage.repeated // READ_OF_EACH, 1) if passage.speaker == "result" else 1


def name_form(fact: Fact) -> str:
    """Return what a name looks like: that of its neighbours in a list, where it is one of many."""
    if fact.kind == "number":
        return _DIGITS.sub("0", fact.text)
    head, dot, tail = fact.text.rpartition(".")
    name = _NAME_RUN.sub(_name_class, head if dot and tail.isalpha() else fact.text)
    return f"{fact.kind} {name}.{tail}" if dot and tail.isalpha() else f"{fact.kind} {name}"


def _name_class(run: re.Match[str]) -> str:
    text = run.group()
    return "a" if text.isalpha() else "0" if text.isdigit() else f"x{len(text)}"


def _bulk(passages: Iterable[Passage]) -> Counter[str]:
    """Return how many different names of each form there are."""
    names = {
        (name_form(fact), fact.text)
        for passage in passages
        for fact in passage.facts
        if fact.kind in NAMED
    }
    return Counter(each for each, _ in names)


def _by_place(passages: Iterable[Passage]) -> Iterable[list[Passage]]:
    groups: dict[int, list[Passage]] = defaultdict(list)
    for passage in passages:
        groups[passage.place].append(passage)
    return groups.values()


def _common(group: Sequence[Passage]) -> Iterator[float]:
    """Yield which part of the words and signs of each line is in other lines beside it, too."""
    tokens = [forms.tokens(passage.template) for passage in group]
    often: Counter[str] = Counter()
    for passage, own in zip(group, tokens, strict=True):
        for token in own:
            often[token] += min(passage.repeated, _SOME)
    for own in tokens:
        yield sum(often[token] >= _SOME for token in own) / len(own) if own else 1.0
