"""Working sessions of an agent as they are in life, and the facts that were planted in them.

A session has a head, a zone that is to be compressed, and a tail. The facts stand in the zone where
such things stand: in what was said, in arguments, in output between ordinary lines. Their texts
make up half of the room a summary has, which is a fifth of the zone; no other text of the session
holds them. The same number gives the same session.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from tests.bench.formats import Filler, Fixture
from tests.bench.talk import Message, Talk, messages, size, texts

RATIO = 5
"""The zone is to its summary as this to one."""
KINDS = {
    "decision": 2,
    "task": 2,
    "path": 4,
    "command": 3,
    "url": 3,
    "identifier": 5,
    "number": 3,
    "error": 3,
}
"""What is planted, and how often beside each other."""
HEAD, TAIL = 3, 20
"""So many messages are before and behind the zone."""

_SMALLEST, _LARGEST = 26_000, 42_000
_TAIL_STEPS = (2, 2, 3)
_PLACES = {"user": 14, "assistant": 34, "call": 14, "output": 38}
_SIDES = ("user", "assistant")
_AGAIN, _OWN_LANGUAGE = 0.15, 0.8


@dataclass(frozen=True)
class Fact:
    """What must survive; `places` is where it stands, `text` how, word for word."""

    kind: str
    text: str
    language: str
    places: list[str]


@dataclass(frozen=True)
class Session:
    """A conversation as `get_messages` returns it; the facts lie in `messages[start:end]`."""

    number: int
    messages: list[Message]
    start: int
    end: int
    facts: list[Fact]

    @property
    def zone(self) -> list[Message]:
        """What is compressed."""
        return self.messages[self.start : self.end]

    @property
    def budget(self) -> int:
        """How many characters a summary may have."""
        return size(self.zone) // RATIO


def sessions(wanted: int, fixture: Fixture) -> Iterator[Session]:
    """Yield so many sessions; the held-out ones have other seeds and other fillers."""
    return (session(number, fixture) for number in range(wanted))


def session(number: int, fixture: Fixture) -> Session:
    """Return the session of this number."""
    drawn = random.Random(f"working session {number} {fixture == 'held out'}")
    filler = Filler(drawn, fixture)
    work = _Work(Talk(filler, _language(filler, number)))
    work.plant_all()
    head, zone, tail = (list(messages(turns)) for turns in (work.head, work.zone, work.tail))
    written = head + zone + tail
    _name_calls(written, number)
    return Session(number, written, len(head), len(head) + len(zone), work.facts)


def _language(filler: Filler, number: int) -> str:
    """Return the language of this session as the names of sections have it; English has none."""
    languages = filler.sections["languages"]
    language = languages[number % len(languages)]
    return "" if language == "en" else f" {language}"


def _name_calls(written: Sequence[Message], number: int) -> None:
    """Give each call an id, and each answer the id of its call."""
    waiting: list[str] = []
    counted = count(1)
    for message in written:
        for call in message.get("tool_calls", ()):
            call["id"] = f"call_{number:02}{next(counted):04}"
            waiting.append(call["id"])
        if message["role"] == "tool":
            message["tool_call_id"] = waiting.pop(0)


@dataclass(frozen=True)
class _Drawn:
    """A format that was filled; `line` is where it goes in an output."""

    before: str
    text: str
    after: str
    line: int

    @property
    def whole(self) -> str:
        return self.before + self.text + self.after


class _Work:
    """One session while it is written: the ordinary talk, then the facts among it."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.filler = talk.filler
        self._random = talk.filler.random
        self.head = talk.opening()
        self.zone = talk.long(self._random.randint(_SMALLEST, _LARGEST))
        self.tail = talk.short(_TAIL_STEPS)
        self.facts: list[Fact] = []

    def plant_all(self) -> None:
        """Plant until the facts are half of what a summary may have."""
        planted = 0
        while planted * 2 * RATIO < size(list(messages(self.zone))):
            self._plant()
            planted += len(self.facts[-1].text)

    def _plant(self) -> None:
        kind = self._weighted(KINDS)
        where, language = self._place(kind)
        drawn = self._draw(f"fact {kind} {where}{language}")
        if where == "call":
            self._plant_call(drawn)
        elif where in _SIDES:
            self._plant_sentence(where, drawn.whole)
        else:
            self._plant_line(where, drawn)
        self.facts.append(Fact(kind, drawn.text, language.strip() or "en", [where]))
        if self._random.random() < _AGAIN:
            self._again(self.facts[-1], language, drawn)

    def _place(self, kind: str) -> tuple[str, str]:
        """Return where a fact of this kind is to stand, and in which language."""
        while True:
            where, language = self._weighted(_PLACES), ""
            if where == "output":
                where = self._random.choice(self._hosts(kind) or _SIDES)
            if where in _SIDES and self._random.random() < _OWN_LANGUAGE:
                language = self.talk.language
            if f"fact {kind} {where}{language}" in self.filler.sections:
                return where, language

    def _hosts(self, kind: str) -> list[str]:
        outputs = [call.output for turn in self.zone for call in turn.calls]
        return [name for name in outputs if f"fact {kind} {name}" in self.filler.sections]

    def _draw(self, section: str) -> _Drawn:
        """Draw until the fact is one that nothing in this session says by chance."""
        said = self._everything()
        while True:
            line = self._random.randint(1, 30)
            before, rest = self.filler.line(section, line).split("«")
            text, after = rest.split("»")
            drawn = _Drawn(before, text, after, line)
            as_argument = json.dumps(drawn.text, ensure_ascii=False) == f'"{drawn.text}"'
            plain = as_argument or not section.endswith(" call")
            if plain and drawn.text not in said:
                return drawn

    def _everything(self) -> str:
        turns = [*self.head, *self.zone, *self.tail]
        return "\n".join(text for message in messages(turns) for text in texts(message))

    def _plant_call(self, drawn: _Drawn) -> None:
        step = self.talk.step(*drawn.whole.split(" ", 2))
        steps = [at for at, turn in enumerate(self.zone) if turn.role == "assistant"]
        self.zone.insert(self._random.choice(steps), step)

    def _plant_sentence(self, side: str, sentence: str) -> None:
        turn = self._random.choice([turn for turn in self.zone if turn.role == side])
        turn.sentences.insert(self._random.randint(0, len(turn.sentences)), sentence)

    def _plant_line(self, output: str, drawn: _Drawn) -> None:
        calls = [call for turn in self.zone for call in turn.calls if call.output == output]
        lines = self._random.choice(calls).lines
        lines.insert(min(drawn.line, len(lines)), drawn.whole)

    def _again(self, fact: Fact, language: str, drawn: _Drawn) -> None:
        """Say it once more: output as it was, anything else by the one or the other side."""
        where = fact.places[0]
        if where in self.talk.lengths:
            self._plant_line(where, drawn)
        else:
            where = self._random.choice(_SIDES)
            sentence = self.filler.line(f"again {where}{language}")
            self._plant_sentence(where, sentence.replace("«»", fact.text))
        fact.places.append(where)

    def _weighted(self, weights: dict[str, int]) -> str:
        return self._random.choices(list(weights), weights=list(weights.values()))[0]
