"""Empty sessions: no message, no title, no call to a model, and nothing will come of them any more.

One with children goes too, and they stay without a parent: nothing of a conversation was in it, and
one that kept its ghosts for their children would keep most of them. What an empty session delegated
goes with it, so it is no ghost where that holds something. One between two parts of a conversation
stays, since without it they would be two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from session_core.maintenance.select import protection
from session_core.maintenance.select.conversations import Conversation, ConversationIndex
from session_core.maintenance.select.snapshot import MaintenanceSnapshot
from session_core.maintenance.types import (
    PlanRequest,
    ProtectionReason,
    SelectedSessions,
    Selection,
)
from session_core.types import InventoryItem


def select_ghosts(scene: MaintenanceSnapshot, wanted: PlanRequest) -> Selection[SelectedSessions]:
    """Choose the empty sessions."""
    chosen: list[SelectedSessions] = []
    protected: Counter[ProtectionReason] = Counter()
    removable, between = _split_ghosts(scene.conversations)
    cutoff, allowed = scene.get_cutoff(wanted), scene.build_session_filter(wanted.where)
    for root in _iter_roots(scene.conversations, removable):
        sessions = tuple(_iter_group(scene.conversations, root, removable))
        if not all(_is_before(each, cutoff) and allowed(each) for each in sessions):
            continue
        left_behind = scene.conversations.list_left_behind(sessions)
        why = protection.find_protection(sessions, scene.alive, removed=True)
        if why is None and any(_is_in_use(child, scene) for child in left_behind):
            why = "live"
        if why is not None:
            protected[why] += 1
            continue
        begun = protection.format_age(root.started_at, scene.now)
        words = f"empty, {protection.describe_end(root)}, begun {begun}"
        left = tuple(child.id for child in left_behind)
        chosen.append(SelectedSessions(root.id, None, words, tuple(reversed(sessions)), left))
    stuck = sum(_is_before(each, cutoff) and allowed(each) for each in between)
    if stuck:
        protected["in between"] += stuck
    return Selection.from_items(chosen, protected)


def _split_ghosts(
    conversations: ConversationIndex,
) -> tuple[dict[str, InventoryItem], list[InventoryItem]]:
    """Return the ghosts that may go, and those between two parts of a conversation."""
    removable: dict[str, InventoryItem] = {}
    between: list[InventoryItem] = []
    for conversation in conversations.all:
        ghosts, hollow = _find_empty(conversation, conversations)
        first: set[str | None] = set()
        for each in conversation.sessions:
            if each.id not in ghosts:
                continue
            if not _is_continued(each, conversation) or each.parent_id in first:
                first.add(each.id)
            if each.id in first or each.id in hollow:
                removable[each.id] = each
            else:
                between.append(each)
    return removable, between


def _find_empty(
    conversation: Conversation, conversations: ConversationIndex
) -> tuple[set[str], set[str]]:
    """Return the empty sessions of a conversation, and those behind which all is empty too."""
    ghosts: set[str] = set()
    hollow: set[str] = set()
    for each in conversation.removal_order:
        children = conversations.list_children(each.id)
        delegated = (child.id for child in children if child.link == "delegate")
        if _has_content(each) or not hollow.issuperset(delegated):
            continue
        ghosts.add(each.id)
        if hollow.issuperset(child.id for child in children if child.link == "continuation"):
            hollow.add(each.id)
    return ghosts, hollow


def _has_content(stock: InventoryItem) -> bool:
    """Whether somebody would miss it: what its calls have cost is told nowhere else."""
    return bool(stock.rows or (stock.title or "").strip() or stock.api_calls)


def _is_continued(stock: InventoryItem, conversation: Conversation) -> bool:
    return stock.link == "continuation" and stock.id != conversation.id


def _iter_roots(
    conversations: ConversationIndex, removable: dict[str, InventoryItem]
) -> Iterator[InventoryItem]:
    """Yield the ghosts that go with no other one."""
    for conversation in conversations.all:
        for each in conversation.sessions:
            inside = each.id != conversation.id and each.link in ("continuation", "delegate")
            if each.id in removable and not (inside and each.parent_id in removable):
                yield each


def _iter_group(
    conversations: ConversationIndex, root: InventoryItem, removable: dict[str, InventoryItem]
) -> Iterator[InventoryItem]:
    seen, left = {root.id}, [root]
    while left:
        here = left.pop()
        yield here
        for child in conversations.list_children(here.id):
            inside = child.link in ("continuation", "delegate")
            if inside and child.id in removable and child.id not in seen:
                seen.add(child.id)
                left.append(child)


def _is_before(stock: InventoryItem, cutoff: float) -> bool:
    """Whether nothing came of a session before a time; its end is of no less weight."""
    times = (stock.last_active_at, stock.started_at, stock.ended_at)
    return all(time is None or time < cutoff for time in times)


def _is_in_use(stock: InventoryItem, scene: MaintenanceSnapshot) -> bool:
    routed = stock.id in scene.alive.routes
    at_work = scene.alive.company.describe_active_user(
        stock.id, stock.last_active_at, routed=routed
    )
    return at_work is not None or stock.id in scene.alive.compressing
