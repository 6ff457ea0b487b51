"""Routes that a step removes or changes: kept in both copies, and put back as they were."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from session_core.activity import ActivitySnapshot
from session_core.errors import Conflict, Denied, InvalidInput
from session_core.ledger.execute import suppress_note_errors
from session_core.ledger.types import Member, TrashItem
from session_core.maintenance.apply.step_items import IMAGES
from session_core.maintenance.members import MemberOutdated, StepDraft
from session_core.maintenance.select import routes
from session_core.maintenance.select.snapshot import MaintenanceSnapshot
from session_core.maintenance.types import PROTECTION_REASONS
from session_core.routing.entries import SessionEntry
from session_core.routing.mirror import Mirror
from session_core.routing.outbox import strip_pending
from session_core.routing.store import SessionStore
from session_core.state.protocol import StateDatabase
from session_core.types import RowImages

ROUTE_KIND = "route"
"""What a route is kept as: the text of its entry, its row, and what the mirror has of it."""

_ROUTES_TABLE = "gateway_routing"
_BATCH_ROUTES = 200


class LostRouteRemover:
    """Removes routes that lead nowhere, a piece at a time."""

    def __init__(
        self,
        db: StateDatabase,
        store: SessionStore,
        there: Callable[[], ActivitySnapshot],
        look: Callable[[], MaintenanceSnapshot],
    ) -> None:
        self._db = db
        self._store = store
        self._there = there
        self._look = look
        self._scene: MaintenanceSnapshot | None = None

    def draft_step(self, members: Sequence[Member]) -> StepDraft:
        """Return what is removed next.

        Raises:
            Denied: a gateway lives by now.
        """
        require_no_gateway(self._there())
        self._scene = self._scene or self._look()
        taken = members[:_BATCH_ROUTES]
        entries: dict[str, SessionEntry] = {}
        rows: list[RowImages] = []
        for member in taken:
            if member.revision["scope"]:
                rows.append(self._read_foreign_row(member))
            else:
                entries[member.revision["key"]] = self._require_lost_entry(member, self._scene)
        return StepDraft(
            tuple(member.id for member in taken),
            self._iter_trash_items(entries, rows),
            partial(self._remove_rows, taken, rows),
            partial(self._wrap_step, entries),
        )

    def _require_lost_entry(self, member: Member, scene: MaintenanceSnapshot) -> SessionEntry:
        entry = self._store.get(member.revision["key"])
        if entry is None:
            raise MemberOutdated(member.id, "it is not there any more")
        if entry.stored != member.revision["stored"]:
            raise MemberOutdated(member.id, "its chat was used since")
        why = routes.find_route_protection(scene, self._store, entry)
        state, _ = routes.find_lost_state(scene, entry)
        if why is not None or state is None:
            raise MemberOutdated(
                member.id, PROTECTION_REASONS[why] if why else "it leads to a session again"
            )
        return entry

    def _read_foreign_row(self, member: Member) -> RowImages:
        noted = member.revision
        image = self._db.read_row_images(
            _ROUTES_TABLE, {"scope": noted["scope"], "session_key": noted["key"]}
        )
        texts = [row[image.columns.index("entry_json")] for row in image.rows]
        if texts != [noted["stored"]]:
            raise MemberOutdated(member.id, "it was changed since")
        return image

    def _iter_trash_items(
        self, entries: Mapping[str, SessionEntry], rows: Sequence[RowImages]
    ) -> Iterator[TrashItem]:
        yield from iter_route_items(self._db, self._store, entries)
        for image in rows:
            yield TrashItem(IMAGES, image.pack())

    def _remove_rows(
        self, taken: Sequence[Member], rows: Sequence[RowImages], db: StateDatabase
    ) -> dict[str, Any]:
        """Look once more; the routes of this folder are removed when this is committed."""
        here = [member.revision for member in taken if not member.revision["scope"]]
        for member in taken:
            noted = member.revision
            if noted["scope"]:
                continue
            if read_route_text(self._store, noted["key"]) != noted["stored"]:
                raise MemberOutdated(member.id, "its chat was used since")
            row = db.get_session(noted["session"])
            if row is not None and row["end_reason"] is None:
                raise MemberOutdated(member.id, "it leads to a session again")
        db.remove_rows(rows)
        return {"routes": {noted["key"]: noted["stored"] for noted in here}}

    @contextmanager
    def _wrap_step(self, entries: dict[str, SessionEntry]) -> Iterator[None]:
        yield
        if entries:
            self._store.remove(entries)


def require_no_gateway(there: ActivitySnapshot) -> None:
    """Refuse what a live gateway would overwrite.

    Raises:
        Denied: one lives.
    """
    live = there.company.gateway
    if live is not None:
        raise Denied(
            f"{live} holds the routes in memory and would overwrite the change; stop it, "
            "then apply the plan again"
        )


def iter_route_items(
    db: StateDatabase, store: SessionStore, entries: Mapping[str, SessionEntry]
) -> Iterator[TrashItem]:
    """Yield what brings routes back, as they are in either copy."""
    mirrored = Mirror(store.sessions_dir).read().entries if entries else {}
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
    """Return the text of a route as it is now."""
    entry = store.get(key)
    return None if entry is None else entry.stored


def read_unused_route_text(db: StateDatabase, store: SessionStore | None, key: str) -> str | None:
    """Return the text of a route to a session in which nothing was said yet."""
    entry = None if store is None else store.get(key)
    if entry is None or db.get_session(entry.session_id) is not None:
        return None
    return entry.stored


def finish_removal(store: SessionStore, result: Mapping[str, Any]) -> None:
    """Remove the routes of a step that was cut short behind its commit."""
    wanted: Mapping[str, str] = result.get("routes", {})
    left = {key: entry for key in wanted if (entry := store.get(key)) is not None}
    same = {key: entry for key, entry in left.items() if entry.stored == wanted[key]}
    if same:
        with suppress_note_errors("that routes are removed"):
            store.remove(same)


def restore_route(
    db: StateDatabase, store: SessionStore, value: Mapping[str, Any], left: str | None
) -> str | None:
    """Put a route back where it is as it was left, None where it was removed; say why not.

    It runs in the step of a store for this chat.
    """
    key, stored = value["key"], value["stored"]
    now = read_route_text(store, key)
    if now == stored:
        return None
    if strip_pending(now) != strip_pending(left):
        return "the chat has gone on since"
    try:
        entry = SessionEntry.from_dict(json.loads(stored))
    except (InvalidInput, ValueError, TypeError) as error:
        return f"it cannot be read: {error}"
    entry.stored, entry.stored_as = now, key
    try:
        store.save(entry)
    except Conflict:
        return "the chat has gone on since"
    if value["row"] is not None and db.has_routing:
        image = RowImages.unpack(value["row"])
        row = dict(zip(image.columns, image.rows[0], strict=True))
        here = db.read_row_images(_ROUTES_TABLE, {"session_key": key}).columns
        known = {name: given for name, given in row.items() if name in here}
        db.put_routing_row({**known, "scope": _get_scope(store)})
    return None


def list_route_keys(values: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the chats of what was kept of routes."""
    return [value["key"] for value in values]


def list_session_chats(db: StateDatabase, store: SessionStore | None, session_id: str) -> list[str]:
    """Return the chats that are led to a session, by the table or by the store, in order."""
    keys = {str(row["session_key"]) for row in db.list_routing_rows(session_id)}
    entries = {} if store is None else store.load_entries()
    return sorted(keys | {key for key, each in entries.items() if each.session_id == session_id})


def _read_route_row(db: StateDatabase, store: SessionStore, key: str) -> RowImages:
    if not db.has_routing:
        return RowImages(_ROUTES_TABLE, (), ())
    return db.read_row_images(_ROUTES_TABLE, {"scope": _get_scope(store), "session_key": key})


def _get_scope(store: SessionStore) -> str:
    return str(store.sessions_dir.resolve())
