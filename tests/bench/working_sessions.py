"""Realistic working sessions of an agent, with planted facts.

A session has a head, a zone to compress, and a tail. The facts are in the zone, in places as in
real sessions: in speech, in arguments, in output between ordinary lines. Their texts make up half
of the room of a summary, which is a fifth of the zone. No other text of the session has them. The
same number gives the same session.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from tests.bench.formats import FixtureName, TemplateFiller
from tests.bench.talk import (
    TalkMessage,
    TalkTurn,
    TalkWriter,
    build_messages,
    count_characters,
    list_texts,
)

SUMMARY_RATIO = 5
"""The zone is to its summary as this to one."""
FACT_KINDS = {
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
_FACT_PLACES = {"user": 14, "assistant": 34, "call": 14, "output": 38}
_SIDE_NAMES = ("user", "assistant")
_AGAIN, _OWN_LANGUAGE = 0.15, 0.8


@dataclass(frozen=True)
class PlantedFact:
    """A fact that must survive word for word, with the places of its text."""

    kind: str
    text: str
    language: str
    places: list[str]


@dataclass(frozen=True)
class WorkingSession:
    """A conversation as `get_messages` returns it, with facts in `messages[start:end]`."""

    number: int
    messages: list[TalkMessage]
    start: int
    end: int
    facts: list[PlantedFact]

    @property
    def zone(self) -> list[TalkMessage]:
        """The messages to compress."""
        return self.messages[self.start : self.end]

    @property
    def budget(self) -> int:
        """How many characters a summary may have."""
        return count_characters(self.zone) // SUMMARY_RATIO


def make_sessions(wanted: int, fixture: FixtureName) -> Iterator[WorkingSession]:
    """Yield so many sessions. The held-out sessions have other seeds and other fillers."""
    return (make_session(number, fixture) for number in range(wanted))


def make_session(number: int, fixture: FixtureName) -> WorkingSession:
    """Return the session of this number."""
    drawn = random.Random(f"working session {number} {fixture == 'held out'}")
    filler = TemplateFiller(drawn, fixture)
    work = _SessionWriter(TalkWriter(filler, _choose_language(filler, number)))
    work.plant_facts()
    head, zone, tail = (list(build_messages(turns)) for turns in (work.head, work.zone, work.tail))
    written = head + zone + tail
    _assign_call_ids(written, number)
    return WorkingSession(number, written, len(head), len(head) + len(zone), work.facts)


def _choose_language(filler: TemplateFiller, number: int) -> str:
    """Return the language of this session as in the names of sections, or '' for English."""
    languages = filler.sections["languages"]
    language = languages[number % len(languages)]
    return "" if language == "en" else f" {language}"


def _assign_call_ids(written: Sequence[TalkMessage], number: int) -> None:
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
class _FilledFormat:
    """A filled format. `line` is its place in an output."""

    before: str
    text: str
    after: str
    line: int

    @property
    def whole(self) -> str:
        return self.before + self.text + self.after


class _SessionWriter:
    """One session while it is written: the ordinary talk, then the facts among it."""

    def __init__(self, talk: TalkWriter) -> None:
        self.talk = talk
        self.filler = talk.filler
        self._random = talk.filler.random
        self.head = talk.write_opening()
        self.zone = talk.write_long_talk(self._random.randint(_SMALLEST, _LARGEST))
        self.tail = talk.write_short_episodes(_TAIL_STEPS)
        self.facts: list[PlantedFact] = []
        self._texts: dict[int, list[str]] = {}
        """The texts of each turn since its last change, by the identity of the turn."""

    def plant_facts(self) -> None:
        """Plant facts until they take half of the room of a summary."""
        planted = 0
        while planted * 2 * SUMMARY_RATIO < sum(map(len, self._list_texts(self.zone))):
            self._plant_fact()
            planted += len(self.facts[-1].text)

    def _plant_fact(self) -> None:
        kind = self._choose_weighted(FACT_KINDS)
        where, language = self._choose_place(kind)
        drawn = self._draw_fact(f"fact {kind} {where}{language}")
        if where == "call":
            self._plant_call(drawn)
        elif where in _SIDE_NAMES:
            self._plant_sentence(where, drawn.whole)
        else:
            self._plant_line(where, drawn)
        self.facts.append(PlantedFact(kind, drawn.text, language.strip() or "en", [where]))
        if self._random.random() < _AGAIN:
            self._repeat_fact(self.facts[-1], language, drawn)

    def _choose_place(self, kind: str) -> tuple[str, str]:
        """Return where a fact of this kind is to stand, and in which language."""
        while True:
            where, language = self._choose_weighted(_FACT_PLACES), ""
            if where == "output":
                where = self._random.choice(self._find_hosts(kind) or _SIDE_NAMES)
            if where in _SIDE_NAMES and self._random.random() < _OWN_LANGUAGE:
                language = self.talk.language
            if f"fact {kind} {where}{language}" in self.filler.sections:
                return where, language

    def _find_hosts(self, kind: str) -> list[str]:
        outputs = [call.output for turn in self.zone for call in turn.calls]
        return [name for name in outputs if f"fact {kind} {name}" in self.filler.sections]

    def _draw_fact(self, section: str) -> _FilledFormat:
        """Draw facts until one does not occur in this session by chance."""
        said = self._collect_text()
        while True:
            line = self._random.randint(1, 30)
            before, rest = self.filler.fill_line(section, line).split("«")
            text, after = rest.split("»")
            drawn = _FilledFormat(before, text, after, line)
            as_argument = json.dumps(drawn.text, ensure_ascii=False) == f'"{drawn.text}"'
            plain = as_argument or not section.endswith(" call")
            if plain and drawn.text not in said:
                return drawn

    def _collect_text(self) -> str:
        return "\n".join(self._list_texts([*self.head, *self.zone, *self.tail]))

    def _list_texts(self, turns: Iterable[TalkTurn]) -> Iterator[str]:
        for turn in turns:
            if id(turn) not in self._texts:
                messages = build_messages([turn])
                self._texts[id(turn)] = [text for one in messages for text in list_texts(one)]
            yield from self._texts[id(turn)]

    def _plant_call(self, drawn: _FilledFormat) -> None:
        step = self.talk.write_step(*drawn.whole.split(" ", 2))
        steps = [at for at, turn in enumerate(self.zone) if turn.role == "assistant"]
        self.zone.insert(self._random.choice(steps), step)

    def _plant_sentence(self, side: str, sentence: str) -> None:
        turn = self._random.choice([turn for turn in self.zone if turn.role == side])
        turn.sentences.insert(self._random.randint(0, len(turn.sentences)), sentence)
        self._texts.pop(id(turn), None)

    def _plant_line(self, output: str, drawn: _FilledFormat) -> None:
        calls = [call for turn in self.zone for call in turn.calls if call.output == output]
        changed = self._random.choice(calls)
        changed.lines.insert(min(drawn.line, len(changed.lines)), drawn.whole)
        for turn in (*self.head, *self.zone, *self.tail):
            if any(call is changed for call in turn.calls):  # some calls stand in several turns
                self._texts.pop(id(turn), None)

    def _repeat_fact(self, fact: PlantedFact, language: str, drawn: _FilledFormat) -> None:
        """Repeat a fact: output unchanged, other facts in a message of either side."""
        where = fact.places[0]
        if where in self.talk.lengths:
            self._plant_line(where, drawn)
        else:
            where = self._random.choice(_SIDE_NAMES)
            sentence = self.filler.fill_line(f"again {where}{language}")
            self._plant_sentence(where, sentence.replace("«»", fact.text))
        fact.places.append(where)

    def _choose_weighted(self, weights: dict[str, int]) -> str:
        return self._random.choices(list(weights), weights=list(weights.values()))[0]
