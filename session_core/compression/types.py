"""What became of a plan that was being applied, also where the process that did it has died.

What is to be done to a range, what it was then, and what a step that does it stores.

What a compression is asked for, what it answers, and the error where it is not done.
"""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from session_core.compression.ranges import Shape
from session_core.compression.rebuild import RebuiltMessages
from session_core.compression.retention import RetentionReport
from session_core.compression.routes import RoutedChats
from session_core.errors import Conflict, SessionError
from session_core.ledger.execute import resume_steps, suppress_note_errors
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import StoredPlan
from session_core.state.protocol import StateDatabase
from session_core.types import MessageRow, Revision, SessionRow

if TYPE_CHECKING:
    from typing_extensions import Self

    from session_core.compression.ranges import Shape
    from session_core.compression.retention import RetentionReport


COMPRESS = "compress"

UNDO = "undo a compression"

KINDS = (COMPRESS, UNDO)
"""What plans and batches of compressions are called."""


def settle_plan(db: StateDatabase, ledger: Ledger, plan: StoredPlan) -> StoredPlan:
    """Return a plan of one step as it is once that is decided."""
    resume_steps(db, ledger, KINDS)
    plan = ledger.get_plan(plan.handle)
    step = plan.members[0].step
    if plan.state != "applying" or step is None or ledger.get_step(step).state != "done":
        return plan
    with suppress(Conflict):  # whoever else applies it has ended it
        ledger.finish_plan(plan.handle, ledger.get_step(step).result)
    return ledger.get_plan(plan.handle)


def finish_plan(ledger: Ledger, plan: str, result: Any) -> None:
    """End a plan whose step was done; where that cannot be noted now, `taken_up` does it."""
    with suppress_note_errors(f"what plan {plan} came to"), suppress(Conflict):
        ledger.finish_plan(plan, result)


def close_plan(db: StateDatabase, ledger: Ledger, handle: str) -> None:
    """End a plan that came to nothing; one whose step was done is finished."""
    with suppress(SessionError):  # it runs out by itself
        plan = ledger.get_plan(handle)
        if plan.state == "applying":
            plan = settle_plan(db, ledger, plan)
        if plan.state in ("planned", "applying") and plan.members[0].step is None:
            ledger.close_plan(handle)


MAX_REREAD_ROWS = 4000
"""So many rows are read again in a transaction: it holds the lock for 40 ms more."""

_BOOKKEEPING_COLUMNS = frozenset(
    {
        *("ended_at", "end_reason", "expiry_finalized", "message_count", "tool_call_count"),
        *("compression_failure_cooldown_until", "compression_failure_error"),
        "compression_fallback_streak",
    }
)
"""What is noted of a session at its end or of a compression, and counts of its messages."""


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """What a plan records of the range: `messages[start:end]`, and what it was."""

    session_id: str
    shape: Shape
    start: int
    end: int
    digest: str
    target_chars: int
    method: Method | None = None
    """Who is to write the summary; None leaves that to whoever applies the plan."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class PreparedCompression:
    """A range as it was when it was looked at last, and what is to stand for it."""

    work: PlannedRange
    row: SessionRow
    rows: Sequence[MessageRow]
    revision: Revision
    made: RebuiltMessages
    retention: RetentionReport
    led: RoutedChats
    seen: str
    """The digest of the range and of what is before it."""

    @property
    def summary(self) -> list[dict[str, Any]]:
        """The messages of the summary, at the time of the last one that they stand for."""
        at = self.rows[self.work.end - 1]["timestamp"]
        return [{**message, "timestamp": at} for message in self.made.summary]

    def list_ids(self, start: int, end: int) -> list[int]:
        """Return the ids of some of the messages."""
        return [row["id"] for row in self.rows[start:end]]


@dataclass(frozen=True, slots=True)
class CommittedChange:
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


def digest_rows(rows: Sequence[MessageRow]) -> str:
    """Return what changes whenever one of the rows does."""
    found = hashlib.sha256()
    for row in rows:
        # A tenth of the time that JSON takes; version 0 writes equal values equally.
        values: Any = tuple(row.values())
        found.update(marshal.dumps(values, 0))
    return found.hexdigest()


def fingerprint_session(db: StateDatabase, session_id: str) -> dict[str, str]:
    """Return by name what changes whenever something of a session does that an undo would drop.

    Of its messages the first are looked at whole, and of the others how many there are.
    """
    row = db.get_session(session_id) or {}
    found: dict[str, Any] = {k: v for k, v in row.items() if k not in _BOOKKEEPING_COLUMNS}
    messages = db.get_messages(session_id, include_inactive=True, limit=MAX_REREAD_ROWS)
    found["messages"] = [digest_rows(messages), *db.get_revision(session_id)[:4]]
    found["children"] = [child["id"] for child in db.list_children(session_id)]
    found["goal"] = db.get_meta(build_goal_key(session_id))
    found |= db.read_belongings(session_id)
    return {
        name: hashlib.sha256(marshal.dumps(value, 0)).hexdigest()[:16]
        for name, value in found.items()
    }


def build_goal_key(session_id: str) -> str:
    """Return where Hermes keeps what a session is to reach, in `state_meta`."""
    return f"goal:{session_id}"


Method = Literal["summary", "extractive"]
"""Who writes the summary of a plan: whoever applies it, or nobody, without a model."""

Clean = Callable[[Sequence[MessageRow]], Callable[[str], str]]
"""Given messages, returns what takes out of a text made of them what is not to be said again."""

StopFn = Callable[[], bool]
"""Asked before anything is changed whether to end there."""


class NotCompressed(SessionError):
    """Nothing was changed; `code` says why, and the message what to do about it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class SummaryBrief:
    """What whoever writes a summary has to know; the text itself is read from the session."""

    from_id: int
    to_id: int
    messages: int
    tokens: int
    must_survive: tuple[str, ...]
    target_chars: int
    digest: str
    """A summary without a model, within `target_chars`: enough to work from, or to use as it is."""


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """What a function that writes summaries is given: the brief, and the messages in short."""

    brief: SummaryBrief
    messages: Sequence[Mapping[str, Any]]
    earlier: tuple[str, ...]
    """The summaries of before, which are not among the messages: the new one takes them in."""


@dataclass(frozen=True, slots=True)
class CompressionPlan:
    """A compression that was planned: apply it with its handle and a summary."""

    plan: str
    session_id: str
    shape: Shape
    expires_at: float
    brief: SummaryBrief


@dataclass(frozen=True, slots=True)
class CompressionResult:
    """What was done: `session_id` is where the conversation goes on, `batch` undoes it."""

    session_id: str
    old_session_id: str
    shape: Shape
    batch: str
    tokens_before: int
    tokens_after: int
    rows: int
    """How many rows were flagged and added."""
    retention: RetentionReport
    before: Revision
    after: Revision

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Return it from JSON."""
        # What finds facts takes long to import, and who only reads sessions has no use for it.
        from session_core.compression.retention import RetentionReport  # noqa: PLC0415

        given = dict(stored)
        given["retention"] = RetentionReport.from_json(given["retention"])
        for name in ("before", "after"):
            given[name] = Revision(*given[name])
        return cls(**given)


@dataclass(frozen=True, slots=True)
class UndoResult:
    """What an undo has done: how many messages are live again, and how many are gone."""

    session_id: str
    restored: int
    dropped: int
    lost_title: str | None = None
    """The title of before, where another conversation has it by now."""


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """An undo that would drop what was said since, which is done by applying this plan."""

    plan: str
    session_id: str
    expires_at: float
    sessions: tuple[str, ...]
    """The sessions that would be deleted."""
    messages: int
    """How many messages were said in them since."""
    changed: tuple[str, ...] = ()
    """What else of the continuation is not what the compression has left, by column or table."""
    detached: tuple[str, ...] = ()
    """The sessions that would lose their parent."""
