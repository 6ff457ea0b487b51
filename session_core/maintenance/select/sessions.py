"""Which sessions a plan is about: one function a kind, over the inventory and who is alive.

Age is the last activity of a whole conversation, whatever other filters there are. What would be
chosen and is protected is counted by its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from session_core.maintenance.select import protection
from session_core.maintenance.select.conversations import Conversation
from session_core.maintenance.select.snapshot import MaintenanceSnapshot
from session_core.maintenance.types import (
    PlanRequest,
    ProtectionReason,
    SelectedSessions,
    Selection,
)
from session_core.routing.entries import SessionEntry
from session_core.types import InventoryItem

_ROUTED_REASONS: tuple[ProtectionReason, ...] = ("routed",)


def select_old_sessions(
    scene: MaintenanceSnapshot, wanted: PlanRequest
) -> Selection[SelectedSessions]:
    """Choose ended conversations in which nothing was said for so long, or those that are named."""
    chosen: list[SelectedSessions] = []
    protected: Counter[ProtectionReason] = Counter()
    for conversation in _find_candidates(scene, wanted):
        why = protection.find_protection(conversation.sessions, scene.alive, removed=True)
        if why is not None:
            protected[why] += 1
            continue
        left_behind = scene.conversations.list_left_behind(conversation.sessions)
        chosen.append(
            SelectedSessions(
                id=conversation.id,
                title=conversation.title,
                why=_describe_age(conversation, scene.now),
                sessions=conversation.removal_order,
                left_behind=tuple(each.id for each in left_behind),
            )
        )
    return Selection.from_items(chosen, protected)


def select_abandoned(
    scene: MaintenanceSnapshot, wanted: PlanRequest
) -> Selection[SelectedSessions]:
    """Choose what never ended in conversations in which nothing was said for so long."""
    cutoff = scene.get_cutoff(wanted)
    return _select_to_end(
        scene,
        (
            (each, _list_open(each), f"never ended, {_describe_activity(each, scene.now)}")
            for each in scene.iter_matching(wanted.where)
            if _is_before(each.last_active_at, cutoff)
        ),
        reason=wanted.reason or "abandoned",
    )


def select_orphaned(scene: MaintenanceSnapshot, wanted: PlanRequest) -> Selection[SelectedSessions]:
    """Choose continuations that never ran: no call to a model was accounted to them."""
    cutoff = scene.get_cutoff(wanted)
    return _select_to_end(
        scene,
        (
            (
                each,
                tuple(filter(_has_never_run, each.removal_order)),
                f"continues {each.root.id} and never ran, {_describe_activity(each, scene.now)}",
            )
            for each in scene.iter_matching(wanted.where)
            if _is_before(each.last_active_at, cutoff)
        ),
        reason=wanted.reason or "orphaned_compression",
    )


def select_named(scene: MaintenanceSnapshot, wanted: PlanRequest) -> Selection[SelectedSessions]:
    """Choose what has not ended of the conversations that are named; a chat may be in them."""
    return _select_to_end(
        scene,
        (
            (each, _list_open(each), f"named, {_describe_activity(each, scene.now)}")
            for each in _iter_named(scene, wanted)
        ),
        reason=wanted.reason or "finalized",
        but=_ROUTED_REASONS,
    )


def select_expired(scene: MaintenanceSnapshot, wanted: PlanRequest) -> Selection[SelectedSessions]:
    """Choose the sessions of chats that the policy would end with their next message."""
    chosen: list[SelectedSessions] = []
    protected: Counter[ProtectionReason] = Counter()
    allowed = {each.id for each in scene.iter_matching(wanted.where)}
    for session, updated_at, reason in _iter_expired(scene):
        conversation = scene.conversations.find_conversation(session.id)
        if conversation is None or conversation.id not in allowed:
            continue
        why = protection.find_protection(
            (session,), scene.alive, removed=False, but=_ROUTED_REASONS
        )
        if why is not None:
            protected[why] += 1
            continue
        used = protection.format_age(updated_at, scene.now)
        words = f"its chat was used last {used}, and its policy ends it ({reason})"
        ended_as = wanted.reason or reason
        chosen.append(
            SelectedSessions(session.id, conversation.title, words, (session,), reason=ended_as)
        )
    return Selection.from_items(chosen, protected)


def _iter_expired(scene: MaintenanceSnapshot) -> Iterator[tuple[InventoryItem, float | None, str]]:
    """Yield the open sessions that a policy has ended, when their chat was used, and the reason.

    Several chats may be in one session: it goes on as long as it does for one of them.
    """
    found: dict[str, tuple[InventoryItem, float | None, str]] = {}
    going_on: set[str] = set()
    entries = {} if scene.store is None else scene.store.load_entries()
    for entry in entries.values():
        session = _find_next_session(scene, entry)
        if session is None or scene.store is None:
            continue
        reason = scene.store.find_expiry_reason(entry)
        if reason is None or entry.expiry_finalized:
            going_on.add(session.id)
        elif session.ended_at is None:
            found[session.id] = session, protection.get_last_use(entry), reason
    return (each for session_id, each in found.items() if session_id not in going_on)


def _find_next_session(scene: MaintenanceSnapshot, entry: SessionEntry) -> InventoryItem | None:
    """Return the session in which the next message of a chat lands, if there is one."""
    conversation = scene.conversations.find_conversation(entry.session_id)
    if conversation is None:
        return None
    session = scene.conversations.stocks[entry.session_id]
    return conversation.tip if session.end_reason == "compression" else session


def _find_candidates(scene: MaintenanceSnapshot, wanted: PlanRequest) -> Iterable[Conversation]:
    if wanted.ids is not None:
        return _iter_named(scene, wanted)
    cutoff = scene.get_cutoff(wanted)
    return (
        each
        for each in scene.iter_matching(wanted.where)
        if each.tip.ended_at is not None and _is_before(each.last_active_at, cutoff)
    )


def _iter_named(scene: MaintenanceSnapshot, wanted: PlanRequest) -> Iterator[Conversation]:
    """Yield what goes with each of the named sessions that a filter is true of, once.

    Raises:
        NotFound: one of them is not there.
    """
    seen: set[str] = set()
    found: list[Conversation] = []
    ids = wanted.ids or ()
    unmatched = set(scene.list_unmatched(ids, wanted.where))
    for session_id in ids:
        if session_id in unmatched:
            continue
        conversation = scene.conversations.find_removed_together(session_id)
        if conversation is None:
            scene.db.get_revision(session_id)
            continue
        found.append(conversation)
    # A delegate that was named beside its conversation goes with that.
    for conversation in sorted(found, key=lambda each: -len(each.sessions)):
        if conversation.id not in seen:
            seen.update(each.id for each in conversation.sessions)
            yield conversation


def _is_before(active_at: float | None, cutoff: float) -> bool:
    """Whether something was active last before a time; what nobody knows is left to protection."""
    return active_at is None or active_at < cutoff


def _select_to_end(
    scene: MaintenanceSnapshot,
    found: Iterable[tuple[Conversation, tuple[InventoryItem, ...], str]],
    *,
    reason: str,
    but: tuple[ProtectionReason, ...] = (),
) -> Selection[SelectedSessions]:
    chosen: list[SelectedSessions] = []
    protected: Counter[ProtectionReason] = Counter()
    for conversation, sessions, words in found:
        if not sessions:
            continue
        why = protection.find_protection(conversation.sessions, scene.alive, removed=False, but=but)
        if why is not None:
            protected[why] += 1
            continue
        chosen.append(
            SelectedSessions(sessions[0].id, conversation.title, words, sessions, reason=reason)
        )
    return Selection.from_items(chosen, protected)


def _list_open(conversation: Conversation) -> tuple[InventoryItem, ...]:
    return tuple(each for each in conversation.removal_order if each.ended_at is None)


def _has_never_run(stock: InventoryItem) -> bool:
    unended = stock.ended_at is None and stock.end_reason is None
    return stock.link == "continuation" and unended and not stock.api_calls and stock.rows > 0


def _describe_age(conversation: Conversation, now: float) -> str:
    return f"{protection.describe_end(conversation.tip)}, {_describe_activity(conversation, now)}"


def _describe_activity(conversation: Conversation, now: float) -> str:
    return f"last active {protection.format_age(conversation.last_active_at, now)}"
