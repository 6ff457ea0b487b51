"""Where a reader of the change feed is, as its cursor carries it.

Noticing that anybody committed, by asking a connection that is kept open for it.

Asking is cheap, takes no lock that lasts and writes nothing. What the holders of cursors have seen
is remembered, so that one who asks again and again costs nothing where nobody has committed; a
cursor that is not known is looked at.
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
from session_core.presence import sidecar
from session_core.state import cursors
from session_core.state.sqlite.connection import Handle, is_busy
from session_core.state.sqlite.opening import identity, open_reader, size

ANCHORS = 4
"""So many of the newest sessions are remembered, since some of them may be deleted."""

OVERLAP_S = 60.0
"""So long may a change wait between the time that it notes and its commit."""

Row = tuple[Any, ...]
"""A session that ended: id, ended_at, reason, title."""

_KIND = "changes"
_MOST_REPORTED = 400


class Known(NamedTuple):
    """A session that was reported, and where its row was: one that was stored anew has another."""

    id: str
    place: int
    check: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Known:
        """Return what a session is recognised by."""
        return cls(row["id"], row["place"], _hashed(row["started_at"]))


@dataclass(frozen=True, slots=True)
class Ends:
    """Which ends have been reported: all up to the floor, and some above it by their digest."""

    floor: tuple[float, str]
    reported: frozenset[str] = frozenset()

    @staticmethod
    def since(rows: Sequence[Row], now: float) -> Ends:
        """Report what ends from now on, though it be with an earlier time; not what is there."""
        return _knowing(rows, (now - OVERLAP_S, ""))

    def follow(self, rows: Sequence[Row], limit: int, now: float) -> tuple[list[Row], Ends]:
        """Return at most `limit` of the rows that are new, and what has been reported then."""
        above = [row for row in rows if _key(row) > self.floor]
        fresh = [row for row in above if _digest(row) not in self.reported]
        chosen = fresh[:limit]
        reported = self.reported | {_digest(row) for row in chosen}
        floor = self.floor
        if len(chosen) == len(fresh):
            floor = max(floor, (now - OVERLAP_S, ""))
        return chosen, _knowing([row for row in above if _digest(row) in reported], floor)


def _knowing(rows: Sequence[Row], floor: tuple[float, str]) -> Ends:
    """Remember the reported ones above the floor, which rises where they are too many."""
    known = [row for row in rows if _key(row) > floor]
    if len(known) > _MOST_REPORTED:
        floor = _key(known[-_MOST_REPORTED - 1])
        known = known[-_MOST_REPORTED:]
    return Ends(floor, frozenset(map(_digest, known)))


@dataclass(frozen=True, slots=True)
class Position:
    """Up to where everything was reported, and what shows that it is still the same database."""

    session: str | None
    at: float
    """When it was taken, by which a clock that was set back since is noticed."""
    mark: str | None
    after: int
    anchor: tuple[int, str] | None
    sessions: tuple[Known, ...]
    ends: Ends

    def encode(self) -> str:
        """Return the cursor of this position."""
        return cursors.encode(
            _KIND,
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
    def decode(cls, cursor: str) -> Position:
        """Return the position of a cursor.

        Raises:
            InvalidInput: it is none.
        """
        found = cursors.decode(_KIND, None, cursor)
        try:
            return cls._checked(**found)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInput(
                "malformed cursor; take the cursor of the answer as it is"
            ) from error

    @classmethod
    def _checked(
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
    ) -> Position:
        if anchor is not None:
            message_id, check = anchor
            anchor = _integer(message_id), _text(check)
        ended_at, session_id = floor
        if not math.isfinite(ended_at) or not math.isfinite(at) or len(sessions) > ANCHORS:
            raise ValueError
        return cls(
            session=None if session is None else _text(session),
            at=float(at),
            mark=None if mark is None else _text(mark),
            after=_integer(after),
            anchor=anchor,
            sessions=tuple(_known(*known) for known in sessions),
            ends=Ends((float(ended_at), _text(session_id)), frozenset(map(_text, reported))),
        )


def message_check(row: Mapping[str, Any]) -> str:
    """Return what a message is recognised by, of that which never changes in it."""
    return _hashed(row["session_id"], row["role"], row["timestamp"])


def _key(row: Row) -> tuple[float, str]:
    return float(row[1]), str(row[0])


def _digest(row: Row) -> str:
    return _hashed(*_key(row))


def _hashed(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:10]


def _known(session_id: Any, place: Any, check: Any) -> Known:
    return Known(_text(session_id), _integer(place), _text(check))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError
    return value


State = tuple[int, ...]
"""Which file it is and how often it was changed; comparable as long as the watch is open."""

_REMEMBERED = 20_000
"""So many cursors are known at once: where one is forgotten, who holds it looks in vain."""

BUSY: State = (-1,)
"""A writer keeps everybody out just now, so that nobody can tell."""


class Watch:
    """One kept connection to a database file, for all threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen: set[str] = set()
        self._seen_at: State = BUSY
        self._handle: Handle | None = None
        self._file: State = ()
        self._closed = False

    def state(self) -> State:
        """Return what the file is now; empty where it is not there."""
        with self._lock:
            try:
                file = self._identity()
                if file != self._file:
                    self._reopen(file)
                if self._handle is None:
                    return self._file
                return (*self._file, self._handle.value("PRAGMA data_version"))
            except _sqlite3.library().OperationalError as error:
                if not is_busy(error):
                    raise
                return BUSY

    def note(self, cursor: str, state: State) -> None:
        """Remember that at a state there was nothing new to the holder of a cursor."""
        with self._lock:
            if state != self._seen_at or len(self._seen) >= _REMEMBERED:
                self._seen_at, self._seen = state, set()
            self._seen.add(cursor)

    def has_seen(self, cursor: str, state: State) -> bool:
        """Whether nobody has committed since there was nothing new to this cursor."""
        with self._lock:
            known = state != BUSY and state == self._seen_at
            return known and cursor in self._seen

    def close(self) -> None:
        """Close the connection; those who wait see no further change."""
        with self._lock:
            self._closed = True
            self._reopen(())

    def _identity(self) -> State:
        """Return which file it is, and which log: one that is replaced is not ours any more."""
        if not size(self._path):
            return ()
        immutable = self._handle is not None and self._handle.immutable
        return (*(identity(self._path, immutable=immutable) or ()), *self._log())

    def _log(self) -> State:
        try:
            return (sidecar(self._path, "-wal").stat().st_ino,)
        except OSError:
            return (0,)

    def _reopen(self, file: State) -> None:
        if self._handle is not None:
            self._handle.connection.close()
            self._handle = None
        self._file = ()
        if file and not self._closed:
            self._handle = open_reader(self._path)
            self._handle.connection.execute("PRAGMA busy_timeout=0")
            self._file = self._identity()
