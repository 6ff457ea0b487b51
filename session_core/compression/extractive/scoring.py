"""How likely each passage is one that somebody who continues the work will want again.

What is written once, in a form of its own, is what a person would notice; what repeats, in its
words or in its form, is bulk. The odds are those of a regression over generated sessions and ones
made of real files, rounded; those of files and settings were set by hand.

What each passage of a conversation and each fact in it is worth.

What stands out is worth most of what one speaker says (see `salience`); what a person says is worth
more than what a tool brings, unless that is an error, and the new a little more than the old. A
name that those who talk use again is worth more than one that was only listed.

What a person has written into a result, among the lines that a program printed.

A decision or a task often has no name, no number and no word that says what it is. It is a
sentence where the lines beside it are none: little words hold it together.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from session_core.compression.extractive import keywords, tokenize
from session_core.compression.extractive import patterns as p
from session_core.compression.extractive.facts import STATEMENTS, Fact, Kind
from session_core.compression.extractive.passages import READ_OF_EACH, Passage, Reading, Speaker
from session_core.compression.extractive.patterns import BOX, LOOKS, OF_CODE

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
        yield from zip(map(id, group), odds(group, values), strict=True)


def _of_line(passage: Passage, bulk: Mapping[str, int], named: set[str]) -> float:
    text = passage.text
    odds = _BROUGHT.base if passage.facts else _BROUGHT.base + _BROUGHT.factless
    odds += _ERROR * any(fact.kind == "error" for fact in passage.facts)
    if any(fact.kind == "number" and fact.text[0].isalpha() for fact in passage.facts):
        odds += _SETS
    elif not any(fact.kind == "task" for fact in passage.facts):
        odds += _OF_FILE * bool(_NUMBERED.match(text) or OF_CODE.match(text))
    odds += _PER_WORD * min(tokenize.words(text), _WORDS_MOST)
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
    shapes = [tokenize.form(passage.text) for passage in passages]
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
    tokens = [tokenize.tokens(passage.template) for passage in group]
    often: Counter[str] = Counter()
    for passage, own in zip(group, tokens, strict=True):
        for token in own:
            often[token] += min(passage.repeated, _SOME)
    for own in tokens:
        yield sum(often[token] >= _SOME for token in own) / len(own) if own else 1.0


_OF_KIND: Mapping[Kind, float] = {
    "decision": 1.0,
    "task": 1.0,
    "error": 0.9,
    "command": 0.8,
    "url": 0.9,
    "path": 0.75,
    "identifier": 0.4,
    "number": 0.25,
}
"""How likely a fact of that kind is all that is wanted of what it stands in: without the words
around it, a number or a name often says nothing."""
_OF_SPEAKER: Mapping[Speaker, float] = {
    "earlier": 1.0,
    "user": 1.0,
    "assistant": 0.85,
    "call": 0.6,
    "result": 0.6,
}
_FAILED = 1.2
"""What a tool says that failed counts as more than said by a person: the next step hangs on it."""
_OF_STATEMENT = 1.4
"""What was decided or is open can be looked up nowhere else."""
_OLD = 0.8
_USED_AGAIN = 1.3
_SUPERSEDED = 0.2
_ENDS = ".!。 "


@dataclass(slots=True)
class Valued:
    """A passage with what each of its facts is worth, and what all of it is."""

    passage: Passage
    facts: list[float]
    alone: float


def weigh(reading: Reading) -> list[Valued]:
    """Return what is worth keeping, with its worth, in the order in which it was said."""
    scale = _Scale(reading)
    return [scale.value(passage) for passage in (*reading.earlier, *reading.passages)]


def best(weighed: Sequence[Valued], limit: int) -> tuple[str, ...]:
    """Return the facts that are worth most, best first, each once."""
    most: dict[str, float] = {}
    for item in weighed:
        for fact, value in zip(item.passage.facts, item.facts, strict=True):
            most[fact.text] = max(value, most.get(fact.text, 0.0))
    return tuple(sorted(most, key=lambda text: -most[text])[: max(limit, 0)])


class _Scale:
    def __init__(self, reading: Reading) -> None:
        passages = reading.passages
        self._last = max((passage.place for passage in passages), default=0) or 1
        self._talked: dict[str, set[int]] = defaultdict(set)
        for passage in passages:
            for fact in passage.facts if passage.speaker != "result" else ():
                self._talked[fact.text].add(passage.place)
        self._bare = _bare(passages)
        self._chances = chances(reading)
        self._superseded = _superseded(passages, reading.earlier)

    def value(self, passage: Passage) -> Valued:
        failed = any(fact.kind == "error" for fact in passage.facts)
        factor = _FAILED if failed and passage.speaker == "result" else _OF_SPEAKER[passage.speaker]
        if any(fact.kind in STATEMENTS for fact in passage.facts):
            factor *= _OF_STATEMENT
        if passage.place >= 0:
            factor *= _OLD + (1 - _OLD) * passage.place / self._last
        if passage.text in self._superseded:
            factor *= _SUPERSEDED
        alone = factor * self._chances.get(id(passage), 1.0)
        return Valued(passage, [self._fact(passage, fact, alone) for fact in passage.facts], alone)

    def _fact(self, passage: Passage, fact: Fact, alone: float) -> float:
        if passage.speaker != "result":
            again = len(self._talked[fact.text]) > 1
            return alone * _OF_KIND[fact.kind] * (_USED_AGAIN if again else 1)
        if fact.kind == "path" and (stem := _stem(fact.text)) in self._bare:
            return _USED_AGAIN / len(self._bare[stem])
        return alone * _OF_KIND[fact.kind]


def _bare(passages: Sequence[Passage]) -> dict[str, set[str]]:
    """Return the names of files that are used without their folder, with the paths that fit."""
    talked = {
        fact.text
        for passage in passages
        if passage.speaker != "result"
        for fact in passage.facts
        if fact.kind in ("path", "identifier")
    }
    fitting: dict[str, set[str]] = defaultdict(set)
    for passage in passages:
        for fact in passage.facts if passage.speaker == "result" else ():
            if fact.kind == "path" and (stem := _stem(fact.text)) in talked:
                fitting[stem].add(fact.text)
    return fitting


def _stem(path: str) -> str:
    return path.rstrip("/").replace("\\", "/").rpartition("/")[2].partition(":")[0]


def _superseded(passages: Sequence[Passage], old: Sequence[Passage]) -> set[str]:
    """Return what is out of date: said anew with another value since a summary, or ticked off."""
    said = {passage.template: passage.text for passage in passages if passage.template}
    boxes = [
        (passage.text, passage.text[box.end() :].rstrip(_ENDS), box["done"] is not None)
        for passage in passages
        if (box := BOX.match(passage.text))
    ]
    # What was ticked and opened again is open.
    last = {task: done for _, task, done in boxes}
    ticked = [task for task, done in last.items() if task and done]
    anew = {
        item.text
        for item in old
        if said.get(item.template, item.text) != item.text
        or any(item.text.rstrip(_ENDS).endswith(task) for task in ticked)
    }
    return anew.union(text for text, task, done in boxes if last[task] and not done)


_WORD = re.compile(r"[^\W\d_]+")
_LITTLE = frozenset(keywords.LITTLE.split())
_SENTENCE_ENDS = ".!?。"
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
    return text[-1] in _SENTENCE_ENDS and text[0].isupper()


def _little(text: str) -> int:
    """Return how many little words a text has; one of a script without spaces has enough."""
    words = _WORD.findall(text.lower())
    if not text.isascii() and tokenize.words(text) - len(words) >= _WIDE_MIN:
        return _PROSE
    return sum(word in _LITTLE for word in words)
