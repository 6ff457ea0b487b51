"""Values that the ledger stores and returns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from session_core.errors import Conflict

PlanState = Literal["planned", "applying", "stopping", "finished", "closed"]
"""State of a plan.

A stopping plan begins no new step, and is closed after the outcome of its last step is known.
"""

StepState = Literal["writing", "prepared", "done", "never"]
"""State of a step: its trash is being written, or durable; the home was changed, or never will be.
"""


@dataclass(frozen=True, slots=True)
class Member:
    """One object of a plan: its revision when it was planned, and the outcome."""

    id: str
    revision: Any = None
    why: str = ""
    step: str | None = None
    """The step that changes it, or has changed it."""
    skipped: str | None = None
    """Reason why it was not changed."""
    half: bool = False
    """True if a part of it was removed and must be restored because it was skipped."""

    @property
    def is_open(self) -> bool:
        """Return True if the member is neither assigned to a step nor skipped."""
        return self.step is None and self.skipped is None


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A stored plan with its exact members.

    `about` and `result` belong to the planner.
    """

    handle: str
    kind: str
    state: PlanState
    members: tuple[Member, ...]
    about: Any
    cutoff: float | None
    """The latest activity that a member may have had, or None if age does not matter."""
    created_at: float
    expires_at: float
    batch: str | None = None
    result: Any = None

    @property
    def batch_id(self) -> str:
        """Return the batch of a plan that was begun.

        Raises:
            Conflict: it was not begun.
        """
        if self.batch is None:
            raise Conflict(f"plan {self.handle} was not begun; apply it first")
        return self.batch

    @property
    def remaining(self) -> tuple[Member, ...]:
        """Return the members that are neither assigned to a step nor skipped."""
        return tuple(member for member in self.members if member.is_open)

    @property
    def partial_members(self) -> tuple[Member, ...]:
        """Return the skipped members whose removed part must still be restored."""
        return tuple(member for member in self.members if member.half)


@dataclass(frozen=True, slots=True)
class PartialMember:
    """A member that must be restored, and the batch that holds its removed part."""

    plan: str
    batch: str
    member: Member


@dataclass(frozen=True, slots=True)
class Batch:
    """The unit of undo: all steps of a plan, or of a change without a plan."""

    id: str
    what: str
    """The kind of its plan, or the name of the change."""
    plan: str | None
    at: float
    expires_at: float
    undone_at: float | None
    emptied_at: float | None
    count: int
    """Number of objects that its steps have changed."""
    bytes: int
    """Compressed size of its trash."""
    store: str | None = None
    """The transcript store of an edit of labels; None in a home."""


@dataclass(frozen=True, slots=True)
class Step:
    """One transaction of a home, with the trash that undoes it."""

    id: str
    batch: str
    state: StepState
    at: float
    members: tuple[str, ...]
    result: Any
    undoes: str | None
    undone_at: float | None
    bytes: int
    chunks: int
    location: str | None
    """Path of the file with its trash; None for the ledger's own file."""
    owner: tuple[int, float | None]
    """The process that runs it: its pid and start time."""


@dataclass(frozen=True, slots=True)
class TrashItem:
    """One item of the trash: a JSON value that may contain bytes."""

    what: str
    value: Any


@dataclass(frozen=True, slots=True)
class EmptyResult:
    """Number of batches that were emptied, and the bytes that were deleted."""

    batches: int
    bytes: int

    def __add__(self, other: EmptyResult) -> EmptyResult:
        return replace(self, batches=self.batches + other.batches, bytes=self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One entry of the audit log."""

    at: float
    client: str
    what: str
    plan: str | None
    counts: Any
    store: str | None = None
    """The transcript store of an edit of labels; None in a home."""
