"""What is to be done to a range, what it was then, and what a step that does it stores."""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from session_core.compression.assemble import Assembled
from session_core.compression.placement import Shape
from session_core.compression.records import Method
from session_core.compression.retention import Retention
from session_core.compression.routes import Led
from session_core.models import MessageRow, Revision, SessionRow
from session_core.state.contract import StateDatabase

AGAIN = 4000
"""So many rows are read again in a transaction: it holds the lock for 40 ms more."""

_EXPLAINED = frozenset(
    {
        *("ended_at", "end_reason", "expiry_finalized", "message_count", "tool_call_count"),
        *("compression_failure_cooldown_until", "compression_failure_error"),
        "compression_fallback_streak",
    }
)
"""What is noted of a session at its end or of a compression, and counts of its messages."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a plan records of the range: `messages[start:end]`, and what it was."""

    session_id: str
    shape: Shape
    start: int
    end: int
    digest: str
    target_chars: int
    method: Method | None = None
    """Who is to write the summary; None leaves that to whoever applies the plan."""

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Ready:
    """A range as it was when it was looked at last, and what is to stand for it."""

    work: Work
    row: SessionRow
    rows: Sequence[MessageRow]
    revision: Revision
    made: Assembled
    retention: Retention
    led: Led
    seen: str
    """The digest of the range and of what is before it."""

    @property
    def summary(self) -> list[dict[str, Any]]:
        """The messages of the summary, at the time of the last one that they stand for."""
        at = self.rows[self.work.end - 1]["timestamp"]
        return [{**message, "timestamp": at} for message in self.made.summary]

    def ids(self, start: int, end: int) -> list[int]:
        """Return the ids of some of the messages."""
        return [row["id"] for row in self.rows[start:end]]


@dataclass(frozen=True, slots=True)
class Done:
    """What a step has changed, which is stored with it as JSON."""

    session_id: str
    before: Sequence[Any]
    after: Sequence[Any]
    made: Sequence[int]
    """The rows that were added: first the summary, then copies."""
    replaced: Sequence[int] = ()
    """In place: the rows that the summary stands for."""
    carried: Sequence[int] = ()
    """In place: the rows of which those at the end of `made` are copies."""
    flags: Sequence[tuple[int, int | None, int | None]] = ()
    """In place: id, `active` and `compacted` of live rows where they were not 1 and 0."""
    counted: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """In place: the counters just before, which need not be what is there, and after."""
    left: Mapping[str, str] = field(default_factory=dict)
    """What the continuation was then, by `fingerprint`."""
    routes: Sequence[Mapping[str, Any]] = ()
    """The rows of the chats before, each with the text that it got."""
    goal: str | None = None
    """What `goal_key` said of the session that was ended."""


def digest(rows: Sequence[MessageRow]) -> str:
    """Return what changes whenever one of the rows does."""
    found = hashlib.sha256()
    for row in rows:
        # A tenth of the time that JSON takes; version 0 writes equal values equally.
        values: Any = tuple(row.values())
        found.update(marshal.dumps(values, 0))
    return found.hexdigest()


def fingerprint(db: StateDatabase, session_id: str) -> dict[str, str]:
    """Return by name what changes whenever something of a session does that an undo would drop.

    Of its messages the first are looked at whole, and of the others how many there are.
    """
    row = db.get_session(session_id) or {}
    found: dict[str, Any] = {k: v for k, v in row.items() if k not in _EXPLAINED}
    messages = db.get_messages(session_id, include_inactive=True, limit=AGAIN)
    found["messages"] = [digest(messages), *db.revision(session_id)[:4]]
    found["children"] = [child["id"] for child in db.children(session_id)]
    found["goal"] = db.get_meta(goal_key(session_id))
    found |= db.belongings(session_id)
    return {
        name: hashlib.sha256(marshal.dumps(value, 0)).hexdigest()[:16]
        for name, value in found.items()
    }


def goal_key(session_id: str) -> str:
    """Return where Hermes keeps what a session is to reach, in `state_meta`."""
    return f"goal:{session_id}"
