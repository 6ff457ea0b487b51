"""Entries in sessions.json alone, for a store without a table.

The file is read again when somebody else has changed it, and written as a whole under a lock file,
so that two processes do not take each other's entries away.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from session_core.errors import Conflict
from session_core.routing.entries import SessionEntry
from session_core.routing.mirror import Mirror, MirrorContents, build_own_readme

Entries = dict[str, SessionEntry]


class JsonBackend:
    """Entries in one file."""

    def __init__(
        self,
        folder: Path,
        *,
        home: Path | None = None,
        explained: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        explain = build_own_readme if explained else None
        self._mirror = Mirror(folder, home=home, explain=explain, clock=clock)
        self._lock = threading.RLock()
        self._settled = False
        self._problems: dict[str, None] = {}

    @property
    def problems(self) -> list[str]:
        """What could not be read, and what was set aside."""
        return [*self._mirror.problems, *self._problems]

    def get(self, key: str) -> SessionEntry | None:
        """Return the entry of a key as it is now; it is the caller's own."""
        with self._lock:
            stored = self._mirror.read().entries.get(key)
        return None if stored is None else self._parse_entry(key, stored)

    def list_entries(self, having: str = "") -> Entries:
        """Return all entries, or those that have a field of this name."""
        with self._lock:
            read = self._mirror.read().entries
            stored = {key: value for key, value in read.items() if not having or having in value}
        parsed = ((key, self._parse_entry(key, value)) for key, value in stored.items())
        return {key: entry for key, entry in parsed if entry is not None}

    def prepare_changes(self) -> None:
        """Remove what killed writers have left; called before any change."""
        if not self._settled:
            self._settled = True
            self._mirror.remove_leftovers()

    def put(
        self, key: str, entry: SessionEntry, beside: Callable[[], object] | None = None
    ) -> bool:
        """Store an entry; return whether it had to be, since a text that is the same is not.

        What changes beside it does so first, and may change the entry. A crash in between leaves a
        route to a session that has ended, from which the next message goes on to where it was to
        lead.
        """
        text = entry.to_text()
        if text == entry.stored and beside is None:
            return False
        with self._lock, self._mirror.lock_file():
            contents = self._mirror.read()
            if _encode_entry(contents.entries.get(key)) != entry.stored:
                self._set_aside_broken(key, contents, entry)
            if beside is not None:
                beside()
                text = entry.to_text()
            if text == entry.stored:
                return False
            self._write_entries({**contents.entries, key: json.loads(text)}, contents)
        entry.stored, entry.stored_as = text, key
        return True

    def remove(self, entries: Entries) -> list[str]:
        """Remove entries that are still as they were read; return the keys of those."""
        with self._lock, self._mirror.lock_file():
            contents = self._mirror.read()
            stored = contents.entries
            removed = {
                key
                for key, entry in entries.items()
                if _encode_entry(stored.get(key)) == entry.stored
            }
            if removed:
                self._write_entries({k: v for k, v in stored.items() if k not in removed}, contents)
            return list(removed)

    def request_mirror_update(self, *, urgent: bool) -> None:
        """There is nothing behind the file."""

    def close(self) -> None:
        """Everything is written already."""

    def _set_aside_broken(self, key: str, contents: MirrorContents, entry: SessionEntry) -> None:
        """Make room where what stands there is no entry; where it is one, somebody was faster."""
        stored = contents.entries.get(key)
        if entry.stored is not None or stored is None or self._parse_entry(key, stored) is not None:
            raise Conflict(f"the route of {key} was changed since; read it again")
        self._mirror.set_aside({key: stored})

    def _write_entries(self, entries: Mapping[str, Any], contents: MirrorContents) -> None:
        taken = {key: value for key, value in contents.odd.items() if key in entries}
        if taken:
            self._mirror.set_aside(taken)
        odd = {key: value for key, value in contents.odd.items() if key not in entries}
        self._mirror.write(
            (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items()), odd=odd
        )

    def _parse_entry(self, key: str, stored: Mapping[str, Any]) -> SessionEntry | None:
        try:
            entry = SessionEntry.from_dict(stored)
        except (ValueError, TypeError, AttributeError) as error:
            self._problems[f"the route of {key} cannot be read: {error}"] = None
            return None
        entry.stored, entry.stored_as = _encode_entry(stored), key
        return entry


def _encode_entry(stored: Mapping[str, Any] | None) -> str | None:
    return None if stored is None else json.dumps(stored)
