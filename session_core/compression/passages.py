"""A text in passages: sentences of what was said, lines of what a tool was told and brought.

A passage never ends inside of a fact. A redaction mark is in none: no summary may hold it, so that
what stands before one and behind it are two.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from session_core.compression import facts, forms, sentences, summaries, todos
from session_core.compression.facts import Fact
from session_core.compression.forms import template
from session_core.compression.patterns import (
    FENCE,
    LISTED_OPEN,
    OF_CODE,
    SHELLS,
    SPACELESS_SIGN,
)
from session_core.state import content

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
_MARK = re.compile("|".join(summaries.REDACTION_MARKS), re.IGNORECASE)
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
        whole = [(0, len(line))] if fence is not None else sentences.spans(line)
        yield from _cut(line, whole, inside, who, place)


def listed(text: str, speaker: Speaker, place: int) -> Iterator[Passage]:
    """Yield the lines of a text; those that are long by their sentences."""
    for _, line in facts.lines(text):
        whole = [(0, len(line))] if len(line) <= LINE_MAX else sentences.spans(line)
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
        if each.facts or _is_prose(each.text) or todos.is_ticked(each.text):
            yield each


def _is_prose(text: str) -> bool:
    """Whether a text is written for people: words, and next to nothing else."""
    is_code = OF_CODE.match(text) or _SIGNS.search(text)
    return not is_code and forms.words(text) >= _WORDS_OF_PROSE


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
    text = summaries.unmarked(text)
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
    return "redacted" in text.lower() and summaries.fault(text) == "redacted_summary"


def _leaves(key: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        yield key, str(value)
    elif isinstance(value, Mapping) and depth < _LEAVES_DEPTH:
        task = todos.line(value)
        if task is not None:
            yield "", task
        for name, inner in (value if task is None else todos.rest(value)).items():
            yield from _leaves(str(name).lower(), inner, depth + 1)
    elif isinstance(value, list) and depth < _LEAVES_DEPTH:
        for inner in value:
            yield from _leaves(key, inner, depth + 1)
