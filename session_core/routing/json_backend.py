"""Storage of entries in sessions.json alone, for a store without a table.

The file is read again after another process has changed it. A write replaces the whole file under a
lock file, so that two processes do not overwrite each other's entries.
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
    """Stores the entries of a session store in one JSON file."""

    is_transactional = False
    """False: the session changes first, then the file."""

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
        self._prepared = False
        self._problems: dict[str, None] = {}

    @property
    def problems(self) -> list[str]:
        """Descriptions of entries and files that could not be read or were moved away."""
        return [*self._mirror.problems, *self._problems]

    def get(self, key: str) -> SessionEntry | None:
        """Return a copy of the stored entry of a key, or None."""
        with self._lock:
            stored = self._mirror.read().entries.get(key)
        return None if stored is None else self._parse_entry(key, stored)

    def list_entries(self, having: str = "") -> Entries:
        """Return all entries by key, or only entries with a field named `having`."""
        with self._lock:
            entries = self._mirror.read().entries
            stored = {key: value for key, value in entries.items() if not having or having in value}
        parsed = ((key, self._parse_entry(key, value)) for key, value in stored.items())
        return {key: entry for key, entry in parsed if entry is not None}

    def prepare_changes(self) -> None:
        """Remove the temporary files of killed writers, once before the first change."""
        if not self._prepared:
            self._prepared = True
            self._mirror.remove_leftovers()

    def put(
        self, key: str, entry: SessionEntry, change_database: Callable[[], object] | None = None
    ) -> bool:
        """Store an entry.

        Return False if its text is unchanged. `change_database` runs first and may change the
        entry.

        Raises:
            Conflict: the entry was changed since it was read.
        """
        text = entry.to_text()
        if text == entry.stored and change_database is None:
            return False
        with self._lock, self._mirror.lock_file():
            # Read under the file lock, because entries of other processes are written too.
            contents = self._mirror.read()
            if _encode_entry(contents.entries.get(key)) != entry.stored:
                self._save_broken_entry(key, contents, entry)
            # A crash after this leaves a route to an ended session; the next message of the chat
            # continues to the session that was to be stored.
            if change_database is not None:
                change_database()
                text = entry.to_text()
            if text == entry.stored:
                return False
            self._write_entries({**contents.entries, key: json.loads(text)}, contents)
        entry.stored, entry.stored_as = text, key
        return True

    def remove(self, entries: Entries) -> list[str]:
        """Remove entries that are unchanged since they were read.

        Return the removed keys.
        """
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
        """Do nothing, because the file has no mirror."""

    def close(self) -> None:
        """Do nothing, because all changes are written already."""

    def _save_broken_entry(self, key: str, contents: MirrorContents, entry: SessionEntry) -> None:
        """Move an unreadable value to a file of its own before an entry replaces it.

        Raises:
            Conflict: the entry was changed since it was read.
        """
        stored = contents.entries.get(key)
        if entry.stored is not None or stored is None or self._parse_entry(key, stored) is not None:
            raise Conflict(f"the route of {key} was changed since it was read; read it again")
        self._mirror.save_broken_entries({key: stored})

    def _write_entries(self, entries: Mapping[str, Any], contents: MirrorContents) -> None:
        replaced = {key: value for key, value in contents.odd.items() if key in entries}
        if replaced:
            self._mirror.save_broken_entries(replaced)
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
