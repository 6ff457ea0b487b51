"""Types of compression plans and their results, and functions that end these plans."""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from session_core._typing import Self
from session_core.compression.chat_routes import RoutedChats
from session_core.compression.ranges import Shape
from session_core.compression.rebuild import RebuiltMessages
from session_core.compression.retention import RetentionReport
from session_core.errors import Conflict, SessionError
from session_core.ledger.execute import resume_steps, suppress_note_errors
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import StoredPlan
from session_core.state.protocol import StateDatabase
from session_core.types import MessageRow, Revision, SessionRow

COMPRESS = "compress"

UNDO = "undo a compression"

KINDS = (COMPRESS, UNDO)
"""Kinds of compression plans and batches in the ledger."""


def settle_plan(db: StateDatabase, ledger: Ledger, plan: StoredPlan) -> StoredPlan:
    """Decide the step of a plan.

    Finish the plan if its step is done, and return it.
    """
    resume_steps(db, ledger, KINDS)
    plan = ledger.get_plan(plan.handle)
    step = plan.members[0].step
    if plan.state != "applying" or step is None or ledger.get_step(step).state != "done":
        return plan
    with suppress(Conflict):  # another process that applies the plan has ended it
        ledger.finish_plan(plan.handle, ledger.get_step(step).result)
    return ledger.get_plan(plan.handle)


def finish_plan(ledger: Ledger, plan: str, result: Any) -> None:
    """Record the result of a plan whose step is done.

    If this fails, `settle_plan` does it later.
    """
    with suppress_note_errors(f"the result of plan {plan}"), suppress(Conflict):
        ledger.finish_plan(plan, result)


def close_plan(db: StateDatabase, ledger: Ledger, handle: str) -> None:
    """Close a plan without a result.

    Finish it if its step is done.
    """
    with suppress(SessionError):  # an open plan expires by itself
        plan = ledger.get_plan(handle)
        if plan.state == "applying":
            plan = settle_plan(db, ledger, plan)
        if plan.state in ("planned", "applying") and plan.members[0].step is None:
            ledger.close_plan(handle)


MAX_REREAD_ROWS = 4000
"""Maximum number of rows to read again in a transaction, which takes about 40 ms."""

_BOOKKEEPING_COLUMNS = frozenset(
    {
        *("ended_at", "end_reason", "expiry_finalized", "message_count", "tool_call_count"),
        *("compression_failure_cooldown_until", "compression_failure_error"),
        "compression_fallback_streak",
    }
)
"""Columns that record the end of a session, its compression, or counts of its messages."""


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """The range `messages[start:end]` of a plan, as it is stored."""

    session_id: str
    shape: Shape
    start: int
    end: int
    digest: str
    target_chars: int
    method: Method | None = None
    """Source of the summary; None leaves the choice to the caller that applies the plan."""

    def to_json(self) -> dict[str, Any]:
        """Return the range as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class PreparedCompression:
    """A range as it was last read, and the messages that replace it."""

    planned: PlannedRange
    row: SessionRow
    rows: Sequence[MessageRow]
    revision: Revision
    rebuilt: RebuiltMessages
    retention: RetentionReport
    chats: RoutedChats
    digest: str
    """Digest of the range and of all messages before it."""

    @property
    def summary(self) -> list[dict[str, Any]]:
        """The summary messages, with the time of the last message that they replace."""
        at = self.rows[self.planned.end - 1]["timestamp"]
        return [{**message, "timestamp": at} for message in self.rebuilt.summary]

    def list_ids(self, start: int, end: int) -> list[int]:
        """Return the ids of a slice of the messages."""
        return [row["id"] for row in self.rows[start:end]]


@dataclass(frozen=True, slots=True)
class CommittedChange:
    """The changes that a step made, stored with the step as JSON."""

    session_id: str
    before: Sequence[Any]
    after: Sequence[Any]
    made: Sequence[int]
    """Ids of added rows: first the summary, then the copies."""
    replaced: Sequence[int] = ()
    """In place: ids of the rows that the summary replaces."""
    carried: Sequence[int] = ()
    """In place: ids of the rows whose copies are at the end of `made`."""
    flags: Sequence[tuple[int, int | None, int | None]] = ()
    """In place: id, `active` and `compacted` of live rows whose flags were not 1 and 0."""
    counted: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """In place: the stored counters before and after, which may differ from the actual counts."""
    left: Mapping[str, str] = field(default_factory=dict)
    """Fingerprint of the continuation after the commit."""
    routes: Sequence[Mapping[str, Any]] = ()
    """Routing rows of the chats before the commit, each with its text after it."""
    goal: str | None = None
    """The goal of the session that was ended."""


def digest_rows(rows: Sequence[MessageRow]) -> str:
    """Return a digest that changes with any of the rows."""
    digest = hashlib.sha256()
    for row in rows:
        # marshal takes a tenth of the time of JSON; its version 0 has one form for equal values.
        values: Any = tuple(row.values())
        digest.update(marshal.dumps(values, 0))
    return digest.hexdigest()


def fingerprint_session(db: StateDatabase, session_id: str) -> dict[str, str]:
    """Return a digest of each part of a session that an undo would drop.

    Only the first `MAX_REREAD_ROWS` messages are read; the revision covers the others.
    """
    row: Mapping[str, Any] = db.get_session(session_id) or {}
    parts: dict[str, Any] = {k: v for k, v in row.items() if k not in _BOOKKEEPING_COLUMNS}
    messages = db.get_messages(session_id, include_inactive=True, limit=MAX_REREAD_ROWS)
    parts["messages"] = [digest_rows(messages), *db.get_revision(session_id)[:4]]
    parts["children"] = [child["id"] for child in db.list_children(session_id)]
    parts["goal"] = db.get_meta(build_goal_key(session_id))
    parts |= db.rows.read_belongings(session_id)
    return {
        name: hashlib.sha256(marshal.dumps(value, 0)).hexdigest()[:16]
        for name, value in parts.items()
    }


def build_goal_key(session_id: str) -> str:
    """Return the key in `state_meta` under which Hermes keeps the goal of a session."""
    return f"goal:{session_id}"


Method = Literal["summary", "extractive"]
"""Source of the summary: the caller that applies the plan, or the extractive summarizer."""

Clean = Callable[[Sequence[MessageRow]], Callable[[str], str]]
"""Takes messages and returns a function that removes redacted content from texts made of them."""

StopFn = Callable[[], bool]
"""Called before any change. If it returns True, the compression stops."""


class NotCompressed(SessionError):
    """Raised if nothing was changed. `code` is the reason.

    The message names the next step.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class SummaryBrief:
    """The instructions for a summary. The text to summarize is read from the session."""

    from_id: int
    to_id: int
    messages: int
    tokens: int
    must_survive: tuple[str, ...]
    target_chars: int
    digest: str
    """An extractive summary within `target_chars`, as a basis or for use as it is."""


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """The argument of a summarizer: the brief and the condensed messages."""

    brief: SummaryBrief
    messages: Sequence[Mapping[str, Any]]
    earlier: tuple[str, ...]
    """Earlier summaries, which are not among the messages and belong in the new summary."""


@dataclass(frozen=True, slots=True)
class CompressionPlan:
    """A stored compression plan.

    `plan` is the handle that `Compressor.apply` takes together with a summary.
    """

    plan: str
    session_id: str
    shape: Shape
    expires_at: float
    brief: SummaryBrief


@dataclass(frozen=True, slots=True)
class CompressionResult:
    """The result of a compression.

    `session_id` is the session that continues the conversation, and `batch` undoes the compression.
    """

    session_id: str
    old_session_id: str
    shape: Shape
    batch: str
    tokens_before: int
    tokens_after: int
    rows: int
    """Number of rows that were flagged or added."""
    retention: RetentionReport
    before: Revision
    after: Revision

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Build the result from its JSON."""
        # The fact finder is slow to import, and readers of sessions do not need it.
        from session_core.compression.retention import RetentionReport  # noqa: PLC0415 -- see above

        fields = dict(stored)
        fields["retention"] = RetentionReport.from_json(fields["retention"])
        for name in ("before", "after"):
            fields[name] = Revision(*fields[name])
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """A stored plan for an undo that would drop later messages."""

    plan: str
    session_id: str
    expires_at: float
    sessions: tuple[str, ...]
    """Sessions that would be deleted."""
    messages: int
    """Number of messages added to them since the compression."""
    changed: tuple[str, ...] = ()
    """Other columns and tables of the continuation that have changed since the compression."""
    detached: tuple[str, ...] = ()
    """Sessions that would lose their parent."""


@dataclass(frozen=True, slots=True)
class UndoResult:
    """The result of an undo: the number of messages restored and dropped.

    With the outcome `planned` it has changed nothing yet, and `plan` is what to apply.
    """

    session_id: str
    restored: int
    dropped: int
    lost_title: str | None = None
    """The former title, if another conversation has it by now."""
    plan: UndoPlan | None = None
    """The plan of an undo that would drop later messages."""

    @property
    def outcome(self) -> Literal["applied", "planned"]:
        """`planned` if the undo has only been planned."""
        return "applied" if self.plan is None else "planned"
