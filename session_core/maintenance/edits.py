"""Edit sessions: change the title, archive, pin or reopen them, and undo the edit as one batch.

An edit changes columns of rows and keeps their previous values: one step writes all of them, and an
undo writes the previous values if the columns are still as the edit left them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from session_core.errors import Changed, InvalidInput, NotFound, TitleTaken, Unsupported
from session_core.ledger.execute import delete_step_marks, run_step, suppress_note_errors
from session_core.ledger.types import TrashItem
from session_core.maintenance.apply.crash_recovery import recover_from_crash
from session_core.maintenance.apply.route_removal import list_session_chats
from session_core.maintenance.home_context import HomeContext
from session_core.maintenance.members import PIN_KIND, RowChange
from session_core.routing.session_store import SessionStore
from session_core.state import titles
from session_core.state.protocol import StateDatabase
from session_core.types import SessionSummary

BATCH_KIND = "edit"

_SESSIONS_TABLE = "sessions"
_FLAG_COLUMNS = ("archived", "pinned")
_MAX_TRIES = 3


@dataclass(frozen=True, slots=True)
class EditRequest:
    """A requested change.

    None keeps a value. An empty title removes the title.
    """

    title: str | None = None
    archived: bool | None = None
    pinned: bool | None = None
    reopen: bool = False


@dataclass(frozen=True, slots=True)
class EditResult:
    """The edited sessions as a list shows them, and the batch of the edit.

    The batch is None if nothing changed. For a reopened conversation, the session is its tip.
    """

    sessions: tuple[SessionSummary, ...]
    batch: str | None


@dataclass(frozen=True, slots=True)
class EditPreview:
    """One value of a session that an edit would change, before and after."""

    session_id: str
    what: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class _PendingEdit:
    """The changes that an edit requires at this moment."""

    changes: tuple[RowChange, ...]
    pins: Mapping[str, bool]
    """The previous pins in our own file, by session, if they are to change."""

    def iter_trash_items(self) -> Iterator[TrashItem]:
        for change in self.changes:
            yield change.to_trash_item()
        if self.pins:
            after = {session_id: not was_pinned for session_id, was_pinned in self.pins.items()}
            yield TrashItem(PIN_KIND, {"before": dict(self.pins), "after": after})

    def iter_previews(self) -> Iterator[EditPreview]:
        for change in self.changes:
            for name, after in change.after.items():
                yield EditPreview(change.name, name, change.before[name], after)
        for session_id, was_pinned in self.pins.items():
            yield EditPreview(session_id, "pinned", was_pinned, not was_pinned)


def edit_sessions(
    home: HomeContext, session_ids: Sequence[str], edit: EditRequest, client: str
) -> EditResult:
    """Edit sessions in one batch: their own title, or archive and pin of whole conversations.

    A session that was continued after a compression is reopened at its tip.

    Raises:
        NotFound: a session does not exist.
        InvalidInput: the edit is empty, the title is too long, or it is for several sessions.
        TitleTaken: another conversation has the title.
        Unsupported: this home does not have the column.
        Changed: other processes keep changing the session.
    """
    _check_request(home, session_ids, edit)
    recover_from_crash(home)  # so that an edit interrupted by a crash can be undone
    batch: str | None = None
    for tries_left in reversed(range(_MAX_TRIES)):
        pending = _find_changes(home, session_ids, edit)
        if not pending.changes and not pending.pins:
            batch = None
            break
        # An edit without changes leaves no batch.
        batch = batch or home.ledger.add_batch(BATCH_KIND).id
        try:
            _apply_changes(home, session_ids, edit, pending, batch, client=client)
            break
        except Changed:
            if not tries_left:
                raise
    shown_ids = map(home.db.get_compression_tip, session_ids) if edit.reopen else session_ids
    return EditResult(_read_summaries(home, dict.fromkeys(shown_ids)), batch)


def preview_edit(
    home: HomeContext, session_ids: Sequence[str], edit: EditRequest
) -> tuple[EditPreview, ...]:
    """Return the values that an edit would change now.

    Raises:
        NotFound: a session does not exist.
        InvalidInput: the edit is empty, the title is too long, or it is for several sessions.
        TitleTaken: another conversation has the title.
        Unsupported: this home does not have the column.
    """
    _check_request(home, session_ids, edit)
    return tuple(_find_changes(home, session_ids, edit).iter_previews())


def check_edit(session_ids: Collection[str], edit: EditRequest) -> None:
    """Refuse an edit that changes nothing, or sets one title on several sessions.

    Raises:
        InvalidInput: it is one of these.
    """
    if edit == EditRequest():
        raise InvalidInput("nothing to edit; give a title, archived, pinned or reopen")
    if edit.title is not None and len(set(session_ids)) != 1:
        raise InvalidInput(f"a title is set on one session, got {len(set(session_ids)):,}")


def _check_request(home: HomeContext, session_ids: Sequence[str], edit: EditRequest) -> None:
    check_edit(session_ids, edit)
    for session_id in session_ids:
        home.db.summarize_session(session_id)  # its error suggests similar ids


def _apply_changes(
    home: HomeContext,
    session_ids: Sequence[str],
    edit: EditRequest,
    pending: _PendingEdit,
    batch: str,
    *,
    client: str,
) -> None:
    run_step(
        home.db,
        home.ledger,
        batch,
        before=lambda _: pending.iter_trash_items(),
        change=lambda db: _write_changes(db, home.store, pending.changes),
        members=tuple(dict.fromkeys(session_ids)),  # the batch counts them
    )
    # After the step, whose trash holds the earlier pins.
    home.ledger.pins.set_pins(
        {pinned_id: not was_pinned for pinned_id, was_pinned in pending.pins.items()}
    )
    delete_step_marks(home.db, home.ledger)
    fields = {name: value for name, value in asdict(edit).items() if value is not None}
    if edit.title is not None:
        fields["title"] = True  # the log must not contain text of a transcript
    named = {"session": session_ids[0]} if len(session_ids) == 1 else {"sessions": len(session_ids)}
    counts = {**named, **fields, "rows": len(pending.changes) + len(pending.pins)}
    with suppress_note_errors(f"the edit {batch}"):
        home.ledger.add_audit_entry(client, BATCH_KIND, None, counts)


def _find_changes(home: HomeContext, session_ids: Sequence[str], edit: EditRequest) -> _PendingEdit:
    updates: list[tuple[str, dict[str, Any]]] = []
    pins: dict[str, bool] = {}
    if edit.title is not None:
        updates += _iter_title_changes(home.db, session_ids[0], edit.title)
    if edit.reopen:
        tips = dict.fromkeys(map(home.db.get_compression_tip, session_ids))
        updates += [(tip, {"ended_at": None, "end_reason": None}) for tip in tips]
    # Once each, although two of the sessions may be of one conversation.
    conversation = dict.fromkeys(
        member_id
        for session_id in dict.fromkeys(session_ids)
        for member_id in _list_conversation_sessions(home.db, session_id)
    )
    if edit.archived is not None:
        updates += [(member_id, {"archived": int(edit.archived)}) for member_id in conversation]
    # Newer homes have a column; other pins are in a file next to the ledger.
    if edit.pinned is not None and _has_pin_column(home):
        updates += [(member_id, {"pinned": int(edit.pinned)}) for member_id in conversation]
    elif edit.pinned is not None:
        pinned = home.ledger.pins.list_pinned()
        pins = {
            member_id: member_id in pinned
            for member_id in conversation
            if (member_id in pinned) != edit.pinned
        }
    changes = (_build_change(home.db, member_id, after) for member_id, after in updates)
    return _PendingEdit(tuple(change for change in changes if change is not None), pins)


def _has_pin_column(home: HomeContext) -> bool:
    return "pinned" in home.db.rows.list_columns(_SESSIONS_TABLE)


def _read_summaries(home: HomeContext, session_ids: Iterable[str]) -> tuple[SessionSummary, ...]:
    return tuple(home.ledger.pins.apply_pins(map(home.db.summarize_session, session_ids)))


def _iter_title_changes(
    db: StateDatabase, session_id: str, title: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the update of the previous holder of the title, then the update of the new holder."""
    cleaned = titles.clean_title(title)
    holder = None if cleaned is None else db.get_session_by_title(cleaned)
    if cleaned is not None and holder is not None and holder["id"] != session_id:
        chain = db.get_compression_lineage(session_id)
        if holder["id"] not in chain[: chain.index(session_id)]:
            raise TitleTaken(cleaned, holder["id"])
        # An ancestor of the same conversation gives its title up.
        yield holder["id"], {"title": None}
    yield session_id, {"title": cleaned}


def _list_conversation_sessions(db: StateDatabase, session_id: str) -> list[str]:
    """Return all sessions of a conversation, including abandoned continuations."""
    session_ids = [db.get_conversation_root(session_id)]
    seen = set(session_ids)
    for parent_id in session_ids:
        for child in db.list_children(parent_id):
            if child["id"] not in seen and db.get_link_kind(child["id"]) == "continuation":
                seen.add(child["id"])
                session_ids.append(child["id"])
    return session_ids


def _build_change(db: StateDatabase, session_id: str, after: Mapping[str, Any]) -> RowChange | None:
    """Return the change of a row, or None if it has these values already."""
    image = db.rows.read_row_images(_SESSIONS_TABLE, {"id": session_id})
    if not image.rows:
        raise NotFound(f"session {session_id} does not exist; list the sessions for their ids")
    stored = dict(zip(image.columns, image.rows[0], strict=True))
    # An older Hermes home may have no `archived` or `pinned`.
    for name in after:
        if name not in stored:
            raise Unsupported(f"this home has no column {name} for sessions")
    changed = {
        name: value
        for name, value in after.items()
        if not _is_same_value(name, stored[name], value)
    }
    before = {name: stored[name] for name in changed}
    return RowChange(_SESSIONS_TABLE, {"id": session_id}, before, changed) if changed else None


def _is_same_value(name: str, stored: Any, value: Any) -> bool:
    return bool(stored) == bool(value) if name in _FLAG_COLUMNS else bool(stored == value)


def _write_changes(
    db: StateDatabase, store: SessionStore | None, changes: Sequence[RowChange]
) -> dict[str, Any]:
    """Write changes, and return the revisions and chats of the reopened sessions."""
    for change in changes:
        title = change.after.get("title")
        holder = None if title is None else db.get_session_by_title(title)
        # Read again under the lock, since another session may have taken the title.
        if holder is not None and holder["id"] != change.key["id"]:
            raise Changed(f"title {title!r} was taken by another session; try again")
        change.write_row(db)
    reopened = [change.key["id"] for change in changes if change.after.get("ended_at", 0) is None]
    return {
        "reopened": {session_id: db.get_revision(session_id) for session_id in reopened},
        "routed": {id_: list_session_chats(db, store, id_) for id_ in reopened},
    }
