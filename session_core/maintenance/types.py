"""What a plan is asked for, what is chosen for it, and what a health report says, as values.

What plans, their application and a restore answer, as values.

Work that takes long: between its steps it says that it goes on, and asks whether to end.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from session_core.compression.types import COMPRESS
from session_core.routing.entries import SessionEntry
from session_core.types import Holder, InventoryItem, SessionFilter, Sizes

if TYPE_CHECKING:
    from typing_extensions import Self

    from session_core.ledger.types import Batch, StoredPlan


PruneKind = Literal["sessions", "ghosts", "routes", "orphans", "index", "trash", "all"]
FinalizeKind = Literal["sessions", "expired", "orphaned", "abandoned"]

DEFAULT_AGE_DAYS: Mapping[str, float] = {
    "prune sessions": 90,
    "prune ghosts": 1,
    "prune routes": 1,
    "prune orphans": 1,
    "finalize abandoned": 30,
    "finalize orphaned": 7,
}
"""How many days ago something was active last, where nothing else was asked for."""

ProtectionReason = Literal[
    "live",
    "compressing",
    "suspended",
    "routed",
    "pinned",
    "never ended",
    "ended lately",
    "no known age",
    "in between",
    "fresh",
    "told with its next message",
    "used since",
]
"""Why something is protected; `WHY_PROTECTED` says it in words."""

PROTECTION_REASONS: Mapping[ProtectionReason, str] = {
    "live": "somebody is at work in it",
    "compressing": "it is being compressed",
    "suspended": "its chat is suspended",
    "routed": "a chat is in it",
    "pinned": "it is pinned",
    "never ended": "it never ended, and another process has the database open",
    "ended lately": "it ended within a week, and another process has the database open",
    "no known age": "nobody knows when it was active",
    "in between": "it is empty, but joins two parts of a conversation",
    "fresh": "it is too new",
    "told with its next message": "its chat has yet to be told that its session has ended",
    "used since": "it was used since the import",
}
"""In words what `Preview.protected` counts."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What is asked for: of which kind, which of them, how old."""

    what: PruneKind | FinalizeKind
    verb: Literal["prune", "finalize"] = "prune"
    ids: tuple[str, ...] | None = None
    """These and no others; no age applies, protection does. Of the trash they are batches."""
    where: SessionFilter = field(default_factory=SessionFilter)
    older_than_days: float | None = None
    reason: str | None = None
    start_new: bool = False
    """Whether chats that are in what is finalized begin afresh."""

    @property
    def kind(self) -> str:
        """Its name, as plans, batches and the audit log have it."""
        return f"{self.verb} {self.what}"

    @property
    def age_days(self) -> float:
        """How many days ago it was active last."""
        if self.older_than_days is not None:
            return self.older_than_days
        return DEFAULT_AGE_DAYS.get(self.kind, 0)


@dataclass(frozen=True, slots=True)
class SelectedSessions:
    """Sessions that go together, in the order in which they do."""

    id: str
    title: str | None
    why: str
    sessions: tuple[InventoryItem, ...]
    left_behind: tuple[str, ...] = ()
    """Sessions that stay and lose their parent."""
    reason: str | None = None
    """With which reason they are ended, where they are not removed."""

    @property
    def rows(self) -> int:
        """How many messages go."""
        return sum(each.rows for each in self.sessions)


@dataclass(frozen=True, slots=True)
class LostRoute:
    """A route that leads nowhere, in a folder of routes."""

    id: str
    why: str
    session_id: str
    entry: SessionEntry | None = None
    """As the store has it; None where the route is of a folder that is gone."""
    scope: str = ""
    stored: str = ""

    @property
    def title(self) -> str | None:
        """The name of its chat."""
        return None if self.entry is None else self.entry.display_name


@dataclass(frozen=True, slots=True)
class OrphanedRows:
    """Rows of a table that belong to no session, or are of no use any more."""

    id: str
    why: str
    table: str
    column: str
    session_id: str
    rows: int


@dataclass(frozen=True, slots=True)
class OrphanedFile:
    """A file of a session."""

    id: str
    why: str
    path: Path
    bytes: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class Selection(Generic[T]):
    """What was chosen, and how much is protected for which reason."""

    items: tuple[T, ...] = ()
    protected: Mapping[ProtectionReason, int] = field(default_factory=dict)

    @classmethod
    def from_items(cls, items: list[T], protected: Counter[ProtectionReason]) -> Selection[T]:
        """Return a selection, with the reason that most are protected for first."""
        return cls(tuple(items), dict(protected.most_common()))


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """Something that is not as it should be, and the plan that mends it."""

    code: str
    count: int
    what: str
    bytes: int = 0
    """About what would be won."""
    tool: Literal["prune", "finalize"] | None = None
    plan: PruneKind | FinalizeKind | None = None


@dataclass(frozen=True, slots=True)
class SessionCensus:
    """How many sessions there are, and of which kinds."""

    total: int = 0
    open: int = 0
    ended: int = 0
    archived: int = 0
    by_source: Mapping[str, int] = field(default_factory=dict)
    by_age: Mapping[str, int] = field(default_factory=dict)
    messages: int = 0


@dataclass(frozen=True, slots=True)
class WeeklyGrowth:
    """About what came in seven days."""

    begins_at: float
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The report on a home; sizes are estimates unless they were asked for exactly."""

    at: float
    sessions: SessionCensus
    sizes: Sizes | None
    trash: int
    """What the trash takes, compressed."""
    growth_per_week: int
    """About how many bytes a week brings: the messages of the last four weeks, times what a message
    took with its index when that was measured last, at most four weeks ago, before any plan."""
    weeks: tuple[WeeklyGrowth, ...]
    """The last half year, the latest first."""
    tokens: Mapping[str, int]
    cost: float
    engine: str
    gateway: str | None
    holders: tuple[Holder, ...]
    findings: tuple[HealthFinding, ...]
    estimated: bool


MAX_ITEMS = 20


@dataclass(frozen=True, slots=True)
class PlanItem:
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
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Return it from JSON; figures of a plan of an older version are left out."""
        return cls(**{name: stored.get(name, 0) for name in cls.__slots__})


@dataclass(frozen=True, slots=True)
class PlanPreview:
    """What a plan would do, said before it is applied; without a handle there is nothing to do."""

    outcome: Literal["planned", "nothing"]
    plan: str | None
    expires_at: float | None
    count: int
    items: tuple[PlanItem, ...]
    """The first of them."""
    protected: Mapping[ProtectionReason, int] = field(default_factory=dict)
    bytes: Bytes = field(default_factory=Bytes)
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_plan(cls, plan: StoredPlan) -> Self:
        """Return what a plan said when it was made."""
        about = plan.about
        items = about.get("items") or [(each.id, None, each.why) for each in plan.members]
        return cls(
            "planned",
            plan.handle,
            plan.expires_at,
            _count_items(plan),
            tuple(PlanItem(*each) for each in items[:MAX_ITEMS]),
            about.get("protected", {}),
            Bytes.from_json(about.get("bytes", {})),
            tuple(about.get("warnings", ())),
        )


def _count_items(plan: StoredPlan) -> int:
    """Return how many things a plan is about: of a compression those are messages."""
    about = plan.about
    return about["end"] - about["start"] if plan.kind == COMPRESS else len(plan.members)


def to_recorded(
    items: Iterable[PlanItem],
    protected: Mapping[ProtectionReason, int] | None = None,
    size: Bytes | None = None,
    warnings: Iterable[str] = (),
) -> dict[str, Any]:
    """Return what is recorded with a plan for its answer to be the same whenever it is asked."""
    first = [(each.id, each.title, each.why) for each in islice(items, MAX_ITEMS)]
    return {
        "items": first,
        "protected": dict(protected or {}),
        "bytes": asdict(size or Bytes()),
        "warnings": list(warnings),
    }


@dataclass(frozen=True, slots=True)
class SkippedItem:
    """Something that was left as it is, and why."""

    id: str
    why: str


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """What was done of a plan; where some remains the same call goes on."""

    outcome: Literal["applied", "partial"]
    plan: str
    batch: str | None
    """Takes it back; None where that cannot be, or need not."""
    removed: int
    finalized: int
    skipped: tuple[SkippedItem, ...]
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

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Return it from JSON."""
        known = {name: stored[name] for name in cls.__slots__ if name in stored}
        known["skipped"] = tuple(SkippedItem(**each) for each in stored["skipped"])
        known["warnings"] = tuple(stored["warnings"])
        known["bytes"] = Bytes.from_json(stored.get("bytes", {}))
        return cls(**known)


ProgressFn = Callable[[ApplyResult], object]
"""Told every now and then what was done so far."""

RestoreProgressFn = Callable[["RestoreResult"], object]
"""The same of a restore."""

CountFn = Callable[[int, int], object]
"""Told how much of how much is done; what it raises ends it there."""

StopFn = Callable[[], bool]
"""Asked between two steps whether to end there."""


@dataclass(frozen=True, slots=True)
class RefusedItem:
    """Something that was not put back as it was, and why; it stays in the trash.

    The same restore tries it once more, until the trash expires.
    """

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """What a restore has done; where some remains the same call goes on."""

    outcome: Literal["applied", "partial"]
    batch: str
    restored: int
    """How many of the things that were changed are again as they were."""
    rows: int
    unfit: tuple[RefusedItem, ...]
    remaining: int
    """How many steps were not tried yet."""
    bytes: Bytes = field(default_factory=Bytes)
    """What was measured: by how much the database grew, and what the trash has given back."""


@dataclass(frozen=True, slots=True)
class RestorePreview:
    """What the restore of a batch would bring back, said before it is done."""

    batch: Batch
    count: int
    """How many things; fewer than the batch has changed where some are back already."""
    items: tuple[PlanItem, ...]
    """The first of them, as far as it is known what they were."""


_PROGRESS_INTERVAL_S = 0.5


class StopRequested(Exception):
    """Somebody wants it to end; what is not done yet stays as it is."""


class ProgressThrottle:
    """Called between two steps, however short they are: it tells twice a second at most."""

    def __init__(self, tell: Callable[[], object] | None, stop: StopFn | None) -> None:
        self._tell = tell
        self._stop = stop
        self._told_at = -_PROGRESS_INTERVAL_S

    def __call__(self) -> None:
        """Tell, and ask.

        Raises:
            Stopped: it is to end.
        """
        now = time.monotonic()
        if self._tell is not None and now - self._told_at >= _PROGRESS_INTERVAL_S:
            self._told_at = now
            self._tell()
        if self._stop is not None and self._stop():
            raise StopRequested
