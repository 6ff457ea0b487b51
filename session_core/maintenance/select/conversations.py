"""The sessions of a home as conversations: root to tip, with all that they delegated.

A conversation is what goes as a whole or not at all. A branch is one of its own, as is whatever
else only came from another session. In a cycle the session that began first is the root; where a
parent is not there its child is. All of it takes time in proportion to the number of sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from session_core.types import InventoryItem

_INSIDE_LINKS = ("continuation", "delegate")


@dataclass(frozen=True, slots=True)
class Conversation:
    """Sessions that belong together, each behind the one that it continues or works for."""

    root: InventoryItem
    tip: InventoryItem
    sessions: tuple[InventoryItem, ...]
    last_active_at: float | None
    """When something was said last in any of its sessions; None where one does not tell."""

    @classmethod
    def from_sessions(
        cls, root: InventoryItem, tip: InventoryItem, sessions: tuple[InventoryItem, ...]
    ) -> Conversation:
        """Return the conversation of these sessions."""
        times = [each.last_active_at for each in sessions]
        known = [time for time in times if time is not None]
        return cls(root, tip, sessions, max(known) if len(known) == len(times) else None)

    @property
    def id(self) -> str:
        """The id of its root."""
        return self.root.id

    @property
    def title(self) -> str | None:
        """The title of its tip, else the last one that it had."""
        if self.tip.title or len(self.sessions) == 1:
            return self.tip.title
        inside = {self.root.id}
        title = self.root.title
        for each in self.sessions[1:]:
            if each.link == "continuation" and each.parent_id in inside:
                inside.add(each.id)
                title = each.title or title
        return title

    @property
    def rows(self) -> int:
        """How many messages it has, live or not."""
        return sum(each.rows for each in self.sessions)

    @property
    def removal_order(self) -> tuple[InventoryItem, ...]:
        """Its sessions in the order in which they are removed.

        The tip first, and before each session what that delegated: what a removal that was stopped
        leaves is an ordinary older conversation.
        """
        return tuple(reversed(self.sessions))


class ConversationIndex:
    """All conversations of an inventory."""

    def __init__(self, stocks: Iterable[InventoryItem]) -> None:
        self.stocks: Mapping[str, InventoryItem] = {each.id: each for each in stocks}
        self._children: dict[str, list[InventoryItem]] = {}
        for each in self.stocks.values():
            if each.parent_id is not None and each.parent_id in self.stocks:
                self._children.setdefault(each.parent_id, []).append(each)
        self.cycles = _find_cycles(self.stocks)
        """Sessions that are each other's ancestors, each cycle from the one that began first."""
        self._of: dict[str, Conversation] = {}
        self.all = [self._build_conversation(root) for root in self._find_roots()]
        """Every conversation, the one that began first before the others."""
        for conversation in self.all:
            self._of.update(
                dict.fromkeys((each.id for each in conversation.sessions), conversation)
            )

    @property
    def parentless_sessions(self) -> list[InventoryItem]:
        """The sessions whose parent is not there."""
        return [
            each
            for each in self.stocks.values()
            if each.parent_id is not None and each.parent_id not in self.stocks
        ]

    def find_conversation(self, session_id: str) -> Conversation | None:
        """Return the conversation that a session is a part of."""
        return self._of.get(session_id)

    def find_removed_together(self, session_id: str) -> Conversation | None:
        """Return what goes when somebody names a session.

        The whole conversation; of what was delegated, that and what it delegated in turn, never the
        session that it worked for.
        """
        whole, here = self._of.get(session_id), self.stocks.get(session_id)
        if whole is None or here is None:
            return None
        seen = {here.id}
        while here.link == "continuation" and (parent := self._find_parent(here)) is not None:
            if parent.id in seen:
                return whole
            seen.add(parent.id)
            here = parent
        boss = self._find_parent(here) if here.link == "delegate" and here.id != whole.id else None
        if boss is None:
            return whole
        alone = self._build_conversation(here)
        return whole if boss in alone.sessions else alone

    def list_children(self, session_id: str) -> Sequence[InventoryItem]:
        """Return the sessions whose parent this is."""
        return self._children.get(session_id, ())

    def list_left_behind(self, sessions: Iterable[InventoryItem]) -> list[InventoryItem]:
        """Return the sessions that lose their parent when these go."""
        gone = {each.id for each in sessions}
        return [
            child
            for parent in gone
            for child in self._children.get(parent, ())
            if child.id not in gone
        ]

    def _find_parent(self, stock: InventoryItem) -> InventoryItem | None:
        return None if stock.parent_id is None else self.stocks.get(stock.parent_id)

    def _find_roots(self) -> list[InventoryItem]:
        """Return where conversations begin; in a cycle that is where it began first."""
        roots = [each for each in self.stocks.values() if not _is_inside(each, self.stocks)]
        roots += [
            cycle[0]
            for cycle in self.cycles
            if all(_is_inside(each, self.stocks) for each in cycle)
        ]
        return sorted(roots, key=_make_age_key)

    def _build_conversation(self, root: InventoryItem) -> Conversation:
        if root.id not in self._children:
            return Conversation(root, root, (root,), root.last_active_at)
        return Conversation.from_sessions(
            root, self._find_tip(root), tuple(self._iter_sessions(root))
        )

    def _iter_sessions(self, root: InventoryItem) -> Iterator[InventoryItem]:
        """Yield a session, what it delegated, and then what continues it, each as a whole."""
        seen = {root.id}
        left = [root]
        while left:
            here = left.pop()
            yield here
            following = [
                child
                for child in sorted(self.list_children(here.id), key=_make_rank_key, reverse=True)
                if child.link in _INSIDE_LINKS and child.id not in seen
            ]
            seen.update(child.id for child in following)
            # What is put in last is taken next: delegates before continuations, and of several
            # continuations the one that was gone on with at the very last.
            left += sorted(following, key=lambda child: child.link == "delegate")

    def _find_tip(self, root: InventoryItem) -> InventoryItem:
        seen = {root.id}
        here = root
        while True:
            following = [
                child
                for child in self.list_children(here.id)
                if child.link == "continuation" and child.id not in seen
            ]
            if not following:
                return here
            here = max(following, key=_make_rank_key)
            seen.add(here.id)


def _is_inside(stock: InventoryItem, stocks: Mapping[str, InventoryItem]) -> bool:
    return stock.link in _INSIDE_LINKS and stock.parent_id in stocks


def _find_cycles(stocks: Mapping[str, InventoryItem]) -> list[list[InventoryItem]]:
    """Return the sessions that are each other's ancestors; a session has one parent at most."""
    found: list[list[InventoryItem]] = []
    settled = {each.id for each in stocks.values() if each.parent_id is None}
    for start in stocks.values():
        if start.id in settled:
            continue
        path: dict[str, InventoryItem] = {}
        here: InventoryItem | None = start
        while here is not None and here.id not in settled and here.id not in path:
            path[here.id] = here
            here = None if here.parent_id is None else stocks.get(here.parent_id)
        if here is not None and here.id in path:
            walked = list(path.values())
            found.append(sorted(walked[walked.index(here) :], key=_make_age_key))
        settled.update(path)
    return found


def _make_age_key(stock: InventoryItem) -> tuple[float, str]:
    return stock.started_at, stock.id


def _make_rank_key(stock: InventoryItem) -> tuple[int, float, float, str]:
    """Of several continuations, the one that was gone on with: compressed again, live, other."""
    state = 2 if stock.end_reason == "compression" else int(stock.ended_at is None)
    last = stock.started_at if stock.last_active_at is None else stock.last_active_at
    return state, last, stock.started_at, stock.id
