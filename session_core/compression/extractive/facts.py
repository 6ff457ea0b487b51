"""Facts of a text, found verbatim in time linear in its length.

A fact is recognised by its form in any language; decisions and tasks are recognised by words of ten
languages. Facts may overlap: a decision contains the path that it names. Only the beginning and the
end of a very long text are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

from session_core.compression.extractive import identifiers, patterns, tokenize
from session_core.compression.extractive import patterns as p

FactKind = Literal["decision", "task", "error", "command", "path", "url", "identifier", "number"]

FACT_KINDS: tuple[FactKind, ...] = (
    "decision", "task", "error", "command", "path", "url", "identifier", "number",
)  # fmt: skip

STATEMENT_KINDS: frozenset[FactKind] = frozenset(("decision", "task"))
"""Kinds of facts that are statements. The other kinds are names and values."""

MAX_TEXT_CHARS = 400_000
"""The maximum number of characters to read of a text, half of them at its end."""

_LINE_BREAKS = "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""Characters that some programs treat as the end of a line. Inside an item of a summary they would
start a heading.
"""

MAX_PIECE_CHARS = 2000
_MAX_KEPT_CHARS = 2000
_MAX_KEPT_TEXTS = 4096
"""The number of texts whose facts are cached."""

_MIN_LINE_CHARS = 3
_MAX_SENTENCE_CHARS = 500
_MAX_LEADING_CHARS = 80
_MAX_REST_RATIO = 5
"""If open items take more than one part in so many of a line, the rest is only list syntax."""


class Fact(NamedTuple):
    """One fact, whose `text` begins at `position`."""

    kind: FactKind
    text: str
    position: int

    @property
    def end(self) -> int:
        """The position after the last character of the fact."""
        return self.position + len(self.text)


def find_facts(text: str, *, prose: bool = False) -> list[Fact]:
    """Return the facts of a text by position. With `prose`, an error ends with its sentence."""
    # A compression reads its range again to measure the retention of the summary.
    find = _find_cached_facts if len(text) <= _MAX_KEPT_CHARS else _find_text_facts
    return list(find(text, prose))


def _find_text_facts(text: str, prose: bool) -> list[Fact]:
    facts: list[Fact] = []
    shell = fenced = False
    led: FactKind | None = None
    for begin, line in split_lines(text):
        fence = p.FENCE.match(line)
        if fence:
            fenced = not fenced
            shell = fenced and fence.group(1).lower() in p.SHELLS
            continue
        inside = list(_find_line_facts(line, begin, in_shell=shell, in_code=fenced, prose=prose))
        if prose and not fenced:
            led = _find_list_kind(line, led)
            inside += _classify_list_item(line, begin, led, inside)
        facts += inside
    facts.sort(key=lambda fact: (fact.position, -len(fact.text)))
    return facts


_find_cached_facts = lru_cache(maxsize=_MAX_KEPT_TEXTS)(_find_text_facts)


def _find_list_kind(line: str, led: FactKind | None) -> FactKind | None:
    """Return the kind of the list items that a line introduces or continues."""
    if p.LIST_ITEM.match(line):
        return led
    if len(line) > _MAX_LEADING_CHARS or not p.LIST_HEADING.search(line):
        return None
    folded = line.lower()
    if p.TO_DO.search(folded) or p.UNSPACED_TASK.search(folded):
        return "task"
    decided = p.DECIDED.search(folded) or p.UNSPACED_DECISION.search(folded)
    return "decision" if decided else None


def _classify_list_item(
    line: str, begin: int, led: FactKind | None, inside: list[Fact]
) -> Iterator[Fact]:
    """Yield a list item, with the kind that the line before the list gives it."""
    item = p.LIST_ITEM.match(line) if led else None
    if led and item and not any(fact.kind in ("decision", "task") for fact in inside):
        text = line[item.end() :].strip()
        if text and len(text) <= _MAX_SENTENCE_CHARS and not patterns.is_ticked(line):
            yield Fact(led, text, begin + line.index(text, item.end()))


def split_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text with their positions, splitting long lines."""
    text = normalize_line_breaks(text)
    if len(text) <= MAX_TEXT_CHARS:
        yield from _split_long_line(text, 0, len(text))
        return
    half = MAX_TEXT_CHARS // 2
    yield from _split_long_line(text, 0, half)
    yield from _split_long_line(text, len(text) - half, len(text))


def normalize_line_breaks(text: str) -> str:
    """Replace each line separator by a line feed.

    All positions stay the same.
    """
    for sign in _LINE_BREAKS:
        text = text.replace(sign, "\n")
    return text


def _split_long_line(text: str, begin: int, end: int) -> Iterator[tuple[int, str]]:
    while begin < end:
        stop = text.find("\n", begin, end)
        stop = end if stop < 0 else stop
        while stop - begin > MAX_PIECE_CHARS:
            cut = _find_cut(text, begin)
            yield begin, text[begin:cut]
            begin = cut
        if stop - begin >= _MIN_LINE_CHARS:
            yield begin, text[begin:stop]
        begin = stop + 1


def _find_cut(text: str, begin: int) -> int:
    """Return the position at which to split a long line, preferably at a space."""
    for sign in (" ", "。", ",", ";"):
        cut = text.rfind(sign, begin + MAX_PIECE_CHARS // 2, begin + MAX_PIECE_CHARS)
        if cut > 0:
            return cut + 1
    return begin + MAX_PIECE_CHARS


def _find_line_facts(
    line: str, begin: int, *, in_shell: bool, in_code: bool, prose: bool
) -> Iterator[Fact]:
    lowered = line.lower().replace("\u2019", "'")
    if len(lowered) != len(line):
        lowered = line
    stamp = p.LOG_TIMESTAMP.match(line)
    start = stamp.end() if stamp else 0
    items = list(_find_open_items(line, lowered, begin))
    yield from items
    if sum(len(item.text) for item in items if item.kind == "task") * _MAX_REST_RATIO > len(line):
        return
    cut = tokenize.find_sentence_spans(line) if prose and not in_code else []
    if not in_code and _can_hold_statement(lowered):
        yield from _find_statements(line, lowered, cut or tokenize.find_sentence_spans(line), begin)
    hinted = any(hint in lowered for hint in p.FAILURE_HINTS)
    if hinted or (": " in line and p.RAISED_EXCEPTION.search(line)):
        for first, last in cut or [(start, len(line))]:
            yield from _find_errors(line, lowered, max(first, start), last, begin)
    for first, last in identifiers.find_commands(line, in_shell=in_shell):
        yield Fact("command", line[first:last], begin + first)
    for kind, first, last in identifiers.find_names(line, start):
        yield Fact(kind, line[first:last], begin + first)


def _find_open_items(line: str, lowered: str, begin: int) -> Iterator[Fact]:
    """Yield the open items of a to-do list in JSON."""
    for item in p.OPEN_JSON_ITEM.finditer(line) if '"stat' in lowered else ():
        first, last = item.span(item.lastindex or 0)
        yield Fact("task", line[first:last], begin + first)


def _can_hold_statement(lowered: str) -> bool:
    words = p.WORD.findall(lowered)
    if not (p.DECIDED_FIRSTS.isdisjoint(words) and p.TO_DO_FIRSTS.isdisjoint(words)):
        return True
    return p.TASK_SIGN.match(lowered) is not None or (
        not lowered.isascii() and p.SPACELESS_SIGN.search(lowered) is not None
    )


def _find_statements(
    line: str, lowered: str, cut: list[tuple[int, int]], begin: int
) -> Iterator[Fact]:
    for first, last in cut:
        text, folded = line[first:last], lowered[first:last]
        if len(text) > _MAX_SENTENCE_CHARS:
            text = text[:_MAX_SENTENCE_CHARS].rsplit(None, 1)[0]
        if p.DECIDED.search(folded) or p.UNSPACED_DECISION.search(folded):
            yield Fact("decision", text, begin + first)
        elif p.TO_DO.search(folded) or p.UNSPACED_TASK.search(folded) or p.TASK_SIGN.match(text):
            yield Fact("task", text, begin + first)


def _find_errors(line: str, lowered: str, first: int, last: int, begin: int) -> Iterator[Fact]:
    """Yield the errors in a part of a line.

    An error is the quoted text around the failure word, or the rest of the part.
    """
    quoted = p.JSON_ERROR.search(line, first, last)
    if quoted:
        at, end = quoted.span(quoted.lastindex or 0)
        yield Fact("error", line[at:end], begin + at)
        return
    named = p.EXCEPTION.search(line, first, last) or p.RAISED_EXCEPTION.search(line, first, last)
    loud = p.FAILURE_WORD.search(line, first, last)
    failure = min(filter(None, (named, loud)), key=re.Match.start, default=None)
    failure = failure or p.FOLDED_FAILURE_WORD.search(lowered, first, last)
    if not failure:
        return
    inside = failure.start() + 1
    cited = _find_citation(line, inside, first, last)
    if not cited and (named or loud):
        cited = failure.start(), last
    yield _make_error_fact(line, *(cited or _find_sentence(line, inside, first, last)), begin)


def _find_sentence(line: str, inside: int, first: int, last: int) -> tuple[int, int]:
    """Return the span of the sentence around a position, within two bounds."""
    for at, end in tokenize.find_sentence_spans(line):
        if at <= inside < end:
            return max(at, first), min(end, last)
    return first, last


def _find_citation(line: str, inside: int, first: int, last: int) -> tuple[int, int] | None:
    """Return the span of the quoted text or code span around a position."""
    for match in p.QUOTED_TEXT.finditer(line, first, last):
        at, end = match.span(match.lastindex or 0)
        if match.start() <= inside < match.end() and " " in line[at:end].strip():
            return at, end
    return None


def _make_error_fact(line: str, first: int, last: int, begin: int) -> Fact:
    text = line[first:last].strip()
    if len(text) > _MAX_SENTENCE_CHARS:
        text = text[:_MAX_SENTENCE_CHARS].rsplit(None, 1)[0]
    return Fact("error", text, begin + line.index(text, first))
