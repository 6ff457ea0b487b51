"""Edits: the title, the archive, a pin, or that a session has ended; at once, and undone as one.

An edit is columns of rows, each with what it was: exactly these are written in one step, and an
undo writes what they were wherever they are still as they were left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from session_core.errors import Changed, InvalidInput, NotFound, TitleTaken, Unsupported
from session_core.ledger.execute import clear_marks, run_step, suppress_note_errors
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import TrashItem
from session_core.maintenance.apply.routes import list_session_chats
from session_core.maintenance.members import RowChange
from session_core.routing.store import SessionStore
from session_core.state import titles
from session_core.state.protocol import StateDatabase
from session_core.types import SessionSummary

PIN_KIND = "pin"
"""What pins of ours are kept as: before and after, by session."""

BATCH_KIND = "edit"

_SESSIONS_TABLE = "sessions"
_FLAG_COLUMNS = ("archived", "pinned")
_MAX_TRIES = 3


@dataclass(frozen=True, slots=True)
class EditRequest:
    """What is to be changed; what is None stays. An empty title is none."""

    title: str | None = None
    archived: bool | None = None
    pinned: bool | None = None
    reopen: bool = False


@dataclass(frozen=True, slots=True)
class EditResult:
    """The session as a list shows it now, and what takes the edit back; None: nothing to do.

    Of one that was reopened it is the tip, which is what was.
    """

    session: SessionSummary
    batch: str | None


@dataclass(frozen=True, slots=True)
class EditPreview:
    """One thing of a session that an edit would change: what it is, and what it would be."""

    session_id: str
    what: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class _PendingEdit:
    """What an edit comes to just now."""

    changes: tuple[RowChange, ...]
    pins: Mapping[str, bool]
    """Pins of ours that were, by session, where they are to be otherwise."""

    def iter_trash_items(self) -> Iterator[TrashItem]:
        for change in self.changes:
            yield change.to_trash_item()
        if self.pins:
            after = {each: not was for each, was in self.pins.items()}
            yield TrashItem(PIN_KIND, {"before": dict(self.pins), "after": after})

    def iter_previews(self) -> Iterator[EditPreview]:
        for change in self.changes:
            for name, after in change.after.items():
                yield EditPreview(change.name, name, change.before[name], after)
        for each, was in self.pins.items():
            yield EditPreview(each, "pinned", was, not was)


class SessionEditor:
    """Edits sessions of one home."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        store: SessionStore | None,
        *,
        client: str,
        take_up: Callable[[], None],
    ) -> None:
        self._db = db
        self._store = store
        self._ledger = ledger
        self._pins = ledger.pins
        self._client = client
        self._take_up = take_up

    def edit_session(self, session_id: str, edit: EditRequest) -> EditResult:
        """Change a session: a title is its own, archive and pin are of its whole conversation.

        One that went on after a compression is reopened at its tip.

        Raises:
            NotFound: there is no such session.
            InvalidInput: nothing is asked for, or the title is too long.
            TitleTaken: another conversation has it.
            Unsupported: this home has no column for it.
            Changed: somebody else changes it all the time.
        """
        self._check_request(session_id, edit)
        self._take_up()  # so that an edit that a crash has cut short can be undone
        batch: str | None = None
        for left in reversed(range(_MAX_TRIES)):
            looked = self._find_changes(session_id, edit)
            if not looked.changes and not looked.pins:
                batch = None
                break
            batch = batch or self._ledger.add_batch(BATCH_KIND).id
            try:
                self._apply_changes(session_id, edit, looked, batch)
                break
            except Changed:
                if not left:
                    raise
        shown = self._db.get_compression_tip(session_id) if edit.reopen else session_id
        return EditResult(self._read_summary(shown), batch)

    def preview_edit(self, session_id: str, edit: EditRequest) -> tuple[EditPreview, ...]:
        """Return what an edit would change just now; nothing where it is so already.

        Raises:
            NotFound: there is no such session.
            InvalidInput: nothing is asked for, or the title is too long.
            TitleTaken: another conversation has it.
            Unsupported: this home has no column for it.
        """
        self._check_request(session_id, edit)
        return tuple(self._find_changes(session_id, edit).iter_previews())

    def _check_request(self, session_id: str, edit: EditRequest) -> None:
        if edit == EditRequest():
            raise InvalidInput("nothing to edit; give a title, archived, pinned or reopen")
        self._db.summarize_session(session_id)  # knows what may have been meant

    def _apply_changes(
        self, session_id: str, edit: EditRequest, looked: _PendingEdit, batch: str
    ) -> None:
        run_step(
            self._db,
            self._ledger,
            batch,
            before=lambda _: looked.iter_trash_items(),
            change=lambda db: _write_changes(db, self._store, looked.changes),
        )
        self._pins.set_pins({each: not was for each, was in looked.pins.items()})
        clear_marks(self._db, self._ledger)
        asked = {name: value for name, value in asdict(edit).items() if value is not None}
        if edit.title is not None:
            asked["title"] = True  # what a transcript says is no business of a log
        counts = {"session": session_id, **asked, "rows": len(looked.changes) + len(looked.pins)}
        with suppress_note_errors(f"an edit of {session_id}"):
            self._ledger.add_audit_entry(self._client, BATCH_KIND, None, counts)

    def _find_changes(self, session_id: str, edit: EditRequest) -> _PendingEdit:
        wanted: list[tuple[str, dict[str, Any]]] = []
        pins: dict[str, bool] = {}
        if edit.title is not None:
            wanted += _iter_title_changes(self._db, session_id, edit.title)
        if edit.reopen:
            tip = self._db.get_compression_tip(session_id)
            wanted.append((tip, {"ended_at": None, "end_reason": None}))
        family = _list_conversation_sessions(self._db, session_id)
        if edit.archived is not None:
            wanted += [(each, {"archived": int(edit.archived)}) for each in family]
        if edit.pinned is not None and self._has_pins:
            wanted += [(each, {"pinned": int(edit.pinned)}) for each in family]
        elif edit.pinned is not None:
            here = self._pins.list_pinned()
            pins = {each: each in here for each in family if (each in here) != edit.pinned}
        found = (_build_change(self._db, each, after) for each, after in wanted)
        return _PendingEdit(tuple(change for change in found if change is not None), pins)

    @property
    def _has_pins(self) -> bool:
        return "pinned" in self._db.read_row_images(_SESSIONS_TABLE, {"id": ""}).columns

    def _read_summary(self, session_id: str) -> SessionSummary:
        (shown,) = self._pins.show_pins([self._db.summarize_session(session_id)])
        return shown


def _iter_title_changes(
    db: StateDatabase, session_id: str, title: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield who loses the title, before who gets it."""
    cleaned = titles.clean_title(title)
    holder = None if cleaned is None else db.get_session_by_title(cleaned)
    if cleaned is not None and holder is not None and holder["id"] != session_id:
        chain = db.get_compression_lineage(session_id)
        if holder["id"] not in chain[: chain.index(session_id)]:
            raise TitleTaken(cleaned, holder["id"])
        yield holder["id"], {"title": None}
    yield session_id, {"title": cleaned}


def _list_conversation_sessions(db: StateDatabase, session_id: str) -> list[str]:
    """Return all sessions of a conversation, with continuations that were not gone on with."""
    found = [db.get_conversation_root(session_id)]
    seen = set(found)
    for each in found:
        for child in db.list_children(each):
            if child["id"] not in seen and db.get_link_kind(child["id"]) == "continuation":
                seen.add(child["id"])
                found.append(child["id"])
    return found


def _build_change(db: StateDatabase, session_id: str, after: Mapping[str, Any]) -> RowChange | None:
    """Return what is to be written in a row, None where it is so already."""
    image = db.read_row_images(_SESSIONS_TABLE, {"id": session_id})
    if not image.rows:
        raise NotFound(f"session {session_id} is gone; list the sessions for their ids")
    stored = dict(zip(image.columns, image.rows[0], strict=True))
    for name in after:
        if name not in stored:
            raise Unsupported(f"the sessions of this home have no {name}")
    other = {
        name: value
        for name, value in after.items()
        if not _is_same_value(name, stored[name], value)
    }
    before = {name: stored[name] for name in other}
    return RowChange(_SESSIONS_TABLE, {"id": session_id}, before, other) if other else None


def _is_same_value(name: str, stored: Any, wanted: Any) -> bool:
    return bool(stored) == bool(wanted) if name in _FLAG_COLUMNS else bool(stored == wanted)


def _write_changes(
    db: StateDatabase, store: SessionStore | None, changes: Sequence[RowChange]
) -> dict[str, Any]:
    """Write changes; return the revisions and the chats of those that were reopened."""
    for change in changes:
        title = change.after.get("title")
        holder = None if title is None else db.get_session_by_title(title)
        if holder is not None and holder["id"] != change.key["id"]:
            raise Changed(f"title {title!r} was taken meanwhile; try again")
        change.write_row(db)
    reopened = [each.key["id"] for each in changes if each.after.get("ended_at", 0) is None]
    return {
        "reopened": {each: db.get_revision(each) for each in reopened},
        "routed": {each: list_session_chats(db, store, each) for each in reopened},
    }
