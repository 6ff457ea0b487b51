"""What a plan records of each of its members, and what of it is done by the next step.

The name of a member begins with its part, since a plan may have a session and a route of one name.

Columns of one row that a step writes, with what they were: written, kept, and taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol

from session_core.errors import Conflict
from session_core.ledger.execute import Prepared
from session_core.ledger.types import Kept, Member, Plan
from session_core.maintenance.types import Chosen
from session_core.state.protocol import StateDatabase
from session_core.types import Raw, Revision

Part = Literal["sessions", "ghosts", "ended", "routes", "rows", "locks", "links", "files", "index"]

PARTS: tuple[Part, ...] = (
    "sessions",
    "ghosts",
    "ended",
    "files",
    "routes",
    "rows",
    "locks",
    "links",
)
"""In the order in which they are done: files first, since who writes the mirror sweeps its folder.

The index comes behind them, in no transaction.
"""

Within = Callable[[], AbstractContextManager[object]]


class Outdated(Conflict):
    """A member is not any more what was planned; nothing was changed."""

    def __init__(self, member: str, why: str) -> None:
        super().__init__(why)
        self.member = member


class Again(Conflict):
    """Somebody wrote just now; nothing was changed, and another look may do."""


@dataclass(slots=True)
class Progress:
    """What earlier steps of a plan have left of its sessions."""

    after: dict[str, Revision] = field(default_factory=dict)
    """At which revision those are that lost a part of their messages."""
    gone: set[str] = field(default_factory=set)

    def note(self, result: Mapping[str, Any]) -> None:
        """Note what a step has come to."""
        self.after |= {each: Revision(*at) for each, at in result.get("after", {}).items()}
        self.gone.update(result.get("sessions", ()))

    def has_begun(self, member: Member) -> bool:
        """Whether a part of a member is gone."""
        return not sessions_of(member).isdisjoint({*self.after, *self.gone})

    def expected(self, group: Group, session_id: str) -> Revision:
        """Return at which revision a session is to be."""
        return self.after.get(session_id) or group.sessions[session_id]


@dataclass(frozen=True, slots=True)
class Piece:
    """What one step does: the members that are done with it, and what undoes it."""

    members: tuple[str, ...]
    kept: Iterable[Kept] | Prepared
    change: Callable[[StateDatabase], dict[str, Any]]
    """Raises `Outdated` where one of them is not as it was planned."""
    within: Within = nullcontext


class Doing(Protocol):
    """Does one part of a plan, a piece at a time."""

    def next(self, members: Sequence[Member]) -> Piece:
        """Return what is done next; `members` are those that are left, at least one.

        Raises:
            Outdated: one of them is not as it was planned.
        """


@dataclass(frozen=True, slots=True)
class Group:
    """Sessions that go or end together, in that order, each with its revision."""

    member: str
    sessions: Mapping[str, Revision]
    left_behind: frozenset[str]
    reason: str | None
    routes: Mapping[str, str]
    """The chats that are in one of them by their keys, where they are to be ended."""
    signs: Mapping[str, Sequence[str]]
    """What said that somebody cares for one of them already when it was planned."""

    @classmethod
    def of(cls, member: Member) -> Group:
        """Return what was recorded."""
        noted = member.revision
        return cls(
            member.id,
            {each: Revision(*revision) for each, revision in noted["sessions"].items()},
            frozenset(noted["left"]),
            noted["reason"],
            noted["routes"],
            noted["signs"],
        )


def noted_of(chosen: Chosen, routes: Mapping[str, str]) -> dict[str, Any]:
    """Return what a plan notes of sessions that go or end together."""
    return {
        "sessions": {each.id: each.revision for each in chosen.sessions},
        "left": chosen.left_behind,
        "reason": chosen.reason,
        "routes": routes,
        "signs": {
            each.id: signs
            for each in chosen.sessions
            if (signs := signs_of(each.title, each.archived, each.api_calls))
        },
    }


def signs_of(title: Any, archived: Any, api_calls: Any) -> list[str]:
    """Return what says, beside its messages, that somebody cares for a session."""
    found = {
        "it was archived": archived,
        "it has a title": str(title or "").strip(),
        "a model was called for it": api_calls,
    }
    return [sign for sign, is_so in found.items() if is_so]


def member_of(part: Part, name: str, noted: Any, why: str) -> Member:
    """Return a member of a part."""
    return Member(f"{part}/{name}", noted, why)


def part_of(member: Member | str) -> str:
    """Return the part that a member belongs to."""
    return (member if isinstance(member, str) else member.id).partition("/")[0]


def name_of(member: Member | str) -> str:
    """Return the name of a member as it is told."""
    return (member if isinstance(member, str) else member.id).partition("/")[2]


def sessions_of(member: Member) -> frozenset[str]:
    """Return the sessions that go or end with a member."""
    noted = member.revision
    return frozenset(noted.get("sessions", ())) if isinstance(noted, dict) else frozenset()


def of_part(plan: Plan, part: Part) -> list[Member]:
    """Return the members of a part about which nothing was decided yet."""
    return [member for member in plan.remaining if part_of(member) == part]


CHANGE = "change"
"""What a change is kept as: table, key, before and after."""


@dataclass(frozen=True, slots=True)
class Change:
    """Columns of one row: what they were, and what they become."""

    table: str
    key: Mapping[str, Any]
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    @property
    def name(self) -> str:
        """By which name its row is told."""
        return ", ".join(map(str, self.key.values()))

    def write(self, db: StateDatabase) -> None:
        """Write what they become.

        Raises:
            Changed: they are not any more what they were, or the row is gone.
        """
        db.change_row(self.table, self.key, self.before, self.after)

    def reversed(self) -> Change:
        """Return what takes this back."""
        return Change(self.table, self.key, self.after, self.before)

    def kept(self) -> Kept:
        """Return it as the trash has it."""
        value = {"table": self.table}
        mappings = {name: getattr(self, name) for name in ("key", "before", "after")}
        packed = {name: _packed(given) for name, given in mappings.items()}
        return Kept(CHANGE, {**value, **packed})

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Change:
        """Return what was kept."""
        table, *mappings = (value[field.name] for field in fields(cls))
        return cls(table, *map(_unpacked, mappings))


def _packed(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {"raw": value.stored} if isinstance(value, Raw) else value
        for name, value in given.items()
    }


def _unpacked(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: Raw(value["raw"]) if isinstance(value, dict) else value
        for name, value in given.items()
    }
