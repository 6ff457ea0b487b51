"""What is read of a range of messages, as passages: once, for a summary and for what is said of it.

The work is bounded: of a very long range people are read first, then calls, the assistant and
results, the newest of each before the older. What a result says again and again is passed over
after the first few times, unless it names what those who talk name too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from session_core.compression import facts, passages, shapes, summaries
from session_core.compression.passages import Passage, Speaker
from session_core.compression.shapes import Message
from session_core.state.content import plain_text

READ_MAX = 4_000_000
"""So many characters of a range are read where nobody says how many."""

_READ_OF_EACH = 4
_STEMS = re.compile(r"[\s/\\\"'`,:;()\[\]]+")
_ORDER: tuple[Speaker, ...] = ("user", "call", "assistant", "result")

Texts = list[tuple[int, str]]


@dataclass(slots=True)
class Reading:
    """All passages of a range in their order, and what was seen on the way."""

    passages: list[Passage] = field(default_factory=list)
    named: set[str] = field(default_factory=set)
    """The last parts of all names that people, the assistant and its calls use."""
    earlier: list[str] = field(default_factory=list)
    """The summaries that stood in the range."""


def read(messages: Iterable[Message] | Reading, most: int = READ_MAX) -> Reading:
    """Return what a range says, of at most so many characters; what was read is as it is."""
    if isinstance(messages, Reading):
        return messages
    reading = Reading()
    texts = _affordable(_texts(messages, reading), most)
    for speaker in ("user", "assistant"):
        for place, text in texts[speaker]:
            reading.passages += passages.said(text, speaker, place)
    _count_templates(reading)
    for place, text in texts["call"]:
        reading.passages += passages.called(text, place)
    _note_names(reading)
    for place, text in texts["result"]:
        reading.passages += _brought(text, place, reading.named)
    reading.passages.sort(key=lambda passage: passage.place)
    return reading


def _texts(messages: Iterable[Message], reading: Reading) -> Mapping[Speaker, Texts]:
    texts: dict[Speaker, Texts] = {speaker: [] for speaker in _ORDER}
    for place, message in enumerate(messages):
        turn = shapes.turn(message)
        if turn in ("user", "assistant", "other"):
            speaker: Speaker = "user" if turn == "user" else "assistant"
            texts[speaker].append((place, _said(message, reading)))
        texts["call"] += ((place, call.arguments) for call in shapes.calls(message))
        texts["result"] += ((place, answer.text) for answer in shapes.answers(message))
    return texts


def _said(message: Message, reading: Reading) -> str:
    """Return what a message says itself, without an earlier summary in it."""
    text = plain_text(_without_results(message.get("content")))
    if text == summaries.NOTE:
        return ""
    found = summaries.read(message) if "CONTEXT" in text else None
    if found is None:
        return text
    reading.earlier.append(found.text)
    return "\n".join(filter(None, (found.before, found.after)))


def _without_results(content: object) -> object:
    if not isinstance(content, list):
        return content
    return [
        part
        for part in content
        if not (isinstance(part, Mapping) and part.get("type") == "tool_result")
    ]


def _affordable(texts: Mapping[Speaker, Texts], room: int) -> Mapping[Speaker, Texts]:
    kept: dict[Speaker, Texts] = {}
    for speaker in _ORDER:
        first = len(texts[speaker])
        while first > 0 and room > 0:
            first -= 1
            room -= min(len(texts[speaker][first][1]), facts.READ_MAX)
        kept[speaker] = texts[speaker][first:]
    return kept


def _count_templates(reading: Reading) -> None:
    counts: Counter[str] = Counter()
    for passage in reading.passages:
        passage.template = passages.template(passage.text)
        counts[passage.template] += 1
    for passage in reading.passages:
        passage.repeated = counts[passage.template]


def _note_names(reading: Reading) -> None:
    for passage in reading.passages:
        for fact in passage.facts if passage.speaker != "result" else ():
            if fact.kind in ("path", "identifier", "url"):
                reading.named.add(_STEMS.split(fact.text.rstrip("/"))[-1])
    reading.named.discard("")


def _brought(text: str, place: int, named: set[str]) -> list[Passage]:
    seen: Counter[str] = Counter()
    found: list[Passage] = []
    for _, line in facts.lines(passages.unpacked(text)):
        form = passages.template(line)
        seen[form] += 1
        if seen[form] <= _READ_OF_EACH or not named.isdisjoint(_STEMS.split(line)):
            for passage in passages.listed(line, "result", place):
                passage.template = form
                found.append(passage)
    for passage in found:
        passage.repeated = seen[passage.template]
    return found
