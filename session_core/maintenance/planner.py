"""What a plan comes to have in it: whatever each kind chose, as members, each of them once.

Makes plans: what was chosen, each with what it is now, recorded in the ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from session_core import activity
from session_core.errors import InvalidInput
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import Member
from session_core.maintenance import disk, members, vacuum
from session_core.maintenance.health import folder_of
from session_core.maintenance.members import Part
from session_core.maintenance.select import ghosts, orphans, routes, sessions, snapshot
from session_core.maintenance.select.conversations import Conversations
from session_core.maintenance.select.snapshot import Scene
from session_core.maintenance.types import (
    MOST_ITEMS,
    Bytes,
    Chosen,
    Item,
    Preview,
    Rows,
    Selection,
    Wanted,
    Why,
    said,
)
from session_core.routing.store import SessionStore
from session_core.state.protocol import StateDatabase
from session_core.state.validation import check_line
from session_core.types import Facts

CHOOSERS: Mapping[str, tuple[Part, Callable[[Scene, Wanted], Selection[Chosen]]]] = {
    "prune sessions": ("sessions", sessions.old_sessions),
    "prune ghosts": ("ghosts", ghosts.ghosts),
    "finalize sessions": ("ended", sessions.named),
    "finalize expired": ("ended", sessions.expired),
    "finalize orphaned": ("ended", sessions.orphaned),
    "finalize abandoned": ("ended", sessions.abandoned),
}

_TRASH_SHARE = 0.15
"""About what the trash takes of what rows take in the database, with all indexes of them."""


class Draft:
    """What was chosen so far of a home as it is at one moment."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.members: dict[str, Member] = {}
        self.titles: dict[str, str | None] = {}
        self.protected: Counter[Why] = Counter()
        self._sessions: set[str] = set()
        self._left_behind: set[str] = set()
        self._rows = 0
        self._file_bytes = 0

    def choose(self, wanted: Wanted) -> None:
        """Choose what is asked for, of one kind."""
        if wanted.kind in CHOOSERS:
            self._choose_sessions(wanted)
        elif wanted.what == "routes":
            self._choose_routes(wanted)
        elif wanted.what == "index":
            self._choose_index()
        else:
            self._choose_orphans(wanted)

    def tables(self) -> set[str]:
        """Return the tables of which a plan to prune deletes rows that an index may follow."""
        parts = {members.part_of(each) for each in self.members.values()}
        found = {"sessions"} if parts & {"sessions", "ghosts"} else set()
        return found | ({"messages"} if self._rows else set())

    def bytes(self) -> Bytes:
        """Return about what it takes of the disk and gives back."""
        scene, sizes = self.scene, self.scene.db.sizes()
        rows = scene.bytes_of(self._rows, sizes)
        trash = int(rows * _TRASH_SHARE) + self._file_bytes
        if any(members.part_of(each) == "index" for each in self.members.values()):
            size = vacuum.bytes_of_a_rewrite(sizes, rows, can_shrink=self._can_shrink())
        else:
            freed = disk.freed_by_deletion(sizes, self._rows, scene.rows)
            size = Bytes(free_in_file=freed)
        return replace(
            size,
            needed_now=size.needed_now + trash,
            returned_to_disk=size.returned_to_disk + self._file_bytes,
            trash=trash,
        )

    def _can_shrink(self) -> bool:
        return vacuum.in_the_way(self.scene.alive.company) is None

    def _add(self, part: Part, name: str, noted: Any, why: str, title: str | None = None) -> None:
        member = members.member_of(part, name, noted, why)
        if member.id not in self.members:
            self.members[member.id] = member
            self.titles[member.id] = title

    def _choose_sessions(self, wanted: Wanted) -> None:
        part, choose = CHOOSERS[wanted.kind]
        self.add(part, choose(self.scene, wanted))

    def add(self, part: Part, selected: Selection[Chosen]) -> None:
        """Add sessions that were chosen, each once."""
        for chosen in selected.items:
            ids = {each.id for each in chosen.sessions}
            if not ids.isdisjoint(self._sessions):
                continue  # an old conversation that is empty is one of both kinds
            self._sessions |= ids
            self._left_behind.update(chosen.left_behind)
            self._rows += chosen.rows
            led = _chats(self.scene, chosen) if part == "ended" else {}
            self._add(part, chosen.id, members.noted_of(chosen, led), chosen.why, chosen.title)
        self.protected.update(selected.protected)

    def _choose_routes(self, wanted: Wanted) -> None:
        selected = routes.lost_routes(self.scene, wanted)
        for route in selected.items:
            name = f"{route.scope}/{route.id}" if route.scope else route.id
            noted = {
                "key": route.id,
                "session": route.session_id,
                "scope": route.scope,
                "stored": route.stored if route.entry is None else route.entry.stored,
            }
            self._add("routes", name, noted, route.why, route.title)
        self.protected.update(selected.protected)

    def _choose_orphans(self, wanted: Wanted) -> None:
        facts = self.scene.db.health_facts()
        self._choose_rows("rows", orphans.orphaned_rows(self.scene, facts, wanted))
        self._choose_locks(facts, wanted)
        self._choose_links(wanted)
        self._choose_files(wanted)

    def _choose_rows(self, part: Part, selected: Selection[Rows]) -> None:
        for rows in selected.items:
            noted = {
                "table": rows.table,
                "column": rows.column,
                "session": rows.session_id,
                "rows": rows.rows,
            }
            self._add(part, rows.id, noted, rows.why)
            self._rows += rows.rows if rows.table == "messages" else 0
        self.protected.update(selected.protected)

    def _choose_locks(self, facts: Facts, wanted: Wanted) -> None:
        found = orphans.dead_locks(self.scene, facts, wanted)
        with_theirs = self._sessions  # a lock goes with its session
        left = tuple(each for each in found.items if each.session_id not in with_theirs)
        self._choose_rows("locks", Selection(left, found.protected))

    def _choose_links(self, wanted: Wanted) -> None:
        selected = orphans.broken_links(self.scene, wanted)
        for link in selected.items:
            if link.id in self._sessions or link.id in self._left_behind:
                continue  # it goes itself, or its parent does
            parent = self.scene.conversations.stocks[link.id].parent_id
            self._add("links", link.id, parent, link.why, link.title)
        self.protected.update(selected.protected)

    def _choose_files(self, wanted: Wanted) -> None:
        folder = folder_of(self.scene.db, self.scene.store)
        if folder is None:
            return
        selected = orphans.orphaned_files(self.scene, folder, wanted)
        for file in selected.items:
            noted = {"bytes": file.bytes, "modified_ns": file.modified_ns}
            self._add("files", file.id, noted, file.why)
            self._file_bytes += file.bytes
        self.protected.update(selected.protected)

    def _choose_index(self) -> None:
        sizes = self.scene.db.sizes()
        freed = disk.freeable(sizes, shrinks=self._can_shrink())
        freed += self.scene.bytes_of(self._rows, sizes)
        if disk.is_worth_freeing(freed, sizes):
            self._add("index", vacuum.INDEX, None, vacuum.WHY)


def _chats(scene: Scene, chosen: Chosen) -> dict[str, str]:
    """Return the chats of this store that are in a conversation, and in which of its sessions."""
    conversation = scene.conversations.of(chosen.id)
    if scene.store is None or conversation is None:
        return {}
    found: dict[str, str] = {}
    for each in conversation.sessions:
        for key in scene.alive.routes.get(each.id, ()):
            if scene.store.peek_session_id(key) == each.id:
                found[key] = each.id
    return found


_MOST_NAMES = 5
_ALL = ("sessions", "ghosts", "routes", "orphans", "index")


class Planner:
    """Makes plans for one home."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        store: SessionStore | None,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._store = store
        self._clock = clock
        self._pinned = ledger.pins.all

    def plan(self, wanted: Wanted) -> Preview:
        """Record what would be changed."""
        check(wanted)
        scene = self.scene()
        draft = Draft(scene)
        for one in _each(wanted):
            draft.choose(one)
        return self.record(wanted.kind, draft, wanted)

    def record(
        self, kind: str, draft: Draft, wanted: Wanted, more: Iterable[str] = (), **about: Any
    ) -> Preview:
        """Record what was drafted as a plan of a kind; `more` are further warnings."""
        scene = draft.scene
        found = list(draft.members.values())
        warnings = (*more, *_warnings(scene, wanted, found))
        items = tuple(
            Item(members.name_of(each), draft.titles[each.id], each.why)
            for each in found[:MOST_ITEMS]
        )
        protected = dict(draft.protected.most_common())
        if not found:
            return Preview("nothing", None, None, 0, (), protected, Bytes(), warnings)
        if wanted.verb == "prune":
            self._db.check_rows_writable(draft.tables())
        size = draft.bytes() if wanted.verb == "prune" else Bytes()
        about |= {
            "wanted": {"verb": wanted.verb, "what": wanted.what, "start_new": wanted.start_new},
            **said(items, protected, size, warnings),
            snapshot.NAME: snapshot.message_bytes(self._ledger, scene, self._db.sizes()),
        }
        return Preview.of(self._ledger.add_plan(kind, found, about, scene.cutoff(wanted)))

    def scene(self) -> Scene:
        """Return the home as it is now."""
        there = activity.gather(self._db, self._store, self._clock(), self._pinned())
        return Scene(self._db, Conversations(self._db.inventory()), there, self._store)


def check(wanted: Wanted) -> None:
    """Make sure that something is asked for that there is, and that it makes sense.

    Raises:
        InvalidInput: it does not.
    """
    kinds = {*CHOOSERS, *(f"prune {what}" for what in ("routes", "orphans", "all"))}
    if wanted.kind not in kinds:
        raise InvalidInput(f"there is no plan to {wanted.kind}; one of {', '.join(sorted(kinds))}")
    if wanted.kind == "finalize sessions" and not wanted.ids:
        raise InvalidInput("name the sessions that are to be finalized")
    if wanted.ids is not None and wanted.kind not in _NAMED:
        raise InvalidInput(f"{wanted.kind} takes no sessions; only {', '.join(_NAMED)} do")
    if wanted.start_new and wanted.verb != "finalize":
        raise InvalidInput("start_new is for what is finalized")
    check_line("reason", wanted.reason)
    empty = [name for name in _PARTS_OF if getattr(wanted.where, name, None) == ""]
    if empty:
        raise InvalidInput(f"{empty[0].partition('_')[0]} is empty, and would choose everything")


_PARTS_OF = ("project", "title_like", "cwd_prefix", "model_like", "branch_like")
"""Of these an empty one is true of all: whoever gives one has lost what he meant."""

_NAMED = ("prune sessions", "prune routes", "finalize sessions")


def _each(wanted: Wanted) -> Iterable[Wanted]:
    """Yield what a plan of all kinds consists of."""
    if wanted.what != "all":
        yield wanted
        return
    for what in _ALL:
        yield Wanted(what, "prune", None, wanted.where, wanted.older_than_days)  # type: ignore[arg-type]


def _warnings(scene: Scene, wanted: Wanted, found: Collection[Member]) -> Iterator[str]:
    if wanted.ids is not None and wanted.what == "sessions":
        left = scene.unmatched(wanted.ids, wanted.where)
        if left:
            names = ", ".join(left[:_MOST_NAMES]) + (", ..." if left[_MOST_NAMES:] else "")
            yield f"{len(left)} of the named sessions do not match the filter and stay: {names}"
    company = scene.alive.company
    parts = {members.part_of(each) for each in found}
    if company.gateway is not None and (wanted.what in ("routes", "all") or wanted.start_new):
        yield f"{company.gateway} holds the routes in memory: stop it to have them changed"
    if company.holders and parts & {"sessions", "ghosts"}:
        others = ", ".join(map(str, company.holders))
        yield f"{others} has the database open: what never ended stays, and what ended lately"
    if "ended" in parts and scene.db.kind == "hermes":
        yield PLUGINS


PLUGINS = "the plugins of Hermes are not called for what is finalized here, ours are"
