"""What each passage of a conversation and each fact in it is worth.

What stands out is worth most of what one speaker says (see `salience`); what a person says is worth
more than what a tool brings, unless that is an error, and the new a little more than the old. A
name that those who talk use again is worth more than one that was only listed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from session_core.compression import salience
from session_core.compression.facts import STATEMENTS, Fact, Kind
from session_core.compression.passages import Passage, Speaker
from session_core.compression.patterns import BOX
from session_core.compression.reading import Reading

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
        self._chances = salience.chances(reading)
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
