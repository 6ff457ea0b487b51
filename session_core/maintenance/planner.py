"""Makes plans: what was chosen, each with what it is now, recorded in the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field

from session_core import alive
from session_core.errors import InvalidInput
from session_core.ledger.ledger import Ledger
from session_core.ledger.records import Member
from session_core.maintenance import ghosts, members, orphans, routes, selection
from session_core.maintenance.answers import MOST_ITEMS, Bytes, Item, Planned
from session_core.maintenance.conversations import Conversations
from session_core.maintenance.findings import Seen, folder_of
from session_core.maintenance.members import Part
from session_core.maintenance.records import Chosen, Rows, Selection, Wanted, Why
from session_core.maintenance.selection import Scene
from session_core.routing.store import SessionStore
from session_core.state.contract import StateDatabase

_TRASH_SHARE = 0.15
"""About what the trash takes of what rows take in the database, with all indexes of them."""

_CHOOSERS: Mapping[str, tuple[Part, Callable[[Scene, Wanted], Selection[Chosen]]]] = {
    "prune sessions": ("sessions", selection.old_sessions),
    "prune ghosts": ("ghosts", ghosts.ghosts),
    "finalize sessions": ("ended", selection.named),
    "finalize expired": ("ended", selection.expired),
    "finalize orphaned": ("ended", selection.orphaned),
    "finalize abandoned": ("ended", selection.abandoned),
}

_ALL = ("sessions", "ghosts", "routes", "orphans")


@dataclass(slots=True)
class _Draft:
    """What was chosen so far."""

    members: dict[str, Member] = field(default_factory=dict)
    titles: dict[str, str | None] = field(default_factory=dict)
    protected: Counter[Why] = field(default_factory=Counter)
    sessions: set[str] = field(default_factory=set)
    rows: int = 0
    file_bytes: int = 0

    def add(self, member: Member, title: str | None = None) -> None:
        """Add a member, unless it is there."""
        if member.id not in self.members:
            self.members[member.id] = member
            self.titles[member.id] = title


class Planner:
    """Makes plans for one home."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        store: SessionStore | None,
        *,
        clock: Callable[[], float],
        pinned: Callable[[], Collection[str]],
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._store = store
        self._clock = clock
        self._pinned = pinned

    def plan(self, wanted: Wanted) -> Planned:
        """Record what would be changed."""
        check(wanted)
        scene = self.scene()
        draft = _Draft()
        for one in _each(wanted):
            self._choose(draft, scene, one)
        found = list(draft.members.values())
        warnings = tuple(_warnings(scene, wanted, found))
        items = tuple(
            Item(members.name_of(each), draft.titles[each.id], each.why)
            for each in found[:MOST_ITEMS]
        )
        protected = dict(draft.protected.most_common())
        if not found:
            return Planned("nothing", None, None, 0, (), protected, Bytes(), warnings)
        size = self._bytes(draft, scene) if wanted.verb == "prune" else Bytes()
        about = {
            "wanted": {"verb": wanted.verb, "what": wanted.what, "start_new": wanted.start_new},
            "protected": protected,
            "bytes": asdict(size),
            "warnings": warnings,
        }
        plan = self._ledger.add_plan(wanted.kind, found, about, scene.cutoff(wanted))
        return Planned(
            "planned", plan.handle, plan.expires_at, len(found), items, protected, size, warnings
        )

    def scene(self) -> Scene:
        """Return the home as it is now."""
        there = alive.gather(self._db, self._store, self._clock(), self._pinned())
        return Scene(self._db, Conversations(self._db.inventory()), there, self._store)

    def _choose(self, draft: _Draft, scene: Scene, wanted: Wanted) -> None:
        if wanted.kind in _CHOOSERS:
            self._choose_sessions(draft, scene, wanted)
        elif wanted.what == "routes":
            self._choose_routes(draft, scene, wanted)
        else:
            self._choose_orphans(draft, scene, wanted)

    def _choose_sessions(self, draft: _Draft, scene: Scene, wanted: Wanted) -> None:
        part, choose = _CHOOSERS[wanted.kind]
        selected = choose(scene, wanted)
        for chosen in selected.items:
            ids = {each.id for each in chosen.sessions}
            if not ids.isdisjoint(draft.sessions):
                continue  # an old conversation that is empty is one of both kinds
            draft.sessions |= ids
            draft.rows += chosen.rows
            led = _chats(scene, chosen) if part == "ended" else {}
            draft.add(members.of_sessions(part, chosen, led), chosen.title)
        draft.protected.update(selected.protected)

    def _choose_routes(self, draft: _Draft, scene: Scene, wanted: Wanted) -> None:
        selected = routes.lost_routes(scene, wanted)
        for route in selected.items:
            name = f"{route.scope}/{route.id}" if route.scope else route.id
            stored = route.stored if route.entry is None else route.entry.stored
            noted = {
                "key": route.id,
                "session": route.session_id,
                "scope": route.scope,
                "stored": stored,
            }
            draft.add(members.member_of("routes", name, noted, route.why), route.title)
        draft.protected.update(selected.protected)

    def _choose_orphans(self, draft: _Draft, scene: Scene, wanted: Wanted) -> None:
        facts = self._db.health_facts()
        found = orphans.orphaned_rows(scene, facts, wanted)
        locks = orphans.dead_locks(scene, facts, wanted)
        parts: tuple[tuple[Part, Selection[Rows]], ...] = (("rows", found), ("locks", locks))
        for part, selected in parts:
            for rows in selected.items:
                if rows.session_id in draft.sessions:
                    continue  # it goes with its session
                noted = {
                    "table": rows.table,
                    "column": rows.column,
                    "session": rows.session_id,
                    "rows": rows.rows,
                }
                draft.add(members.member_of(part, rows.id, noted, rows.why))
                draft.rows += rows.rows if rows.table == "messages" else 0
            draft.protected.update(selected.protected)
        links = orphans.broken_links(scene)
        for link in links.items:
            if link.id in draft.sessions:
                continue
            parent = scene.conversations.stocks[link.id].parent_id
            draft.add(members.member_of("links", link.id, parent, link.why), link.title)
        draft.protected.update(links.protected)
        self._choose_files(draft, scene, wanted)

    def _choose_files(self, draft: _Draft, scene: Scene, wanted: Wanted) -> None:
        folder = folder_of(scene.db, scene.store)
        if folder is None:
            return
        selected = orphans.orphaned_files(scene, folder, wanted)
        for file in selected.items:
            noted = {
                "bytes": file.bytes,
                "modified_ns": file.modified_ns,
            }
            draft.add(members.member_of("files", file.id, noted, file.why))
            draft.file_bytes += file.bytes
        draft.protected.update(selected.protected)

    def _bytes(self, draft: _Draft, scene: Scene) -> Bytes:
        facts = self._db.health_facts
        rows = Seen(scene, facts(), self._db.sizes()).bytes(draft.rows) if draft.rows else 0
        trash = int(rows * _TRASH_SHARE) + draft.file_bytes
        return Bytes(trash, rows + draft.file_bytes, trash)


def check(wanted: Wanted) -> None:
    """Make sure that something is asked for that there is, and that it makes sense.

    Raises:
        InvalidInput: it does not.
    """
    kinds = {*_CHOOSERS, *(f"prune {what}" for what in ("routes", "orphans", "all"))}
    if wanted.kind not in kinds:
        raise InvalidInput(f"there is no plan to {wanted.kind}; one of {', '.join(sorted(kinds))}")
    if wanted.kind == "finalize sessions" and not wanted.ids:
        raise InvalidInput("name the sessions that are to be finalized")
    if wanted.ids is not None and wanted.kind not in _NAMED:
        raise InvalidInput(f"{wanted.kind} takes no sessions; only {', '.join(_NAMED)} do")
    if wanted.start_new and wanted.verb != "finalize":
        raise InvalidInput("start_new is for what is finalized")


_NAMED = ("prune sessions", "prune routes", "finalize sessions")


def _each(wanted: Wanted) -> Iterable[Wanted]:
    """Yield what a plan of all kinds consists of."""
    if wanted.what != "all":
        yield wanted
        return
    for what in _ALL:
        yield Wanted(what, "prune", None, wanted.where, wanted.older_than_days)  # type: ignore[arg-type]


def _chats(scene: Scene, chosen: Chosen) -> dict[str, str]:
    """Return the chats of this store that are in a conversation, and in which of its sessions."""
    conversation = scene.conversations.of(chosen.id)
    if scene.store is None or conversation is None:
        return {}
    ids = {each.id for each in conversation.sessions}
    entries = scene.store.entries() if ids & scene.alive.routes.keys() else {}
    return {key: entry.session_id for key, entry in entries.items() if entry.session_id in ids}


def _warnings(scene: Scene, wanted: Wanted, found: Collection[Member]) -> Iterator[str]:
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
