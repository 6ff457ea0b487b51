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
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from session_core.errors import SessionError
from session_core.routing import elsewhere
from session_core.routing.entries import SessionEntry
from session_core.routing.mirror import Mirror, Signature
from session_core.state.contract import StateDatabase

MIRROR_DELAY_S = 0.5
"""The mirror follows an ordinary change so much later, together with those that come meanwhile."""

Entries = dict[str, SessionEntry]


class Table:
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
        self._mirror = Mirror(folder, clock=clock)
        self._mirrored = mirrored
        self._lock = threading.RLock()
        self._counting = threading.Lock()
        self._changes = self._mirrored_changes = 0
        self._timer: threading.Timer | None = None
        self._settled = False
        self._looked_at: Signature | str | None = "nothing yet"
        self._elsewhere = elsewhere.Found()
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
        found = self._found()
        text = self._db.get_gateway_routing_entry(key, scope=self._scope)
        if text is None:
            text = found.entries.get(key)
            return None if text is None else self._parse(key, text)
        entry = self._parse(key, text)
        if entry is None:
            self._broken[key] = text
        return entry

    def all(self) -> Entries:
        """Return all entries."""
        texts = self._found().entries | self._db.load_gateway_routing_entries(scope=self._scope)
        parsed = ((key, self._parse(key, text)) for key, text in texts.items() if key[:1] != "_")
        return {key: entry for key, entry in parsed if entry is not None}

    def settle(self) -> None:
        """Take what is elsewhere into the table, once; called before any change.

        It is a transaction of its own, never a part of one that may be rolled back.
        """
        if self._settled:
            return
        with self._lock:
            if not self._settled and self._found().entries:
                with self._mirror.alone():
                    self._look()
                    elsewhere.settle(self._db, self._scope, self._elsewhere)
            self._mirror.sweep()
            self._elsewhere = elsewhere.Found(unreadable=self._elsewhere.unreadable)
            self._settled = True

    def put(self, key: str, entry: SessionEntry) -> bool:
        """Store an entry in one row; return whether it had to be, since the same text is not."""
        text = json.dumps(entry.to_dict())
        if text == entry.stored:
            return False
        expected = entry.stored
        if expected is None and (broken := self._broken.pop(key, None)) is not None:
            self._mirror.set_aside({key: broken})
            expected = broken
        self._db.save_gateway_routing_entry(key, text, scope=self._scope, expect=expected)
        entry.stored, entry.stored_as = text, key
        return True

    def remove(self, entries: Entries) -> list[str]:
        """Remove entries that are still as they were read; return the keys of those."""
        texts = {key: entry.stored or "" for key, entry in entries.items()}
        with self._lock:
            count = self._count()
            with self._mirror.alone():
                self._write_mirror(without=entries)
                removed = self._db.delete_gateway_routing_entries(texts, scope=self._scope)
            if len(removed) == len(entries):
                self._mirrored_changes = count
            elif self._mirrored:
                self._catch_up()
            return removed

    def changed(self, *, urgent: bool) -> None:
        """Bring the mirror up to date: before this returns, or soon."""
        if not self._mirrored:
            return
        count = self._count()
        with self._lock:
            if urgent and self._mirrored_changes < count:
                self._stop_timer()
                self._catch_up()
            elif not urgent and self._timer is None:
                # Not a daemon: a process that ends without closing still leaves a true mirror.
                self._timer = threading.Timer(MIRROR_DELAY_S, self._write_soon)
                try:
                    self._timer.start()
                except RuntimeError:  # the process is ending
                    self._write_soon()

    def close(self) -> None:
        """Write what the mirror still lacks."""
        with self._lock:
            self._stop_timer()
            if self._mirrored and self._mirrored_changes < self._changes:
                self._catch_up()

    def _found(self) -> elsewhere.Found:
        """Return what is elsewhere; until that is settled, what the file says by now."""
        if not self._settled:
            with self._lock:
                if not self._settled and self._mirror.signature() != self._looked_at:
                    self._look()
        return self._elsewhere

    def _look(self) -> None:
        self._looked_at = self._mirror.signature()
        stored: Mapping[str, Any] = {}
        try:
            stored = self._mirror.read().entries
        except SessionError as error:
            self._problems[f"the mirror could not be read: {error}"] = None
        self._elsewhere = elsewhere.find(self._db, self._scope, stored, self._parse)

    def _parse(self, key: str, text: str) -> SessionEntry | None:
        try:
            entry = SessionEntry.from_dict(json.loads(text))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            self._problems[f"the route of {key} cannot be read: {error}"] = None
            return None
        entry.stored, entry.stored_as = text, key
        return entry

    def _count(self) -> int:
        with self._counting:
            self._changes += 1
            return self._changes

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _write_soon(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer = None
                self._catch_up()

    def _catch_up(self) -> None:
        """Write the mirror; what it lacks where that fails, it gets with the next change."""
        count = self._changes
        try:
            with self._mirror.alone():
                self._write_mirror()
        except SessionError as error:
            self._problems[f"the mirror could not be written: {error}"] = None
        else:
            self._mirrored_changes = count

    def _write_mirror(self, without: Collection[str] = ()) -> None:
        """Write the file; where it is turned off, only take out what must not come back from it."""
        if not self._mirrored:
            stored = self._mirror.read().entries
            kept = {key: value for key, value in stored.items() if key not in without}
            if len(kept) < len(stored):
                self._mirror.write(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in kept.items())
            return
        members = self._db.dump_gateway_routing_entries(scope=self._scope, without=without)
        self._mirror.write(members, odd=self._without_rows())

    def _without_rows(self) -> dict[str, Any]:
        """Return what is in the file and no entry; that of a chat which has one now goes aside."""
        odd = self._mirror.read(with_entries=False).odd | self._elsewhere.unreadable
        taken = {key: value for key, value in odd.items() if self._has_row(key)}
        if taken:
            self._mirror.set_aside(taken)
            self._elsewhere.forget(taken)
        return {key: value for key, value in odd.items() if key not in taken}

    def _has_row(self, key: str) -> bool:
        return elsewhere.can_be_stored(key) and (
            self._db.get_gateway_routing_entry(key, scope=self._scope) is not None
        )
