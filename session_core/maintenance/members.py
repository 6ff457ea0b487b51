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
from session_core.ledger.execute import PreparedStep
from session_core.ledger.types import Member, StoredPlan, TrashItem
from session_core.maintenance.types import SelectedSessions
from session_core.state.protocol import StateDatabase
from session_core.types import RawText, Revision

Part = Literal["sessions", "ghosts", "ended", "routes", "rows", "locks", "links", "files", "index"]

PART_ORDER: tuple[Part, ...] = (
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

StepContext = Callable[[], AbstractContextManager[object]]


class MemberOutdated(Conflict):
    """A member is not any more what was planned; nothing was changed."""

    def __init__(self, member: str, why: str) -> None:
        super().__init__(why)
        self.member = member


class ConcurrentWrite(Conflict):
    """Somebody wrote just now; nothing was changed, and another look may do."""


@dataclass(slots=True)
class PlanProgress:
    """What earlier steps of a plan have left of its sessions."""

    after: dict[str, Revision] = field(default_factory=dict)
    """At which revision those are that lost a part of their messages."""
    gone: set[str] = field(default_factory=set)

    def add_result(self, result: Mapping[str, Any]) -> None:
        """Note what a step has come to."""
        self.after |= {each: Revision(*at) for each, at in result.get("after", {}).items()}
        self.gone.update(result.get("sessions", ()))

    def has_begun(self, member: Member) -> bool:
        """Whether a part of a member is gone."""
        return not get_session_ids(member).isdisjoint({*self.after, *self.gone})

    def get_expected_revision(self, group: SessionGroup, session_id: str) -> Revision:
        """Return at which revision a session is to be."""
        return self.after.get(session_id) or group.sessions[session_id]


@dataclass(frozen=True, slots=True)
class StepDraft:
    """What one step does: the members that are done with it, and what undoes it."""

    members: tuple[str, ...]
    kept: Iterable[TrashItem] | PreparedStep
    change: Callable[[StateDatabase], dict[str, Any]]
    """Raises `Outdated` where one of them is not as it was planned."""
    within: StepContext = nullcontext


class PartExecutor(Protocol):
    """Does one part of a plan, a piece at a time."""

    def draft_step(self, members: Sequence[Member]) -> StepDraft:
        """Return what is done next; `members` are those that are left, at least one.

        Raises:
            Outdated: one of them is not as it was planned.
        """


@dataclass(frozen=True, slots=True)
class SessionGroup:
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
    def from_member(cls, member: Member) -> SessionGroup:
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


def encode_group(chosen: SelectedSessions, routes: Mapping[str, str]) -> dict[str, Any]:
    """Return what a plan notes of sessions that go or end together."""
    return {
        "sessions": {each.id: each.revision for each in chosen.sessions},
        "left": chosen.left_behind,
        "reason": chosen.reason,
        "routes": routes,
        "signs": {
            each.id: signs
            for each in chosen.sessions
            if (signs := list_use_signs(each.title, each.archived, each.api_calls))
        },
    }


def list_use_signs(title: Any, archived: Any, api_calls: Any) -> list[str]:
    """Return what says, beside its messages, that somebody cares for a session."""
    found = {
        "it was archived": archived,
        "it has a title": str(title or "").strip(),
        "a model was called for it": api_calls,
    }
    return [sign for sign, is_so in found.items() if is_so]


def create_member(part: Part, name: str, noted: Any, why: str) -> Member:
    """Return a member of a part."""
    return Member(f"{part}/{name}", noted, why)


def get_part(member: Member | str) -> str:
    """Return the part that a member belongs to."""
    return (member if isinstance(member, str) else member.id).partition("/")[0]


def get_name(member: Member | str) -> str:
    """Return the name of a member as it is told."""
    return (member if isinstance(member, str) else member.id).partition("/")[2]


def get_session_ids(member: Member) -> frozenset[str]:
    """Return the sessions that go or end with a member."""
    noted = member.revision
    return frozenset(noted.get("sessions", ())) if isinstance(noted, dict) else frozenset()


def list_remaining_members(plan: StoredPlan, part: Part) -> list[Member]:
    """Return the members of a part about which nothing was decided yet."""
    return [member for member in plan.remaining if get_part(member) == part]


CHANGE_KIND = "change"
"""What a change is kept as: table, key, before and after."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """Columns of one row: what they were, and what they become."""

    table: str
    key: Mapping[str, Any]
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    @property
    def name(self) -> str:
        """By which name its row is told."""
        return ", ".join(map(str, self.key.values()))

    def write_row(self, db: StateDatabase) -> None:
        """Write what they become.

        Raises:
            Changed: they are not any more what they were, or the row is gone.
        """
        db.change_row(self.table, self.key, self.before, self.after)

    def reverse(self) -> RowChange:
        """Return what takes this back."""
        return RowChange(self.table, self.key, self.after, self.before)

    def to_trash_item(self) -> TrashItem:
        """Return it as the trash has it."""
        value = {"table": self.table}
        mappings = {name: getattr(self, name) for name in ("key", "before", "after")}
        packed = {name: _encode_values(given) for name, given in mappings.items()}
        return TrashItem(CHANGE_KIND, {**value, **packed})

    @classmethod
    def from_trash(cls, value: Mapping[str, Any]) -> RowChange:
        """Return what was kept."""
        table, *mappings = (value[field.name] for field in fields(cls))
        return cls(table, *map(_decode_values, mappings))


def _encode_values(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {"raw": value.stored} if isinstance(value, RawText) else value
        for name, value in given.items()
    }


def _decode_values(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: RawText(value["raw"]) if isinstance(value, dict) else value
        for name, value in given.items()
    }
