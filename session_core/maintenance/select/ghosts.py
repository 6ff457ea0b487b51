"""Select ghosts: sessions without messages, a title and model calls.

A ghost with children is removed too, and the children lose their parent: the ghost holds no part of
their conversation. Keeping ghosts with children would keep most ghosts. The delegates of an empty
session are removed with it, so it is not a ghost if one of them has content. An empty session
between two parts of a conversation stays, since the parts would be separated without it.
"""

from __future__ import annotations

from collections.abc import Iterator

from session_core.maintenance.select import protection
from session_core.maintenance.select.conversations import Conversation, ConversationIndex
from session_core.maintenance.select.snapshot import MaintenanceSnapshot
from session_core.maintenance.types import (
    PlanRequest,
    ProtectedItems,
    SelectedSessions,
    Selection,
)
from session_core.types import InventoryItem


def select_ghosts(
    snapshot: MaintenanceSnapshot, request: PlanRequest
) -> Selection[SelectedSessions]:
    """Select the empty sessions."""
    selected: list[SelectedSessions] = []
    protected = ProtectedItems()
    removable, between = _split_ghosts(snapshot.conversations)
    cutoff, matches = snapshot.get_cutoff(request), snapshot.build_session_filter(request.where)
    for root in _iter_roots(snapshot.conversations, removable):
        sessions = tuple(_iter_group(snapshot.conversations, root, removable))
        if not all(_is_before_cutoff(session, cutoff) and matches(session) for session in sessions):
            continue
        left_behind = snapshot.conversations.list_left_behind(sessions)
        reason = protection.find_protection(
            sessions, snapshot.activity, removed=True, kept=snapshot.kept
        )
        # Detaching a child writes its row, so that the child must not be in use.
        if reason is None and any(_is_in_use(child, snapshot) for child in left_behind):
            reason = "live"
        if reason is not None:
            protected.add(reason, root.id)
            continue
        age = protection.format_age(root.started_at, snapshot.now)
        text = f"empty, {protection.describe_end(root)}, begun {age}"
        child_ids = tuple(child.id for child in left_behind)
        selected.append(SelectedSessions(root.id, None, text, tuple(reversed(sessions)), child_ids))
    in_between = sum(_is_before_cutoff(session, cutoff) and matches(session) for session in between)
    if in_between:
        protected["in between"] += in_between
    return Selection.from_items(selected, protected)


def _split_ghosts(
    conversations: ConversationIndex,
) -> tuple[dict[str, InventoryItem], list[InventoryItem]]:
    """Return the removable ghosts, and those between two parts of a conversation."""
    removable: dict[str, InventoryItem] = {}
    between: list[InventoryItem] = []
    for conversation in conversations.all:
        ghosts, hollow = _find_empty(conversation, conversations)
        leading: set[str | None] = set()
        for session in conversation.sessions:
            if session.id not in ghosts:
                continue
            # Empty sessions at the start of a conversation separate nothing.
            if not _is_continued(session, conversation) or session.parent_id in leading:
                leading.add(session.id)
            if session.id in leading or session.id in hollow:
                removable[session.id] = session
            else:
                between.append(session)
    return removable, between


def _find_empty(
    conversation: Conversation, conversations: ConversationIndex
) -> tuple[set[str], set[str]]:
    """Return the empty sessions of a conversation, and the sessions with only empty descendants."""
    ghosts: set[str] = set()
    hollow: set[str] = set()
    # Children come before their parents, so that their emptiness is known.
    for session in conversation.removal_order:
        children = conversations.list_children(session.id)
        delegated = (child.id for child in children if child.link == "delegate")
        if _has_content(session) or not hollow.issuperset(delegated):
            continue
        ghosts.add(session.id)
        if hollow.issuperset(child.id for child in children if child.link == "continuation"):
            hollow.add(session.id)
    return ghosts, hollow


def _has_content(session: InventoryItem) -> bool:
    """Return True if a session has data to keep, such as the cost of its calls."""
    return bool(session.rows or (session.title or "").strip() or session.api_calls)


def _is_continued(session: InventoryItem, conversation: Conversation) -> bool:
    return session.link == "continuation" and session.id != conversation.id


def _iter_roots(
    conversations: ConversationIndex, removable: dict[str, InventoryItem]
) -> Iterator[InventoryItem]:
    """Yield the ghosts that are not removed together with another ghost."""
    for conversation in conversations.all:
        for session in conversation.sessions:
            inside = session.id != conversation.id and session.link in ("continuation", "delegate")
            if session.id in removable and not (inside and session.parent_id in removable):
                yield session


def _iter_group(
    conversations: ConversationIndex, root: InventoryItem, removable: dict[str, InventoryItem]
) -> Iterator[InventoryItem]:
    visited, stack = {root.id}, [root]
    while stack:
        session = stack.pop()
        yield session
        for child in conversations.list_children(session.id):
            inside = child.link in ("continuation", "delegate")
            if inside and child.id in removable and child.id not in visited:
                visited.add(child.id)
                stack.append(child)


def _is_before_cutoff(session: InventoryItem, cutoff: float) -> bool:
    """Return True if all times of a session, its end included, are before the cutoff."""
    times = (session.last_active_at, session.started_at, session.ended_at)
    return all(time is None or time < cutoff for time in times)


def _is_in_use(session: InventoryItem, snapshot: MaintenanceSnapshot) -> bool:
    routed = session.id in snapshot.activity.routes
    active_user = snapshot.activity.company.describe_active_user(
        session.id, session.last_active_at, routed=routed
    )
    return active_user is not None or session.id in snapshot.activity.compressing
