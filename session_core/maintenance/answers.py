"""What plans, their application and a restore answer, as values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from session_core.compression.applied import COMPRESS

if TYPE_CHECKING:
    from typing_extensions import Self

    from session_core.ledger.records import Batch, Plan
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
    """Bytes on the disk: estimates in a plan, measured in a result."""

    needed_now: int = 0
    """Room that the change needs while it runs; in a result, by how much the database grew."""
    free_in_file: int = 0
    """Room that becomes free inside the database file, whose size stays."""
    returned_to_disk: int = 0
    """By how much files become smaller or go away."""
    trash: int = 0
    """Room that the trash takes until it expires or is emptied."""

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """Return it from JSON; figures of a plan of an older version are left out."""
        return cls(**{name: stored.get(name, 0) for name in cls.__slots__})


@dataclass(frozen=True, slots=True)
class Preview:
    """What a plan would do, said before it is applied; without a handle there is nothing to do."""

    outcome: Literal["planned", "nothing"]
    plan: str | None
    expires_at: float | None
    count: int
    items: tuple[Item, ...]
    """The first of them."""
    protected: Mapping[Why, int] = field(default_factory=dict)
    bytes: Bytes = field(default_factory=Bytes)
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """Return what a plan said when it was made."""
        about = plan.about
        items = about.get("items") or [(each.id, None, each.why) for each in plan.members]
        return cls(
            "planned",
            plan.handle,
            plan.expires_at,
            _count(plan),
            tuple(Item(*each) for each in items[:MOST_ITEMS]),
            about.get("protected", {}),
            Bytes.of(about.get("bytes", {})),
            tuple(about.get("warnings", ())),
        )


def _count(plan: Plan) -> int:
    """Return how many things a plan is about: of a compression those are messages."""
    about = plan.about
    return about["end"] - about["start"] if plan.kind == COMPRESS else len(plan.members)


def said(
    items: Iterable[Item],
    protected: Mapping[Why, int] | None = None,
    size: Bytes | None = None,
    warnings: Iterable[str] = (),
) -> dict[str, Any]:
    """Return what is recorded with a plan for its answer to be the same whenever it is asked."""
    first = [(each.id, each.title, each.why) for each in islice(items, MOST_ITEMS)]
    return {
        "items": first,
        "protected": dict(protected or {}),
        "bytes": asdict(size or Bytes()),
        "warnings": list(warnings),
    }


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that was left as it is, and why."""

    id: str
    why: str


@dataclass(frozen=True, slots=True)
class Applied:
    """What was done of a plan; where some remains the same call goes on."""

    outcome: Literal["applied", "partial"]
    plan: str
    batch: str | None
    """Takes it back; None where that cannot be, or need not."""
    removed: int
    finalized: int
    skipped: tuple[Skipped, ...]
    remaining: int
    warnings: tuple[str, ...] = ()
    bytes: Bytes = field(default_factory=Bytes)
    """What was measured on the disk since the plan was begun."""
    shrinks: bool = False
    """Whether a plan to prune the index would now give room back."""

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
        known = {name: stored[name] for name in cls.__slots__ if name in stored}
        known["skipped"] = tuple(Skipped(**each) for each in stored["skipped"])
        known["warnings"] = tuple(stored["warnings"])
        known["bytes"] = Bytes.of(stored.get("bytes", {}))
        return cls(**known)


ProgressFn = Callable[[Applied], object]
"""Told every now and then what was done so far."""

BackFn = Callable[["Restored"], object]
"""The same of a restore."""

CountFn = Callable[[int, int], object]
"""Told how much of how much is done; what it raises ends it there."""

StopFn = Callable[[], bool]
"""Asked between two steps whether to end there."""


@dataclass(frozen=True, slots=True)
class Unfit:
    """Something that was not put back as it was, and why; it stays in the trash.

    The same restore tries it once more, until the trash expires.
    """

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
    """How many steps were not tried yet."""
    bytes: Bytes = field(default_factory=Bytes)
    """What was measured: by how much the database grew, and what the trash has given back."""


@dataclass(frozen=True, slots=True)
class Coming:
    """What the restore of a batch would bring back, said before it is done."""

    batch: Batch
    count: int
    """How many things; fewer than the batch has changed where some are back already."""
    items: tuple[Item, ...]
    """The first of them, as far as it is known what they were."""
