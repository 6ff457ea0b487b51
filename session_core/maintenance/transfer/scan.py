"""What a file of exported sessions has: which sessions, where, whole or broken, in which order.

The file is read twice: here all of it is checked and nothing kept but where things are, and then
each session is read again, its messages one by one.

The chat state in an export: routes, chats and hand-offs, which an import never brings.

A file may come from a stranger. A row that names a chat would receive the next message of that
chat, and a hand-off or a delegation that waits for delivery would be sent to one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO, TypeVar

from session_core.errors import InvalidInput
from session_core.maintenance.transfer import format as transfer_format
from session_core.maintenance.transfer.format import FORMAT_KEY, MESSAGES_KEY, JsonLine
from session_core.state import content
from session_core.state.validation import check_line
from session_core.types import RowImages

SESSIONS = "sessions"

T = TypeVar("T")

_SEGMENTS_KEY = "segments"
_ONE_LINE_COLUMNS = ("id", "title", "source", "end_reason")
_MAX_INTEGER = 1 << 63
_DELEGATE, _ORPHANED = "_delegate_from", "__orphaned__"
_MAX_REASONS = 5
_MAX_REASON_LENGTH = 200
"""A reason is cut to this many characters: it may quote the file."""

_REQUIRED_COLUMNS = ("role", "timestamp")
"""The columns without which no home takes a message."""


@dataclass(frozen=True, slots=True)
class BrokenLine:
    """A line that could not be imported, and why: the first of the reasons and how many more."""

    line: int
    why: str


@dataclass(frozen=True, slots=True)
class ScannedSession:
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
    bytes: int
    """The length of the line."""
    columns: frozenset[str] = frozenset()
    """The columns that it brings for its own row."""
    message_columns: frozenset[str] = frozenset()
    chat_state: tuple[str, ...] = ()
    """What it has of routes, chats and hand-offs, which an import drops."""
    unfit: int = 0
    """The number of messages without a role or a timestamp, which no home takes."""
    first_unfit: int = 0
    """The place of the first of them in the line, counted from 1."""
    delegator: str | None = None
    """The session that a mark of its own says it works for; there may be no link to it."""

    def encode_progress(self, stored: int, *, renumbered: bool) -> str:
        """Return what says how much of it is stored."""
        return json.dumps({"of": self.digest, "stored": stored, "renumbered": renumbered})

    def decode_progress(self, noted: str | None) -> tuple[int, bool] | None:
        """Return how many of its messages are stored, and whether under other ids."""
        said = json.loads(noted) if noted else None
        if not isinstance(said, dict) or said.get("of") != self.digest:
            return None
        return int(said["stored"]), bool(said["renumbered"])


def scan_file(file: BinaryIO) -> Iterator[ScannedSession | BrokenLine]:
    """Yield what each line is; those with nothing in them are none."""
    number = 0
    while True:
        number += 1
        offset = file.tell()
        line = JsonLine(file, MESSAGES_KEY)
        try:
            is_empty = line.is_empty()
        except InvalidInput as error:
            yield BrokenLine(number, str(error))
        else:
            if not is_empty:
                survey = _LineScan()
                survey.read_line(line)
                yield survey.build_result(line, number, offset, file.tell() - offset)
        line.skip_rest()
        if file.tell() == offset:
            return


def order_sessions(found: Iterable[ScannedSession]) -> Iterator[list[ScannedSession]]:
    """Yield sessions behind their parents; those that are each other's ancestors come together."""
    lines = {each.id: each for each in found}
    done: set[str] = set()
    for start in lines.values():
        path: dict[str, ScannedSession] = {}
        here: ScannedSession | None = start
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


def read_session(file: BinaryIO, found: ScannedSession) -> tuple[dict[str, Any], list[RowImages]]:
    """Return the columns of a session as they are stored, and the rows of other tables.

    The chat state of the file is dropped. A missing `started_at` is that of the first message.

    Raises:
        InvalidInput: the file is not any more what it was.
    """
    file.seek(found.offset)
    row: dict[str, Any] = {}
    tables: list[RowImages] = []
    for name, value in JsonLine(file, MESSAGES_KEY).iter_members():
        if name == FORMAT_KEY:
            tables, _ = drop_chat_rows(transfer_format.decode_images(value))
        elif name != MESSAGES_KEY:
            row[name] = transfer_format.decode_value(name, value)
        elif not found.has_late:
            break
    drop_chat_columns(row)
    row["started_at"] = found.started_at
    return row, tables


def find_delegator(row: Mapping[str, Any]) -> str | None:
    """Return the session that a delegate works for by its mark, None if it names none."""
    config = content.decode_json(row.get("model_config"))
    mark = config.get(_DELEGATE) if isinstance(config, dict) else None
    return mark if isinstance(mark, str) and mark != _ORPHANED else None


def drop_delegator(row: dict[str, Any]) -> None:
    """Let a delegate work for no session that is known, as Hermes marks one that lost its own."""
    config = content.decode_json(row["model_config"])
    row["model_config"] = content.dump_json({**config, _DELEGATE: _ORPHANED})


def iter_messages(file: BinaryIO, found: ScannedSession) -> Iterator[dict[str, Any]]:
    """Yield the messages of a session as they are stored, but for those that no home takes."""
    file.seek(found.offset)
    for name, value in JsonLine(file, MESSAGES_KEY).iter_members():
        if name == MESSAGES_KEY and value is not None:
            message = {key: transfer_format.decode_value(key, each) for key, each in value.items()}
            if _is_valid_message(message):
                yield {**message, "session_id": found.id}


@dataclass(slots=True)
class _LineScan:
    """One line as it is read: its columns, its messages so far, and the reasons against it."""

    row: dict[str, Any] = field(default_factory=dict)
    chat_state: list[str] = field(default_factory=list)
    message_columns: set[str] = field(default_factory=set)
    messages: int = 0
    seen: int = 0
    first_unfit: int = 0
    has_late: bool = False
    began: float | None = None
    """The time of the earliest message."""
    reasons: list[str] = field(default_factory=list)
    more: int = 0
    is_read: bool = False

    def read_line(self, line: JsonLine) -> None:
        """Read the line to its end, or to where it cannot be read any further."""
        try:
            for name, value in line.iter_members():
                self._add_member(name, value)
            self.is_read = True
        except InvalidInput as error:
            self._add_reason(str(error))

    def _add_member(self, name: str, value: Any) -> None:
        if name == MESSAGES_KEY:
            if value is not None:
                self._add_message(value)
            return
        self.has_late = self.has_late or self.seen > 0
        if name == _SEGMENTS_KEY:
            self._add_reason("it is a lineage in one line; export its sessions one by one")
        elif name == FORMAT_KEY:
            images = self._try_read(lambda: transfer_format.decode_images(value)) or []
            self.chat_state += drop_chat_rows(images)[1]
        else:
            self.row[name] = self._try_read(
                lambda: _check_value(transfer_format.decode_value(name, value))
            )

    def _add_message(self, value: Any) -> None:
        self.seen += 1
        if not isinstance(value, dict) or not value:
            self._add_reason(f"message {self.seen} is no object")
            return
        message = {
            name: self._try_read(
                lambda name=name, each=each: _check_value(transfer_format.decode_value(name, each)),  # type: ignore[misc]
                f"message {self.seen}: ",
            )
            for name, each in value.items()
        }
        if not _is_valid_message(message):
            self.first_unfit = self.first_unfit or self.seen
            return
        self.messages += 1
        self.message_columns.update(message)
        at = message["timestamp"]
        if isinstance(at, (int, float)) and math.isfinite(at):
            self.began = at if self.began is None else min(at, self.began)

    def build_result(
        self, line: JsonLine, number: int, offset: int, size: int
    ) -> ScannedSession | BrokenLine:
        """Return the session of the line, or all reasons why there is none."""
        row = self.row
        self.chat_state += drop_chat_columns(row)
        began = self.began if row.get("started_at") is None else row["started_at"]
        if self.is_read:
            self._require_columns(began)
        if self.reasons:
            more = [f"and {self.more:,} more reasons"] if self.more else []
            return BrokenLine(number, "; ".join([*self.reasons, *more]))
        above, title = row.get("parent_session_id"), row.get("title")
        return ScannedSession(
            number,
            offset,
            row["id"],
            above if isinstance(above, str) else None,
            title if isinstance(title, str) else None,
            began,
            self.messages,
            line.digest,
            self.has_late,
            size,
            frozenset(row),
            frozenset(self.message_columns),
            tuple(self.chat_state),
            self.seen - self.messages,
            self.first_unfit,
            find_delegator(row),
        )

    def _require_columns(self, began: Any) -> None:
        self._require_single_lines()
        if not isinstance(self.row.get("id"), str) or not self.row["id"]:
            self._add_reason("it has no id of a session")
        if self.row.get("source") is None:
            self._add_reason("it has no source")
        if began is None:
            self._add_reason("it has no started_at, and no message has a timestamp to take it from")

    def _require_single_lines(self) -> None:
        """Refuse values of one line that a terminal would obey."""
        for name in _ONE_LINE_COLUMNS:
            value = self.row.get(name)
            if isinstance(value, str):
                self._try_read(partial(check_line, name, value))

    def _try_read(self, read: Callable[[], T], place: str = "") -> T | None:
        try:
            return read()
        except InvalidInput as error:
            self._add_reason(f"{place}{error}")
            return None

    def _add_reason(self, why: str) -> None:
        why = why[:_MAX_REASON_LENGTH]
        if why in self.reasons:
            return
        if len(self.reasons) < _MAX_REASONS:
            self.reasons.append(why)
        else:
            self.more += 1


def _is_valid_message(message: Mapping[str, Any]) -> bool:
    """Return whether a home takes a message, which needs a role and a time."""
    return all(message.get(name) is not None for name in _REQUIRED_COLUMNS)


def _check_value(value: Any) -> Any:
    if isinstance(value, int) and not -_MAX_INTEGER <= value < _MAX_INTEGER:
        raise InvalidInput("a number in it is beyond 64 bits")
    return value


_CHAT_COLUMNS = frozenset(
    {
        "session_key",
        "thread_id",
        "display_name",
        "expiry_finalized",
        "profile_name",
        "transport_profile",
    }
)
_CHAT_PREFIXES = ("chat_", "origin_", "handoff_")
"""Newer homes add columns of these kinds."""

_CHAT_TABLES = frozenset({"async_delegations"})
_CHAT_KEYS = frozenset({"session_key", "chat_id"})
"""A row of another table with one of these columns belongs to a chat."""


def drop_chat_columns(row: dict[str, Any]) -> list[str]:
    """Remove the chat state from the row of a session; return the columns that had a value."""
    names = [name for name in row if name in _CHAT_COLUMNS or name.startswith(_CHAT_PREFIXES)]
    return [name for name in names if row.pop(name)]


def drop_chat_rows(images: Iterable[RowImages]) -> tuple[list[RowImages], list[str]]:
    """Return the rows of other tables without those of chats, and the tables that had some."""
    kept: list[RowImages] = []
    dropped: list[str] = []
    for image in images:
        is_of_chat = image.table in _CHAT_TABLES or not _CHAT_KEYS.isdisjoint(image.columns)
        if not is_of_chat:
            kept.append(image)
        elif image.rows:
            dropped.append(f"rows of {image.table}")
    return kept, dropped
