"""Which sessions a plan is about: one function a kind, over the inventory and who is alive.

Age is the last activity of a whole conversation, whatever other filters there are. A filter is
judged by the tip, which is the line of a conversation in a list, `started_*` by its root. What
would be chosen and is protected is counted by its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from session_core.alive import Alive
from session_core.errors import InvalidInput
from session_core.maintenance import protection, wording
from session_core.maintenance.conversations import Conversation, Conversations
from session_core.maintenance.records import Chosen, Selection, Wanted, Why
from session_core.models import SessionFilter, Stock
from session_core.routing.store import SessionStore
from session_core.state.contract import StateDatabase

_DAY_S = 86_400.0
_ROUTED: tuple[Why, ...] = ("routed",)


@dataclass(frozen=True, slots=True)
class Scene:
    """What every kind looks at: a home as it was at one moment."""

    db: StateDatabase
    conversations: Conversations
    alive: Alive
    store: SessionStore | None = None

    @property
    def now(self) -> float:
        """The moment."""
        return self.alive.company.at

    def cutoff(self, wanted: Wanted) -> float:
        """Return before which time something has to have been active last.

        Raises:
            InvalidInput: that is no age.
        """
        days = wanted.age_days
        if not 0 <= days < float("inf"):
            raise InvalidInput(f"older_than_days is {days}; 0 or more")
        return self.now - days * _DAY_S


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
            for each in matching(scene, wanted.where)
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
            for each in matching(scene, wanted.where)
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
            for each in _named(scene, wanted.ids or ())
        ),
        reason=wanted.reason or "finalized",
        but=_ROUTED,
    )


def expired(scene: Scene, wanted: Wanted) -> Selection[Chosen]:
    """Choose the sessions of chats that the policy would end with their next message."""
    chosen: list[Chosen] = []
    protected: Counter[Why] = Counter()
    allowed = {each.id for each in matching(scene, wanted.where)}
    for session, updated_at, reason in _expired(scene):
        conversation = scene.conversations.of(session.id)
        if conversation is None or conversation.id not in allowed:
            continue
        why = protection.of_sessions((session,), scene.alive, removed=False, but=_ROUTED)
        if why is not None:
            protected[why] += 1
            continue
        used = wording.ago(updated_at, scene.now)
        words = f"its chat was used last {used}, and its policy ends it ({reason})"
        ended_as = wanted.reason or reason
        chosen.append(Chosen(session.id, conversation.title, words, (session,), reason=ended_as))
    return Selection.of(chosen, protected)


def _expired(scene: Scene) -> Iterator[tuple[Stock, float | None, str]]:
    """Yield the open sessions that a policy has ended, when their chat was used, and the reason."""
    if scene.store is None:
        return
    for entry in scene.store.entries().values():
        reason = scene.store.is_session_expired(entry)
        conversation = scene.conversations.of(entry.session_id)
        if reason is None or conversation is None or entry.expiry_finalized:
            continue
        session = scene.conversations.stocks[entry.session_id]
        if session.end_reason == "compression":
            session = conversation.tip
        if session.ended_at is None:
            yield session, wording.used_at(entry), reason


def matching(scene: Scene, where: SessionFilter) -> Iterable[Conversation]:
    """Return the conversations that a filter is true of."""
    rest = replace(
        where, started_after=None, started_before=None, active_after=None, active_before=None
    )
    found: Iterable[Conversation] = scene.conversations.all
    if rest == SessionFilter():
        found = (each for each in found if not each.tip.archived)
    else:
        ids = set(scene.db.find_sessions(rest))
        found = (each for each in found if each.tip.id in ids)
    return found if rest == where else (each for each in found if _is_within(each, where))


def allowed_by(scene: Scene, where: SessionFilter) -> Callable[[Stock], bool]:
    """Return whether a filter is true of a session itself; without a status also archived ones."""
    if where == SessionFilter():
        return lambda _: True
    ids = set(scene.db.find_sessions(replace(where, status=where.status or "all")))
    return lambda stock: stock.id in ids


def _is_within(conversation: Conversation, where: SessionFilter) -> bool:
    started, active = conversation.root.started_at, conversation.last_active_at
    return (
        (where.started_after is None or started >= where.started_after)
        and (where.started_before is None or started < where.started_before)
        and (where.active_after is None or active is None or active >= where.active_after)
        and (where.active_before is None or active is None or active < where.active_before)
    )


def _candidates(scene: Scene, wanted: Wanted) -> Iterable[Conversation]:
    if wanted.ids is not None:
        return _named(scene, wanted.ids)
    cutoff = scene.cutoff(wanted)
    return (
        each
        for each in matching(scene, wanted.where)
        if each.tip.ended_at is not None and _is_before(each.last_active_at, cutoff)
    )


def _named(scene: Scene, ids: Iterable[str]) -> Iterator[Conversation]:
    """Yield what goes with each of the named sessions, once.

    Raises:
        NotFound: one of them is not there.
    """
    seen: set[str] = set()
    found: list[Conversation] = []
    for session_id in ids:
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
    return f"{wording.end_of(conversation.tip)}, {_last_active(conversation, now)}"


def _last_active(conversation: Conversation, now: float) -> str:
    return f"last active {wording.ago(conversation.last_active_at, now)}"
