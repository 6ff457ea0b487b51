"""The draft of a plan: the members that selectors have added so far, and what they free."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Any

from session_core.ledger.types import Member
from session_core.maintenance import members
from session_core.maintenance.select.snapshot import MaintenanceSnapshot
from session_core.maintenance.types import ProtectionReason, SelectedSessions, Selection
from session_core.types import Sizes


class PlanDraft:
    """The members selected so far from one snapshot of a home."""

    def __init__(self, snapshot: MaintenanceSnapshot) -> None:
        self.snapshot = snapshot
        self.members: dict[str, Member] = {}
        self.titles: dict[str, str | None] = {}
        self.protected: Counter[ProtectionReason] = Counter()
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
        tables = {"sessions"} if self.has_part("sessions", "ghosts") else set()
        return tables | ({"messages"} if self.rows else set())

    def has_part(self, *parts: str) -> bool:
        """Return True if a member belongs to one of these parts."""
        return any(members.get_part(member_id) in parts for member_id in self.members)

    def add_member(
        self, part: str, name: str, record: Any, reason: str, title: str | None = None
    ) -> None:
        """Add a member, at most once."""
        member = members.create_member(part, name, record, reason)
        if member.id not in self.members:
            self.members[member.id] = member
            self.titles[member.id] = title

    def add_sessions(self, part: str, selected: Selection[SelectedSessions]) -> None:
        """Add selected sessions, each at most once."""
        for group in selected.items:
            ids = {session.id for session in group.sessions}
            if not ids.isdisjoint(self.sessions):
                continue  # an old empty conversation is both an old session and a ghost
            self.sessions |= ids
            self.left_behind.update(group.left_behind)
            self.rows += group.rows
            session_by_chat = _find_chats(self.snapshot, group) if part == "ended" else {}
            self.add_member(
                part, group.id, members.encode_group(group, session_by_chat), group.why, group.title
            )
        self.protected.update(selected.protected)


def _find_chats(snapshot: MaintenanceSnapshot, selected: SelectedSessions) -> dict[str, str]:
    """Return the chats of this store that are in a conversation, with their sessions."""
    conversation = snapshot.conversations.find_conversation(selected.id)
    if snapshot.store is None or conversation is None:
        return {}
    session_by_chat: dict[str, str] = {}
    for session in conversation.sessions:
        for key in snapshot.activity.routes.get(session.id, ()):
            if snapshot.store.peek_session_id(key) == session.id:
                session_by_chat[key] = session.id
    return session_by_chat
