"""Values of maintenance: requests, selections, reports, previews, results, progress callbacks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, astuple, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from session_core._typing import Self
from session_core.compression.types import COMPRESS, UndoResult
from session_core.ledger.types import Batch, StoredPlan
from session_core.maintenance.kinds import PLAN_KINDS
from session_core.routing.entries import SessionEntry
from session_core.types import Holder, InventoryItem, SessionFilter, Sizes

ProtectionReason = Literal[
    "live",
    "compressing",
    "suspended",
    "routed",
    "pinned",
    "kept",
    "never ended",
    "ended lately",
    "no known age",
    "in between",
    "fresh",
    "told with its next message",
    "used since",
]
"""The reasons to keep an item; `PROTECTION_REASONS` has their texts."""

PROTECTION_REASONS: Mapping[ProtectionReason, str] = {
    "live": "it is in use",
    "compressing": "it is being compressed",
    "suspended": "its chat is suspended",
    "routed": "a chat is routed to it",
    "pinned": "it is pinned",
    "kept": "keep names it",
    "never ended": "it never ended, and another process has the database open",
    "ended lately": "it ended within a week, and another process has the database open",
    "no known age": "the time of its last activity is unknown",
    "in between": "it is empty, but joins two parts of a conversation",
    "fresh": "it is too new",
    "told with its next message": "its chat has a pending notice that its session has ended",
    "used since": "it was used since the import",
}
"""The texts of the reasons that `PlanPreview.protected` counts."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A request for a plan: its kind, a selection and a minimum age.

    Example:
        >>> from session_core import SessionFilter
        >>> from session_core.maintenance import PlanRequest
        >>> PlanRequest("sessions", where=SessionFilter(source=("cron",)), older_than_days=30).kind
        'prune sessions'
        >>> PlanRequest("abandoned", "finalize").age_days
        30
    """

    what: str
    """The kind without its verb, such as `sessions`, `ghosts` or `abandoned`."""
    verb: Literal["prune", "finalize", "delete"] = "prune"
    ids: tuple[str, ...] | None = None
    """Select only these items. No age applies, but protection does. For the trash they are batches.
    """
    where: SessionFilter = field(default_factory=SessionFilter)
    """Conditions on the conversations that the plan may select."""
    older_than_days: float | None = None
    """The minimum number of days since the last activity, or None for the default of the kind."""
    reason: str | None = None
    """The end reason of finalized sessions, or None for the reason of the kind."""
    start_new: bool = False
    """True to start new sessions for the chats in finalized sessions."""
    keep: tuple[str, ...] = ()
    """Conversations to protect. Each entry is an id, the beginning of an id, or words of a message
    or of a title."""

    @property
    def kind(self) -> str:
        """The kind as plans, batches and the audit log name it."""
        return f"{self.verb} {self.what}"

    @property
    def age_days(self) -> float:
        """The minimum number of days since the last activity."""
        if self.older_than_days is not None:
            return self.older_than_days
        kind = PLAN_KINDS.get(self.kind)
        return 0 if kind is None else kind.age_days


@dataclass(frozen=True, slots=True)
class SelectedSessions:
    """Sessions that are removed or ended together, in that order."""

    id: str
    title: str | None
    why: str
    sessions: tuple[InventoryItem, ...]
    left_behind: tuple[str, ...] = ()
    """Sessions that stay and lose their parent."""
    reason: str | None = None
    """The end reason, if they are ended and not removed."""

    @property
    def rows(self) -> int:
        """The number of messages that are removed."""
        return sum(session.rows for session in self.sessions)

    @property
    def last_active_at(self) -> float | None:
        """The time of the last activity, or None if it is not known."""
        times = (session.last_active_at for session in self.sessions)
        return max((time for time in times if time is not None), default=None)


@dataclass(frozen=True, slots=True)
class LostRoute:
    """A route to a missing or ended session, in a folder of routes."""

    id: str
    why: str
    session_id: str
    entry: SessionEntry | None = None
    """The entry in the store; None if the route is of a folder that is gone."""
    scope: str = ""
    stored: str = ""

    @property
    def title(self) -> str | None:
        """The name of its chat."""
        return None if self.entry is None else self.entry.display_name


@dataclass(frozen=True, slots=True)
class OrphanedRows:
    """Rows of a table that belong to a missing session, or are obsolete."""

    id: str
    why: str
    table: str
    column: str
    session_id: str
    rows: int


@dataclass(frozen=True, slots=True)
class OrphanedFile:
    """A file of a missing session."""

    id: str
    why: str
    path: Path
    bytes: int
    modified_ns: int


MAX_PROTECTED_IDS = 5


class ProtectedItems(Counter[ProtectionReason]):
    """The number of protected items by reason, and the first ids for each reason."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: dict[ProtectionReason, list[str]] = {}

    def add(self, reason: ProtectionReason, item_id: str) -> None:
        """Count an item."""
        self[reason] += 1
        self.add_ids({reason: [item_id]})

    def add_ids(self, more: Mapping[ProtectionReason, Iterable[str]]) -> None:
        """Add the ids of counted items, up to the number that is reported."""
        for reason, ids in more.items():
            merged = dict.fromkeys([*self.ids.get(reason, ()), *ids])
            self.ids[reason] = list(merged)[:MAX_PROTECTED_IDS]


@dataclass(frozen=True, slots=True)
class Selection(Generic[T]):
    """Selected items, and the number of protected items by reason."""

    items: tuple[T, ...] = ()
    protected: Mapping[ProtectionReason, int] = field(default_factory=dict)
    protected_ids: Mapping[ProtectionReason, Iterable[str]] = field(default_factory=dict)
    """The ids of the first protected items."""

    @classmethod
    def from_items(cls, items: list[T], protected: Counter[ProtectionReason]) -> Selection[T]:
        """Return a selection with the most frequent reason first."""
        ids = protected.ids if isinstance(protected, ProtectedItems) else {}
        return cls(tuple(items), dict(protected.most_common()), ids)


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """A problem in a home, and the plan that fixes it."""

    code: str
    """A stable name, such as `old_sessions`."""
    count: int
    what: str
    """A description for a person."""
    bytes: int = 0
    """The approximate number of bytes that the plan frees."""
    tool: Literal["prune", "finalize"] | None = None
    """The verb of the plan, or None if no plan fixes the problem."""
    plan: str | None = None
    """The kind of the plan, as `what` of a `PlanRequest`."""


@dataclass(frozen=True, slots=True)
class SessionCensus:
    """The number of sessions, in total and by kind."""

    total: int = 0
    open: int = 0
    ended: int = 0
    archived: int = 0
    by_source: Mapping[str, int] = field(default_factory=dict)
    by_age: Mapping[str, int] = field(default_factory=dict)
    """The number of sessions last active within a day, a week and so on, each counted once."""
    messages: int = 0


@dataclass(frozen=True, slots=True)
class WeeklyGrowth:
    """The estimated growth of one week."""

    begins_at: float
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class HealthReport:
    """A report on a home.

    Sizes are estimates unless `estimated` is False.
    """

    at: float
    sessions: SessionCensus
    sizes: Sizes | None
    trash: int
    """The compressed size of the trash."""
    growth_per_week: int
    """The estimated bytes of a week, from the messages of the last four weeks and the average size
    of a message with its index. The average that a started plan has recorded counts for four weeks.
    """
    weeks: tuple[WeeklyGrowth, ...]
    """The last half year, the latest week first."""
    tokens: Mapping[str, int]
    cost: float
    engine: str
    gateway: str | None
    """A description of the live gateway, or None."""
    holders: tuple[Holder, ...]
    """The other processes that have the database open."""
    findings: tuple[HealthFinding, ...]
    estimated: bool


MAX_ITEMS = 20


@dataclass(frozen=True, slots=True)
class PlanItem:
    """One item of a plan."""

    id: str
    title: str | None
    why: str
    """The reason why the plan selects it."""
    messages: int | None = None
    last_active_at: float | None = None


@dataclass(frozen=True, slots=True)
class PlanTotals:
    """The totals of a plan."""

    messages: int = 0
    bytes: int = 0
    """The approximate bytes of these messages in the database."""
    by_source: Mapping[str, int] = field(default_factory=dict)
    """The number of items by source."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes on the disk: estimates in a plan, measured in a result."""

    needed_now: int = 0
    """Space that the change needs while it runs; in a result, the growth of the database."""
    free_in_file: int = 0
    """Space that becomes free inside the database file, whose size stays."""
    returned_to_disk: int = 0
    """Bytes by which files shrink or are deleted."""
    trash: int = 0
    """Bytes of the trash until it expires or is emptied."""

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Return the value from JSON, without figures of an older version that are unknown here."""
        return cls(**{name: stored.get(name, 0) for name in cls.__slots__})


@dataclass(frozen=True, slots=True)
class PlanPreview:
    """The changes of a plan before it is applied.

    `plan` is None if nothing would change.
    """

    outcome: Literal["planned", "nothing"]
    plan: str | None
    expires_at: float | None
    count: int
    items: tuple[PlanItem, ...]
    """The first items."""
    protected: Mapping[ProtectionReason, int] = field(default_factory=dict)
    bytes: Bytes = field(default_factory=Bytes)
    warnings: tuple[str, ...] = ()
    protected_ids: Mapping[ProtectionReason, Iterable[str]] = field(default_factory=dict)
    """The ids of the first protected items of each reason."""
    totals: PlanTotals | None = None
    """None for a plan that is about no sessions."""

    @classmethod
    def from_plan(cls, plan: StoredPlan) -> Self:
        """Return the preview that was recorded with a plan."""
        about = plan.about
        items = about.get("items") or [(item.id, None, item.why) for item in plan.members]
        return cls(
            "planned",
            plan.handle,
            plan.expires_at,
            _count_items(plan),
            tuple(PlanItem(*item) for item in items[:MAX_ITEMS]),
            about.get("protected", {}),
            Bytes.from_json(about.get("bytes", {})),
            tuple(about.get("warnings", ())),
            about.get("protected_ids", {}),
            PlanTotals(**about["totals"]) if "totals" in about else None,
        )


def _count_items(plan: StoredPlan) -> int:
    """Return the number of items in a plan, or the number of messages for a compression."""
    about = plan.about
    return about["end"] - about["start"] if plan.kind == COMPRESS else len(plan.members)


def to_recorded(
    items: Iterable[PlanItem],
    protected: Mapping[ProtectionReason, int] | None = None,
    size: Bytes | None = None,
    warnings: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the JSON that is recorded with a plan, so that its preview stays the same."""
    first = [astuple(item) for item in islice(items, MAX_ITEMS)]
    return {
        "items": first,
        "protected": dict(protected or {}),
        "bytes": asdict(size or Bytes()),
        "warnings": list(warnings),
    }


@dataclass(frozen=True, slots=True)
class SkippedItem:
    """An item that was left unchanged, and why."""

    id: str
    why: str


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The result of applying a plan.

    If items remain, the same call continues.
    """

    outcome: Literal["applied", "partial"]
    plan: str
    batch: str | None
    """The batch that `restore` undoes; None if there is no undo."""
    removed: int
    finalized: int
    skipped: tuple[SkippedItem, ...]
    remaining: int
    warnings: tuple[str, ...] = ()
    bytes: Bytes = field(default_factory=Bytes)
    """The sizes measured since the plan was begun."""
    shrinks: bool = False
    """True if a plan to prune the index would now shrink the file."""
    undone: UndoResult | None = None
    """The result of the undo of a compression; None for other plans."""

    @property
    def done(self) -> int:
        """The number of decided items."""
        return self.removed + self.finalized + len(self.skipped)

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON, without the undo of a compression, which has its own."""
        values = asdict(self)
        del values["undone"]
        return values

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Return the result from JSON."""
        values = {name: stored[name] for name in cls.__slots__ if name in stored}
        values["skipped"] = tuple(SkippedItem(**item) for item in stored["skipped"])
        values["warnings"] = tuple(stored["warnings"])
        values["bytes"] = Bytes.from_json(stored.get("bytes", {}))
        return cls(**values)


ProgressFn = Callable[[ApplyResult], object]
"""Called at intervals with the result so far."""

RestoreProgressFn = Callable[["RestoreResult"], object]
"""Called at intervals with the result of a restore so far."""

CountFn = Callable[[int, int], object]
"""Called with the number of finished units and their total; an exception ends the work."""

StopFn = Callable[[], bool]
"""Called between two steps; True ends the work."""


@dataclass(frozen=True, slots=True)
class ApplyRequest:
    """A call that applies a plan, with its client, time limit and callbacks."""

    client: str
    for_s: float
    progress: ProgressFn | None = None
    stop: StopFn | None = None


@dataclass(frozen=True, slots=True)
class RefusedItem:
    """An item that could not be restored and stays in the trash, and the reason.

    The same restore tries it again until the trash expires.
    """

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """The result of a restore.

    If steps remain, the same call continues.

    With the outcome `planned` or `nothing` it has changed nothing yet, and `plan` is what to apply.
    """

    outcome: Literal["applied", "partial", "planned", "nothing"]
    batch: str
    restored: int
    """The number of changed items that are as they were before."""
    rows: int
    unfit: tuple[RefusedItem, ...]
    remaining: int
    """The number of steps that were not tried yet."""
    bytes: Bytes = field(default_factory=Bytes)
    """The measured growth of the database, and the bytes freed in the trash."""
    plan: PlanPreview | None = None
    """The plan of an undo that would drop messages or imported sessions."""
    undone: UndoResult | None = None
    """The result of the undo of a compression; None for other batches."""


@dataclass(frozen=True, slots=True)
class RestorePreview:
    """The items that the restore of a batch would bring back, or that its plan would remove."""

    batch: Batch
    count: int
    """The number of items; less than the batch has changed if some are restored already."""
    items: tuple[PlanItem, ...]
    """The first items, as far as their names are known."""
    plan: PlanPreview | None = None
    """The plan of an undo that would drop messages or imported sessions."""


_PROGRESS_INTERVAL_S = 0.5


class StopRequested(Exception):
    """Raised after the caller has asked to stop."""


class ProgressThrottle:
    """A callback between two steps, which reports progress at most twice a second."""

    def __init__(self, report: Callable[[], object] | None, stop: StopFn | None) -> None:
        self._report = report
        self._stop = stop
        self._reported_at = -_PROGRESS_INTERVAL_S

    def __call__(self) -> None:
        """Report progress, and check for a stop request.

        Raises:
            StopRequested: `stop` returned True.
        """
        now = time.monotonic()
        if self._report is not None and now - self._reported_at >= _PROGRESS_INTERVAL_S:
            self._reported_at = now
            self._report()
        if self._stop is not None and self._stop():
            raise StopRequested
