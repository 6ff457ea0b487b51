"""What the ledger keeps, as values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

PlanState = Literal["planned", "applying", "stopping", "finished", "closed"]
"""One that is stopping begins no step any more, and is closed once it is known what it has begun.
"""

StepState = Literal["writing", "prepared", "done", "never"]
"""Its trash is being written, is durable; the home was changed, or never will be."""


@dataclass(frozen=True, slots=True)
class Member:
    """One thing that a plan is about: what it was when that was planned, and what became of it."""

    id: str
    revision: Any = None
    why: str = ""
    step: str | None = None
    """The step that changes it, or has changed it."""
    skipped: str | None = None
    """Why it was left as it is."""
    half: bool = False
    """Whether a part of it is gone, which is to be put back since it was skipped."""

    @property
    def is_open(self) -> bool:
        """Whether nothing was decided about it yet."""
        return self.step is None and self.skipped is None


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """What is to be done to exactly these members; `about` and `result` are the planner's."""

    handle: str
    kind: str
    state: PlanState
    members: tuple[Member, ...]
    about: Any
    cutoff: float | None
    created_at: float
    expires_at: float
    batch: str | None = None
    result: Any = None

    @property
    def remaining(self) -> tuple[Member, ...]:
        """The members about which nothing was decided yet."""
        return tuple(member for member in self.members if member.is_open)

    @property
    def partial_members(self) -> tuple[Member, ...]:
        """The members that were skipped, and of which a part is still to be put back."""
        return tuple(member for member in self.members if member.half)


@dataclass(frozen=True, slots=True)
class PartialMember:
    """A member that is to be put back whole, and the batch that has what is gone of it."""

    plan: str
    batch: str
    member: Member


@dataclass(frozen=True, slots=True)
class Batch:
    """What one undo takes back: all steps of a plan, or of a change that was made at once."""

    id: str
    what: str
    plan: str | None
    at: float
    expires_at: float
    undone_at: float | None
    emptied_at: float | None
    count: int
    """How many things its steps have changed."""
    bytes: int
    """What its trash takes, compressed."""


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
    """The file with its trash, where that is not the ledger itself."""
    owner: tuple[int, float | None]
    """The process that runs it: its id, and when that started."""


@dataclass(frozen=True, slots=True)
class TrashItem:
    """One thing in the trash: JSON, in which bytes may stand anywhere."""

    what: str
    value: Any


@dataclass(frozen=True, slots=True)
class EmptyResult:
    """What was taken out of the trash for good."""

    batches: int
    bytes: int

    def __add__(self, other: EmptyResult) -> EmptyResult:
        return replace(self, batches=self.batches + other.batches, bytes=self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One line of the audit log."""

    at: float
    client: str
    what: str
    plan: str | None
    counts: Any
