"""Entries in the table of the state database, one row each, with sessions.json as their mirror.

The table is the truth and is asked each time, so what another process changes is seen, and an entry
is written only over the text that it was read from: a lost update is a `Conflict`. A removal
reaches the mirror before the table, so that a crash in between leaves the old state and never an
entry that comes back.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from session_core.errors import Conflict, SessionError
from session_core.routing.entries import SessionEntry
from session_core.routing.mirror import Mirror
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
        self._timer: threading.Timer | None = None
        self._loaded = False
        self._elsewhere: dict[str, str] = {}
        self._unreadable: dict[str, Any] = {}
        self._problems: dict[str, None] = {}

    @property
    def problems(self) -> list[str]:
        """What could not be read, and what was set aside."""
        return [*self._mirror.problems, *self._problems]

    def get(self, key: str) -> SessionEntry | None:
        """Return the entry of a key as it is now; it is the caller's own."""
        self._load()
        text = self._db.get_gateway_routing_entry(key, scope=self._scope)
        if text is None:
            text = self._elsewhere.get(key)
        return None if text is None or key.startswith("_") else self._parse(key, text)

    def all(self) -> Entries:
        """Return all entries."""
        self._load()
        texts = self._elsewhere | self._db.load_gateway_routing_entries(scope=self._scope)
        parsed = ((key, self._parse(key, text)) for key, text in texts.items() if key[:1] != "_")
        return {key: entry for key, entry in parsed if entry is not None}

    def settle(self) -> None:
        """Take what was found elsewhere into the table; called before any change.

        It is a transaction of its own, never a part of one that may be rolled back.
        """
        self._load()
        with self._lock:
            if not self._elsewhere:
                return
            with self._db.transaction():
                for key, text in self._elsewhere.items():
                    try:
                        self._db.save_gateway_routing_entry(
                            key, text, scope=self._scope, expect=None
                        )
                    except Conflict:
                        continue  # somebody else has put it there meanwhile
            self._elsewhere = {}

    def put(self, key: str, entry: SessionEntry) -> None:
        """Store an entry in one row; a text that is the same is not written again."""
        text = json.dumps(entry.to_dict())
        if text != entry.stored:
            self._db.save_gateway_routing_entry(key, text, scope=self._scope, expect=entry.stored)
            entry.stored = text

    def remove(self, entries: Entries) -> list[str]:
        """Remove entries that are still as they were read; return the keys of those."""
        with self._lock:
            self._write_mirror(without=entries)
            texts = {key: entry.stored or "" for key, entry in entries.items()}
            removed = self._db.delete_gateway_routing_entries(texts, scope=self._scope)
            if len(removed) < len(entries):
                self._write_mirror()
            return removed

    def changed(self, *, urgent: bool) -> None:
        """Bring the mirror up to date: before this returns, or soon."""
        if not self._mirrored:
            return
        with self._lock:
            if urgent:
                self._stop_timer()
                self._write_mirror()
            elif self._timer is None:
                # Not a daemon: a process that ends without closing still leaves a true mirror.
                self._timer = threading.Timer(MIRROR_DELAY_S, self._write_soon)
                self._timer.start()

    def close(self) -> None:
        """Write what the mirror still lacks."""
        with self._lock:
            if self._stop_timer():
                self._write_mirror()

    def _load(self) -> None:
        """Find entries that are in the file alone, or under the folder where the home once was."""
        with self._lock:
            if self._loaded:
                return
            scopes = self._db.gateway_routing_scopes()
            if self._scope not in scopes:
                gone = [scope for scope in scopes if scope and not Path(scope).exists()]
                if len(gone) == 1:
                    self._elsewhere = self._db.load_gateway_routing_entries(scope=gone[0])
            known = self._db.load_gateway_routing_entries(scope=self._scope)
            for key, value in self._mirror.read().entries.items():
                if key in known or key in self._elsewhere:
                    continue
                text = json.dumps(value)
                if self._parse(key, text) is None:
                    self._unreadable[key] = value
                else:
                    self._elsewhere[key] = text
            self._mirror.sweep()
            self._loaded = True

    def _parse(self, key: str, text: str) -> SessionEntry | None:
        try:
            entry = SessionEntry.from_dict(json.loads(text))
        except (ValueError, TypeError, AttributeError) as error:
            self._problems[f"the route of {key} cannot be read: {error}"] = None
            return None
        entry.stored = text
        return entry

    def _stop_timer(self) -> bool:
        timer, self._timer = self._timer, None
        if timer is None:
            return False
        timer.cancel()
        return True

    def _write_soon(self) -> None:
        with self._lock:
            if self._timer is None:
                return
            self._timer = None
            try:
                self._write_mirror()
            except (OSError, SessionError) as error:
                self._problems[f"the mirror could not be written: {error}"] = None

    def _write_mirror(self, without: Collection[str] = ()) -> None:
        """Write the file; where it is turned off, only take out what must not come back from it."""
        if self._mirrored:
            self._mirror.write(self._members(without), odd=self._unreadable)
        elif any(key in self._mirror.read().entries for key in without):
            kept = {k: v for k, v in self._mirror.read().entries.items() if k not in without}
            self._mirror.write(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in kept.items())

    def _members(self, without: Collection[str]) -> Iterator[str]:
        members = self._db.dump_gateway_routing_entries(scope=self._scope)
        if not without:
            yield from members
            return
        prefixes = tuple(f"{json.dumps(key, ensure_ascii=False)}: " for key in without)
        yield from (member for member in members if not member.startswith(prefixes))
