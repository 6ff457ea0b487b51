"""Entries in the table of the state database, one row each, with sessions.json as their mirror.

The table is the truth and is asked each time, so what another process changes is seen, and an entry
is written only over the text that it was read from: a lost update is a `Conflict`. A removal
reaches the mirror before the table, so that a crash in between leaves the old state and never an
entry that comes back. A mirror that cannot be written is reported, and undoes no change.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from session_core.errors import SessionError
from session_core.routing import recovery
from session_core.routing.entries import SessionEntry
from session_core.routing.mirror import (
    README,
    Backoff,
    Debouncer,
    Mirror,
    Signature,
    build_own_readme,
)
from session_core.routing.recovery import StrayEntries
from session_core.state.protocol import StateDatabase

MIRROR_DELAY_S = 0.5
"""The mirror follows an ordinary change so much later, together with those that come meanwhile."""

MIRROR_PATIENCE_S = 1.0
"""So long a change that is stored waits for whoever writes the file; then it follows later."""

Entries = dict[str, SessionEntry]


class SqlBackend:
    """Entries in the table, mirrored."""

    def __init__(
        self,
        db: StateDatabase,
        folder: Path,
        *,
        mirrored: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._db = db
        self._scope = str(folder.resolve())
        self._mirror = Mirror(folder, home=db.folder, explain=self._build_readme, clock=clock)
        self._mirrored = mirrored
        self._lock = threading.Lock()
        self._mirroring = threading.RLock()  # a change never waits for a mirror that is written
        self._changes = self._mirrored_changes = self._failures = 0
        self._later = Debouncer(self._update_mirror)
        self._retry = Backoff(self._update_mirror)
        self._settled = False
        self._looked_at: Signature | str | None = "nothing yet"
        self._found = StrayEntries()
        self._broken: dict[str, str] = {}
        self._problems: dict[str, None] = {}

    @property
    def problems(self) -> list[str]:
        """What could not be read, and what was set aside."""
        return [*self._mirror.problems, *self._problems]

    def get(self, key: str) -> SessionEntry | None:
        """Return the entry of a key as it is now; it is the caller's own."""
        if key.startswith("_"):
            return None
        strays = self._get_strays()
        row = self._db.get_gateway_routing_entry(key, scope=self._scope)
        if row is None or row == strays.broken.get(key):
            text = strays.entries.get(key)
            return None if text is None else self._parse_entry(key, text)
        entry = self._parse_entry(key, row)
        if entry is None:
            self._broken[key] = row
        return entry

    def list_entries(self, having: str = "") -> Entries:
        """Return all entries, or those whose text has this in it."""
        strays = self._get_strays()
        rows = self._db.load_gateway_routing_entries(scope=self._scope)
        texts = strays.entries | {k: row for k, row in rows.items() if row != strays.broken.get(k)}
        wanted = {k: text for k, text in texts.items() if k[:1] != "_" and having in text}
        parsed = ((key, self._parse_entry(key, text)) for key, text in wanted.items())
        return {key: entry for key, entry in parsed if entry is not None}

    def prepare_changes(self) -> None:
        """Take what is elsewhere into the table, once; called before any change.

        It is a transaction of its own, never a part of one that may be rolled back.
        """
        if self._settled:
            return
        with self._mirroring:
            if self._settled:
                return
            if self._get_strays().entries:
                with self._mirror.lock_file():
                    self._refresh_strays()
                    if self._found.broken:
                        self._mirror.set_aside(self._found.broken)
                    recovery.adopt_strays(self._db, self._scope, self._found)
            self._mirror.remove_leftovers()
            self._found = StrayEntries(unreadable=self._found.unreadable)
            self._settled = True

    def put(
        self, key: str, entry: SessionEntry, beside: Callable[[], object] | None = None
    ) -> bool:
        """Store an entry in one row; return whether it had to be, since the same text is not.

        What changes beside it does so in the same transaction, first, and may change the entry.
        """
        with self._db.transaction() if beside else nullcontext():
            if beside is not None:
                beside()
            return self._put_row(key, entry)

    def remove(self, entries: Entries) -> list[str]:
        """Remove entries that are still as they were read; return the keys of those."""
        texts = {key: entry.stored or "" for key, entry in entries.items()}
        with self._mirroring:
            count = self._count_change()
            try:
                with self._mirror.lock_file():
                    self._write_mirror(without=entries)
                    removed = self._db.delete_gateway_routing_entries(texts, scope=self._scope)
            except BaseException:
                self._restore_mirror()
                raise
            if len(removed) == len(entries):
                self._mirrored_changes = count
            else:
                self._restore_mirror()
            return removed

    def request_mirror_update(self, *, urgent: bool) -> None:
        """Bring the mirror up to date: before this returns, or soon."""
        if not self._mirrored:
            return
        count = self._count_change()
        if urgent:
            self._later.cancel()
            self._update_mirror(count)
        else:
            self._later.schedule(MIRROR_DELAY_S)

    def close(self) -> None:
        """Write what the mirror still lacks."""
        self._later.cancel()
        if self._mirrored:
            self._update_mirror(at_end=True)
        self._retry.reset()

    def _put_row(self, key: str, entry: SessionEntry) -> bool:
        text = entry.to_text()
        if text == entry.stored:
            return False
        expected = entry.stored
        if expected is None and (broken := self._broken.pop(key, None)) is not None:
            self._mirror.set_aside({key: broken})
            expected = broken
        self._db.save_gateway_routing_entry(key, text, scope=self._scope, expect=expected)
        entry.stored, entry.stored_as = text, key
        return True

    def _get_strays(self) -> StrayEntries:
        """Return what is elsewhere; until that is settled, what the file says by now."""
        if not self._settled:
            with self._mirroring:
                if not self._settled and self._mirror.get_signature() != self._looked_at:
                    self._refresh_strays()
        return self._found

    def _refresh_strays(self) -> None:
        self._looked_at = self._mirror.get_signature()
        stored: Mapping[str, Any] = {}
        try:
            contents = self._mirror.read()
            # What another application in this folder has written is its own.
            if contents.owner in (None, self._db.get_home_id()):
                stored = contents.entries
        except SessionError as error:
            self._problems[f"the mirror could not be read: {error}"] = None
        self._found = recovery.find_strays(self._db, self._scope, stored, self._parse_entry)
        self._mirror.forget_entries()

    def _build_readme(self) -> str:
        return build_own_readme(self._db.get_home_id()) if self._db.kind == "own" else README

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

    def _update_mirror(self, wanted: int | None = None, *, at_end: bool = False) -> None:
        """Write the mirror, unless one that holds so many changes was written meanwhile.

        What it lacks where that fails, it gets with the next change, or when it is tried again. Who
        has waited for a try that failed does not try too: many resets wait no longer than one.
        """
        failures = self._failures
        with self._mirroring:
            if self._mirrored_changes >= (self._changes if wanted is None else wanted):
                return
            if wanted is not None and self._failures != failures:
                return
            try:
                with self._mirror.lock_file(None if at_end else MIRROR_PATIENCE_S):
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
        """Let the mirror have again what could not be removed; where it cannot, it does later."""
        if self._mirrored:
            self._update_mirror()

    def _write_mirror(self, without: Collection[str] = ()) -> None:
        """Write the file; where it is turned off, only take out what must not come back from it."""
        if not self._mirrored:
            stored = self._mirror.read().entries
            kept = {key: value for key, value in stored.items() if key not in without}
            if len(kept) < len(stored):
                self._mirror.write(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in kept.items())
            return
        self._mirror.write(self._iter_members(without), odd=self._list_unreadable())

    def _iter_members(self, without: Collection[str]) -> Iterator[str]:
        """Yield all entries, some at a time: no snapshot is held while a file is written.

        An entry that another process changes meanwhile may be of before or after, and that process
        writes the file next.
        """
        cursor: str | None = None
        while True:
            page = self._db.dump_gateway_routing_entries(
                scope=self._scope, without=without, cursor=cursor
            )
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def _list_unreadable(self) -> dict[str, Any]:
        """Return what is in the file and no entry; that of a chat which has one now goes aside."""
        odd = self._mirror.read(with_entries=False).odd | self._found.unreadable
        taken = {key: value for key, value in odd.items() if self._has_row(key)}
        if taken:
            self._mirror.set_aside(taken)
            self._found.forget_unreadable(taken)
        return {key: value for key, value in odd.items() if key not in taken}

    def _has_row(self, key: str) -> bool:
        return recovery.can_be_stored(key) and (
            self._db.get_gateway_routing_entry(key, scope=self._scope) is not None
        )
