"""What a file of exported sessions has: which sessions, where, whole or broken, in which order.

The file is read twice: here all of it is checked and nothing kept but where things are, and then
each session is read again, its messages one by one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from session_core.errors import InvalidInput
from session_core.maintenance import carrying
from session_core.maintenance.carrying import MESSAGES, OURS
from session_core.maintenance.lines import Line
from session_core.models import Images

SESSIONS = "sessions"

_LINEAGE = "segments"
_MOST = 1 << 63


@dataclass(frozen=True, slots=True)
class Broken:
    """A line that could not be imported, and why."""

    line: int
    why: str


@dataclass(frozen=True, slots=True)
class Found:
    """A session in a file, and where it is."""

    number: int
    offset: int
    id: str
    parent: str | None
    title: str | None
    started_at: Any
    messages: int
    digest: str
    has_late: bool
    """Whether something stands behind its messages."""

    def noted(self, stored: int, *, renumbered: bool) -> str:
        """Return what says how much of it is stored."""
        return json.dumps({"of": self.digest, "stored": stored, "renumbered": renumbered})

    def how_far(self, noted: str | None) -> tuple[int, bool] | None:
        """Return how many of its messages are stored, and whether under other ids."""
        said = json.loads(noted) if noted else None
        if not isinstance(said, dict) or said.get("of") != self.digest:
            return None
        return int(said["stored"]), bool(said["renumbered"])


def survey(file: BinaryIO) -> Iterator[Found | Broken]:
    """Yield what each line is; those with nothing in them are none."""
    number = 0
    while True:
        number += 1
        offset = file.tell()
        line = Line(file, MESSAGES)
        try:
            if not line.is_empty():
                yield _found(line, number, offset)
        except InvalidInput as error:
            yield Broken(number, str(error))
        line.skip()
        if file.tell() == offset:
            return


def in_order(found: Iterable[Found]) -> Iterator[list[Found]]:
    """Yield sessions behind their parents; those that are each other's ancestors come together."""
    lines = {each.id: each for each in found}
    done: set[str] = set()
    for start in lines.values():
        path: dict[str, Found] = {}
        here: Found | None = start
        while here is not None and here.id not in done and here.id not in path:
            path[here.id] = here
            here = None if here.parent is None else lines.get(here.parent)
        walked = list(path.values())
        done.update(path)
        if here is not None and here.id in path:
            at = walked.index(here)
            yield walked[at:]
            walked = walked[:at]
        yield from ([each] for each in reversed(walked))


def session(file: BinaryIO, found: Found) -> tuple[dict[str, Any], list[Images]]:
    """Return the columns of a session as they are stored, and the rows of other tables.

    Raises:
        InvalidInput: the file is not any more what it was.
    """
    file.seek(found.offset)
    row: dict[str, Any] = {}
    tables: list[Images] = []
    for name, value in Line(file, MESSAGES).members():
        if name == OURS:
            tables = carrying.images(value)
        elif name != MESSAGES:
            row[name] = carrying.stored(name, value)
        elif not found.has_late:
            break
    return row, tables


def messages(file: BinaryIO, found: Found) -> Iterator[dict[str, Any]]:
    """Yield the messages of a session as they are stored."""
    file.seek(found.offset)
    for name, value in Line(file, MESSAGES).members():
        if name == MESSAGES and value is not None:
            yield {**_message(value), "session_id": found.id}


def _found(line: Line, number: int, offset: int) -> Found:
    row: dict[str, Any] = {}
    count, has_late = 0, False
    for name, value in line.members():
        if name == MESSAGES:
            count += value is not None and bool(_message(value))
            continue
        has_late = has_late or count > 0
        if name == _LINEAGE:
            raise InvalidInput("it is a lineage in one line; export its sessions one by one")
        if name == OURS:
            carrying.images(value)
        else:
            row[name] = _checked(carrying.stored(name, value))
    session_id, parent = row.get("id"), row.get("parent_session_id")
    if not isinstance(session_id, str) or not session_id:
        raise InvalidInput("it has no id of a session")
    above = parent if isinstance(parent, str) else None
    title = row.get("title") if isinstance(row.get("title"), str) else None
    began = row.get("started_at")
    return Found(number, offset, session_id, above, title, began, count, line.digest, has_late)


def _message(value: Any) -> Mapping[str, Any]:
    """Return a message as it is stored.

    Raises:
        InvalidInput: it is none.
    """
    if not isinstance(value, dict) or not value:
        raise InvalidInput("one of its messages is no object")
    return {name: _checked(carrying.stored(name, each)) for name, each in value.items()}


def _checked(value: Any) -> Any:
    if isinstance(value, int) and not -_MOST <= value < _MOST:
        raise InvalidInput("a number in it is beyond 64 bits")
    return value
