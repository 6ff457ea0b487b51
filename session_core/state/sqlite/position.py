"""Where a reader of the change feed is, as its cursor carries it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from session_core.errors import InvalidInput
from session_core.state import cursors

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
