"""Scripts of long lives: the hand-written exchanges with their facts marked in the text.

A script begins with `key: value` lines and asides. `== START END [LANGUAGE]` begins a part.
`>` is a message of the user, `<` of the agent, `$ TOOL JSON` a tool call, `|` a line of its result.
`{K1:text|alternative}` marks a needle of fact K1; the letter is the kind, and only `text` is shown.
`@K1 stale: a | b`, `@K1 replaces: D2`, `@X1 done: T1`, `@D4 drops: T3` follow the message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from tests.bench.long_life.facts import Kind, Needle

LIVES_FOLDER = Path(__file__).parent / "lives"
BLIND_LIVES_FOLDER = Path(__file__).parent / "blind_lives"

_MARK = re.compile(r"\{([A-Z])(\d+):([^{}]*)\}")
_KINDS: dict[str, Kind] = {
    "D": "decision",
    "C": "constraint",
    "P": "preference",
    "T": "task_open",
    "X": "task_done",
    "E": "error_fix",
    "K": "correction",
    "N": "person_date",
    "F": "file_command",
    "G": "fact",
}


@dataclass
class Line:
    """One hand-written message: of the user, of the agent, or a tool call with its result."""

    role: str
    text: str
    tool_name: str = ""
    arguments: str = ""


@dataclass
class ScriptFact:
    """A fact as it is marked in a script."""

    fact_id: str
    kind: Kind
    needles: list[Needle] = field(default_factory=list)
    line_indexes: list[int] = field(default_factory=list)
    stale: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    drops: tuple[str, ...] = ()


@dataclass
class ScriptPart:
    """The hand-written messages of one part, and their facts by id."""

    start: date
    end: date
    language: str
    lines: list[Line] = field(default_factory=list)
    facts: dict[str, ScriptFact] = field(default_factory=dict)


@dataclass
class Script:
    """A whole life as written by hand."""

    name: str
    language: str
    words: list[str]
    files: list[str]
    asides: dict[str, list[str]]
    """Paragraphs without facts, by language."""
    is_office: bool
    """The agent reads pages and tables, and no code or logs."""
    parts: list[ScriptPart]


def list_scripts(folder: Path) -> Iterator[Script]:
    """Yield every script of a folder, by name."""
    for path in sorted(folder.glob("*.txt")):
        yield parse_script(path.read_text(encoding="utf-8").splitlines())


def parse_script(lines: Iterable[str]) -> Script:
    """Return the script that these lines describe."""
    header: dict[str, str] = {}
    asides: dict[str, list[str]] = {}
    parts: list[ScriptPart] = []
    for line in lines:
        if line.startswith("== "):
            start, end, *language = line[3:].split()
            parts.append(
                ScriptPart(
                    date.fromisoformat(start),
                    date.fromisoformat(end),
                    language[0] if language else "en",
                )
            )
        elif parts:
            _parse_line(parts[-1], line)
        elif line.startswith("aside "):
            aside_language, _, text = line[6:].partition(": ")
            asides.setdefault(aside_language, []).append(text)
        else:
            key, _, value = line.partition(": ")
            header[key] = value
    return Script(
        name=header["name"],
        language=header["language"],
        words=header["words"].split(),
        files=header["files"].split(),
        asides=asides,
        is_office=header.get("tools") == "office",
        parts=parts,
    )


def _parse_line(part: ScriptPart, line: str) -> None:
    sign, text = line[:1], line[2:]
    if sign == "@":
        _parse_directive(part, line)
    elif sign == "$":
        tool_name, _, arguments = text.partition(" ")
        shown = _read_marks(part, arguments, len(part.lines))
        part.lines.append(Line("call", "", tool_name, shown))
    elif sign == "|":
        shown = _read_marks(part, text, len(part.lines) - 1)
        call = part.lines[-1]
        call.text = f"{call.text}\n{shown}" if call.text else shown
    elif sign in "<>":
        shown = _read_marks(part, text, len(part.lines))
        part.lines.append(Line("user" if sign == ">" else "assistant", shown))
    else:
        raise ValueError(f"a line must begin with >, <, $, | or @, got {line!r}")


def _read_marks(part: ScriptPart, text: str, index: int) -> str:
    """Return the text without its marks, after adding their needles to the facts of the part."""

    def read(match: re.Match[str]) -> str:
        letter, number, body = match.groups()
        fact_id = letter + number
        fact = part.facts.setdefault(fact_id, ScriptFact(fact_id, _KINDS[letter]))
        alternatives = tuple(str(body).split("|"))
        fact.needles.append(alternatives)
        fact.line_indexes.append(index)
        return alternatives[0]

    return _MARK.sub(read, text)


def _parse_directive(part: ScriptPart, line: str) -> None:
    head, _, values = line.partition(": ")
    fact_id, _, name = head[1:].partition(" ")
    fact = part.facts[fact_id]
    if name == "stale":
        fact.stale = tuple(value.strip() for value in values.split("|"))
    elif name in ("replaces", "done", "drops"):
        setattr(fact, name, tuple(values.split()))
    else:
        raise ValueError(f"a directive must be stale, replaces, done or drops, got {line!r}")
