"""Storage of entries as rows of the state database, with sessions.json as their mirror.

The table is authoritative and is read at every call, so changes of other processes are seen. An
entry is written only over the text from which it was read; a lost update is a `Conflict`. A removal
changes the mirror before the table: a crash in between leaves the old state, and no removed entry
comes back. A mirror that cannot be written is reported and undoes no change.

Stray entries are entries outside the rows of this store, which adopts them. They are in
sessions.json alone if an older version or another machine has written it, or under another folder
in the table if the home was moved.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from session_core.errors import Conflict, SessionError
from session_core.routing.entries import SessionEntry
from session_core.routing.mirror import (
    README,
    Backoff,
    Debouncer,
    Mirror,
    NoMirror,
    Signature,
    build_own_readme,
)
from session_core.routing.recovery import is_folder_missing
from session_core.state.protocol import StateDatabase

MIRROR_DELAY_S = 0.5
"""The delay of the mirror after an ordinary change; changes in between are written together."""

MIRROR_PATIENCE_S = 1.0
"""The time that a change waits for the lock of the mirror before it schedules the write."""

Entries = dict[str, SessionEntry]


class SqlBackend:
    """Stores the entries of a session store in the table, with a mirror."""

    is_transactional = True
    """True: an entry and its session change in one commit."""

    def __init__(
        self,
        db: StateDatabase,
        folder: Path | None,
        *,
        mirrored: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._db = db
        self.scope = "" if folder is None else str(folder.resolve())
        """The name of the store among the routes of the table."""
        self._mirror = (
            NoMirror()
            if folder is None
            else Mirror(folder, home=db.folder, explain=self._build_readme, clock=clock)
        )
        self._mirrored = mirrored and folder is not None
        self._lock = threading.Lock()
        self._mirroring = threading.RLock()  # not _lock: a change does not wait for a mirror write
        self._changes = self._mirrored_changes = self._failures = 0
        self._later = Debouncer(self._update_mirror)
        self._retry = Backoff(self._update_mirror)
        # Without a folder there is no file with entries, and no entry can have moved.
        self._adopted = folder is None
        self._read_signature: Signature | str | None = "nothing yet"
        self._strays = StrayEntries()
        self._broken: dict[str, str] = {}
        self._problems: dict[str, None] = {}

    @property
    def problems(self) -> list[str]:
        """Descriptions of entries and files that could not be read or were moved away."""
        return [*self._mirror.problems, *self._problems]

    def get(self, key: str) -> SessionEntry | None:
        """Return a copy of the stored entry of a key, or None."""
        if key.startswith("_"):
            return None
        strays = self._get_strays()
        row = self._db.routes.get_entry(key, scope=self.scope)
        # A readable entry of the file replaces a broken row.
        if row is None or row == strays.broken.get(key):
            text = strays.entries.get(key)
            return None if text is None else self._parse_entry(key, text)
        entry = self._parse_entry(key, row)
        if entry is None:
            self._broken[key] = row
        return entry

    def list_entries(self, having: str = "") -> Entries:
        """Return all entries by key, or only entries whose text contains `having`."""
        strays = self._get_strays()
        rows = self._db.routes.load_entries(scope=self.scope)
        texts = strays.entries | {k: row for k, row in rows.items() if row != strays.broken.get(k)}
        # Compared as text, so that only entries with the field are parsed.
        selected = {k: text for k, text in texts.items() if k[:1] != "_" and having in text}
        parsed = ((key, self._parse_entry(key, text)) for key, text in selected.items())
        return {key: entry for key, entry in parsed if entry is not None}

    def prepare_changes(self) -> None:
        """Adopt stray entries into the table, once before the first change."""
        if self._adopted:
            return
        # A transaction of its own, never part of one that may be rolled back.
        with self._mirroring:
            if self._adopted:
                return
            if self._get_strays().entries:
                with self._mirror.lock_file():
                    self._refresh_strays()
                    # Kept in a file before the rows are replaced.
                    if self._strays.broken:
                        self._mirror.save_broken_entries(self._strays.broken)
                    adopt_strays(self._db, self.scope, self._strays)
            self._mirror.remove_leftovers()
            self._strays = StrayEntries(unreadable=self._strays.unreadable)
            self._adopted = True

    def put(
        self, key: str, entry: SessionEntry, change_database: Callable[[], object] | None = None
    ) -> bool:
        """Store an entry in one row.

        Return False if its text is unchanged. `change_database` runs first in the same transaction
        and may change the entry.
        """
        with self._db.transaction() if change_database else nullcontext():
            if change_database is not None:
                change_database()
            return self._put_row(key, entry)

    def remove(self, entries: Entries) -> list[str]:
        """Remove entries that are unchanged since they were read.

        Return the removed keys.
        """
        texts = {key: entry.stored or "" for key, entry in entries.items()}
        with self._mirroring:
            count = self._count_change()
            try:
                with self._mirror.lock_file():
                    # The mirror first: after a crash in between, no removed entry comes back.
                    self._write_mirror(without=entries)
                    removed = self._db.routes.delete_entries(texts, scope=self.scope)
            except BaseException:
                self._restore_mirror()
                raise
            # Otherwise another process changed an entry meanwhile: the table has it, the file lacks
            # it.
            if len(removed) == len(entries):
                self._mirrored_changes = count
            else:
                self._restore_mirror()
            return removed

    def request_mirror_update(self, *, urgent: bool) -> None:
        """Schedule a write of the mirror, or write it before returning if `urgent`."""
        if not self._mirrored:
            return
        count = self._count_change()
        if urgent:
            self._later.cancel()
            self._update_mirror(count)
        else:
            self._later.schedule(MIRROR_DELAY_S)

    def close(self) -> None:
        """Write the changes that the mirror lacks, and stop its retries."""
        self._later.cancel()
        if self._mirrored:
            self._update_mirror(at_end=True)
        # After the last write, which may have scheduled a retry.
        self._retry.reset()

    def _put_row(self, key: str, entry: SessionEntry) -> bool:
        text = entry.to_text()
        # An unchanged entry costs no commit.
        if text == entry.stored:
            return False
        expected = entry.stored
        if expected is None and (broken := self._broken.pop(key, None)) is not None:
            # Kept in a file of its own before the row is overwritten.
            self._mirror.save_broken_entries({key: broken})
            expected = broken
        self._db.routes.save_entry(key, text, scope=self.scope, expect=expected)
        entry.stored, entry.stored_as = text, key
        return True

    def _get_strays(self) -> StrayEntries:
        """Return the stray entries.

        Until they are adopted, read a changed file again.
        """
        if not self._adopted:
            with self._mirroring:
                if not self._adopted and self._mirror.get_signature() != self._read_signature:
                    self._refresh_strays()
        return self._strays

    def _refresh_strays(self) -> None:
        # Taken first, so that a change during the read is seen by the next call.
        self._read_signature = self._mirror.get_signature()
        entries: Mapping[str, Any] = {}
        try:
            contents = self._mirror.read()
            # A file of another home in this folder belongs to that home.
            if contents.owner in (None, self._db.admin.get_home_id()):
                entries = contents.entries
        except SessionError as error:
            self._problems[f"the mirror could not be read: {error}"] = None
        self._strays = find_strays(self._db, self.scope, entries, self._parse_entry)
        self._mirror.forget_entries()

    def _build_readme(self) -> str:
        is_foreign = self._db.admin.get_capabilities().foreign_gateway
        return README if is_foreign else build_own_readme(self._db.admin.get_home_id())

    def _parse_entry(self, key: str, text: str) -> SessionEntry | None:
        try:
            entry = SessionEntry.from_dict(json.loads(text))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            self._problems[f"the route of {key} cannot be read: {error}"] = None
            return None
        entry.stored, entry.stored_as = text, key
        return entry

    def _count_change(self) -> int:
        with self._lock:
            self._changes += 1
            return self._changes

    def _update_mirror(self, min_changes: int | None = None, *, at_end: bool = False) -> None:
        """Write the mirror, unless it contains the first `min_changes` changes already.

        If the write fails, the next change or a scheduled retry writes it.
        """
        failures = self._failures
        with self._mirroring:
            # Another thread has written this change while this one waited.
            if self._mirrored_changes >= (self._changes if min_changes is None else min_changes):
                return
            # A try failed while this thread waited: many resets wait no longer than one.
            if min_changes is not None and self._failures != failures:
                return
            try:
                # At the end no retry follows, so the wait is longer.
                with self._mirror.lock_file(None if at_end else MIRROR_PATIENCE_S):
                    # Read before the write, so that a change during the write counts as missing.
                    count = self._changes
                    self._write_mirror()
            except SessionError as error:
                self._failures += 1
                self._problems[f"the mirror could not be written: {error}"] = None
                self._retry.schedule()
            else:
                self._mirrored_changes = count
                self._retry.reset()

    def _restore_mirror(self) -> None:
        """Write the entries that could not be removed from the table back to the mirror."""
        if self._mirrored:
            self._update_mirror()

    def _write_mirror(self, without: Collection[str] = ()) -> None:
        """Write the file.

        If the mirror is turned off, only remove entries from it.
        """
        if not self._mirrored:
            stored = self._mirror.read().entries
            remaining = {key: value for key, value in stored.items() if key not in without}
            if len(remaining) < len(stored):
                self._mirror.write(
                    f"{json.dumps(k)}: {json.dumps(v)}" for k, v in remaining.items()
                )
            return
        self._mirror.write(self._iter_members(without), odd=self._list_unreadable())

    def _iter_members(self, without: Collection[str]) -> Iterator[str]:
        """Yield all entries in pages, so that no snapshot is held while the file is written.

        An entry that another process changes meanwhile may be the old or the new entry; that
        process writes the file next.
        """
        cursor: str | None = None
        while True:
            page = self._db.routes.dump_entries(scope=self.scope, without=without, cursor=cursor)
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def _list_unreadable(self) -> dict[str, Any]:
        """Return the values of the file that are not entries.

        Values whose key has a row now are moved to a separate file.
        """
        odd = self._mirror.read(with_entries=False).odd | self._strays.unreadable
        replaced = {key: value for key, value in odd.items() if self._has_row(key)}
        if replaced:
            self._mirror.save_broken_entries(replaced)
            self._strays.forget_unreadable(replaced)
        return {key: value for key, value in odd.items() if key not in replaced}

    def _has_row(self, key: str) -> bool:
        return can_store_key(key) and (self._db.routes.get_entry(key, scope=self.scope) is not None)


@dataclass(slots=True)
class StrayEntries:
    """Entries that are not in the rows of this store, and values that are not entries.

    `broken` holds the unreadable rows that some of the entries replace, `former` the rows of the
    former folder `scope`.
    """

    entries: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    scope: str = ""
    former: dict[str, str] = field(default_factory=dict)
    unreadable: dict[str, Any] = field(default_factory=dict)

    def forget_unreadable(self, keys: Iterable[str]) -> None:
        """Remove unreadable values whose keys have a readable entry now."""
        for key in keys:
            self.unreadable.pop(key, None)


def find_strays(
    db: StateDatabase,
    scope: str,
    stored: Mapping[str, Any],
    parse: Callable[[str, str], object | None],
) -> StrayEntries:
    """Return the entries of the former folder and of the file that the table lacks."""
    strays = StrayEntries()
    rows = db.routes.load_entries(scope=scope)
    if not rows:
        strays.scope = _find_former_scope(db, scope)
        if strays.scope:
            strays.former = db.routes.load_entries(scope=strays.scope)
            strays.entries |= strays.former
    for key, value in stored.items():
        text, row = json.dumps(value), rows.get(key)
        # A readable row wins over the file; a broken one is replaced by a readable entry.
        if key in strays.entries or (row and (row == text or parse(key, row) is not None)):
            continue
        if can_store_key(key) and parse(key, text) is not None:
            strays.entries[key] = text
            strays.broken |= {} if row is None else {key: row}
        elif row is None:
            strays.unreadable[key] = value
    return strays


def adopt_strays(db: StateDatabase, scope: str, strays: StrayEntries) -> None:
    """Store stray entries in the table, in one transaction.

    The rows of the former folder are removed if the home has moved.
    """
    has_moved = bool(strays.former) and _has_home_moved(db, scope, strays.scope)
    # One transaction, so that a kill leaves the rows of the former folder.
    with db.transaction():
        for key, text in strays.entries.items():
            try:
                row = strays.broken.get(key)
                db.routes.save_entry(key, text, scope=scope, expect=row)
            except Conflict:
                continue  # another process has stored it meanwhile
        if has_moved:
            db.routes.delete_entries(strays.former, scope=strays.scope)


def can_store_key(key: str) -> bool:
    """Return True if the table can store a key, which may not contain a lone surrogate."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def _find_former_scope(db: StateDatabase, scope: str) -> str:
    """Return the missing folder that was written last, or an empty text.

    If an existing folder was written later, this home is a copy of the home of that folder, and
    adopts no entries of folders that the original left before.
    """
    for other in db.routes.list_scopes():
        if other != scope and is_folder_missing(other):
            return other
        if other != scope and _is_folder_of_other_home(db, scope, other):
            break
    return ""


def _is_folder_of_other_home(db: StateDatabase, scope: str, other: str) -> bool:
    """Return True if `other` is the folder of another home, which has a database of that name."""
    home_parts, other_folder = _get_home_parts(db, scope), Path(other)
    if not home_parts or db.path is None or other_folder.parts[-len(home_parts) :] != home_parts:
        return False
    return (other_folder.parents[len(home_parts) - 1] / db.path.name).is_file()


def _get_home_parts(db: StateDatabase, scope: str) -> tuple[str, ...]:
    """Return the parts of a folder relative to its database, or () if it is not below it."""
    home, folder = db.folder.resolve() if db.folder else None, PurePath(scope)
    return folder.relative_to(home).parts if home and folder.is_relative_to(home) else ()


def _has_home_moved(db: StateDatabase, scope: str, former: str) -> bool:
    """Return True if the home was in the former folder and moved here with its database.

    If the folders have different places relative to their database, the home stayed and one of its
    stores is temporarily missing. The result is False while another process has the database open,
    because that process may still see the former folder.
    """
    home_parts, former_folder = _get_home_parts(db, scope), PurePath(former)
    if not home_parts or db.folder is None or former_folder.is_relative_to(db.folder.resolve()):
        return False
    return former_folder.parts[-len(home_parts) :] == home_parts and not db.admin.list_holders()
