"""Make plans: select the members of each kind and record them in the ledger with their state."""

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
from session_core.maintenance.select import ghosts, orphans, routes, sessions
from session_core.maintenance.select.conversations import ConversationIndex
from session_core.maintenance.select.snapshot import (
    MEASUREMENT_NAME,
    MaintenanceSnapshot,
    measure_message_bytes,
)
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
"""The approximate size of trash, relative to the rows with all their indexes in the database."""


class PlanDraft:
    """The members selected so far from one snapshot of a home."""

    def __init__(self, snapshot: MaintenanceSnapshot) -> None:
        self.snapshot = snapshot
        self.members: dict[str, Member] = {}
        self.titles: dict[str, str | None] = {}
        self.protected: Counter[ProtectionReason] = Counter()
        self._sessions: set[str] = set()
        self._left_behind: set[str] = set()
        self._rows = 0
        self._file_bytes = 0

    def add_selected(self, request: PlanRequest) -> None:
        """Add the members that one kind of plan selects."""
        if request.kind in CHOOSERS:
            self._choose_sessions(request)
        elif request.what == "routes":
            self._choose_routes(request)
        elif request.what == "index":
            self._choose_index()
        else:
            self._choose_orphans(request)

    def list_changed_tables(self) -> set[str]:
        """Return the tables from which a plan to prune deletes indexed rows."""
        parts = {members.get_part(member_id) for member_id in self.members.values()}
        tables = {"sessions"} if parts & {"sessions", "ghosts"} else set()
        return tables | ({"messages"} if self._rows else set())

    def estimate_bytes(self) -> Bytes:
        """Return an estimate of the disk space that the plan needs and frees."""
        snapshot, sizes = self.snapshot, self.snapshot.db.admin.measure_sizes()
        rows = snapshot.estimate_bytes(self._rows, sizes)
        trash = int(rows * _TRASH_SHARE) + self._file_bytes
        if any(members.get_part(member_id) == "index" for member_id in self.members.values()):
            size = vacuum.estimate_rewrite_bytes(sizes, rows, can_shrink=self._can_shrink())
        else:
            freed = disk.estimate_freed(sizes, self._rows, snapshot.rows)
            size = Bytes(free_in_file=freed)
        return replace(
            size,
            needed_now=size.needed_now + trash,
            returned_to_disk=size.returned_to_disk + self._file_bytes,
            trash=trash,
        )

    def _can_shrink(self) -> bool:
        return vacuum.find_obstacle(self.snapshot.activity.company) is None

    def _add_member(
        self, part: Part, name: str, record: Any, reason: str, title: str | None = None
    ) -> None:
        member = members.create_member(part, name, record, reason)
        if member.id not in self.members:
            self.members[member.id] = member
            self.titles[member.id] = title

    def _choose_sessions(self, request: PlanRequest) -> None:
        part, select = CHOOSERS[request.kind]
        self.add_sessions(part, select(self.snapshot, request))

    def add_sessions(self, part: Part, selected: Selection[SelectedSessions]) -> None:
        """Add selected sessions, each at most once."""
        for group in selected.items:
            ids = {session.id for session in group.sessions}
            if not ids.isdisjoint(self._sessions):
                continue  # an old empty conversation is both an old session and a ghost
            self._sessions |= ids
            self._left_behind.update(group.left_behind)
            self._rows += group.rows
            session_by_chat = _find_chats(self.snapshot, group) if part == "ended" else {}
            self._add_member(
                part, group.id, members.encode_group(group, session_by_chat), group.why, group.title
            )
        self.protected.update(selected.protected)

    def _choose_routes(self, request: PlanRequest) -> None:
        selected = routes.select_lost_routes(self.snapshot, request)
        for route in selected.items:
            name = f"{route.scope}/{route.id}" if route.scope else route.id
            record = {
                "key": route.id,
                "session": route.session_id,
                "scope": route.scope,
                "stored": route.stored if route.entry is None else route.entry.stored,
            }
            self._add_member("routes", name, record, route.why, route.title)
        self.protected.update(selected.protected)

    def _choose_orphans(self, request: PlanRequest) -> None:
        facts = self.snapshot.db.admin.read_health_facts()
        self._choose_rows("rows", orphans.select_orphaned_rows(self.snapshot, facts, request))
        self._choose_locks(facts, request)
        self._choose_links(request)
        self._choose_files(request)

    def _choose_rows(self, part: Part, selected: Selection[OrphanedRows]) -> None:
        for rows in selected.items:
            record = {
                "table": rows.table,
                "column": rows.column,
                "session": rows.session_id,
                "rows": rows.rows,
            }
            self._add_member(part, rows.id, record, rows.why)
            self._rows += rows.rows if rows.table == "messages" else 0
        self.protected.update(selected.protected)

    def _choose_locks(self, facts: HomeFacts, request: PlanRequest) -> None:
        locks = orphans.select_dead_locks(self.snapshot, facts, request)
        planned = self._sessions  # a lock is removed with its session
        remaining = tuple(lock for lock in locks.items if lock.session_id not in planned)
        self._choose_rows("locks", Selection(remaining, locks.protected))

    def _choose_links(self, request: PlanRequest) -> None:
        selected = orphans.select_broken_links(self.snapshot, request)
        for link in selected.items:
            if link.id in self._sessions or link.id in self._left_behind:
                continue  # the session or its parent is removed
            parent = self.snapshot.conversations.sessions[link.id].parent_id
            self._add_member("links", link.id, parent, link.why, link.title)
        self.protected.update(selected.protected)

    def _choose_files(self, request: PlanRequest) -> None:
        folder = get_session_folder(self.snapshot.db, self.snapshot.store)
        if folder is None:
            return
        selected = orphans.select_orphaned_files(self.snapshot, folder, request)
        for file in selected.items:
            record = {"bytes": file.bytes, "modified_ns": file.modified_ns}
            self._add_member("files", file.id, record, file.why)
            self._file_bytes += file.bytes
        self.protected.update(selected.protected)

    def _choose_index(self) -> None:
        sizes = self.snapshot.db.admin.measure_sizes()
        freed = disk.estimate_freeable(sizes, shrinks=self._can_shrink())
        freed += self.snapshot.estimate_bytes(self._rows, sizes)
        if disk.is_worth_freeing(freed, sizes):
            self._add_member("index", vacuum.INDEX_NAME, None, vacuum.MEMBER_REASON)


def _find_chats(snapshot: MaintenanceSnapshot, selected: SelectedSessions) -> dict[str, str]:
    """Return the chats of this store that are in a conversation, with their sessions."""
    conversation = snapshot.conversations.find_conversation(selected.id)
    if snapshot.store is None or conversation is None:
        return {}
    session_by_chat: dict[str, str] = {}
    for session in conversation.sessions:
        for key in snapshot.activity.routes.get(session.id, ()):
            if snapshot.store.peek_session_id(key) == session.id:
                session_by_chat[key] = session.id
    return session_by_chat


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
        """Record a plan for a request."""
        check_request(wanted)
        snapshot = self.take_snapshot()
        draft = PlanDraft(snapshot)
        for part in _split_request(wanted):
            draft.add_selected(part)
        return self.record_plan(wanted.kind, draft, wanted)

    def record_plan(
        self,
        kind: str,
        draft: PlanDraft,
        wanted: PlanRequest,
        more: Iterable[str] = (),
        **about: Any,
    ) -> PlanPreview:
        """Record a draft as a plan of a kind; `more` are further warnings."""
        snapshot = draft.snapshot
        selected = list(draft.members.values())
        warnings = (*more, *_list_warnings(snapshot, wanted, selected))
        items = tuple(
            PlanItem(members.get_name(member), draft.titles[member.id], member.why)
            for member in selected[:MAX_ITEMS]
        )
        protected = dict(draft.protected.most_common())
        if not selected:
            return PlanPreview("nothing", None, None, 0, (), protected, Bytes(), warnings)
        # Rows are only deleted by a prune: check the indexes before a plan is made.
        if wanted.verb == "prune":
            self._db.rows.check_rows_writable(draft.list_changed_tables())
        size = draft.estimate_bytes() if wanted.verb == "prune" else Bytes()
        about |= {
            "wanted": {"verb": wanted.verb, "what": wanted.what, "start_new": wanted.start_new},
            **to_recorded(items, protected, size, warnings),
            MEASUREMENT_NAME: measure_message_bytes(
                self._ledger, snapshot, self._db.admin.measure_sizes()
            ),
        }
        return PlanPreview.from_plan(
            self._ledger.add_plan(kind, selected, about, snapshot.get_cutoff(wanted))
        )

    def take_snapshot(self) -> MaintenanceSnapshot:
        """Return a snapshot of the home."""
        activity_snapshot = activity.gather_activity(
            self._db, self._store, self._clock(), self._pinned()
        )
        return MaintenanceSnapshot(
            self._db,
            ConversationIndex(self._db.admin.list_inventory()),
            activity_snapshot,
            self._store,
        )


def check_request(request: PlanRequest) -> None:
    """Require a known kind of plan and a consistent request.

    Raises:
        InvalidInput: the kind is unknown, or the request is inconsistent.
    """
    kinds = {*CHOOSERS, *(f"prune {kind}" for kind in ("routes", "orphans", "all"))}
    if request.kind not in kinds:
        raise InvalidInput(
            f"unknown kind of plan {request.kind!r}; known kinds: {', '.join(sorted(kinds))}"
        )
    if request.kind == "finalize sessions" and not request.ids:
        raise InvalidInput("ids must name the sessions to finalize")
    if request.ids is not None and request.kind not in _KINDS_WITH_IDS:
        raise InvalidInput(
            f"{request.kind} does not accept ids; only {', '.join(_KINDS_WITH_IDS)} do"
        )
    if request.start_new and request.verb != "finalize":
        raise InvalidInput("start_new is only valid for finalize")
    check_line("reason", request.reason)
    empty_filters = [name for name in _TEXT_FILTERS if getattr(request.where, name, None) == ""]
    if empty_filters:
        raise InvalidInput(
            f"{empty_filters[0].partition('_')[0]} is empty and would match everything"
        )


_TEXT_FILTERS = ("project", "title_like", "cwd_prefix", "model_like", "branch_like")
"""An empty value of these filters would match everything; it is most likely a mistake of the
caller."""

_KINDS_WITH_IDS = ("prune sessions", "prune routes", "finalize sessions")


def _split_request(request: PlanRequest) -> Iterable[PlanRequest]:
    """Yield the requests that a plan of all kinds consists of."""
    if request.what != "all":
        yield request
        return
    for kind in _ALL_KINDS:
        yield PlanRequest(kind, "prune", None, request.where, request.older_than_days)  # type: ignore[arg-type]


def _list_warnings(
    snapshot: MaintenanceSnapshot, request: PlanRequest, selected: Collection[Member]
) -> Iterator[str]:
    if request.ids is not None and request.what == "sessions":
        unmatched = snapshot.list_unmatched(request.ids, request.where)
        if unmatched:
            names = ", ".join(unmatched[:_MAX_NAMES]) + (", ..." if unmatched[_MAX_NAMES:] else "")
            count = len(unmatched)
            yield f"{count} of the named sessions do not match the filter and stay: {names}"
    company = snapshot.activity.company
    parts = {members.get_part(member) for member in selected}
    if company.gateway is not None and (request.what in ("routes", "all") or request.start_new):
        yield f"{company.gateway} holds the routes in memory: stop it to change them"
    if company.holders and parts & {"sessions", "ghosts"}:
        holders = ", ".join(map(str, company.holders))
        yield f"{holders} has the database open: open and recently ended sessions stay"
    if "ended" in parts and snapshot.db.kind == "hermes":
        yield PLUGINS_WARNING


PLUGINS_WARNING = "plugins of Hermes are not called for sessions finalized here; our own hooks are"
