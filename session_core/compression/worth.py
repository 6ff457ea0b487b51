"""What each fact of a conversation is worth: who said it, what it is, how rare and how recent.

What a person says is worth most, what a tool brings least, unless it is an error. A line that looks
like its neighbours is noise, one that stands out among them is not; a name that is used again by
those who talk is worth more than one that was only listed.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from session_core.compression.facts import Fact, Kind
from session_core.compression.passages import Passage, Speaker
from session_core.compression.patterns import DONE, HAS_UNIT, WORD
from session_core.compression.reading import Reading

_OF_KIND: Mapping[Kind, float] = {
    "decision": 1.0,
    "task": 0.95,
    "error": 0.9,
    "command": 0.75,
    "url": 0.75,
    "path": 0.7,
    "identifier": 0.65,
    "number": 0.6,
}
_OF_SPEAKER: Mapping[Speaker, float] = {
    "earlier": 1.0,
    "user": 1.0,
    "assistant": 0.85,
    "call": 0.5,
    "result": 0.5,
}
_SAID_ALONE: Mapping[Speaker, float] = {"earlier": 0.5, "user": 0.5, "assistant": 0.4}
_NAMED_KINDS = frozenset(("path", "url", "identifier", "number"))
_FEW = 8
_FEW_SAID = 80
_ERROR_OF_TOOL = 0.85
_WORDS_OF_TOOL = 0.1
_OLD = 0.8
_USED_AGAIN = 1.3
_SUPERSEDED = 0.2
_MANY_LINES = 6
_NOISE = 0.15
_STANDS_OUT = 2.0
_LONG = 40
_SENTENCE = 60
_RUN = re.compile(r"[^\W_]+")
_DIGITS = re.compile(r"\d+")


@dataclass(slots=True)
class Valued:
    """A passage with what each of its facts is worth, and what it is worth without them."""

    passage: Passage
    facts: list[float]
    alone: float


def weigh(reading: Reading, old: Sequence[Passage] = ()) -> list[Valued]:
    """Return what is worth keeping, with its worth, in the order in which it was said."""
    scale = _Scale(reading, old)
    return [scale.value(passage) for passage in (*old, *reading.passages)]


class _Scale:
    def __init__(self, reading: Reading, old: Sequence[Passage]) -> None:
        passages = reading.passages
        self._last = max((passage.place for passage in passages), default=0) or 1
        self._lines: Counter[str] = Counter()
        self._talked: dict[str, set[int]] = defaultdict(set)
        self._brought: dict[str, set[int]] = defaultdict(set)
        for passage in passages:
            places = self._brought if passage.speaker == "result" else self._talked
            for fact in passage.facts:
                self._lines[fact.text] += 1
                places[fact.text].add(passage.place)
        self._bare = _bare(passages)
        self._forms = _forms(passages)
        self._outstanding = _outstanding(passages)
        self._superseded = _superseded(passages, old)

    def value(self, passage: Passage) -> Valued:
        factor = 1 if passage.place < 0 else _OLD + (1 - _OLD) * passage.place / self._last
        if passage.text in self._superseded:
            factor *= _SUPERSEDED
        alone = _SAID_ALONE.get(passage.speaker, 0.0) * factor / passage.repeated
        alone *= min(len(passage.text), _SENTENCE) / _SENTENCE
        alone *= self._outstanding.get(id(passage), 1.0)
        return Valued(
            passage, [self._fact(passage, fact) * factor for fact in passage.facts], alone
        )

    def _fact(self, passage: Passage, fact: Fact) -> float:
        worth = _OF_KIND[fact.kind] * _specific(fact)
        if fact.kind in _NAMED_KINDS:
            brought = passage.speaker == "result"
            common = self._forms[brought, _form(fact)] / (_FEW if brought else _FEW_SAID)
            worth /= math.sqrt(1 + common)
        if passage.speaker != "result":
            again = len(self._talked[fact.text]) > 1
            return worth * _OF_SPEAKER[passage.speaker] * (_USED_AGAIN if again else 1)
        worth /= passage.repeated
        if fact.kind == "error":
            return worth * _ERROR_OF_TOOL
        if fact.kind in ("decision", "task"):
            return worth * _WORDS_OF_TOOL
        return worth * _OF_SPEAKER["result"] * self._rare(passage, fact)

    def _rare(self, passage: Passage, fact: Fact) -> float:
        if fact.kind == "path" and (stem := _stem(fact.text)) in self._bare:
            return _USED_AGAIN / _OF_SPEAKER["result"] / len(self._bare[stem])
        many = self._lines[fact.text] >= _MANY_LINES
        again = not many and len(self._brought[fact.text]) > 1
        standing = self._outstanding.get(id(passage), 1.0)
        return standing * (_NOISE if many else 1) * (_USED_AGAIN if again else 1)


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


def _specific(fact: Fact) -> float:
    """Return how little a text can be anything else: long, with digits, with a unit."""
    if fact.kind == "number":
        return 1.0 if HAS_UNIT.search(fact.text) else 0.35 + 0.05 * min(len(fact.text), 8)
    length = min(len(fact.text), _LONG) / _LONG
    if fact.kind in ("identifier", "path"):
        return 0.3 + 0.4 * length + 0.3 * any(map(str.isdigit, fact.text))
    return 0.7 + 0.3 * length if fact.kind == "command" else 1.0


def _form(fact: Fact) -> str:
    """Return what a name looks like: that of its neighbours in a list, where it is one of many."""
    if fact.kind == "number":
        return _DIGITS.sub("0", fact.text)
    head, dot, tail = fact.text.rpartition(".")
    name = _RUN.sub(_class, head if dot and tail.isalpha() else fact.text)
    return f"{fact.kind} {name}.{tail}" if dot and tail.isalpha() else f"{fact.kind} {name}"


def _class(run: re.Match[str]) -> str:
    text = run.group()
    return "a" if text.isalpha() else "0" if text.isdigit() else f"x{len(text)}"


def _forms(passages: Sequence[Passage]) -> Counter[tuple[bool, str]]:
    """Return how many different names of each form there are, in results and elsewhere."""
    names = {
        (passage.speaker == "result", _form(fact), fact.text)
        for passage in passages
        for fact in passage.facts
        if fact.kind in _NAMED_KINDS
    }
    return Counter((brought, form) for brought, form, _ in names)


def _superseded(passages: Sequence[Passage], old: Sequence[Passage]) -> set[str]:
    """Return what an earlier summary says that was said anew with another value, or ticked off."""
    said = {passage.template: passage.text for passage in passages if passage.template}
    marks = ((passage.text, DONE.match(passage.text)) for passage in passages)
    ticked = {text[mark.end() :] for text, mark in marks if mark}
    return {
        item.text
        for item in old
        if said.get(item.template, item.text) != item.text
        or any(item.text.endswith(text) for text in ticked)
    }


def _outstanding(passages: Sequence[Passage]) -> dict[int, float]:
    """Return how far each line stands out in its result, and what is said in the talk, up to 1."""
    lines: dict[int, list[Passage]] = defaultdict(list)
    talk: list[Passage] = []
    for passage in passages:
        if passage.speaker == "result":
            lines[passage.place].append(passage)
        elif passage.speaker != "call":
            talk.append(passage)
    found: dict[int, float] = {}
    for groups in (list(lines.values()), [talk]):
        words = Counter(word for group in groups for line in group for word in set(_words(line)))
        total = sum(map(len, groups)) or 1
        for group in groups:
            if len(group) >= _MANY_LINES:
                found.update(_above(group, words, total))
    return found


def _above(group: Sequence[Passage], words: Counter[str], total: int) -> dict[int, float]:
    rare = [_surprise(passage, words, total) for passage in group]
    usual = median(rare)
    return {
        id(passage): _NOISE + (1 - _NOISE) * min(max((own - usual) / _STANDS_OUT, 0.0), 1.0)
        for passage, own in zip(group, rare, strict=True)
    }


def _words(passage: Passage) -> list[str]:
    return WORD.findall(passage.template.lower())


def _surprise(passage: Passage, words: Counter[str], total: int) -> float:
    rare = sorted((math.log(total / words[word]) for word in _words(passage)), reverse=True)[:3]
    return sum(rare) / len(rare) if rare else 0.0
