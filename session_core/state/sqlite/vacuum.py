"""Room that is won back: search indexes merged bit by bit, and the whole file written anew.

Neither changes what is stored, nor how the file is made: page size, journal and the rest stay.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import cast

from session_core.errors import Busy, InvalidInput, StorageFull
from session_core.presence import sidecar
from session_core.state.protocol import Step
from session_core.state.sqlite import opening, vacuum_file
from session_core.state.sqlite.connection import Handle, quoted
from session_core.state.sqlite.connections import Store
from session_core.state.sqlite.opening import size
from session_core.state.sqlite.vacuum_file import stepping
from session_core.types import Vacuumed

_STEP_S = 0.015
"""So long a step of merging works; its commit takes about as much as is left of 20 ms."""

_PAGES = 8
_WORKED = 2
"""A merge that changes fewer rows has found nothing to do."""

_ROOM_FACTOR = 1.05
"""Pages in a log have a head each."""

_TRIES = 3
"""So many copies are made at most where others write meanwhile."""

_MEMORY = Path("/proc/meminfo")

_TEMPORARY = ("/var/tmp", "/usr/tmp", "/tmp", ".")  # noqa: S108 -- where SQLite looks


class Reclaim(Store):
    """Wins room back."""

    def optimize_step(self) -> bool:
        """Merge a part of the search indexes, for about 20 ms; return whether there is more to do.

        What is merged finds the same, faster, and takes less room.
        """
        return not self._lacks_a_file() and self._write(_merge)

    def vacuum(self, *, step: Step | None = None) -> Vacuumed:
        """Write the file anew without its free pages; who writes meanwhile loses nothing.

        Raises:
            Busy: another process has it open, or others keep writing to it.
            StorageFull: there is no room for the copies that it takes meanwhile.
            Denied: the folder of the database takes no copy of it.
            InvalidInput: a transaction is open.
        """
        if self.in_transaction:
            raise InvalidInput("a transaction of this thread is open; vacuum after it")
        if self._lacks_a_file():
            return Vacuumed(0, 0)
        with self._errors():
            writer = self._writer()
            self._require_alone()
            return writer.alone(partial(self._vacuum, step=step))

    def _vacuum(self, handle: Handle, step: Step | None) -> Vacuumed:
        vacuum_file.sweep(self.path)
        before = self._bytes()
        folder = sidecar(self.path).parent
        log, copy = _copies(handle)
        if not _is_in_memory(handle):
            _require_room(self.path, [(folder, log), (_temporary_folder(), copy)])
            self._in_one_statement(handle, step)
        elif _keeps_a_log(handle):
            _require_room(self.path, [(folder, log), (folder, copy)])
            self._through_a_file(handle, step)
        else:
            _require_memory(self.path, copy)
            _require_room(self.path, [(folder, log)])
            self._in_one_statement(handle, step)
        handle.forget()
        # What was written is in the log; only folded back whole it makes the file shorter.
        self._require_alone()
        handle.values("PRAGMA wal_checkpoint(TRUNCATE)")
        return Vacuumed(before, self._bytes())

    def _in_one_statement(self, handle: Handle, step: Step | None) -> None:
        with stepping(handle.connection, step):
            handle.run("VACUUM")

    def _through_a_file(self, handle: Handle, step: Step | None) -> None:
        """Begin anew where somebody has written meanwhile, a few times."""
        guard = cast("Handle", self._open.guard)
        for _ in range(_TRIES):
            if vacuum_file.rewrite(handle, guard, self.path, step):
                return
            self._require_alone()
        raise self._busy()

    def _require_alone(self) -> None:
        holders = [str(holder) for holder in self.holders()]
        if holders:
            raise Busy(
                f"{self.path} is open in {', '.join(holders)}; stop that, then try again",
                holders=holders,
            )

    def _bytes(self) -> int:
        return size(self.path) + size(sidecar(self.path, "-wal"))


def _merge(handle: Handle) -> bool:
    """Merge in small parts until the time is over; return whether the last one did anything."""
    until = time.monotonic() + _STEP_S
    for table in opening.list_usable(handle):
        name = quoted(table)
        merge = f"INSERT INTO {name}({name}, rank) VALUES ('merge', ?)"  # noqa: S608 -- from the schema, quoted
        while True:
            if time.monotonic() >= until:
                return True
            before = handle.connection.total_changes
            # A negative number has all segments merged into one, not only those that are due.
            handle.run(merge, (-_PAGES,))
            if handle.connection.total_changes - before < _WORKED:
                break
    return False


def _copies(handle: Handle) -> tuple[int, int]:
    """Return the bytes that a vacuum takes beside the file and for its copy of it."""
    page, pages, free = (
        int(handle.value(f"PRAGMA {name}"))
        for name in ("page_size", "page_count", "freelist_count")
    )
    used = int((pages - free) * page * _ROOM_FACTOR)
    return used if _keeps_a_log(handle) else pages * page, used


def _keeps_a_log(handle: Handle) -> bool:
    return bool(handle.value("PRAGMA journal_mode") == "wal")


def _is_in_memory(handle: Handle) -> bool:
    """Whether the copy is no file: that is how this SQLite was built, and nothing changes it."""
    options = {row[0] for row in handle.values("PRAGMA compile_options")}
    return "TEMP_STORE=3" in options


def _require_memory(path: Path, needed: int) -> None:
    free = _free_memory()
    if free is not None and needed > free:
        raise StorageFull(
            f"a vacuum of {path} with this SQLite takes {needed} bytes of memory, where {free} are "
            "free; free some, or use the SQLite of Python"
        )


def _free_memory() -> int | None:
    """Return how much memory is to be had without swapping, None where that is not told."""
    try:
        lines = _MEMORY.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None
    found = next((line.split() for line in lines if line.startswith("MemAvailable:")), [])
    return int(found[1]) * 1024 if len(found) > 1 and found[1].isdigit() else None


def _require_room(path: Path, needed: Iterable[tuple[Path, int]]) -> None:
    wanted: dict[int, tuple[Path, int]] = {}
    for folder, count in needed:
        device = folder.stat().st_dev
        first, sum_so_far = wanted.get(device, (folder, 0))
        wanted[device] = first, sum_so_far + count
    for folder, count in wanted.values():
        free = shutil.disk_usage(folder).free
        if free < count:
            raise StorageFull(
                f"a vacuum of {path} needs {count} bytes in {folder}, where {free} are free; "
                "free some, then try again"
            )


def _temporary_folder() -> Path:
    """Return where SQLite puts temporary files."""
    if os.name == "nt":
        return Path(tempfile.gettempdir())
    named = (os.environ.get(name) for name in ("SQLITE_TMPDIR", "TMPDIR"))
    return next(filter(_takes_files, _paths([*named, *_TEMPORARY])), Path(tempfile.gettempdir()))


def _paths(names: Iterable[str | None]) -> Iterable[Path]:
    return (Path(name) for name in names if name)


def _takes_files(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
