"""Labels: our titles, pins and archive marks for sessions of other agents, with their undo.

The file lies next to the index of transcripts, where `session_core.transcripts.label_view` reads
it; a rebuild of the index does not touch it. An edit and its undo are one transaction each.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from session_core._typing import Self
from session_core.errors import Conflict, InvalidInput
from session_core.ledger.database import PACKAGE, LedgerDatabase
from session_core.ledger.state_folder import translate_os_errors
from session_core.ledger.storage import SQL as BATCHES_SQL
from session_core.ledger.storage import make_handle, make_not_found
from session_core.ledger.trash import TRASH_RETENTION_S
from session_core.ledger.types import AuditEntry, Batch
from session_core.state import cursors, sql_blocks, titles
from session_core.state.sqlite.connection import Connection
from session_core.transcripts import TranscriptSummary
from session_core.transcripts.label_view import FILE_NAME
from session_core.transcripts.places import find_index_folder
from session_core.types import Page

SQL = sql_blocks.load_blocks("labels", PACKAGE)

_BATCH_KIND = "edit"
_PATIENCE_S = 5.0
_MAX_ROWID = 1 << 62


@dataclass(frozen=True, slots=True)
class Label:
    """Values that a user has set on a session of another agent.

    None keeps the value of the agent.
    """

    title: str | None = None
    archived: bool | None = None
    pinned: bool | None = None


@dataclass(frozen=True, slots=True)
class LabelChange:
    """The label of a session before and after an edit."""

    session_id: str
    before: Label
    after: Label


@dataclass(frozen=True, slots=True)
class LabelRestore:
    """The result of undoing an edit.

    Sessions that were edited again since are skipped.
    """

    store: str
    restored: tuple[str, ...]
    skipped: tuple[str, ...]


class Labels:
    """The labels of all transcript stores.

    The first edit creates their file.
    """

    def __init__(
        self, folder: Path | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._path = (find_index_folder() if folder is None else folder) / FILE_NAME
        self._clock = clock
        self._file = LedgerDatabase(
            self._find_path,
            self._make_path,
            _PATIENCE_S,
            schema="labels_schema",
            name="file of labels",
            lost="the titles, pins and archive marks in it are lost",
        )

    def edit(
        self,
        sessions: Sequence[TranscriptSummary],
        *,
        title: str | None = None,
        archived: bool | None = None,
        pinned: bool | None = None,
        client: str,
    ) -> str | None:
        """Edit sessions of one store and return the batch that undoes the edit.

        The batch is None without a change. An empty title removes our title, so that the title of
        the agent is shown again.

        Raises:
            InvalidInput: the sessions are of several stores, nothing is set, or the title is too
                long or for several sessions.
        """
        stores = {session.source for session in sessions}
        if len(stores) != 1:
            raise InvalidInput(f"an edit covers one store, got {', '.join(sorted(stores))}")
        (store,) = stores
        requested = Label(
            None if title is None else titles.clean_title(title) or "", archived, pinned
        )

        def write_labels(rows: Connection) -> str | None:
            # Again in the transaction, since the labels may have changed after the preview.
            changes = list(_find_changes(rows, sessions, requested))
            if not changes:
                return None
            now, batch = self._clock(), make_handle("b")
            values = (batch, store, _BATCH_KIND, now, now + TRASH_RETENTION_S)
            rows.execute_update(SQL["add_batch"], values)
            for change in changes:
                _write_label(rows, store, change.session_id, change.after)
                sides = (_encode_label(change.before), _encode_label(change.after))
                rows.execute_update(SQL["add_change"], (batch, store, change.session_id, *sides))
            fields = {name: value for name, value in asdict(requested).items() if value is not None}
            if title is not None:
                fields["title"] = True  # the log must not contain text of a user
            counts = json.dumps({"sessions": len(changes), **fields})
            rows.execute_update(SQL["add_entry"], (now, store, client, _BATCH_KIND, counts))
            return batch

        if not self.preview_edit(sessions, title=title, archived=archived, pinned=pinned):
            return None  # without a change no file is created
        return self._file.write(write_labels)

    def preview_edit(
        self,
        sessions: Sequence[TranscriptSummary],
        *,
        title: str | None = None,
        archived: bool | None = None,
        pinned: bool | None = None,
    ) -> tuple[LabelChange, ...]:
        """Return the labels that `edit` would change.

        Raises:
            InvalidInput: nothing is set, or the title is too long or for several sessions.
        """
        if (title, archived, pinned) == (None, None, None):
            raise InvalidInput("nothing to edit; give a title, archived or pinned")
        if title is not None and len({session.id for session in sessions}) != 1:
            raise InvalidInput(f"a title is set on one session, got {len(sessions):,}")
        requested = Label(
            None if title is None else titles.clean_title(title) or "", archived, pinned
        )
        return self._file.read(lambda rows: tuple(_find_changes(rows, sessions, requested)))

    def list_titles(self, stores: Sequence[str]) -> dict[tuple[str, str], str]:
        """Return our titles in some stores, by store and session."""
        values = (json.dumps(list(stores)),)
        rows = self._file.read(lambda handle: handle.fetch_tuples(SQL["list_titles"], values))
        return {(store, session_id): title for store, session_id, title in rows}

    def get_batch(self, batch_id: str) -> Batch:
        """Return a batch, even if it was undone.

        Raises:
            NotFound: the batch does not exist.
        """
        return self._file.read(lambda rows: _read_batch(rows, batch_id))

    def get_undoable_batch(self, batch_id: str) -> Batch:
        """Return a batch that can be undone.

        Raises:
            NotFound: the batch does not exist.
            Conflict: it was undone or has expired.
        """
        return self._file.read(lambda rows: self._read_undoable_batch(rows, batch_id))

    def list_batches(
        self, stores: Sequence[str], limit: int = 20, cursor: str | None = None
    ) -> Page[Batch]:
        """List the batches of some stores that can be undone, newest first."""
        values = {"now": self._clock(), "stores": json.dumps(list(stores))}
        rows, next_cursor = self._read_page("list_batches", values, limit, cursor)
        return Page([_parse_batch(row) for row in rows], next_cursor)

    def list_changes(self, batch_id: str) -> tuple[LabelChange, ...]:
        """Return the changes of a batch."""
        return self._file.read(lambda rows: tuple(_read_changes(rows, batch_id)))

    def restore(self, batch_id: str, *, client: str) -> LabelRestore:
        """Undo an edit.

        A session that was edited again since keeps its label.

        If that is every session, nothing is undone and the batch can be undone later.

        Raises:
            NotFound: the batch does not exist.
            Conflict: it was undone or has expired.
        """
        batch = self.get_undoable_batch(batch_id)
        store = str(batch.store)

        def undo_changes(rows: Connection) -> LabelRestore:
            # Again in the transaction, since another process may have undone the batch meanwhile.
            self._read_undoable_batch(rows, batch_id)
            restored: list[str] = []
            skipped: list[str] = []
            for change in _read_changes(rows, batch_id):
                current = _read_label(rows, store, change.session_id)
                reverted = _revert_change(current, change)
                (skipped if reverted is None else restored).append(change.session_id)
                if reverted is not None:
                    _write_label(rows, store, change.session_id, reverted)
            if not restored:
                return LabelRestore(store, (), tuple(skipped))
            now = self._clock()
            rows.execute_update(SQL["mark_undone"], (now, batch_id))
            counts = {"batch": batch_id, "restored": len(restored), "skipped": len(skipped)}
            entry = (now, store, client, "restore", json.dumps(counts))
            rows.execute_update(SQL["add_entry"], entry)
            return LabelRestore(store, tuple(restored), tuple(skipped))

        return self._file.write(undo_changes)

    def forget(self, store: str, session_id: str) -> None:
        """Remove the label of a session for good, also from batches that can be undone."""
        self._delete_rows(("delete_label", "forget_changes"), (store, session_id))

    def forget_store(self, store: str) -> None:
        """Remove all labels of a store for good, also of sessions that no longer exist."""
        self._delete_rows(("delete_store_labels", "forget_store_changes"), (store,))

    def _delete_rows(self, names: Sequence[str], values: Sequence[str]) -> None:
        def delete_labels(rows: Connection) -> None:
            for name in names:
                rows.execute_update(SQL[name], values)

        if self._find_path() is not None:
            self._file.write(delete_labels)
            # The deleted titles must not stay readable in free pages.
            self._file.reclaim_space(overwrite=True)

    def list_audit_entries(
        self, stores: Sequence[str], limit: int = 20, cursor: str | None = None
    ) -> Page[AuditEntry]:
        """List the edits and undos of some stores, newest first."""
        values = {"stores": json.dumps(list(stores))}
        rows, next_cursor = self._read_page("list_entries", values, limit, cursor)
        entries = [
            AuditEntry(
                row["at"], row["client"], row["what"], None, json.loads(row["counts"]), row["store"]
            )
            for row in rows
        ]
        return Page(entries, next_cursor)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _read_page(
        self, name: str, values: Mapping[str, Any], limit: int, cursor: str | None
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return the rows of a page and the cursor of the next page."""
        scope = str(self._path)
        before = _MAX_ROWID if cursor is None else cursors.decode_cursor(name, scope, cursor)
        # One row more than the page, to know if another page follows.
        bound = {**values, "before": before, "limit": limit + 1}
        rows = self._file.read(lambda handle: handle.fetch_rows(SQL[name], bound))
        page = rows[:limit]
        has_more = len(rows) > limit
        return page, cursors.encode_cursor(name, scope, page[-1]["number"]) if has_more else None

    def _read_undoable_batch(self, rows: Connection, batch_id: str) -> Batch:
        batch = _read_batch(rows, batch_id)
        if batch.undone_at is not None:
            raise Conflict(f"batch {batch_id} was undone already")
        if batch.expires_at <= self._clock():
            raise Conflict(f"batch {batch_id} cannot be undone any more: it has expired")
        return batch

    def _find_path(self) -> Path | None:
        return self._path if self._path.exists() else None

    def _make_path(self) -> Path:
        with translate_os_errors(self._path.parent):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._path


def _find_changes(
    rows: Connection, sessions: Sequence[TranscriptSummary], requested: Label
) -> Iterator[LabelChange]:
    """Yield the label changes that give the sessions the requested values."""
    for session in sessions:
        before = _read_label(rows, session.source, session.id)
        after = before
        if requested.title is not None and requested.title != (session.title or ""):
            after = replace(after, title=requested.title or None)
        if requested.archived is not None and requested.archived != (session.status == "archived"):
            after = replace(after, archived=_choose_archived(before, is_wanted=requested.archived))
        if requested.pinned is not None and requested.pinned != session.pinned:
            after = replace(after, pinned=requested.pinned or None)
        if after != before:
            yield LabelChange(session.id, before, after)


def _choose_archived(before: Label, *, is_wanted: bool) -> bool | None:
    """Return the archive mark that changes the status of a session.

    Return None if only our own mark had set the status.
    """
    return None if before.archived is (not is_wanted) else is_wanted


def _revert_change(current: Label, change: LabelChange) -> Label | None:
    """Return the label without a change, or None if one of its values was changed again."""
    reverted = current
    for name in ("title", "archived", "pinned"):
        before, after = getattr(change.before, name), getattr(change.after, name)
        if before == after:
            continue
        if getattr(current, name) != after:
            return None
        reverted = replace(reverted, **{name: before})
    return reverted


def _read_label(rows: Connection, store: str, session_id: str) -> Label:
    row = rows.fetch_row(SQL["get_label"], (store, session_id))
    if row is None:
        return Label()
    flags = (None if row[name] is None else bool(row[name]) for name in ("archived", "pinned"))
    return Label(row["title"], *flags)


def _write_label(rows: Connection, store: str, session_id: str, label: Label) -> None:
    """Store a label, or delete it if it is empty."""
    if label == Label():
        rows.execute_update(SQL["delete_label"], (store, session_id))
        return
    values = (label.title, label.archived, label.pinned, store, session_id)
    rows.execute_update(SQL["put_label"], values)


def _read_changes(rows: Connection, batch_id: str) -> Iterator[LabelChange]:
    for session_id, before, after in rows.fetch_tuples(SQL["list_changes"], (batch_id,)):
        yield LabelChange(session_id, Label(*json.loads(before)), Label(*json.loads(after)))


def _encode_label(label: Label) -> str:
    return json.dumps([label.title, label.archived, label.pinned])


def _read_batch(rows: Connection, batch_id: str) -> Batch:
    row = rows.fetch_row(SQL["get_batch"], (batch_id,))
    if row is None:
        raise make_not_found(rows, "batch", batch_id, BATCHES_SQL["list_names"])
    return _parse_batch(row)


def _parse_batch(row: Mapping[str, Any]) -> Batch:
    names = ("id", "what", "at", "expires_at", "undone_at", "count", "store")
    values = {name: row[name] for name in names}
    return Batch(plan=None, emptied_at=None, bytes=0, **values)
