"""The text of a summary: sections with lines of statements, and their parser.

A line is the text of a statement, verbatim, with a mark of its speaker and message: `(u12)`. An
indented line belongs to the line before it: a cause, a fix, a reason or an answer.

No text of a message can take one of these forms: texts are stripped, a text that looks like a
heading gets a dash, and a text that ends like a mark gets a mark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from session_core.compression import summary_message

StatementKind = Literal[
    "goal", "decision", "rule", "task", "done", "problem", "person", "request",
    "command", "file", "detail", "note", "remark", "mention", "output", "changed",
]  # fmt: skip
Section = StatementKind | Literal["unlisted"]
"""A kind, or the section of tasks that the last to-do list lacks."""
Label = Literal["cause", "fix", "reason", "answer", "previously"]
Author = Literal["user", "assistant", "tool"]

HEADINGS: Mapping[Section, str] = {
    "goal": "Goal",
    "output": "Output",
    "mention": "Mentioned",
    "file": "Files",
    "command": "Commands",
    "detail": "Details",
    "remark": "Said",
    "note": "The user said",
    "person": "People and dates",
    "rule": "Rules",
    "problem": "Problems",
    "request": "Asked",
    "decision": "Decided",
    "done": "Done",
    "unlisted": "Not on the last list",
    "task": "Open",
    "changed": "Changed",
}
"""The headings in order. Corrections come last, so that no outdated line follows them."""

_BRIEF_KINDS = frozenset[StatementKind](("person", "note", "remark", "file", "command"))
"""Kinds that a short summary writes as details, to save headings."""

_KINDS = {heading: kind for kind, heading in HEADINGS.items()}
_LABELS: tuple[Label, ...] = get_args(Label)
_LETTERS: Mapping[Author, str] = {"user": "u", "assistant": "a", "tool": "t"}
_AUTHORS: Mapping[str, Author] = {letter: author for author, letter in _LETTERS.items()}
_UNMARKED_KINDS = frozenset(("command", "file", "detail", "note", "remark", "mention", "output"))
_BULLET = "- "
_INDENT = "  "
_MARK = re.compile(r" \(([uat])(\d{0,18})\)$")
_HEADER = re.compile(r"(\d{1,9}) statements so far(?:;.*)?")
_LEGEND = "; (u12) is message 12, of the user; a: assistant, t: tool"


@dataclass(slots=True)
class WrittenLine:
    """One statement in the text of a summary."""

    text: str
    kind: Section | None = None
    author: Author | None = None
    message_id: int | None = None
    label: Label | None = None
    heading: str = ""
    """The heading above a line of a foreign summary."""
    parts: list[WrittenLine] = field(default_factory=list)


@dataclass(slots=True)
class WrittenSummary:
    """A parsed summary. `counted` is 0 if another program wrote it."""

    lines: list[WrittenLine]
    counted: int = 0


def write_header(count: int, *, legend: bool) -> str:
    """Return the first line, with the number of statements of the conversation."""
    return f"{count} statements so far{_LEGEND if legend else ''}"


def choose_section(kind: Section, *, brief: bool) -> Section:
    """Return the kind of the section in which a statement is written."""
    if kind == "unlisted" and brief:
        return "task"
    return "detail" if brief and kind in _BRIEF_KINDS else kind


def get_detail_kind(kind: StatementKind | None) -> StatementKind:
    """Return the kind of a line under `Details`, which its words may show."""
    return kind if kind in _BRIEF_KINDS else "detail"


def write_heading(kind: Section) -> str:
    """Return the heading of a section."""
    return f"{HEADINGS[kind]}:"


def write_line(line: WrittenLine) -> str:
    """Return the lines of a summary for a statement and its parts."""
    return "\n".join(
        (_write_statement_text(line), *(f"{_INDENT}{_write_part(part)}" for part in line.parts))
    )


def _write_part(part: WrittenLine) -> str:
    return f"{part.label}: {_add_mark(summary_message.remove_marks(part.text), part)}"


def _write_statement_text(line: WrittenLine) -> str:
    text = summary_message.remove_marks(line.text)
    unclear = text.startswith(("#", _BULLET)) or text.rstrip(":") in _KINDS
    if unclear or _HEADER.fullmatch(text):
        text = _BULLET + text
    return _add_mark(text, line)


def _add_mark(text: str, line: WrittenLine) -> str:
    """Add the mark of a line. A problem that a tool reported always has a mark."""
    needed = line.author == "tool" and line.kind == "problem"
    marked = line.message_id is not None and line.kind not in _UNMARKED_KINDS
    if not (needed or marked or _MARK.search(text)):
        return text
    number = "" if line.message_id is None else line.message_id
    return f"{text} ({_LETTERS[line.author or 'tool']}{number})"


def read_summary(text: str) -> WrittenSummary:
    """Parse an earlier summary.

    Its lines have kinds if it has our form.
    """
    lines = text.splitlines()
    header = _HEADER.fullmatch(lines[0]) if lines else None
    if header:
        return WrittenSummary(list(_read_own_lines(lines[1:])), int(header.group(1)))
    is_own = bool(lines) and _is_heading(lines[0])
    return WrittenSummary(list(_read_own_lines(lines) if is_own else _read_foreign_lines(lines)))


def _is_heading(line: str) -> bool:
    return line[-1:] == ":" and line[:-1] in _KINDS


def _read_own_lines(lines: Iterable[str]) -> Iterator[WrittenLine]:
    kind: Section | None = None
    last: WrittenLine | None = None
    for line in lines:
        if _is_heading(line):
            kind = _KINDS[line[:-1]]
            continue
        label, _, rest = line.removeprefix(_INDENT).partition(": ")
        if line.startswith(_INDENT) and last and label in _LABELS:
            last.parts.append(_parse_marked_line(rest, kind, label))
        elif line.strip():
            if last:
                yield last
            last = _parse_marked_line(line.removeprefix(_BULLET).strip(), kind, None)
    if last:
        yield last


def _parse_marked_line(text: str, kind: Section | None, label: Label | None) -> WrittenLine:
    mark = _MARK.search(text)
    if mark is None:
        return WrittenLine(text, kind, label=label)
    number = int(mark.group(2)) if mark.group(2) else None
    return WrittenLine(text[: mark.start()], kind, _AUTHORS[mark.group(1)], number, label)


def _read_foreign_lines(lines: Iterable[str]) -> Iterator[WrittenLine]:
    heading = ""
    for line in lines:
        text = line.strip()
        title = text.strip("#* ").rstrip(":")
        if title in _KINDS or text.startswith("#"):
            heading = title
        elif text:
            yield WrittenLine(text.removeprefix(_BULLET), _KINDS.get(heading), heading=heading)
