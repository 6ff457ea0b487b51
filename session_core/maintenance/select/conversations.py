"""Group the sessions of a home into conversations: root to tip, with all delegated sessions.

A conversation is removed as a whole or not at all. A branch is a conversation of its own, like any
session with another kind of link to its parent. The root of a cycle is the session that began
first; a session with a missing parent is a root. Grouping takes time proportional to the number of
sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from session_core.types import InventoryItem

_INSIDE_LINKS = ("continuation", "delegate")


@dataclass(frozen=True, slots=True)
class Conversation:
    """Sessions that belong together, each after the session that it continues or works for."""

    root: InventoryItem
    tip: InventoryItem
    sessions: tuple[InventoryItem, ...]
    last_active_at: float | None
    """The time of the last message in any of its sessions; None if one of them has no known
    time."""

    @classmethod
    def from_sessions(
        cls, root: InventoryItem, tip: InventoryItem, sessions: tuple[InventoryItem, ...]
    ) -> Conversation:
        """Return the conversation of these sessions."""
        times = [session.last_active_at for session in sessions]
        known_times = [time for time in times if time is not None]
        return cls(
            root, tip, sessions, max(known_times) if len(known_times) == len(times) else None
        )

    @property
    def id(self) -> str:
        """The id of its root."""
        return self.root.id

    @property
    def title(self) -> str | None:
        """The title of its tip, else the last title in the chain."""
        if self.tip.title or len(self.sessions) == 1:
            return self.tip.title
        chain = {self.root.id}
        title = self.root.title
        for session in self.sessions[1:]:
            if session.link == "continuation" and session.parent_id in chain:
                chain.add(session.id)
                title = session.title or title
        return title

    @property
    def rows(self) -> int:
        """The number of its messages, including compacted messages."""
        return sum(session.rows for session in self.sessions)

    @property
    def removal_order(self) -> tuple[InventoryItem, ...]:
        """The sessions of the conversation in the order of removal.

        The tip comes first, and each session comes after the sessions that it delegated to, so that
        an interrupted removal leaves an ordinary shorter conversation.
        """
        return tuple(reversed(self.sessions))


class ConversationIndex:
    """All conversations of an inventory."""

    def __init__(self, items: Iterable[InventoryItem]) -> None:
        self.sessions: Mapping[str, InventoryItem] = {item.id: item for item in items}
        self._children: dict[str, list[InventoryItem]] = {}
        for item in self.sessions.values():
            if item.parent_id is not None and item.parent_id in self.sessions:
                self._children.setdefault(item.parent_id, []).append(item)
        self.cycles = _find_cycles(self.sessions)
        """Sessions that are each other's ancestors; each cycle begins with its oldest session."""
        self._by_session: dict[str, Conversation] = {}
        self.all = [self._build_conversation(root) for root in self._find_roots()]
        """Every conversation, the oldest first."""
        for conversation in self.all:
            self._by_session.update(
                dict.fromkeys((item.id for item in conversation.sessions), conversation)
            )

    @property
    def parentless_sessions(self) -> list[InventoryItem]:
        """The sessions with a missing parent."""
        return [
            session
            for session in self.sessions.values()
            if session.parent_id is not None and session.parent_id not in self.sessions
        ]

    def find_conversation(self, session_id: str) -> Conversation | None:
        """Return the conversation of a session."""
        return self._by_session.get(session_id)

    def find_removed_together(self, session_id: str) -> Conversation | None:
        """Return the sessions that are removed if this session is named.

        These are its whole conversation. For a delegated session, they are that session and its own
        delegates, without the session that it worked for.
        """
        whole, session = self._by_session.get(session_id), self.sessions.get(session_id)
        if whole is None or session is None:
            return None
        visited = {session.id}
        while session.link == "continuation" and (parent := self._find_parent(session)) is not None:
            if parent.id in visited:
                return whole
            visited.add(parent.id)
            session = parent
        delegator = (
            self._find_parent(session)
            if session.link == "delegate" and session.id != whole.id
            else None
        )
        if delegator is None:
            return whole
        own_part = self._build_conversation(session)
        return whole if delegator in own_part.sessions else own_part

    def list_children(self, session_id: str) -> Sequence[InventoryItem]:
        """Return the sessions with this parent."""
        return self._children.get(session_id, ())

    def list_left_behind(self, sessions: Iterable[InventoryItem]) -> list[InventoryItem]:
        """Return the sessions that lose their parent if these sessions are removed."""
        removed = {session.id for session in sessions}
        return [
            child
            for parent in removed
            for child in self._children.get(parent, ())
            if child.id not in removed
        ]

    def _find_parent(self, session: InventoryItem) -> InventoryItem | None:
        return None if session.parent_id is None else self.sessions.get(session.parent_id)

    def _find_roots(self) -> list[InventoryItem]:
        """Return the roots of conversations, in a cycle the oldest session."""
        roots = [
            session for session in self.sessions.values() if not _is_inside(session, self.sessions)
        ]
        # A cycle with a member that is a root already has no other one.
        roots += [
            cycle[0]
            for cycle in self.cycles
            if all(_is_inside(session, self.sessions) for session in cycle)
        ]
        return sorted(roots, key=_make_age_key)

    def _build_conversation(self, root: InventoryItem) -> Conversation:
        if root.id not in self._children:
            return Conversation(root, root, (root,), root.last_active_at)
        return Conversation.from_sessions(
            root, self._find_tip(root), tuple(self._iter_sessions(root))
        )

    def _iter_sessions(self, root: InventoryItem) -> Iterator[InventoryItem]:
        """Yield a session, its delegates, then its continuations, each with its descendants."""
        visited = {root.id}
        stack = [root]
        while stack:
            session = stack.pop()
            yield session
            following = [
                child
                for child in sorted(
                    self.list_children(session.id), key=_make_rank_key, reverse=True
                )
                if child.link in _INSIDE_LINKS and child.id not in visited
            ]
            visited.update(child.id for child in following)
            # The last item of the stack is next: delegates before continuations, and of several
            # continuations the one that was continued comes at the very end.
            stack += sorted(following, key=lambda child: child.link == "delegate")

    def _find_tip(self, root: InventoryItem) -> InventoryItem:
        visited = {root.id}
        session = root
        while True:
            following = [
                child
                for child in self.list_children(session.id)
                if child.link == "continuation" and child.id not in visited
            ]
            if not following:
                return session
            session = max(following, key=_make_rank_key)
            visited.add(session.id)


def _is_inside(session: InventoryItem, sessions: Mapping[str, InventoryItem]) -> bool:
    return session.link in _INSIDE_LINKS and session.parent_id in sessions


def _find_cycles(sessions: Mapping[str, InventoryItem]) -> list[list[InventoryItem]]:
    """Return the sets of sessions that are each other's ancestors.

    A session has at most one parent.
    """
    cycles: list[list[InventoryItem]] = []
    finished = {session.id for session in sessions.values() if session.parent_id is None}
    for start in sessions.values():
        if start.id in finished:
            continue
        path: dict[str, InventoryItem] = {}
        current: InventoryItem | None = start
        while current is not None and current.id not in finished and current.id not in path:
            path[current.id] = current
            current = None if current.parent_id is None else sessions.get(current.parent_id)
        if current is not None and current.id in path:
            chain = list(path.values())
            cycles.append(sorted(chain[chain.index(current) :], key=_make_age_key))
        finished.update(path)
    return cycles


def _make_age_key(session: InventoryItem) -> tuple[float, str]:
    return session.started_at, session.id


def _make_rank_key(session: InventoryItem) -> tuple[int, float, float, str]:
    """Return a sort key for continuations: compressed again first, then open, then all others."""
    # The same order as in `get_compression_tip`.
    state = 2 if session.end_reason == "compression" else int(session.ended_at is None)
    last = session.started_at if session.last_active_at is None else session.last_active_at
    return state, last, session.started_at, session.id
