"""What is read of a range of messages, as passages: once, for a summary and for what is said of it.

The work is bounded: of a very long range people are read first, then calls, the assistant and
results, the newest of each before the older. A line that a result says again, perhaps at another
time, is read once, and of lines of one form the first few, unless those who talk name them too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from session_core.compression import facts, forms, passages, shapes, summaries
from session_core.compression.passages import Passage, Speaker
from session_core.compression.patterns import STAMP
from session_core.compression.shapes import Message
from session_core.state.content import plain_text

READ_MAX = 4_000_000
"""So many characters of a range are read where nobody says how many."""

READ_OF_EACH = 4
"""So many lines of one form are read of a result."""
_STEMS = re.compile(r"[\s/\\\"'`,:;()\[\]]+")
Texts = list[tuple[int, str]]


@dataclass(slots=True)
class Reading:
    """All passages of a range in their order, and what was seen on the way."""

    passages: list[Passage] = field(default_factory=list)
    named: set[str] = field(default_factory=set)
    """The last parts of all names that people, the assistant and its calls use."""
    earlier: list[Passage] = field(default_factory=list)
    """What the summaries say that stood in the range."""


def read(messages: Iterable[Message], most: int = READ_MAX) -> Reading:
    """Return what a range says, of at most so many characters."""
    reading = Reading()
    texts = _texts(list(messages), reading, most)
    for speaker in ("user", "assistant"):
        for place, text in texts[speaker]:
            reading.passages += passages.said(text, speaker, place)
    _count_templates(reading)
    for place, text in texts["call"]:
        reading.passages += passages.called(text, place)
    _note_names(reading)
    told = {passage.text for passage in reading.passages if passage.speaker == "call"}
    for place, text in texts["result"]:
        reading.passages += _brought(text, place, reading.named, told)
    reading.passages.sort(key=lambda passage: passage.place)
    return reading


def _texts(messages: list[Message], reading: Reading, room: int) -> Mapping[Speaker, Texts]:
    """Return what each says, the newest as far as there is room; what there is none for is left."""
    said = _said_by(messages, reading)
    newest = list(zip(range(len(messages)), messages, strict=True))[::-1]
    backwards: Mapping[Speaker, Iterator[tuple[int, str]]] = {
        "user": reversed(said["user"]),
        "call": ((at, it.arguments) for at, row in newest for it in shapes.calls(row)[::-1]),
        "assistant": reversed(said["assistant"]),
        "result": ((at, it.text) for at, row in newest for it in shapes.answers(row)[::-1]),
    }
    kept: dict[Speaker, Texts] = {}
    for speaker, texts in backwards.items():
        found: Texts = []
        while room > 0 and (text := next(texts, None)) is not None:
            room -= min(len(text[1]), facts.READ_MAX)
            found.append(text)
        kept[speaker] = found[::-1]
    return kept


def _said_by(messages: list[Message], reading: Reading) -> Mapping[Speaker, Texts]:
    said: dict[Speaker, Texts] = {"user": [], "assistant": []}
    for place, message in enumerate(messages):
        turn = shapes.turn(message)
        if turn in ("user", "assistant", "other"):
            speaker: Speaker = "user" if turn == "user" else "assistant"
            said[speaker].append((place, _said(message, reading)))
    return said


def _said(message: Message, reading: Reading) -> str:
    """Return what a message says itself, without an earlier summary in it."""
    text = plain_text(_without_results(message.get("content")))
    if text == summaries.NOTE:
        return ""
    found = summaries.read(message) if "CONTEXT" in text else None
    if found is None:
        return text
    reading.earlier += passages.earlier(summaries.clean(found.text))
    return "\n".join(filter(None, (found.before, found.after)))


def _without_results(content: object) -> object:
    if not isinstance(content, list):
        return content
    return [
        part
        for part in content
        if not (isinstance(part, Mapping) and part.get("type") == "tool_result")
    ]


def _count_templates(reading: Reading) -> None:
    counts: Counter[str] = Counter()
    for passage in reading.passages:
        passage.template = forms.template(passage.text)
        counts[passage.template] += 1
    for passage in reading.passages:
        passage.repeated = counts[passage.template]


def _note_names(reading: Reading) -> None:
    for passage in reading.passages:
        for fact in passage.facts if passage.speaker != "result" else ():
            if fact.kind in ("path", "identifier", "url"):
                reading.named.add(_STEMS.split(fact.text.rstrip("/"))[-1])
    reading.named.discard("")


def _brought(text: str, place: int, named: set[str], called: set[str]) -> list[Passage]:
    """Return what a result brings, without what it says again of its call."""
    seen: Counter[str] = Counter()
    once: set[str] = set()
    found: list[Passage] = []
    for _, line in facts.lines(passages.unpacked(text)):
        stamp = STAMP.match(line)
        told = line[stamp.end() :] if stamp else line
        if told in once or told in called:
            continue
        once.add(told)
        form = forms.template(line)
        seen[form] += 1
        if seen[form] <= READ_OF_EACH or not named.isdisjoint(_STEMS.split(line)):
            for passage in passages.listed(line, "result", place):
                passage.template = form
                found.append(passage)
    for passage in found:
        passage.repeated = seen[passage.template]
    return found
