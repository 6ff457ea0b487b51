"""What plans, their application and a restore answer, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from typing_extensions import Self

    from session_core.maintenance.records import Why

MOST_ITEMS = 20


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that a plan is about."""

    id: str
    title: str | None
    why: str


@dataclass(frozen=True, slots=True)
class Bytes:
    """About what a plan takes of the disk and gives back, now and when its trash is gone."""

    needed_now: int = 0
    won_now: int = 0
    won_later: int = 0


@dataclass(frozen=True, slots=True)
class Planned:
    """What a plan would do; without a handle there is nothing to do."""

    outcome: Literal["planned", "nothing"]
    plan: str | None
    expires_at: float | None
    count: int
    items: tuple[Item, ...]
    """The first of them."""
    protected: Mapping[Why, int] = field(default_factory=dict)
    bytes: Bytes = field(default_factory=Bytes)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that was left as it is, and why."""

    id: str
    why: str


@dataclass(frozen=True, slots=True)
class Applied:
    """What was done of a plan; `batch` takes it back, and where some remains it is gone on with."""

    outcome: Literal["applied", "partial"]
    plan: str
    batch: str
    removed: int
    finalized: int
    skipped: tuple[Skipped, ...]
    remaining: int
    warnings: tuple[str, ...] = ()

    @property
    def done(self) -> int:
        """Of how many things is decided what becomes of them."""
        return self.removed + self.finalized + len(self.skipped)

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """Return it from JSON."""
        skipped = tuple(Skipped(**each) for each in stored["skipped"])
        return cls(**{**stored, "skipped": skipped, "warnings": tuple(stored["warnings"])})


@dataclass(frozen=True, slots=True)
class Unfit:
    """Something that was not put back as it was, and why; the trash has it until it expires."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore has done; where some remains the same call goes on."""

    outcome: Literal["applied", "partial"]
    batch: str
    restored: int
    """How many of the things that were changed are again as they were."""
    rows: int
    unfit: tuple[Unfit, ...]
    remaining: int
    """How many steps are left."""
