"""The members of a plan, the drafts of a plan and of a step, and changes of single rows.

The id of a member begins with its part, since a session and a route in one plan may share a name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Protocol

from session_core.errors import Conflict
from session_core.ledger.execute import PreparedStep
from session_core.ledger.types import Member, StoredPlan, TrashItem
from session_core.maintenance import kinds
from session_core.maintenance.select.snapshot import MaintenanceSnapshot
from session_core.maintenance.types import (
    PlanItem,
    ProtectedItems,
    SelectedSessions,
    Selection,
)
from session_core.state.protocol import StateDatabase
from session_core.types import RawText, Revision, Sizes

StepContext = Callable[[], AbstractContextManager[object]]


class MemberOutdated(Conflict):
    """A member is not as it was planned, and nothing was changed."""

    def __init__(self, member: str, reason: str) -> None:
        super().__init__(reason)
        self.member = member


class ConcurrentWrite(Conflict):
    """Another process wrote just now, and nothing was changed.

    A retry may succeed.
    """


@dataclass(slots=True)
class PlanProgress:
    """The sessions that earlier steps of a plan have removed, in whole or in part."""

    after: dict[str, Revision] = field(default_factory=dict)
    """The revisions of sessions that lost a part of their messages."""
    gone: set[str] = field(default_factory=set)

    def add_result(self, result: Mapping[str, Any]) -> None:
        """Add the result of a step."""
        self.after |= {
            session_id: Revision(*revision)
            for session_id, revision in result.get("after", {}).items()
        }
        self.gone.update(result.get("sessions", ()))

    def has_begun(self, member: Member) -> bool:
        """Return True if a part of a member is gone."""
        return not get_session_ids(member).isdisjoint({*self.after, *self.gone})

    def get_expected_revision(self, group: SessionGroup, session_id: str) -> Revision:
        """Return the revision that a session must have now."""
        # A session that lost messages has a new revision by our own step.
        return self.after.get(session_id) or group.sessions[session_id]


@dataclass(frozen=True, slots=True)
class StepDraft:
    """A drafted step: the members that it completes, its change, and its undo."""

    members: tuple[str, ...]
    trash_items: Iterable[TrashItem] | PreparedStep
    change: Callable[[StateDatabase], dict[str, Any]]
    """Raises `MemberOutdated` if a member is not as it was planned."""
    within: StepContext = nullcontext


class PartExecutor(Protocol):
    """Drafts the steps of one part of a plan."""

    def draft_step(self, members: Sequence[Member]) -> StepDraft:
        """Return the next step for the remaining members, which are not empty.

        Raises:
            MemberOutdated: a member is not as it was planned.
        """


@dataclass(frozen=True, slots=True)
class SessionGroup:
    """Sessions that are removed or ended together, in that order, each with its revision."""

    member: str
    sessions: Mapping[str, Revision]
    left_behind: frozenset[str]
    reason: str | None
    routes: Mapping[str, str]
    """The session of each chat in the group, if they are to be ended."""
    signs: Mapping[str, Sequence[str]]
    """The signs of use that each session had when it was planned."""

    @classmethod
    def from_member(cls, member: Member) -> SessionGroup:
        """Return the group that a plan recorded."""
        record = member.revision
        return cls(
            member.id,
            {
                session_id: Revision(*revision)
                for session_id, revision in record["sessions"].items()
            },
            frozenset(record["left"]),
            record["reason"],
            record["routes"],
            record["signs"],
        )


def encode_group(selected: SelectedSessions, routes: Mapping[str, str]) -> dict[str, Any]:
    """Return the record of sessions that are removed or ended together."""
    return {
        "sessions": {session.id: session.revision for session in selected.sessions},
        "left": selected.left_behind,
        "reason": selected.reason,
        "routes": routes,
        "signs": {
            session.id: signs
            for session in selected.sessions
            if (signs := list_use_signs(session.title, session.archived, session.api_calls))
        },
    }


def list_use_signs(title: Any, archived: Any, api_calls: Any) -> list[str]:
    """Return the signs, apart from messages, that a session is of use to its owner."""
    signs = {
        "it was archived": archived,
        "it has a title": str(title or "").strip(),
        "a model was called for it": api_calls,
    }
    return [sign for sign, present in signs.items() if present]


def create_member(part: str, name: str, record: Any, reason: str) -> Member:
    """Return a member of a part."""
    return Member(f"{part}/{name}", record, reason)


def get_part(member: Member | str) -> str:
    """Return the part of a member."""
    return (member if isinstance(member, str) else member.id).partition("/")[0]


def get_name(member: Member | str) -> str:
    """Return the name of a member without its part."""
    return (member if isinstance(member, str) else member.id).partition("/")[2]


def get_session_ids(member: Member) -> frozenset[str]:
    """Return the ids of the sessions that a member of a plan removes or ends."""
    record = member.revision
    return frozenset(record.get("sessions", ())) if isinstance(record, dict) else frozenset()


def list_remaining_members(plan: StoredPlan, part: str) -> list[Member]:
    """Return the undecided members of a part."""
    return [member for member in plan.remaining if get_part(member) == part]


CHANGE_KIND = "change"
"""The kind of the trash item of a row change: table, key, before and after."""

PIN_KIND = "pin"
"""The kind of the trash item with our own pins: before and after, by session."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """A change of columns in one row: their values before and after."""

    table: str
    key: Mapping[str, Any]
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The key of the row, for messages."""
        return ", ".join(map(str, self.key.values()))

    def write_row(self, db: StateDatabase) -> None:
        """Write the values after the change.

        Raises:
            Changed: the row is gone, or has other values than before the change.
        """
        db.rows.change_row(self.table, self.key, self.before, self.after)

    def reverse(self) -> RowChange:
        """Return the reverse change."""
        return RowChange(self.table, self.key, self.after, self.before)

    def to_trash_item(self) -> TrashItem:
        """Return the change as a trash item."""
        value = {"table": self.table}
        mappings = {name: getattr(self, name) for name in ("key", "before", "after")}
        packed = {name: _encode_values(values) for name, values in mappings.items()}
        return TrashItem(CHANGE_KIND, {**value, **packed})

    @classmethod
    def from_trash(cls, value: Mapping[str, Any]) -> RowChange:
        """Return the change that a trash item holds."""
        table, *mappings = (value[field.name] for field in fields(cls))
        return cls(table, *map(_decode_values, mappings))


def _encode_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        # Text that is not valid UTF-8 has no JSON form of its own.
        name: {"raw": value.stored} if isinstance(value, RawText) else value
        for name, value in values.items()
    }


def _decode_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: RawText(value["raw"]) if isinstance(value, dict) else value
        for name, value in values.items()
    }


class PlanDraft:
    """The members selected so far from one snapshot of a home."""

    def __init__(self, snapshot: MaintenanceSnapshot) -> None:
        self.snapshot = snapshot
        self.members: dict[str, Member] = {}
        self.items: dict[str, PlanItem] = {}
        self.protected = ProtectedItems()
        self.by_source: Counter[str] = Counter()
        """The number of selected conversations by source."""
        self.rows = 0
        """The number of messages that the plan removes."""
        self.file_bytes = 0
        self.sessions: set[str] = set()
        """The sessions that the plan removes or ends."""
        self.left_behind: set[str] = set()
        """Sessions that stay and lose their parent."""

    @cached_property
    def sizes(self) -> Sizes:
        """The sizes of the home, measured once for a plan."""
        return self.snapshot.db.admin.measure_sizes()

    def list_changed_tables(self) -> set[str]:
        """Return the tables from which a plan to prune deletes indexed rows."""
        parts = {get_part(member_id) for member_id in self.members} & kinds.PLAN_PARTS.keys()
        tables = {table for part in parts for table in kinds.PLAN_PARTS[part].deletes_from}
        # An index of messages does not block a plan without messages.
        return tables - {"messages"} | ({"messages"} if self.rows else set())

    def has_part(self, *parts: str) -> bool:
        """Return True if a member belongs to one of these parts."""
        return any(get_part(member_id) in parts for member_id in self.members)

    def add_member(self, part: str, name: str, record: Any, reason: str, **shown: Any) -> None:
        """Add a member unless it is present already.

        `shown` are further fields of its item.
        """
        member = create_member(part, name, record, reason)
        if member.id not in self.members:
            self.members[member.id] = member
            self.items[member.id] = PlanItem(name, shown.pop("title", None), reason, **shown)

    def add_sessions(self, part: str, selected: Selection[SelectedSessions]) -> None:
        """Add selected sessions, each at most once."""
        for group in selected.items:
            ids = {session.id for session in group.sessions}
            if not ids.isdisjoint(self.sessions):
                continue  # an old empty conversation is both an old session and a ghost
            self.sessions |= ids
            self.left_behind.update(group.left_behind)
            self.rows += group.rows
            session_by_chat = (
                _find_chats(self.snapshot, group) if kinds.PLAN_PARTS[part].ends_sessions else {}
            )
            self.by_source[group.sessions[0].source] += 1
            self.add_member(
                *(part, group.id, encode_group(group, session_by_chat), group.why),
                title=group.title,
                messages=group.rows,
                last_active_at=group.last_active_at,
            )
        self.protected.update(selected.protected)
        self.protected.add_ids(selected.protected_ids)


def _find_chats(snapshot: MaintenanceSnapshot, selected: SelectedSessions) -> dict[str, str]:
    """Return the chats of this store that are in a conversation, with their sessions."""
    conversation = snapshot.conversations.find_conversation(selected.id)
    if snapshot.store is None or conversation is None:
        return {}
    session_by_chat: dict[str, str] = {}
    for session in conversation.sessions:
        for key in snapshot.activity.routes.get(session.id, ()):
            # The row of another folder may name the chat too; only this store can reroute it.
            if snapshot.store.peek_session_id(key) == session.id:
                session_by_chat[key] = session.id
    return session_by_chat
