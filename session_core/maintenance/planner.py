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
from session_core.maintenance.health import get_session_folder
from session_core.maintenance.members import Part
from session_core.maintenance.select import ghosts, orphans, routes, sessions, snapshot
from session_core.maintenance.select.conversations import ConversationIndex
from session_core.maintenance.select.snapshot import MaintenanceSnapshot
from session_core.maintenance.types import (
    MAX_ITEMS,
    Bytes,
    OrphanedRows,
    PlanItem,
    PlanPreview,
    PlanRequest,
    ProtectionReason,
    SelectedSessions,
    Selection,
    to_recorded,
)
from session_core.routing.store import SessionStore
from session_core.state.protocol import StateDatabase
from session_core.state.validation import check_line
from session_core.types import HomeFacts

CHOOSERS: Mapping[
    str, tuple[Part, Callable[[MaintenanceSnapshot, PlanRequest], Selection[SelectedSessions]]]
] = {
    "prune sessions": ("sessions", sessions.select_old_sessions),
    "prune ghosts": ("ghosts", ghosts.select_ghosts),
    "finalize sessions": ("ended", sessions.select_named),
    "finalize expired": ("ended", sessions.select_expired),
    "finalize orphaned": ("ended", sessions.select_orphaned),
    "finalize abandoned": ("ended", sessions.select_abandoned),
}

_TRASH_SHARE = 0.15
"""About what the trash takes of what rows take in the database, with all indexes of them."""


class PlanDraft:
    """What was chosen so far of a home as it is at one moment."""

    def __init__(self, scene: MaintenanceSnapshot) -> None:
        self.scene = scene
        self.members: dict[str, Member] = {}
        self.titles: dict[str, str | None] = {}
        self.protected: Counter[ProtectionReason] = Counter()
        self._sessions: set[str] = set()
        self._left_behind: set[str] = set()
        self._rows = 0
        self._file_bytes = 0

    def add_selected(self, wanted: PlanRequest) -> None:
        """Choose what is asked for, of one kind."""
        if wanted.kind in CHOOSERS:
            self._choose_sessions(wanted)
        elif wanted.what == "routes":
            self._choose_routes(wanted)
        elif wanted.what == "index":
            self._choose_index()
        else:
            self._choose_orphans(wanted)

    def list_changed_tables(self) -> set[str]:
        """Return the tables of which a plan to prune deletes rows that an index may follow."""
        parts = {members.get_part(each) for each in self.members.values()}
        found = {"sessions"} if parts & {"sessions", "ghosts"} else set()
        return found | ({"messages"} if self._rows else set())

    def estimate_bytes(self) -> Bytes:
        """Return about what it takes of the disk and gives back."""
        scene, sizes = self.scene, self.scene.db.measure_sizes()
        rows = scene.estimate_bytes(self._rows, sizes)
        trash = int(rows * _TRASH_SHARE) + self._file_bytes
        if any(members.get_part(each) == "index" for each in self.members.values()):
            size = vacuum.estimate_rewrite_bytes(sizes, rows, can_shrink=self._can_shrink())
        else:
            freed = disk.estimate_freed(sizes, self._rows, scene.rows)
            size = Bytes(free_in_file=freed)
        return replace(
            size,
            needed_now=size.needed_now + trash,
            returned_to_disk=size.returned_to_disk + self._file_bytes,
            trash=trash,
        )

    def _can_shrink(self) -> bool:
        return vacuum.find_obstacle(self.scene.alive.company) is None

    def _add_member(
        self, part: Part, name: str, noted: Any, why: str, title: str | None = None
    ) -> None:
        member = members.create_member(part, name, noted, why)
        if member.id not in self.members:
            self.members[member.id] = member
            self.titles[member.id] = title

    def _choose_sessions(self, wanted: PlanRequest) -> None:
        part, choose = CHOOSERS[wanted.kind]
        self.add_sessions(part, choose(self.scene, wanted))

    def add_sessions(self, part: Part, selected: Selection[SelectedSessions]) -> None:
        """Add sessions that were chosen, each once."""
        for chosen in selected.items:
            ids = {each.id for each in chosen.sessions}
            if not ids.isdisjoint(self._sessions):
                continue  # an old conversation that is empty is one of both kinds
            self._sessions |= ids
            self._left_behind.update(chosen.left_behind)
            self._rows += chosen.rows
            led = _find_chats(self.scene, chosen) if part == "ended" else {}
            self._add_member(
                part, chosen.id, members.encode_group(chosen, led), chosen.why, chosen.title
            )
        self.protected.update(selected.protected)

    def _choose_routes(self, wanted: PlanRequest) -> None:
        selected = routes.select_lost_routes(self.scene, wanted)
        for route in selected.items:
            name = f"{route.scope}/{route.id}" if route.scope else route.id
            noted = {
                "key": route.id,
                "session": route.session_id,
                "scope": route.scope,
                "stored": route.stored if route.entry is None else route.entry.stored,
            }
            self._add_member("routes", name, noted, route.why, route.title)
        self.protected.update(selected.protected)

    def _choose_orphans(self, wanted: PlanRequest) -> None:
        facts = self.scene.db.read_health_facts()
        self._choose_rows("rows", orphans.select_orphaned_rows(self.scene, facts, wanted))
        self._choose_locks(facts, wanted)
        self._choose_links(wanted)
        self._choose_files(wanted)

    def _choose_rows(self, part: Part, selected: Selection[OrphanedRows]) -> None:
        for rows in selected.items:
            noted = {
                "table": rows.table,
                "column": rows.column,
                "session": rows.session_id,
                "rows": rows.rows,
            }
            self._add_member(part, rows.id, noted, rows.why)
            self._rows += rows.rows if rows.table == "messages" else 0
        self.protected.update(selected.protected)

    def _choose_locks(self, facts: HomeFacts, wanted: PlanRequest) -> None:
        found = orphans.select_dead_locks(self.scene, facts, wanted)
        with_theirs = self._sessions  # a lock goes with its session
        left = tuple(each for each in found.items if each.session_id not in with_theirs)
        self._choose_rows("locks", Selection(left, found.protected))

    def _choose_links(self, wanted: PlanRequest) -> None:
        selected = orphans.select_broken_links(self.scene, wanted)
        for link in selected.items:
            if link.id in self._sessions or link.id in self._left_behind:
                continue  # it goes itself, or its parent does
            parent = self.scene.conversations.stocks[link.id].parent_id
            self._add_member("links", link.id, parent, link.why, link.title)
        self.protected.update(selected.protected)

    def _choose_files(self, wanted: PlanRequest) -> None:
        folder = get_session_folder(self.scene.db, self.scene.store)
        if folder is None:
            return
        selected = orphans.select_orphaned_files(self.scene, folder, wanted)
        for file in selected.items:
            noted = {"bytes": file.bytes, "modified_ns": file.modified_ns}
            self._add_member("files", file.id, noted, file.why)
            self._file_bytes += file.bytes
        self.protected.update(selected.protected)

    def _choose_index(self) -> None:
        sizes = self.scene.db.measure_sizes()
        freed = disk.estimate_freeable(sizes, shrinks=self._can_shrink())
        freed += self.scene.estimate_bytes(self._rows, sizes)
        if disk.is_worth_freeing(freed, sizes):
            self._add_member("index", vacuum.INDEX_NAME, None, vacuum.MEMBER_REASON)


def _find_chats(scene: MaintenanceSnapshot, chosen: SelectedSessions) -> dict[str, str]:
    """Return the chats of this store that are in a conversation, and in which of its sessions."""
    conversation = scene.conversations.find_conversation(chosen.id)
    if scene.store is None or conversation is None:
        return {}
    found: dict[str, str] = {}
    for each in conversation.sessions:
        for key in scene.alive.routes.get(each.id, ()):
            if scene.store.peek_session_id(key) == each.id:
                found[key] = each.id
    return found


_MAX_NAMES = 5
_ALL_KINDS = ("sessions", "ghosts", "routes", "orphans", "index")


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
        self._pinned = ledger.pins.list_pinned

    def make_plan(self, wanted: PlanRequest) -> PlanPreview:
        """Record what would be changed."""
        check_request(wanted)
        scene = self.take_snapshot()
        draft = PlanDraft(scene)
        for one in _split_request(wanted):
            draft.add_selected(one)
        return self.record_plan(wanted.kind, draft, wanted)

    def record_plan(
        self,
        kind: str,
        draft: PlanDraft,
        wanted: PlanRequest,
        more: Iterable[str] = (),
        **about: Any,
    ) -> PlanPreview:
        """Record what was drafted as a plan of a kind; `more` are further warnings."""
        scene = draft.scene
        found = list(draft.members.values())
        warnings = (*more, *_list_warnings(scene, wanted, found))
        items = tuple(
            PlanItem(members.get_name(each), draft.titles[each.id], each.why)
            for each in found[:MAX_ITEMS]
        )
        protected = dict(draft.protected.most_common())
        if not found:
            return PlanPreview("nothing", None, None, 0, (), protected, Bytes(), warnings)
        if wanted.verb == "prune":
            self._db.check_rows_writable(draft.list_changed_tables())
        size = draft.estimate_bytes() if wanted.verb == "prune" else Bytes()
        about |= {
            "wanted": {"verb": wanted.verb, "what": wanted.what, "start_new": wanted.start_new},
            **to_recorded(items, protected, size, warnings),
            snapshot.MEASUREMENT_NAME: snapshot.measure_message_bytes(
                self._ledger, scene, self._db.measure_sizes()
            ),
        }
        return PlanPreview.from_plan(
            self._ledger.add_plan(kind, found, about, scene.get_cutoff(wanted))
        )

    def take_snapshot(self) -> MaintenanceSnapshot:
        """Return the home as it is now."""
        there = activity.gather_activity(self._db, self._store, self._clock(), self._pinned())
        return MaintenanceSnapshot(
            self._db, ConversationIndex(self._db.list_inventory()), there, self._store
        )


def check_request(wanted: PlanRequest) -> None:
    """Make sure that something is asked for that there is, and that it makes sense.

    Raises:
        InvalidInput: it does not.
    """
    kinds = {*CHOOSERS, *(f"prune {what}" for what in ("routes", "orphans", "all"))}
    if wanted.kind not in kinds:
        raise InvalidInput(f"there is no plan to {wanted.kind}; one of {', '.join(sorted(kinds))}")
    if wanted.kind == "finalize sessions" and not wanted.ids:
        raise InvalidInput("name the sessions that are to be finalized")
    if wanted.ids is not None and wanted.kind not in _KINDS_WITH_IDS:
        raise InvalidInput(f"{wanted.kind} takes no sessions; only {', '.join(_KINDS_WITH_IDS)} do")
    if wanted.start_new and wanted.verb != "finalize":
        raise InvalidInput("start_new is for what is finalized")
    check_line("reason", wanted.reason)
    empty = [name for name in _TEXT_FILTERS if getattr(wanted.where, name, None) == ""]
    if empty:
        raise InvalidInput(f"{empty[0].partition('_')[0]} is empty, and would choose everything")


_TEXT_FILTERS = ("project", "title_like", "cwd_prefix", "model_like", "branch_like")
"""Of these an empty one is true of all: whoever gives one has lost what he meant."""

_KINDS_WITH_IDS = ("prune sessions", "prune routes", "finalize sessions")


def _split_request(wanted: PlanRequest) -> Iterable[PlanRequest]:
    """Yield what a plan of all kinds consists of."""
    if wanted.what != "all":
        yield wanted
        return
    for what in _ALL_KINDS:
        yield PlanRequest(what, "prune", None, wanted.where, wanted.older_than_days)  # type: ignore[arg-type]


def _list_warnings(
    scene: MaintenanceSnapshot, wanted: PlanRequest, found: Collection[Member]
) -> Iterator[str]:
    if wanted.ids is not None and wanted.what == "sessions":
        left = scene.list_unmatched(wanted.ids, wanted.where)
        if left:
            names = ", ".join(left[:_MAX_NAMES]) + (", ..." if left[_MAX_NAMES:] else "")
            yield f"{len(left)} of the named sessions do not match the filter and stay: {names}"
    company = scene.alive.company
    parts = {members.get_part(each) for each in found}
    if company.gateway is not None and (wanted.what in ("routes", "all") or wanted.start_new):
        yield f"{company.gateway} holds the routes in memory: stop it to have them changed"
    if company.holders and parts & {"sessions", "ghosts"}:
        others = ", ".join(map(str, company.holders))
        yield f"{others} has the database open: what never ended stays, and what ended lately"
    if "ended" in parts and scene.db.kind == "hermes":
        yield PLUGINS_WARNING


PLUGINS_WARNING = "the plugins of Hermes are not called for what is finalized here, ours are"
