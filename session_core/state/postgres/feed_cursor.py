"""Positions of readers of the change feed, stored as snapshots of the server.

The changes of a page lie between two snapshots: they are visible in the second and were not in the
first. A late commit is in the next page, and a long transaction delays nothing.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from math import isfinite
from typing import Any

from session_core.errors import InvalidInput
from session_core.state import cursors

LEAST_ID = -(2**63)
_CURSOR_KIND = "changes"
_SNAPSHOT = re.compile(r"\d{1,20}:\d{1,20}:(?:\d{1,20}(?:,\d{1,20})*)?")
_LOWEST = float("-inf")


def shorten_life(life: str) -> str:
    """Return a short name of the life of a server."""
    return hashlib.sha256(life.encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class ChangePosition:
    """The snapshot up to which all changes were reported, and the part of a page after it."""

    session: str | None
    mark: str | None
    """The home, None before its first change."""
    since: str
    until: str | None = None
    """The snapshot of a page that is not read to its end."""
    place: int = 0
    after: int = LEAST_ID
    ended_at: float = _LOWEST
    ended_id: str = ""
    life: str | None = None
    """The life of the server to which the snapshots belong, None in cursors of earlier releases."""

    def encode(self) -> str:
        """Return the cursor of this position."""
        ended_at = None if self.ended_at == _LOWEST else self.ended_at
        fields: list[Any] = [self.session, self.mark, self.since, self.until]
        fields += [self.place, self.after, ended_at, self.ended_id, self.life]
        return cursors.encode_cursor(_CURSOR_KIND, None, fields)

    @classmethod
    def decode(cls, cursor: str) -> ChangePosition:
        """Return the position of a cursor.

        Raises:
            InvalidInput: the cursor is malformed.
        """
        fields = cursors.decode_cursor(_CURSOR_KIND, None, cursor)
        try:
            return cls._check_fields(*fields)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInput(
                "malformed cursor; pass the cursor of the result unchanged"
            ) from error

    @classmethod
    def _check_fields(  # noqa: PLR0917 -- the fields of a cursor, in order
        cls,
        session: Any,
        mark: Any,
        since: Any,
        until: Any,
        place: Any,
        after: Any,
        ended_at: Any,
        ended_id: Any,
        life: Any = None,
    ) -> ChangePosition:
        texts = [text for text in (session, mark, since, until, ended_id, life) if text is not None]
        if not all(isinstance(text, str) for text in texts):
            raise TypeError
        if not all(_SNAPSHOT.fullmatch(text) for text in (since, until) if text is not None):
            raise ValueError
        if not all(type(number) is int and abs(number) <= 2**63 for number in (place, after)):
            raise ValueError
        at = _LOWEST if ended_at is None else float(ended_at)
        if ended_at is not None and not isfinite(at):
            raise ValueError
        return cls(session, mark, since, until, place, after, at, ended_id, life)
