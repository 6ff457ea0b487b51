"""Remove or change routes in a step, and restore them from the trash.

A route has two copies, in the table and in the file of its folder. Both are kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from session_core.activity import ActivitySnapshot
from session_core.errors import Conflict, Denied, InvalidInput
from session_core.ledger.execute import suppress_note_errors
from session_core.ledger.types import Member, TrashItem
from session_core.maintenance.apply.step_items import IMAGES, PartRun
from session_core.maintenance.members import MemberOutdated, StepDraft
from session_core.maintenance.select import lost_routes
from session_core.maintenance.select.snapshot import MaintenanceSnapshot, take_snapshot
from session_core.maintenance.types import PROTECTION_REASONS
from session_core.routing.entries import SessionEntry
from session_core.routing.mirror import Mirror
from session_core.routing.pending_boundaries import strip_pending_boundaries
from session_core.routing.session_store import SessionStore
from session_core.state.protocol import StateDatabase
from session_core.types import RowImages

ROUTE_KIND = "route"
"""The kind of a route's trash item: the text of its entry, its row, and its entry in the mirror."""

_ROUTES_TABLE = "gateway_routing"
_BATCH_ROUTES = 200


class LostRouteRemover:
    """Removes routes to missing or ended sessions, one step at a time."""

    def __init__(self, run: PartRun) -> None:
        self._home = run.home
        self._db = run.home.db
        self._store = run.home.require_store()
        self._get_activity = run.get_activity
        self._snapshot: MaintenanceSnapshot | None = None

    def draft_step(self, members: Sequence[Member]) -> StepDraft:
        """Return the routes to remove next.

        Raises:
            Denied: a gateway is running.
        """
        require_no_gateway(self._get_activity())
        # One snapshot serves all steps: each route is compared with its stored text again.
        self._snapshot = self._snapshot or take_snapshot(self._home)
        batch = members[:_BATCH_ROUTES]
        entries: dict[str, SessionEntry] = {}
        rows: list[RowImages] = []
        for member in batch:
            if member.revision["scope"]:
                rows.append(self._read_foreign_row(member))
            else:
                entries[member.revision["key"]] = self._require_lost_entry(member, self._snapshot)
        return StepDraft(
            tuple(member.id for member in batch),
            self._iter_trash_items(entries, rows),
            partial(self._delete_route_rows, batch, rows),
            partial(self._wrap_step, entries),
        )

    def _require_lost_entry(self, member: Member, snapshot: MaintenanceSnapshot) -> SessionEntry:
        entry = self._store.get(member.revision["key"])
        if entry is None:
            raise MemberOutdated(member.id, "it does not exist any more")
        if entry.stored != member.revision["stored"]:
            raise MemberOutdated(member.id, "its chat was used since")
        reason = lost_routes.find_route_protection(snapshot, self._store, entry)
        state, _ = lost_routes.find_lost_state(snapshot, entry)
        if reason is not None or state is None:
            raise MemberOutdated(
                member.id, PROTECTION_REASONS[reason] if reason else "it leads to a session again"
            )
        return entry

    def _read_foreign_row(self, member: Member) -> RowImages:
        record = member.revision
        image = self._db.rows.read_row_images(
            _ROUTES_TABLE, {"scope": record["scope"], "session_key": record["key"]}
        )
        texts = [row[image.columns.index("entry_json")] for row in image.rows]
        if texts != [record["stored"]]:
            raise MemberOutdated(member.id, "it was changed since")
        return image

    def _iter_trash_items(
        self, entries: Mapping[str, SessionEntry], rows: Sequence[RowImages]
    ) -> Iterator[TrashItem]:
        yield from iter_route_items(self._db, self._store, entries)
        for image in rows:
            yield TrashItem(IMAGES, image.pack())

    def _delete_route_rows(
        self, batch: Sequence[Member], rows: Sequence[RowImages], db: StateDatabase
    ) -> dict[str, Any]:
        """Check the drafted routes again, and delete the rows of other folders.

        Routes of this folder are removed after the commit.
        """
        own_records = [member.revision for member in batch if not member.revision["scope"]]
        for member in batch:
            record = member.revision
            # Rows of other folders are compared with their images when they are removed.
            if record["scope"]:
                continue
            if read_route_text(self._store, record["key"]) != record["stored"]:
                raise MemberOutdated(member.id, "its chat was used since")
            row = db.get_session(record["session"])
            if row is not None and row["end_reason"] is None:
                raise MemberOutdated(member.id, "it leads to a session again")
        db.rows.remove_rows(rows)
        return {"routes": {record["key"]: record["stored"] for record in own_records}}

    @contextmanager
    def _wrap_step(self, entries: dict[str, SessionEntry]) -> Iterator[None]:
        yield
        # Removal writes the mirror first, outside of a transaction; after a crash `finish_removal`
        # does it.
        if entries:
            self._store.remove(entries)


def require_no_gateway(activity: ActivitySnapshot) -> None:
    """Refuse route changes that a running gateway would overwrite.

    Raises:
        Denied: a gateway is running.
    """
    gateway = activity.company.gateway
    if gateway is not None:
        raise Denied(
            f"{gateway} holds the routes in memory and would overwrite the change; stop it, "
            "then apply the plan again"
        )


def iter_route_items(
    db: StateDatabase, store: SessionStore, entries: Mapping[str, SessionEntry]
) -> Iterator[TrashItem]:
    """Yield the trash items of routes, with both of their copies."""
    folder = store.sessions_dir
    mirrored = Mirror(folder).read().entries if entries and folder is not None else {}
    for key, entry in entries.items():
        row = _read_route_row(db, store, key)
        yield TrashItem(
            ROUTE_KIND,
            {
                "key": key,
                "stored": entry.stored,
                "row": row.pack() if row.rows else None,
                "file": mirrored.get(key),
            },
        )


def read_route_text(store: SessionStore, key: str) -> str | None:
    """Return the current text of a route."""
    entry = store.get(key)
    return None if entry is None else entry.stored


def read_unused_route_text(db: StateDatabase, store: SessionStore | None, key: str) -> str | None:
    """Return the text of a route to a session without messages."""
    entry = None if store is None else store.get(key)
    if entry is None or db.get_session(entry.session_id) is not None:
        return None
    return entry.stored


def finish_removal(store: SessionStore, result: Mapping[str, Any]) -> None:
    """Remove the routes of a step that was interrupted after its commit."""
    removed: Mapping[str, str] = result.get("routes", {})
    entries = {key: entry for key in removed if (entry := store.get(key)) is not None}
    # A route that its chat has written since stays.
    unchanged = {key: entry for key, entry in entries.items() if entry.stored == removed[key]}
    if unchanged:
        with suppress_note_errors("the removal of routes"):
            store.remove(unchanged)


def restore_route(
    db: StateDatabase, store: SessionStore, value: Mapping[str, Any], left_text: str | None
) -> str | None:
    """Restore a removed route, unless the chat was used since.

    Return None, or the reason why the route was not restored. The caller has a transaction of the
    store open for this chat.
    """
    key, stored = value["key"], value["stored"]
    current_text = read_route_text(store, key)
    if current_text == stored:
        return None
    # A pending delivery in the entry is not a use of the chat.
    if strip_pending_boundaries(current_text) != strip_pending_boundaries(left_text):
        return "the chat was used since"
    try:
        entry = SessionEntry.from_dict(json.loads(stored))
    except (InvalidInput, ValueError, TypeError) as error:
        return f"its entry is unreadable: {error}"
    # The store writes only over this text.
    entry.stored, entry.stored_as = current_text, key
    try:
        store.save(entry)
    except Conflict:
        return "the chat was used since"
    # The row may have columns that `save` does not write.
    if value["row"] is not None and db.routes.is_available:
        image = RowImages.unpack(value["row"])
        row = dict(zip(image.columns, image.rows[0], strict=True))
        columns = db.rows.list_columns(_ROUTES_TABLE)
        values = {name: stored_value for name, stored_value in row.items() if name in columns}
        db.rows.put_routing_row({**values, "scope": _get_scope(store)})
    return None


def list_route_keys(values: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the chats of kept routes."""
    return [value["key"] for value in values]


def list_session_chats(db: StateDatabase, store: SessionStore | None, session_id: str) -> list[str]:
    """Return the chats that are routed to a session by the table or by the store, sorted."""
    keys = {str(row["session_key"]) for row in db.rows.list_routing_rows(session_id)}
    entries = {} if store is None else store.load_entries()
    return sorted(keys | {key for key, entry in entries.items() if entry.session_id == session_id})


def _read_route_row(db: StateDatabase, store: SessionStore, key: str) -> RowImages:
    if not db.routes.is_available:
        return RowImages(_ROUTES_TABLE, (), ())
    return db.rows.read_row_images(_ROUTES_TABLE, {"scope": _get_scope(store), "session_key": key})


def _get_scope(store: SessionStore) -> str:
    return store.scope
