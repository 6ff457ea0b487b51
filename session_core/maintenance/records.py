"""What a plan is asked for, what is chosen for it, and what a health report says, as values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Literal, TypeVar

from session_core.models import Holder, SessionFilter, Sizes, Stock
from session_core.routing.entries import SessionEntry

Prune = Literal["sessions", "ghosts", "routes", "orphans", "index", "trash", "all"]
Finalize = Literal["sessions", "expired", "orphaned", "abandoned"]

AGES: Mapping[str, float] = {
    "prune sessions": 90,
    "prune ghosts": 1,
    "prune routes": 1,
    "prune orphans": 1,
    "finalize abandoned": 30,
    "finalize orphaned": 7,
}
"""How many days ago something was active last, where nothing else was asked for."""

Why = Literal[
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

WHY_PROTECTED: Mapping[Why, str] = {
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
class Wanted:
    """What is asked for: of which kind, which of them, how old."""

    what: Prune | Finalize
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
        return AGES.get(self.kind, 0)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Sessions that go together, in the order in which they do."""

    id: str
    title: str | None
    why: str
    sessions: tuple[Stock, ...]
    left_behind: tuple[str, ...] = ()
    """Sessions that stay and lose their parent."""
    reason: str | None = None
    """With which reason they are ended, where they are not removed."""

    @property
    def rows(self) -> int:
        """How many messages go."""
        return sum(each.rows for each in self.sessions)


@dataclass(frozen=True, slots=True)
class Route:
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
class Rows:
    """Rows of a table that belong to no session, or are of no use any more."""

    id: str
    why: str
    table: str
    column: str
    session_id: str
    rows: int


@dataclass(frozen=True, slots=True)
class File:
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
    protected: Mapping[Why, int] = field(default_factory=dict)

    @classmethod
    def of(cls, items: list[T], protected: Counter[Why]) -> Selection[T]:
        """Return a selection, with the reason that most are protected for first."""
        return cls(tuple(items), dict(protected.most_common()))


@dataclass(frozen=True, slots=True)
class Found:
    """Something that is not as it should be, and the plan that mends it."""

    code: str
    count: int
    what: str
    bytes: int = 0
    """About what would be won."""
    tool: Literal["prune", "finalize"] | None = None
    plan: Prune | Finalize | None = None


@dataclass(frozen=True, slots=True)
class Census:
    """How many sessions there are, and of which kinds."""

    total: int = 0
    open: int = 0
    ended: int = 0
    archived: int = 0
    by_source: Mapping[str, int] = field(default_factory=dict)
    by_age: Mapping[str, int] = field(default_factory=dict)
    messages: int = 0


@dataclass(frozen=True, slots=True)
class Week:
    """About what came in seven days."""

    begins_at: float
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Health:
    """The report on a home; sizes are estimates unless they were asked for exactly."""

    at: float
    sessions: Census
    sizes: Sizes | None
    trash: int
    """What the trash takes, compressed."""
    growth_per_week: int
    """About how many bytes a week brings: the messages of the last four weeks, times what a message
    took with its index when that was measured last, at most four weeks ago, before any plan."""
    weeks: tuple[Week, ...]
    """The last half year, the latest first."""
    tokens: Mapping[str, int]
    cost: float
    engine: str
    gateway: str | None
    holders: tuple[Holder, ...]
    findings: tuple[Found, ...]
    estimated: bool
