"""Scan a file of exported sessions: their places, order and errors.

The file is read twice: the scan checks all of it and keeps only the places of sessions, and later
each session is read again, its messages one by one.

An import drops the chat state of the file: routes, chats and hand-offs. A file may come from a
stranger. A row that names a chat would receive the next message of that chat, and a pending hand-
off or delegation would be delivered to one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO, TypeVar

from session_core.errors import InvalidInput
from session_core.maintenance.transfer import export_format
from session_core.maintenance.transfer.export_format import FORMAT_KEY, MESSAGES_KEY, JsonLine
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
"""A reason may quote the file, so it is cut to this many characters."""

_REQUIRED_COLUMNS = ("role", "timestamp")
"""The columns that every home requires of a message."""


@dataclass(frozen=True, slots=True)
class BrokenLine:
    """A line that cannot be imported, with its first reasons and the number of further reasons."""

    line: int
    why: str


@dataclass(frozen=True, slots=True)
class ScannedSession:
    """A session in a file, and its place."""

    number: int
    offset: int
    id: str
    parent: str | None
    title: str | None
    started_at: Any
    messages: int
    digest: str
    has_late: bool
    """True if other members follow its messages."""
    bytes: int
    """The length of the line."""
    columns: frozenset[str] = frozenset()
    """The columns of its own row."""
    message_columns: frozenset[str] = frozenset()
    chat_state: tuple[str, ...] = ()
    """Its routes, chats and hand-offs, which an import drops."""
    unfit: int = 0
    """The number of messages without a role or a timestamp, which no home accepts."""
    first_unfit: int = 0
    """The position of the first of them in the line, counted from 1."""
    delegator: str | None = None
    """The session that it works for according to its own mark; it may have no link to it."""

    def encode_progress(self, stored: int, *, renumbered: bool) -> str:
        """Return a mark that records how many messages of the session are stored."""
        return json.dumps({"of": self.digest, "stored": stored, "renumbered": renumbered})

    def decode_progress(self, text: str | None) -> tuple[int, bool] | None:
        """Return the number of stored messages, and True if they have new ids."""
        mark = json.loads(text) if text else None
        # The file may have changed since an earlier import was stopped.
        if not isinstance(mark, dict) or mark.get("of") != self.digest:
            return None
        return int(mark["stored"]), bool(mark["renumbered"])


def scan_file(file: BinaryIO) -> Iterator[ScannedSession | BrokenLine]:
    """Yield the result for each line, except empty lines."""
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
                line_scan = _LineScan()
                line_scan.read_line(line)
                yield line_scan.build_result(line, number, offset, file.tell() - offset)
        # A broken line is left in its middle, and the next one begins after its end.
        line.skip_rest()
        if file.tell() == offset:
            return


def order_sessions(sessions: Iterable[ScannedSession]) -> Iterator[list[ScannedSession]]:
    """Yield groups of sessions, parents first.

    A group is one session, or several sessions that are each other's ancestors.
    """
    lines = {session.id: session for session in sessions}
    finished: set[str] = set()
    for start in lines.values():
        path: dict[str, ScannedSession] = {}
        current: ScannedSession | None = start
        while current is not None and current.id not in finished and current.id not in path:
            path[current.id] = current
            current = None if current.parent is None else lines.get(current.parent)
        chain = list(path.values())
        finished.update(path)
        if current is not None and current.id in path:
            start_index = chain.index(current)
            # Parents that form a circle cannot be stored one after another.
            yield chain[start_index:]
            chain = chain[:start_index]
        yield from ([session] for session in reversed(chain))


def read_session(file: BinaryIO, session: ScannedSession) -> tuple[dict[str, Any], list[RowImages]]:
    """Return the stored columns of a session, and the rows of other tables.

    The chat state of the file is dropped. A missing `started_at` becomes the time of
    the first message.

    Raises:
        InvalidInput: the file has changed.
    """
    file.seek(session.offset)
    row: dict[str, Any] = {}
    tables: list[RowImages] = []
    for name, value in JsonLine(file, MESSAGES_KEY).iter_members():
        if name == FORMAT_KEY:
            tables, _ = drop_chat_rows(export_format.decode_images(value))
        elif name != MESSAGES_KEY:
            row[name] = export_format.decode_value(name, value)
        # The messages come last in our exports: there is nothing left to read.
        elif not session.has_late:
            break
    drop_chat_columns(row)
    row["started_at"] = session.started_at
    return row, tables


def find_delegator(row: Mapping[str, Any]) -> str | None:
    """Return the session that a delegate works for according to its mark, or None."""
    config = content.decode_json(row.get("model_config"))
    mark = config.get(_DELEGATE) if isinstance(config, dict) else None
    return mark if isinstance(mark, str) and mark != _ORPHANED else None


def mark_delegate_orphaned(row: dict[str, Any]) -> None:
    """Mark a delegate as orphaned, as Hermes does if its delegator is gone."""
    config = content.decode_json(row["model_config"])
    row["model_config"] = content.dump_json({**config, _DELEGATE: _ORPHANED})


def iter_messages(file: BinaryIO, session: ScannedSession) -> Iterator[dict[str, Any]]:
    """Yield the stored form of the messages of a session, except messages that no home accepts."""
    file.seek(session.offset)
    for name, value in JsonLine(file, MESSAGES_KEY).iter_members():
        if name == MESSAGES_KEY and value is not None:
            message = {key: export_format.decode_value(key, item) for key, item in value.items()}
            if _is_valid_message(message):
                yield {**message, "session_id": session.id}


@dataclass(slots=True)
class _LineScan:
    """One line during the scan: its columns, its messages so far, and the reasons to refuse it."""

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
        """Read the line to its end, or to the first error."""
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
        # A later read may stop at the messages only if they come last.
        self.has_late = self.has_late or self.seen > 0
        if name == _SEGMENTS_KEY:
            self._add_reason("it is a lineage in one line; export its sessions one by one")
        elif name == FORMAT_KEY:
            images = self._try_read(lambda: export_format.decode_images(value)) or []
            self.chat_state += drop_chat_rows(images)[1]
        else:
            self.row[name] = self._try_read(
                lambda: _check_value(export_format.decode_value(name, value))
            )

    def _add_message(self, value: Any) -> None:
        self.seen += 1
        if not isinstance(value, dict) or not value:
            self._add_reason(f"message {self.seen} is not an object")
            return
        message = {
            name: self._try_read(
                lambda name=name, item=item: _check_value(export_format.decode_value(name, item)),  # type: ignore[misc]
                f"message {self.seen}: ",
            )
            for name, item in value.items()
        }
        if not _is_valid_message(message):
            self.first_unfit = self.first_unfit or self.seen
            return
        self.messages += 1
        self.message_columns.update(message)
        timestamp = message["timestamp"]
        # Python's JSON may contain NaN, which has no order.
        if isinstance(timestamp, (int, float)) and math.isfinite(timestamp):
            self.began = timestamp if self.began is None else min(timestamp, self.began)

    def build_result(
        self, line: JsonLine, number: int, offset: int, size: int
    ) -> ScannedSession | BrokenLine:
        """Return the session of the line, or the reasons to refuse it."""
        row = self.row
        self.chat_state += drop_chat_columns(row)
        began = self.began if row.get("started_at") is None else row["started_at"]
        if self.is_read:
            self._require_columns(began)
        if self.reasons:
            more = [f"and {self.more:,} more reasons"] if self.more else []
            return BrokenLine(number, "; ".join([*self.reasons, *more]))
        parent, title = row.get("parent_session_id"), row.get("title")
        return ScannedSession(
            number,
            offset,
            row["id"],
            parent if isinstance(parent, str) else None,
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
            self._add_reason("it has no session id")
        if self.row.get("source") is None:
            self._add_reason("it has no source")
        if began is None:
            self._add_reason("it has no started_at, and no message has a timestamp to take it from")

    def _require_single_lines(self) -> None:
        """Refuse line breaks and control characters, which a terminal would obey."""
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

    def _add_reason(self, reason: str) -> None:
        reason = reason[:_MAX_REASON_LENGTH]
        # Thousands of messages may fail for the same reason.
        if reason in self.reasons:
            return
        if len(self.reasons) < _MAX_REASONS:
            self.reasons.append(reason)
        else:
            self.more += 1


def _is_valid_message(message: Mapping[str, Any]) -> bool:
    """Return True if a message has a role and a timestamp, which each home requires."""
    return all(message.get(name) is not None for name in _REQUIRED_COLUMNS)


def _check_value(value: Any) -> Any:
    if isinstance(value, int) and not -_MAX_INTEGER <= value < _MAX_INTEGER:
        raise InvalidInput("a number exceeds 64 bits")
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
"""Newer homes add columns with these prefixes."""

_CHAT_TABLES = frozenset({"async_delegations"})
_CHAT_KEYS = frozenset({"session_key", "chat_id"})
"""A row of another table with one of these columns belongs to a chat."""


def drop_chat_columns(row: dict[str, Any]) -> list[str]:
    """Remove the chat state from the row of a session, and return the columns that had a value."""
    names = [name for name in row if name in _CHAT_COLUMNS or name.startswith(_CHAT_PREFIXES)]
    return [name for name in names if row.pop(name)]


def drop_chat_rows(images: Iterable[RowImages]) -> tuple[list[RowImages], list[str]]:
    """Return images without rows of chats, and the tables that had such rows."""
    kept_images: list[RowImages] = []
    dropped: list[str] = []
    for image in images:
        is_of_chat = image.table in _CHAT_TABLES or not _CHAT_KEYS.isdisjoint(image.columns)
        if not is_of_chat:
            kept_images.append(image)
        elif image.rows:
            dropped.append(f"rows of {image.table}")
    return kept_images, dropped
