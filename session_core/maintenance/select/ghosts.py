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
from session_core.maintenance.select.conversations import Conversation, Conversations
from session_core.maintenance.select.snapshot import Scene
from session_core.maintenance.types import Chosen, Selection, Wanted, Why
from session_core.types import Stock


def ghosts(scene: Scene, wanted: Wanted) -> Selection[Chosen]:
    """Choose the empty sessions."""
    chosen: list[Chosen] = []
    protected: Counter[Why] = Counter()
    removable, between = _sorted_out(scene.conversations)
    cutoff, allowed = scene.cutoff(wanted), scene.allows(wanted.where)
    for root in _roots(scene.conversations, removable):
        sessions = tuple(_together(scene.conversations, root, removable))
        if not all(_is_before(each, cutoff) and allowed(each) for each in sessions):
            continue
        left_behind = scene.conversations.left_behind(sessions)
        why = protection.of_sessions(sessions, scene.alive, removed=True)
        if why is None and any(_is_at_work(child, scene) for child in left_behind):
            why = "live"
        if why is not None:
            protected[why] += 1
            continue
        begun = protection.ago(root.started_at, scene.now)
        words = f"empty, {protection.end_of(root)}, begun {begun}"
        left = tuple(child.id for child in left_behind)
        chosen.append(Chosen(root.id, None, words, tuple(reversed(sessions)), left))
    stuck = sum(_is_before(each, cutoff) and allowed(each) for each in between)
    if stuck:
        protected["in between"] += stuck
    return Selection.of(chosen, protected)


def _sorted_out(conversations: Conversations) -> tuple[dict[str, Stock], list[Stock]]:
    """Return the ghosts that may go, and those between two parts of a conversation."""
    removable: dict[str, Stock] = {}
    between: list[Stock] = []
    for conversation in conversations.all:
        ghosts, hollow = _empty(conversation, conversations)
        first: set[str | None] = set()
        for each in conversation.sessions:
            if each.id not in ghosts:
                continue
            if not _goes_on(each, conversation) or each.parent_id in first:
                first.add(each.id)
            if each.id in first or each.id in hollow:
                removable[each.id] = each
            else:
                between.append(each)
    return removable, between


def _empty(conversation: Conversation, conversations: Conversations) -> tuple[set[str], set[str]]:
    """Return the empty sessions of a conversation, and those behind which all is empty too."""
    ghosts: set[str] = set()
    hollow: set[str] = set()
    for each in conversation.removal:
        children = conversations.children(each.id)
        delegated = (child.id for child in children if child.link == "delegate")
        if _holds_something(each) or not hollow.issuperset(delegated):
            continue
        ghosts.add(each.id)
        if hollow.issuperset(child.id for child in children if child.link == "continuation"):
            hollow.add(each.id)
    return ghosts, hollow


def _holds_something(stock: Stock) -> bool:
    """Whether somebody would miss it: what its calls have cost is told nowhere else."""
    return bool(stock.rows or (stock.title or "").strip() or stock.api_calls)


def _goes_on(stock: Stock, conversation: Conversation) -> bool:
    return stock.link == "continuation" and stock.id != conversation.id


def _roots(conversations: Conversations, removable: dict[str, Stock]) -> Iterator[Stock]:
    """Yield the ghosts that go with no other one."""
    for conversation in conversations.all:
        for each in conversation.sessions:
            inside = each.id != conversation.id and each.link in ("continuation", "delegate")
            if each.id in removable and not (inside and each.parent_id in removable):
                yield each


def _together(
    conversations: Conversations, root: Stock, removable: dict[str, Stock]
) -> Iterator[Stock]:
    seen, left = {root.id}, [root]
    while left:
        here = left.pop()
        yield here
        for child in conversations.children(here.id):
            inside = child.link in ("continuation", "delegate")
            if inside and child.id in removable and child.id not in seen:
                seen.add(child.id)
                left.append(child)


def _is_before(stock: Stock, cutoff: float) -> bool:
    """Whether nothing came of a session before a time; its end is of no less weight."""
    times = (stock.last_active_at, stock.started_at, stock.ended_at)
    return all(time is None or time < cutoff for time in times)


def _is_at_work(stock: Stock, scene: Scene) -> bool:
    routed = stock.id in scene.alive.routes
    at_work = scene.alive.company.at_work(stock.id, stock.last_active_at, routed=routed)
    return at_work is not None or stock.id in scene.alive.compressing
