"""Recovery of disk space: merges of search indexes, and VACUUM of the whole file.

Neither changes the content or the settings of the file, such as page size and journal mode.
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

from session_core.errors import InvalidInput, StorageFull
from session_core.processes import get_sidecar_path
from session_core.state.protocol import StepCallback
from session_core.state.sqlite import extension, lock_wait
from session_core.state.sqlite.admin import vacuum_file
from session_core.state.sqlite.admin.vacuum_file import call_step_regularly
from session_core.state.sqlite.connection import Connection, quote_name
from session_core.state.sqlite.database_file import get_file_bytes
from session_core.state.sqlite.store import SqliteOperations
from session_core.types import VacuumResult

_MERGE_STEP_S = 0.015
"""Duration of a merge step. With its commit it takes about 20 ms."""

_MERGE_PAGES = 8
_MIN_CHANGED_ROWS = 2
"""A merge that changes fewer rows had nothing to merge."""

_ROOM_FACTOR = 1.05
"""Pages in a log have a header each."""

_MAX_COPIES = 3
"""Largest number of attempts if other processes write meanwhile."""

_MEMINFO_PATH = Path("/proc/meminfo")

_TEMPORARY_FOLDERS = ("/var/tmp", "/usr/tmp", "/tmp", ".")  # noqa: S108 -- the folders that SQLite tries


class SqliteVacuum(SqliteOperations):
    """Recovers disk space."""

    def optimize_step(self) -> bool:
        """Merge a part of the search indexes for about 20 ms and return True if more is left.

        Search results stay the same. Searches become faster and the file smaller.
        """
        return not self._store.is_file_missing() and self._write(_merge_indexes)

    def vacuum(self, *, step: StepCallback | None = None) -> VacuumResult:
        """Rewrite the file without its free pages, without losing concurrent commits.

        Raises:
            Busy: another process has the file open, or keeps writing to it.
            StorageFull: there is not enough room for the temporary copies.
            Denied: the folder of the database accepts no copy.
            InvalidInput: a transaction is open.
        """
        if self._store.in_transaction:
            raise InvalidInput("a transaction of this thread is open; vacuum after it")
        if self._store.is_file_missing():
            return VacuumResult(0, 0)
        with self._store.translate_errors():
            writer = self._store.get_writer()
            if self._store.is_in_memory:
                return writer.run_exclusively(partial(self._vacuum_memory, step=step))
            lock_wait.require_no_holders(self._store.path, self._store.list_holders())
            return writer.run_exclusively(partial(self._run_vacuum, step=step))

    def _run_vacuum(self, handle: Connection, step: StepCallback | None) -> VacuumResult:
        # First, since a stale copy takes the room that this vacuum needs.
        vacuum_file.delete_stale_copies(self._store.path)
        before = self._measure_bytes()
        folder = get_sidecar_path(self._store.path).parent
        log, copy = _estimate_copy_bytes(handle)
        # With temporary files on disk, SQLite's own VACUUM needs no memory for the copy.
        if not _is_temp_in_memory(handle):
            _require_disk_space(self._store.path, [(folder, log), (_find_temporary_folder(), copy)])
            self._vacuum_in_place(handle, step)
        elif _is_wal(handle):
            _require_disk_space(self._store.path, [(folder, log), (folder, copy)])
            self._vacuum_through_file(handle, step)
        else:
            _require_memory(self._store.path, copy)
            _require_disk_space(self._store.path, [(folder, log)])
            self._vacuum_in_place(handle, step)
        self._store.forget_all_content(handle)
        # The new content is in the log. Only a complete checkpoint makes the file shorter.
        lock_wait.require_no_holders(self._store.path, self._store.list_holders())
        handle.fetch_tuples("PRAGMA wal_checkpoint(TRUNCATE)")
        return VacuumResult(before, self._measure_bytes())

    def _vacuum_memory(self, handle: Connection, step: StepCallback | None) -> VacuumResult:
        before = _count_bytes(handle)
        self._vacuum_in_place(handle, step)
        self._store.forget_all_content(handle)
        return VacuumResult(before, _count_bytes(handle))

    def _vacuum_in_place(self, handle: Connection, step: StepCallback | None) -> None:
        with call_step_regularly(handle.connection, step):
            handle.execute_update("VACUUM")

    def _vacuum_through_file(self, handle: Connection, step: StepCallback | None) -> None:
        """Rewrite the database through a copy in a file.

        After a concurrent commit, it is tried a few times.
        """
        guard = cast("Connection", self._store.pool.guard)
        for _ in range(_MAX_COPIES):
            if vacuum_file.rewrite_database(handle, guard, self._store.path, step):
                return
            lock_wait.require_no_holders(self._store.path, self._store.list_holders())
        raise self._store.make_busy_error()

    def _measure_bytes(self) -> int:
        return get_file_bytes(self._store.path) + get_file_bytes(
            get_sidecar_path(self._store.path, "-wal")
        )


def _count_bytes(handle: Connection) -> int:
    return int(handle.fetch_value("PRAGMA page_count") * handle.fetch_value("PRAGMA page_size"))


def _merge_indexes(handle: Connection) -> bool:
    """Merge in small parts until the time limit and return True if more is left."""
    until = time.monotonic() + _MERGE_STEP_S
    for table in extension.list_usable_indexes(handle):
        name = quote_name(table)
        merge = f"INSERT INTO {name}({name}, rank) VALUES ('merge', ?)"  # noqa: S608 -- quoted names of the schema
        while True:
            if time.monotonic() >= until:
                return True
            before = handle.connection.total_changes
            # A negative number merges all segments into one, not only those that are due.
            handle.execute_update(merge, (-_MERGE_PAGES,))
            if handle.connection.total_changes - before < _MIN_CHANGED_ROWS:
                break
    return False


def _estimate_copy_bytes(handle: Connection) -> tuple[int, int]:
    """Return the bytes that a vacuum needs for the log and for the copy."""
    page, pages, free = (
        int(handle.fetch_value(f"PRAGMA {name}"))
        for name in ("page_size", "page_count", "freelist_count")
    )
    used = int((pages - free) * page * _ROOM_FACTOR)
    # A rollback journal keeps the old content of every page, free ones included.
    return used if _is_wal(handle) else pages * page, used


def _is_wal(handle: Connection) -> bool:
    return bool(handle.fetch_value("PRAGMA journal_mode") == "wal")


def _is_temp_in_memory(handle: Connection) -> bool:
    """Return True if this SQLite was built to keep temporary files in memory."""
    options = {row[0] for row in handle.fetch_tuples("PRAGMA compile_options")}
    return "TEMP_STORE=3" in options


def _require_memory(path: Path, needed: int) -> None:
    free = _find_free_memory()
    if free is not None and needed > free:
        raise StorageFull(
            f"a vacuum of {path} with this SQLite needs {needed} bytes of memory, {free} are free; "
            "free some, or use the SQLite of Python"
        )


def _find_free_memory() -> int | None:
    """Return the memory available without swapping, or None if it is unknown."""
    try:
        lines = _MEMINFO_PATH.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None
    fields = next((line.split() for line in lines if line.startswith("MemAvailable:")), [])
    return int(fields[1]) * 1024 if len(fields) > 1 and fields[1].isdigit() else None


def _require_disk_space(path: Path, needed: Iterable[tuple[Path, int]]) -> None:
    # Log and copy may share a device, which must have room for both.
    bytes_by_device: dict[int, tuple[Path, int]] = {}
    for folder, count in needed:
        device = folder.stat().st_dev
        first_folder, sum_so_far = bytes_by_device.get(device, (folder, 0))
        bytes_by_device[device] = first_folder, sum_so_far + count
    for folder, count in bytes_by_device.values():
        free = shutil.disk_usage(folder).free
        if free < count:
            raise StorageFull(
                f"a vacuum of {path} needs {count} bytes in {folder}, {free} are free; "
                "free some, then try again"
            )


def _find_temporary_folder() -> Path:
    """Return the folder in which SQLite creates temporary files."""
    if os.name == "nt":
        return Path(tempfile.gettempdir())
    variables = (os.environ.get(name) for name in ("SQLITE_TMPDIR", "TMPDIR"))
    return next(
        filter(_is_writable_folder, _list_temporary_folders([*variables, *_TEMPORARY_FOLDERS])),
        Path(tempfile.gettempdir()),
    )


def _list_temporary_folders(names: Iterable[str | None]) -> Iterable[Path]:
    return (Path(name) for name in names if name)


def _is_writable_folder(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
