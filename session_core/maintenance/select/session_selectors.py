"""Select the sessions of a plan: one function for each kind, over the inventory and the activity.

The age counts from the last activity of the whole conversation, also with other filters. Protected
sessions that would be selected are counted by reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from session_core.maintenance.select import protection
from session_core.maintenance.select.conversations import Conversation
from session_core.maintenance.select.snapshot import MaintenanceSnapshot
from session_core.maintenance.types import (
    PlanRequest,
    ProtectedItems,
    ProtectionReason,
    SelectedSessions,
    Selection,
)
from session_core.routing.entries import SessionEntry
from session_core.types import InventoryItem

_ROUTED_REASONS: tuple[ProtectionReason, ...] = ("routed",)

OWNER_EXEMPT: tuple[ProtectionReason, ...] = ("live", "never ended", "ended lately", "no known age")
"""Reasons that do not count if the owner of the sessions deletes them."""


def select_old_sessions(
    snapshot: MaintenanceSnapshot, request: PlanRequest
) -> Selection[SelectedSessions]:
    """Select the named conversations, or ended conversations without activity since the cutoff."""
    return _select_to_remove(snapshot, _find_candidates(snapshot, request))


def select_named_to_delete(
    snapshot: MaintenanceSnapshot, request: PlanRequest
) -> Selection[SelectedSessions]:
    """Select the named conversations, as their owner deletes them."""
    return _select_to_remove(snapshot, _iter_named(snapshot, request), exempt=OWNER_EXEMPT)


def _select_to_remove(
    snapshot: MaintenanceSnapshot,
    candidates: Iterable[Conversation],
    *,
    exempt: tuple[ProtectionReason, ...] = (),
) -> Selection[SelectedSessions]:
    selected: list[SelectedSessions] = []
    protected = ProtectedItems()
    for conversation in candidates:
        reason = protection.find_protection(
            *(conversation.sessions, snapshot.activity),
            removed=True,
            exempt=exempt,
            kept=snapshot.kept,
        )
        if reason is not None:
            protected.add(reason, conversation.id)
            continue
        left_behind = snapshot.conversations.list_left_behind(conversation.sessions)
        selected.append(
            SelectedSessions(
                id=conversation.id,
                title=conversation.title,
                why=_describe_age(conversation, snapshot.now),
                sessions=conversation.removal_order,
                left_behind=tuple(session.id for session in left_behind),
            )
        )
    return Selection.from_items(selected, protected)


def select_abandoned(
    snapshot: MaintenanceSnapshot, request: PlanRequest
) -> Selection[SelectedSessions]:
    """Select open sessions of conversations without activity since the cutoff."""
    cutoff = snapshot.get_cutoff(request)
    return _select_to_end(
        snapshot,
        (
            (
                conversation,
                _list_open(conversation),
                f"never ended, {_describe_activity(conversation, snapshot.now)}",
            )
            for conversation in snapshot.iter_matching(request.where)
            if _is_before_cutoff(conversation.last_active_at, cutoff)
        ),
        reason=request.reason or "abandoned",
    )


def select_orphaned_continuations(
    snapshot: MaintenanceSnapshot, request: PlanRequest
) -> Selection[SelectedSessions]:
    """Select continuations for which no call to a model was recorded."""
    cutoff, now = snapshot.get_cutoff(request), snapshot.now
    return _select_to_end(
        snapshot,
        (
            (
                item,
                tuple(filter(_has_never_run, item.removal_order)),
                f"continues {item.root.id} and never ran, {_describe_activity(item, now)}",
            )
            for item in snapshot.iter_matching(request.where)
            if _is_before_cutoff(item.last_active_at, cutoff)
        ),
        reason=request.reason or "orphaned_compression",
    )


def select_named_to_end(
    snapshot: MaintenanceSnapshot, request: PlanRequest
) -> Selection[SelectedSessions]:
    """Select the open sessions of the named conversations, even if a chat is routed to them."""
    return _select_to_end(
        snapshot,
        (
            (
                conversation,
                _list_open(conversation),
                f"named, {_describe_activity(conversation, snapshot.now)}",
            )
            for conversation in _iter_named(snapshot, request)
        ),
        reason=request.reason or "finalized",
        exempt=_ROUTED_REASONS,
    )


def select_expired(
    snapshot: MaintenanceSnapshot, request: PlanRequest
) -> Selection[SelectedSessions]:
    """Select the sessions of chats that the reset policy would end at their next message."""
    selected: list[SelectedSessions] = []
    protected = ProtectedItems()
    allowed = {match.id for match in snapshot.iter_matching(request.where)}
    for session, updated_at, reason in _iter_expired(snapshot):
        conversation = snapshot.conversations.find_conversation(session.id)
        if conversation is None or conversation.id not in allowed:
            continue
        protection_reason = protection.find_protection(
            (session,), snapshot.activity, removed=False, exempt=_ROUTED_REASONS, kept=snapshot.kept
        )
        if protection_reason is not None:
            protected.add(protection_reason, session.id)
            continue
        age = protection.format_age(updated_at, snapshot.now)
        text = f"its chat was used last {age}, and its policy ends it ({reason})"
        ended_as = request.reason or reason
        selected.append(
            SelectedSessions(session.id, conversation.title, text, (session,), reason=ended_as)
        )
    return Selection.from_items(selected, protected)


def _iter_expired(
    snapshot: MaintenanceSnapshot,
) -> Iterator[tuple[InventoryItem, float | None, str]]:
    """Yield the expired open sessions, the last use of their chat, and the reason.

    Several chats may share a session: it goes on while one of them has not expired.
    """
    expired: dict[str, tuple[InventoryItem, float | None, str]] = {}
    active: set[str] = set()
    entries = {} if snapshot.store is None else snapshot.store.load_entries()
    for entry in entries.values():
        session = _find_next_session(snapshot, entry)
        if session is None or snapshot.store is None:
            continue
        reason = snapshot.store.find_expiry_reason(entry)
        if reason is None or entry.expiry_finalized:
            active.add(session.id)
        elif session.ended_at is None:
            expired[session.id] = session, protection.get_last_use(entry), reason
    return (item for session_id, item in expired.items() if session_id not in active)


def _find_next_session(snapshot: MaintenanceSnapshot, entry: SessionEntry) -> InventoryItem | None:
    """Return the session that the next message of a chat goes to, if there is one."""
    conversation = snapshot.conversations.find_conversation(entry.session_id)
    if conversation is None:
        return None
    session = snapshot.conversations.sessions[entry.session_id]
    # A compressed session continues in its tip, so a policy would end the tip.
    return conversation.tip if session.end_reason == "compression" else session


def _find_candidates(snapshot: MaintenanceSnapshot, request: PlanRequest) -> Iterable[Conversation]:
    if request.ids is not None:
        return _iter_named(snapshot, request)
    cutoff = snapshot.get_cutoff(request)
    return (
        conversation
        for conversation in snapshot.iter_matching(request.where)
        if conversation.tip.ended_at is not None
        and _is_before_cutoff(conversation.last_active_at, cutoff)
    )


def _iter_named(snapshot: MaintenanceSnapshot, request: PlanRequest) -> Iterator[Conversation]:
    """Yield the conversation of each named session that matches the filter, once.

    Raises:
        NotFound: a named session does not exist.
    """
    yielded: set[str] = set()
    named: list[Conversation] = []
    ids = request.ids or ()
    unmatched = set(snapshot.list_unmatched(ids, request.where))
    for session_id in ids:
        if session_id in unmatched:
            continue
        conversation = snapshot.conversations.find_removed_together(session_id)
        if conversation is None:
            # Raises for an unknown id, and passes one that was stored after the snapshot.
            snapshot.db.get_revision(session_id)
            continue
        named.append(conversation)
    # A delegate that is named next to its conversation is removed with that.
    for conversation in sorted(named, key=lambda item: -len(item.sessions)):
        if conversation.id not in yielded:
            yielded.update(session.id for session in conversation.sessions)
            yield conversation


def _is_before_cutoff(active_at: float | None, cutoff: float) -> bool:
    """Return True if the last activity was before the cutoff or is unknown.

    The protection rules decide about unknown times.
    """
    return active_at is None or active_at < cutoff


def _select_to_end(
    snapshot: MaintenanceSnapshot,
    candidates: Iterable[tuple[Conversation, tuple[InventoryItem, ...], str]],
    *,
    reason: str,
    exempt: tuple[ProtectionReason, ...] = (),
) -> Selection[SelectedSessions]:
    selected: list[SelectedSessions] = []
    protected = ProtectedItems()
    for conversation, sessions, text in candidates:
        if not sessions:
            continue
        protection_reason = protection.find_protection(
            *(conversation.sessions, snapshot.activity),
            removed=False,
            exempt=exempt,
            kept=snapshot.kept,
        )
        if protection_reason is not None:
            protected.add(protection_reason, conversation.id)
            continue
        selected.append(
            SelectedSessions(sessions[0].id, conversation.title, text, sessions, reason=reason)
        )
    return Selection.from_items(selected, protected)


def _list_open(conversation: Conversation) -> tuple[InventoryItem, ...]:
    return tuple(session for session in conversation.removal_order if session.ended_at is None)


def _has_never_run(session: InventoryItem) -> bool:
    unended = session.ended_at is None and session.end_reason is None
    return session.link == "continuation" and unended and not session.api_calls and session.rows > 0


def _describe_age(conversation: Conversation, now: float) -> str:
    return f"{protection.describe_end(conversation.tip)}, {_describe_activity(conversation, now)}"


def _describe_activity(conversation: Conversation, now: float) -> str:
    return f"last active {protection.format_age(conversation.last_active_at, now)}"
