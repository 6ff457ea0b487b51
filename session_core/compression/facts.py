"""Facts in a text: what work depends on, found verbatim, in time linear in the text.

A fact is found where its form tells it, in any language, and decisions and tasks by the words of
ten of them. Facts may lie in each other: a decision has the path in it that it is about. Of a very
long text the beginning and the end are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from session_core.compression import commands, names, sentences
from session_core.compression import patterns as p

Kind = Literal["decision", "task", "error", "command", "path", "url", "identifier", "number"]

KINDS: tuple[Kind, ...] = (
    "decision", "task", "error", "command", "path", "url", "identifier", "number",
)  # fmt: skip

READ_MAX = 400_000
"""So many characters of one text are read: half of them at its beginning, half at its end."""

PIECE = 2000
_LINE_MIN = 3
_SENTENCE_MAX = 500


class Fact(NamedTuple):
    """One fact: `text` stands at `position`, exactly so."""

    kind: Kind
    text: str
    position: int

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.position + len(self.text)


def find(text: str) -> list[Fact]:
    """Return the facts of a text in the order of their positions."""
    found: list[Fact] = []
    shell = fenced = False
    for begin, line in lines(text):
        fence = p.FENCE.match(line)
        if fence:
            fenced = not fenced
            shell = fenced and fence.group(1).lower() in p.SHELLS
            continue
        found += _in_line(line, begin, in_shell=shell, in_code=fenced)
    found.sort(key=lambda fact: (fact.position, -len(fact.text)))
    return found


def lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield what is read of a text, line by line with positions; a long line in pieces."""
    if len(text) <= READ_MAX:
        yield from _pieces(text, 0, len(text))
        return
    half = READ_MAX // 2
    yield from _pieces(text, 0, half)
    yield from _pieces(text, len(text) - half, len(text))


def _pieces(text: str, begin: int, end: int) -> Iterator[tuple[int, str]]:
    while begin < end:
        stop = text.find("\n", begin, end)
        stop = end if stop < 0 else stop
        while stop - begin > PIECE:
            cut = _cut(text, begin)
            yield begin, text[begin:cut]
            begin = cut
        if stop - begin >= _LINE_MIN:
            yield begin, text[begin:stop]
        begin = stop + 1


def _cut(text: str, begin: int) -> int:
    """Return where to cut a long line: at a space, else at a sign, else anywhere."""
    for sign in (" ", "。", ",", ";"):
        cut = text.rfind(sign, begin + PIECE // 2, begin + PIECE)
        if cut > 0:
            return cut + 1
    return begin + PIECE


def _in_line(line: str, begin: int, *, in_shell: bool, in_code: bool) -> Iterator[Fact]:
    lowered = line.lower().replace("\u2019", "'")
    if len(lowered) != len(line):
        lowered = line
    stamp = p.STAMP.match(line)
    start = stamp.end() if stamp else 0
    cut: list[tuple[int, int]] | None = None
    if not in_code and _may_say(lowered):
        cut = sentences.spans(line)
        yield from _said(line, lowered, cut, begin)
    hinted = any(hint in lowered for hint in p.FAILED_HINTS)
    if hinted or (": " in line and p.RAISED.search(line)):
        yield from _errors(line, lowered, start, begin, cut)
    for first, last in commands.find(line, in_shell=in_shell):
        yield Fact("command", line[first:last], begin + first)
    for kind, first, last in names.find(line, start):
        yield Fact(kind, line[first:last], begin + first)


def _may_say(lowered: str) -> bool:
    words = p.WORD.findall(lowered)
    if not (p.DECIDED_FIRSTS.isdisjoint(words) and p.TO_DO_FIRSTS.isdisjoint(words)):
        return True
    return p.TO_DO_SIGN.match(lowered) is not None or (
        not lowered.isascii() and p.SPACELESS_SIGN.search(lowered) is not None
    )


def _said(line: str, lowered: str, cut: list[tuple[int, int]], begin: int) -> Iterator[Fact]:
    for first, last in cut:
        text, folded = line[first:last], lowered[first:last]
        if len(text) > _SENTENCE_MAX:
            text = text[:_SENTENCE_MAX].rsplit(None, 1)[0]
        if p.DECIDED.search(folded) or p.DECIDED_UNSPACED.search(folded):
            yield Fact("decision", text, begin + first)
        elif p.TO_DO.search(folded) or p.TO_DO_UNSPACED.search(folded) or p.TO_DO_SIGN.match(text):
            yield Fact("task", text, begin + first)


def _errors(
    line: str, lowered: str, start: int, begin: int, cut: list[tuple[int, int]] | None
) -> Iterator[Fact]:
    named = p.EXCEPTION.search(line, start) or p.RAISED.search(line, start)
    first = p.FAILED.search(line, start)
    other = first or p.FAILED_FOLDED.search(lowered, start)
    if not named and not other:
        return
    if named and not (first and first.start() < named.start()):
        yield _error(line, named.start(), begin, _end_of(line, named.start(), cut))
    elif first:
        yield _error(line, first.start(), begin, _end_of(line, first.start(), cut))
    elif other:
        at = other.start()
        spans = cut if cut is not None else sentences.spans(line)
        inside = [span for span in spans if span[0] <= at < span[1]] or [(start, len(line))]
        yield _error(line, max(start, inside[0][0]), begin, inside[0][1])


def _end_of(line: str, at: int, cut: list[tuple[int, int]] | None) -> int:
    for first, last in cut or ():
        if first <= at < last:
            return last
    return len(line)


def _error(line: str, first: int, begin: int, last: int) -> Fact:
    text = line[first:last].strip()
    if len(text) > _SENTENCE_MAX:
        text = text[:_SENTENCE_MAX].rsplit(None, 1)[0]
    return Fact("error", text, begin + line.index(text, first))
