"""Which sessions a plan is about: one function a kind, over the inventory and who is alive.

Age is the last activity of a whole conversation, whatever other filters there are. What would be
chosen and is protected is counted by its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from session_core.maintenance.select import protection
from session_core.maintenance.select.conversations import Conversation
from session_core.maintenance.select.snapshot import Scene
from session_core.maintenance.types import Chosen, Selection, Wanted, Why
from session_core.routing.entries import SessionEntry
from session_core.types import Stock

_ROUTED: tuple[Why, ...] = ("routed",)


def old_sessions(scene: Scene, wanted: Wanted) -> Selection[Chosen]:
    """Choose ended conversations in which nothing was said for so long, or those that are named."""
    chosen: list[Chosen] = []
    protected: Counter[Why] = Counter()
    for conversation in _candidates(scene, wanted):
        why = protection.of_sessions(conversation.sessions, scene.alive, removed=True)
        if why is not None:
            protected[why] += 1
            continue
        left_behind = scene.conversations.left_behind(conversation.sessions)
        chosen.append(
            Chosen(
                id=conversation.id,
                title=conversation.title,
                why=_old(conversation, scene.now),
                sessions=conversation.removal,
                left_behind=tuple(each.id for each in left_behind),
            )
        )
    return Selection.of(chosen, protected)


def abandoned(scene: Scene, wanted: Wanted) -> Selection[Chosen]:
    """Choose what never ended in conversations in which nothing was said for so long."""
    cutoff = scene.cutoff(wanted)
    return _ended(
        scene,
        (
            (each, _open(each), f"never ended, {_last_active(each, scene.now)}")
            for each in scene.matching(wanted.where)
            if _is_before(each.last_active_at, cutoff)
        ),
        reason=wanted.reason or "abandoned",
    )


def orphaned(scene: Scene, wanted: Wanted) -> Selection[Chosen]:
    """Choose continuations that never ran: no call to a model was accounted to them."""
    cutoff = scene.cutoff(wanted)
    return _ended(
        scene,
        (
            (
                each,
                tuple(filter(_never_ran, each.removal)),
                f"continues {each.root.id} and never ran, {_last_active(each, scene.now)}",
            )
            for each in scene.matching(wanted.where)
            if _is_before(each.last_active_at, cutoff)
        ),
        reason=wanted.reason or "orphaned_compression",
    )


def named(scene: Scene, wanted: Wanted) -> Selection[Chosen]:
    """Choose what has not ended of the conversations that are named; a chat may be in them."""
    return _ended(
        scene,
        (
            (each, _open(each), f"named, {_last_active(each, scene.now)}")
            for each in _named(scene, wanted)
        ),
        reason=wanted.reason or "finalized",
        but=_ROUTED,
    )


def expired(scene: Scene, wanted: Wanted) -> Selection[Chosen]:
    """Choose the sessions of chats that the policy would end with their next message."""
    chosen: list[Chosen] = []
    protected: Counter[Why] = Counter()
    allowed = {each.id for each in scene.matching(wanted.where)}
    for session, updated_at, reason in _expired(scene):
        conversation = scene.conversations.of(session.id)
        if conversation is None or conversation.id not in allowed:
            continue
        why = protection.of_sessions((session,), scene.alive, removed=False, but=_ROUTED)
        if why is not None:
            protected[why] += 1
            continue
        used = protection.ago(updated_at, scene.now)
        words = f"its chat was used last {used}, and its policy ends it ({reason})"
        ended_as = wanted.reason or reason
        chosen.append(Chosen(session.id, conversation.title, words, (session,), reason=ended_as))
    return Selection.of(chosen, protected)


def _expired(scene: Scene) -> Iterator[tuple[Stock, float | None, str]]:
    """Yield the open sessions that a policy has ended, when their chat was used, and the reason.

    Several chats may be in one session: it goes on as long as it does for one of them.
    """
    found: dict[str, tuple[Stock, float | None, str]] = {}
    going_on: set[str] = set()
    entries = {} if scene.store is None else scene.store.entries()
    for entry in entries.values():
        session = _led_to(scene, entry)
        if session is None or scene.store is None:
            continue
        reason = scene.store.is_session_expired(entry)
        if reason is None or entry.expiry_finalized:
            going_on.add(session.id)
        elif session.ended_at is None:
            found[session.id] = session, protection.used_at(entry), reason
    return (each for session_id, each in found.items() if session_id not in going_on)


def _led_to(scene: Scene, entry: SessionEntry) -> Stock | None:
    """Return the session in which the next message of a chat lands, if there is one."""
    conversation = scene.conversations.of(entry.session_id)
    if conversation is None:
        return None
    session = scene.conversations.stocks[entry.session_id]
    return conversation.tip if session.end_reason == "compression" else session


def _candidates(scene: Scene, wanted: Wanted) -> Iterable[Conversation]:
    if wanted.ids is not None:
        return _named(scene, wanted)
    cutoff = scene.cutoff(wanted)
    return (
        each
        for each in scene.matching(wanted.where)
        if each.tip.ended_at is not None and _is_before(each.last_active_at, cutoff)
    )


def _named(scene: Scene, wanted: Wanted) -> Iterator[Conversation]:
    """Yield what goes with each of the named sessions that a filter is true of, once.

    Raises:
        NotFound: one of them is not there.
    """
    seen: set[str] = set()
    found: list[Conversation] = []
    ids = wanted.ids or ()
    unmatched = set(scene.unmatched(ids, wanted.where))
    for session_id in ids:
        if session_id in unmatched:
            continue
        conversation = scene.conversations.named(session_id)
        if conversation is None:
            scene.db.revision(session_id)
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


def _ended(
    scene: Scene,
    found: Iterable[tuple[Conversation, tuple[Stock, ...], str]],
    *,
    reason: str,
    but: tuple[Why, ...] = (),
) -> Selection[Chosen]:
    chosen: list[Chosen] = []
    protected: Counter[Why] = Counter()
    for conversation, sessions, words in found:
        if not sessions:
            continue
        why = protection.of_sessions(conversation.sessions, scene.alive, removed=False, but=but)
        if why is not None:
            protected[why] += 1
            continue
        chosen.append(Chosen(sessions[0].id, conversation.title, words, sessions, reason=reason))
    return Selection.of(chosen, protected)


def _open(conversation: Conversation) -> tuple[Stock, ...]:
    return tuple(each for each in conversation.removal if each.ended_at is None)


def _never_ran(stock: Stock) -> bool:
    unended = stock.ended_at is None and stock.end_reason is None
    return stock.link == "continuation" and unended and not stock.api_calls and stock.rows > 0


def _old(conversation: Conversation, now: float) -> str:
    return f"{protection.end_of(conversation.tip)}, {_last_active(conversation, now)}"


def _last_active(conversation: Conversation, now: float) -> str:
    return f"last active {protection.ago(conversation.last_active_at, now)}"
