"""What is read of a range of messages, as passages: once, for a summary and for what is said of it.

The work is bounded: of a very long range people are read first, then calls, the assistant and
results, the newest of each before the older. A line that a result says again, perhaps at another
time, is read once, and of lines of one form the first few, unless those who talk name them too.

A text in passages: sentences of what was said, lines of what a tool was told and brought.

A passage never ends inside of a fact. A redaction mark is in none: no summary may hold it, so that
what stands before one and behind it are two.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from session_core.compression import chat_messages, summary_message
from session_core.compression.chat_messages import Message
from session_core.compression.extractive import facts, patterns, tokenize
from session_core.compression.extractive.facts import Fact
from session_core.compression.extractive.patterns import (
    FENCE,
    LISTED_OPEN,
    OF_CODE,
    SHELLS,
    SPACELESS_SIGN,
    STAMP,
)
from session_core.compression.extractive.tokenize import template
from session_core.state import content
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
            reading.passages += said(text, speaker, place)
    _count_templates(reading)
    for place, text in texts["call"]:
        reading.passages += called(text, place)
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
        "call": ((at, it.arguments) for at, row in newest for it in chat_messages.calls(row)[::-1]),
        "assistant": reversed(said["assistant"]),
        "result": ((at, it.text) for at, row in newest for it in chat_messages.answers(row)[::-1]),
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
        turn = chat_messages.turn(message)
        if turn in ("user", "assistant", "other"):
            speaker: Speaker = "user" if turn == "user" else "assistant"
            said[speaker].append((place, _said(message, reading)))
    return said


def _said(message: Message, reading: Reading) -> str:
    """Return what a message says itself, without an earlier summary in it."""
    text = plain_text(_without_results(message.get("content")))
    if text == summary_message.NOTE:
        return ""
    found = summary_message.read(message) if "CONTEXT" in text else None
    if found is None:
        return text
    reading.earlier += earlier(summary_message.clean(found.text))
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
        passage.template = tokenize.template(passage.text)
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
    for _, line in facts.lines(unpacked(text)):
        stamp = STAMP.match(line)
        told = line[stamp.end() :] if stamp else line
        if told in once or told in called:
            continue
        once.add(told)
        form = tokenize.template(line)
        seen[form] += 1
        if seen[form] <= READ_OF_EACH or not named.isdisjoint(_STEMS.split(line)):
            for passage in listed(line, "result", place):
                passage.template = form
                found.append(passage)
    for passage in found:
        passage.repeated = seen[passage.template]
    return found


Speaker = Literal["user", "assistant", "call", "result", "earlier"]

SECTIONS = ("Asked", "Decided", "Open", "Errors", "Commands", "Files", "Details", "Said")
"""The headings of a summary without a model, in their order; each stands alone, with a colon."""

_BULLET = "- "

PASSAGE_MAX = 400
LINE_MAX = 100
_PEOPLE = frozenset(("user", "assistant"))
_PASTED_LINES = 20
_PASTED_ALIKE = 4
_SCRIPT_KEYS = frozenset(("command", "cmd", "commands", "script", "shell", "bash"))
_LEAVES_DEPTH = 8
_WORDS_OF_PROSE = 5
_SIGNS = re.compile(r"[{}();=<>|]")

_LETTERS = re.compile(r"[^\W\d_]+")
_MARK = re.compile("|".join(summary_message.REDACTION_MARKS), re.IGNORECASE)
_OF_DATA = re.compile(r"[0/\\=_|]")


@dataclass(slots=True)
class Passage:
    """A piece of a message with the facts in it, whose positions count from its beginning."""

    text: str
    facts: Sequence[Fact]
    speaker: Speaker
    place: int
    template: str = ""
    repeated: int = 1
    section: str | None = None


def said(text: str, speaker: Speaker, place: int) -> Iterator[Passage]:
    """Yield the sentences of a text; code and what was pasted into it by lines, as a result is."""
    found = facts.find(text, prose=True)
    pasted = _pasted(text)
    at = 0
    fence: str | None = None
    for begin, line in facts.lines(text):
        mark = FENCE.match(line)
        if mark:
            fence = mark.group(1).lower() if fence is None else None
            continue
        inside: list[Fact] = []
        while at < len(found) and found[at].position < begin + len(line):
            inside.append(found[at]._replace(position=found[at].position - begin))
            at += 1
        code = fence is not None and fence not in SHELLS
        who: Speaker = "result" if code or _shape(line) in pasted else speaker
        whole = [(0, len(line))] if fence is not None else tokenize.spans(line)
        yield from _cut(line, whole, inside, who, place)


def listed(text: str, speaker: Speaker, place: int) -> Iterator[Passage]:
    """Yield the lines of a text; those that are long by their sentences."""
    for _, line in facts.lines(text):
        whole = [(0, len(line))] if len(line) <= LINE_MAX else tokenize.spans(line)
        yield from _cut(line, whole, facts.find(line), speaker, place)


def called(arguments: str, place: int) -> Iterator[Passage]:
    """Yield what a tool was told."""
    try:
        given: Any = content.load(arguments)
    except ValueError:
        given = arguments
    for key, value in _leaves("", given, 0):
        first, _, rest = facts.broken(value).strip().partition("\n")
        if key in _SCRIPT_KEYS and len(first) <= PASSAGE_MAX and first and not _is_redacted(first):
            inside = [fact for fact in facts.find(first) if fact.text != first]
            yield Passage(first, (Fact("command", first, 0), *inside), "call", place)
            yield from _telling(rest, place)
        else:
            named = key and value.isascii() and value.replace(".", "").isdigit()
            yield from _telling(f"{key}: {value}" if named else value, place)


def _telling(text: str, place: int) -> Iterator[Passage]:
    for each in listed(text, "call", place):
        if each.facts or _is_prose(each.text) or patterns.is_ticked(each.text):
            yield each


def _is_prose(text: str) -> bool:
    """Whether a text is written for people: words, and next to nothing else."""
    is_code = OF_CODE.match(text) or _SIGNS.search(text)
    return not is_code and tokenize.words(text) >= _WORDS_OF_PROSE


def unpacked(text: str) -> str:
    """Return a result that is JSON with escapes in it, or a to-do list, as lines."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    if "\\" not in text and not ('"stat' in text and LISTED_OPEN.search(text)):
        return text
    try:
        given = content.load(text)
    except ValueError:
        return text
    leaves = _leaves("", given, 0)
    return "\n".join(f"{key}: {leaf}" if key and "\n" not in leaf else leaf for key, leaf in leaves)


def item(text: str) -> str:
    """Return the line of a summary that says a text, marked where it would be read otherwise.

    A mark in front of each would cost a twentieth of the room.
    """
    text = summary_message.unmarked(text)
    unclear = text.startswith(("#", _BULLET)) or text.rstrip(":") in SECTIONS
    return _BULLET + text if unclear else text


def earlier(text: str) -> Iterator[Passage]:
    """Yield the items of an earlier summary, each in its section where it is one of ours."""
    section: str | None = None
    for line in text.splitlines():
        heading = line.strip().lstrip("#").strip().rstrip(":")
        if heading in SECTIONS or line.lstrip().startswith("#"):
            section = heading if heading in SECTIONS else None
            continue
        rest = line.removeprefix(_BULLET).strip()
        if rest and not _is_redacted(rest):
            yield Passage(rest, facts.find(rest), "earlier", -1, template(rest), 1, section)


def _pasted(text: str) -> frozenset[str]:
    """Return the forms of lines that occur so often in a text that nobody has written them."""
    if text.count("\n") < _PASTED_LINES:
        return frozenset()
    shapes = Counter(_shape(line) for _, line in facts.lines(text))
    return frozenset(
        shape
        for shape, count in shapes.items()
        if count >= _PASTED_ALIKE and _OF_DATA.search(shape)
    )


def _shape(line: str) -> str:
    return _LETTERS.sub("a", template(line))


def _cut(
    line: str, spans: Sequence[tuple[int, int]], inside: list[Fact], speaker: Speaker, place: int
) -> Iterator[Passage]:
    """Yield a line in passages, as its spans say, where no fact is cut by that."""
    at = 0
    first: int | None = None
    marks = [mark.span() for mark in _MARK.finditer(line)] if "redacted" in line.lower() else []
    if marks:
        spans = [part for span in spans for part in _around(marks, span)]
        inside = [fact for fact in inside if not _overlaps(marks, fact)]
    for begin, end in _short(spans, inside):
        first = begin if first is None else first
        reach = at
        while reach < len(inside) and inside[reach].position < end:
            reach += 1
        if any(fact.end > end for fact in inside[at:reach]):
            continue
        yield from _passage(line[first:end], first, inside[at:reach], speaker, place)
        at, first = reach, None
    if first is not None:
        yield from _passage(line[first:], first, inside[at:], speaker, place)


def _around(marks: Sequence[tuple[int, int]], span: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield the parts of a span that are no redaction mark, which no summary may hold."""
    begin, last = span
    for first, end in marks:
        if begin < end and first < last:
            yield begin, max(first, begin)
            begin = end
    if begin < last:
        yield begin, last


def _overlaps(marks: Sequence[tuple[int, int]], fact: Fact) -> bool:
    return any(first < fact.end and fact.position < end for first, end in marks)


def _short(spans: Sequence[tuple[int, int]], inside: list[Fact]) -> Iterator[tuple[int, int]]:
    """Yield the spans; those that are too long in parts that begin with a fact."""
    starts = [fact.position for fact in inside if fact.kind not in ("decision", "task")]
    for first, end in spans:
        begin = first
        for start in starts if end - first > PASSAGE_MAX else ():
            if start - begin >= PASSAGE_MAX // 4 and start < end:
                yield begin, start
                begin = start
        yield begin, end


def _passage(
    text: str, begin: int, inside: Sequence[Fact], speaker: Speaker, place: int
) -> Iterator[Passage]:
    stripped = text.strip()
    first = begin + len(text) - len(text.lstrip())
    if not stripped or _is_redacted(stripped):
        return
    if len(stripped) > PASSAGE_MAX and not inside:
        parts = _parts(stripped) if speaker in _PEOPLE else ()
        yield from (Passage(part, (), speaker, place) for part in parts)
        return
    moved = [fact._replace(position=fact.position - first) for fact in inside]
    yield Passage(stripped, moved, speaker, place)


def _parts(text: str) -> Iterator[str]:
    """Yield what is said without an end in parts, up to what has no words in it, as an image."""
    while len(text) > PASSAGE_MAX:
        cut = text.rfind(" ", PASSAGE_MAX // 2, PASSAGE_MAX)
        if cut < 0:
            if not SPACELESS_SIGN.search(text, 0, PASSAGE_MAX):
                return
            cut = PASSAGE_MAX
        yield text[:cut].rstrip()
        text = text[cut:].lstrip()
    if text:
        yield text


def _is_redacted(text: str) -> bool:
    return "redacted" in text.lower() and summary_message.fault(text) == "redacted_summary"


def _leaves(key: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        yield key, str(value)
    elif isinstance(value, Mapping) and depth < _LEAVES_DEPTH:
        task = patterns.line(value)
        if task is not None:
            yield "", task
        for name, inner in (value if task is None else patterns.rest(value)).items():
            yield from _leaves(str(name).lower(), inner, depth + 1)
    elif isinstance(value, list) and depth < _LEAVES_DEPTH:
        for inner in value:
            yield from _leaves(key, inner, depth + 1)
