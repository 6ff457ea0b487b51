"""Positions of readers of the change feed, their cursors, and the detection of commits.

A watch polls one open connection, which is cheap, takes no lasting lock and writes nothing. It
remembers which cursors have seen the present state, so that repeated polls cost nothing until the
next commit.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from session_core import _sqlite3
from session_core.errors import InvalidInput
from session_core.processes import get_sidecar_path
from session_core.state import cursors
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.database_file import get_file_bytes, get_file_identity, open_reader
from session_core.state.sqlite.lock_wait import is_busy

ANCHOR_COUNT = 4
"""Number of newest sessions in a cursor. Some of them may be deleted, so there are several."""

OVERLAP_S = 60.0
"""Longest time between the time stored by a change and its commit."""

FeedRow = tuple[Any, ...]
"""An ended session: id, ended_at, reason, title."""

_CURSOR_KIND = "changes"
_MAX_REPORTED = 400


class KnownSession(NamedTuple):
    """A reported session and its row id.

    A session that was stored again has another row id.
    """

    id: str
    place: int
    check: str

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> KnownSession:
        """Build the identity of a session from its row."""
        return cls(row["id"], row["place"], _hash_values(row["started_at"]))


@dataclass(frozen=True, slots=True)
class ReportedEnds:
    """The reported ends: all ends up to the floor, and some above it by their hash."""

    floor: tuple[float, str]
    reported: frozenset[str] = frozenset()

    @staticmethod
    def from_rows(rows: Sequence[FeedRow], now: float) -> ReportedEnds:
        """Return a state that reports the ends committed from now on, also with earlier times."""
        return _limit_reported(rows, (now - OVERLAP_S, ""))

    def take_new_ends(
        self, rows: Sequence[FeedRow], limit: int, now: float
    ) -> tuple[list[FeedRow], ReportedEnds]:
        """Return at most `limit` unreported rows, and the state after they are reported."""
        candidates = [row for row in rows if _get_end_key(row) > self.floor]
        new_rows = [row for row in candidates if _hash_row(row) not in self.reported]
        returned = new_rows[:limit]
        reported = self.reported | {_hash_row(row) for row in returned}
        floor = self.floor
        # Commits later than the overlap are not expected, so older ends need no hashes.
        if len(returned) == len(new_rows):
            floor = max(floor, (now - OVERLAP_S, ""))
        return returned, _limit_reported(
            [row for row in candidates if _hash_row(row) in reported], floor
        )


def _limit_reported(rows: Sequence[FeedRow], floor: tuple[float, str]) -> ReportedEnds:
    """Keep the reported rows above the floor, and raise the floor if there are too many."""
    kept = [row for row in rows if _get_end_key(row) > floor]
    # The hashes travel in the cursor, which must stay short.
    if len(kept) > _MAX_REPORTED:
        floor = _get_end_key(kept[-_MAX_REPORTED - 1])
        kept = kept[-_MAX_REPORTED:]
    return ReportedEnds(floor, frozenset(map(_hash_row, kept)))


@dataclass(frozen=True, slots=True)
class ChangePosition:
    """The position up to which all changes were reported, and the identity of the database."""

    session: str | None
    at: float
    """When the position was taken, to detect a clock that was set back."""
    mark: str | None
    after: int
    anchor: tuple[int, str] | None
    sessions: tuple[KnownSession, ...]
    ends: ReportedEnds

    def encode(self) -> str:
        """Return the cursor of this position."""
        return cursors.encode_cursor(
            _CURSOR_KIND,
            None,
            {
                "session": self.session,
                "at": self.at,
                "mark": self.mark,
                "after": self.after,
                "anchor": self.anchor,
                "sessions": self.sessions,
                "floor": self.ends.floor,
                "reported": sorted(self.ends.reported),
            },
        )

    @classmethod
    def decode(cls, cursor: str) -> ChangePosition:
        """Return the position of a cursor.

        Raises:
            InvalidInput: the cursor is malformed.
        """
        fields = cursors.decode_cursor(_CURSOR_KIND, None, cursor)
        try:
            return cls._check_fields(**fields)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInput(
                "malformed cursor; pass the cursor of the result unchanged"
            ) from error

    @classmethod
    def _check_fields(
        cls,
        *,
        session: Any,
        at: Any,
        mark: Any,
        after: Any,
        anchor: Any,
        sessions: Any,
        floor: Any,
        reported: Any,
    ) -> ChangePosition:
        if anchor is not None:
            message_id, check = anchor
            anchor = _decode_integer(message_id), _decode_text(check)
        ended_at, session_id = floor
        # A NaN in a forged cursor would be neither above nor below any time.
        if not math.isfinite(ended_at) or not math.isfinite(at) or len(sessions) > ANCHOR_COUNT:
            raise ValueError
        return cls(
            session=None if session is None else _decode_text(session),
            at=float(at),
            mark=None if mark is None else _decode_text(mark),
            after=_decode_integer(after),
            anchor=anchor,
            sessions=tuple(_decode_known(*known) for known in sessions),
            ends=ReportedEnds(
                (float(ended_at), _decode_text(session_id)), frozenset(map(_decode_text, reported))
            ),
        )


def hash_message(row: Mapping[str, Any]) -> str:
    """Return a hash of the columns of a message that never change."""
    return _hash_values(row["session_id"], row["role"], row["timestamp"])


def _get_end_key(row: FeedRow) -> tuple[float, str]:
    return float(row[1]), str(row[0])


def _hash_row(row: FeedRow) -> str:
    return _hash_values(*_get_end_key(row))


def _hash_values(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:10]


def _decode_known(session_id: Any, place: Any, check: Any) -> KnownSession:
    return KnownSession(_decode_text(session_id), _decode_integer(place), _decode_text(check))


def _decode_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _decode_integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError
    return value


FileState = tuple[int, ...]
"""Identity of the file and number of its changes, comparable while the watch is open."""

_MAX_REMEMBERED = 20_000
"""Largest number of remembered cursors. A forgotten cursor costs one read."""

BUSY_STATE: FileState = (-1,)
"""A writer has locked the database, so its state is unknown."""


class FileWatch:
    """One connection to a database file that all threads poll for commits."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen: set[str] = set()
        self._seen_at: FileState = BUSY_STATE
        self._handle: Connection | None = None
        self._file: FileState = ()
        self._closed = False

    def read_state(self) -> FileState:
        """Return the state of the file, or an empty state if the file does not exist."""
        with self._lock:
            try:
                file = self._read_identity()
                if file != self._file:
                    self._reopen_file(file)
                if self._handle is None:
                    return self._file
                # The data version changes with each commit of any other connection.
                return (*self._file, self._handle.fetch_value("PRAGMA data_version"))
            except _sqlite3.load_library().OperationalError as error:
                if not is_busy(error):
                    raise
                return BUSY_STATE

    def remember_state(self, cursor: str, state: FileState) -> None:
        """Remember that a cursor has no new changes in this state."""
        with self._lock:
            # Cursors are remembered for the latest state only.
            if state != self._seen_at or len(self._seen) >= _MAX_REMEMBERED:
                self._seen_at, self._seen = state, set()
            self._seen.add(cursor)

    def has_seen(self, cursor: str, state: FileState) -> bool:
        """Return True if the cursor is known to have no new changes in this state."""
        with self._lock:
            is_same_state = state != BUSY_STATE and state == self._seen_at
            return is_same_state and cursor in self._seen

    def close(self) -> None:
        """Close the connection. Waiting readers get no further changes."""
        with self._lock:
            self._closed = True
            self._reopen_file(())

    def _read_identity(self) -> FileState:
        """Return the identity of the file and of its log."""
        if not get_file_bytes(self._path):
            return ()
        immutable = self._handle is not None and self._handle.immutable
        return (
            *(get_file_identity(self._path, immutable=immutable) or ()),
            *self._read_log_state(),
        )

    def _read_log_state(self) -> FileState:
        # A connection follows the log that it has opened. If that is created anew, it must reopen.
        try:
            return (get_sidecar_path(self._path, "-wal").stat().st_ino,)
        except OSError:
            return (0,)

    def _reopen_file(self, file: FileState) -> None:
        if self._handle is not None:
            self._handle.connection.close()
            self._handle = None
        self._file = ()
        if file and not self._closed:
            self._handle = open_reader(self._path)
            # A poll never waits for a lock. A locked file is reported as BUSY_STATE.
            self._handle.connection.execute("PRAGMA busy_timeout=0")
            self._file = self._read_identity()
