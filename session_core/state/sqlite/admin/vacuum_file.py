"""VACUUM through a copy in a file, and regular callbacks from long statements.

The copy holds a snapshot of the database without its free pages and is then written back in one
transaction. Commits that are missing in the copy are detected under the lock of that transaction,
after its first page, and are never overwritten.
"""

from __future__ import annotations

import errno
import glob
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

from session_core import _sqlite3
from session_core.errors import Denied, StorageError, StorageFull
from session_core.processes import get_sidecar_path, list_holders
from session_core.state.protocol import StepCallback
from session_core.state.sqlite.connection import Connection, make_file_uri
from session_core.state.sqlite.database_file import open_reader

_INSTRUCTIONS_PER_STEP = 20_000
"""Instructions of SQLite's virtual machine between two callbacks, some milliseconds."""


@contextmanager
def call_step_regularly(
    connection: _sqlite3.Connection, step: StepCallback | None
) -> Iterator[None]:
    """Call `step` at intervals while statements run in the block.

    An exception of `step` ends the statement and is raised.
    """
    if step is None:
        yield
        return
    errors: list[BaseException] = []
    calls = _iter_step_calls(step, errors)
    next(calls)
    try:
        connection.set_progress_handler(calls.__next__, _INSTRUCTIONS_PER_STEP)
        yield
    except _sqlite3.load_library().Error:
        if not errors:
            raise
    finally:
        connection.set_progress_handler(None, 0)
    # Also after a statement that ended well: old versions of SQLite check pages without regard to
    # a progress handler that asks to end.
    if errors:
        raise errors[0]


def _iter_step_calls(step: StepCallback, errors: list[BaseException]) -> Iterator[bool]:
    """Yield True to end the statement, once for each callback of SQLite.

    SQLite passes no exception on, so it is recorded. Python raises the exception of a signal
    handler where it resumes: in a function that is before its first `try`, in a generator inside of
    it.
    """
    while True:
        try:
            yield bool(errors)
            if not errors:
                step()
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 -- raised after the statement
            errors.append(error)


_OK, _BUSY, _LOCKED = 0, 5, 6

_PAGES_PER_STEP = 256
"""Pages between two callbacks, some milliseconds."""

_COPY_SUFFIXES = (".tmp", ".tmp-journal")

_SELECT_SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"

_copies_in_use: set[Path] = set()
"""The copies of this process. A copy of another process is open in that process."""


class _ConcurrentCommit(Exception):
    """Another connection has committed, or is about to."""


def rewrite_database(
    handle: Connection, guard: Connection, path: Path, step: StepCallback | None
) -> bool:
    """Rewrite a database, or return False without a change after a concurrent commit.

    `handle` writes, and no other thread uses it meanwhile. `guard` only reads.
    """
    with _create_copy_file(path) as copy:
        # Open until the end, so that no other process takes it for a stale copy.
        source = open_reader(copy)
        with closing(source.connection):
            # Read before the copy begins, so that a commit during the copy is noticed too.
            version, schema = _read_version(guard), guard.fetch_tuples(_SELECT_SCHEMA)
            with call_step_regularly(handle.connection, step):
                handle.execute_update("VACUUM INTO ?", (make_file_uri(copy, "mode=rw"),))
            if step is not None:
                step()
            with source.open_snapshot(), suppress(_ConcurrentCommit):
                # A copy without pages would be written back before the first check.
                if source.fetch_tuples(_SELECT_SCHEMA) != schema:
                    _check_unchanged(guard, version)
                    raise StorageError(
                        f"{copy} was replaced by another process; find that process, then try again"
                    )
                _write_back(source, handle, partial(_check_unchanged, guard, version), step)
                return True
    return False


def delete_stale_copies(path: Path) -> None:
    """Delete the copies that killed processes have left next to a database, if possible."""
    for ending in _COPY_SUFFIXES:
        with suppress(OSError):
            for leftover in get_sidecar_path(path).parent.glob(
                f"{glob.escape(_make_copy_prefix(path))}*{ending}"
            ):
                copy = leftover.with_name(leftover.name.removesuffix(ending) + _COPY_SUFFIXES[0])
                if copy not in _copies_in_use and _is_own_copy(leftover) and not list_holders(copy):
                    leftover.unlink()


def _write_back(
    source: Connection, handle: Connection, check: Callable[[], None], step: StepCallback | None
) -> None:
    """Copy the vacuumed file back in one transaction."""
    # `check` runs after the first page, when the lock is held. More pages at once may not fit the
    # cache and would spill to the log, which `check` could not tell from a concurrent commit.
    is_checked = False

    def handle_progress(status: int, left: int, _: int) -> None:
        nonlocal is_checked
        # The holder of the lock is about to commit changes that the copy lacks.
        if status in (_BUSY, _LOCKED):
            raise _ConcurrentCommit
        if status != _OK:
            return
        if not is_checked:
            check()
            is_checked = True
        if step is not None and left % _PAGES_PER_STEP == 0:
            step()

    source.connection.backup(handle.connection, pages=1, progress=handle_progress)


def _check_unchanged(guard: Connection, version: int) -> None:
    if _read_version(guard) != version:
        raise _ConcurrentCommit


def _read_version(guard: Connection) -> int:
    """Return a number that changes with each commit of another connection."""
    return int(guard.fetch_value("PRAGMA data_version"))


@contextmanager
def _create_copy_file(path: Path) -> Iterator[Path]:
    """Create an empty owner-only file next to the database, and delete it at the end."""
    copy = _make_copy_file(path)
    _copies_in_use.add(copy)
    try:
        yield copy
    finally:
        for file in (get_sidecar_path(copy, "-journal"), copy):
            with suppress(OSError):
                file.unlink()
        _copies_in_use.discard(copy)


def _make_copy_file(path: Path) -> Path:
    folder = get_sidecar_path(path).parent
    try:
        descriptor, name = tempfile.mkstemp(
            prefix=_make_copy_prefix(path), suffix=_COPY_SUFFIXES[0], dir=folder
        )
        # Closing the file drops no locks: no connection to a new file exists yet.
        os.close(descriptor)
    except OSError as error:
        problem = f"no copy can be created in {folder}: {error.strerror}"
        if error.errno == errno.ENOSPC:
            raise StorageFull(f"{problem}; free some space, then try again") from error
        raise Denied(f"{problem}; check its permissions") from error
    return Path(name)


def _make_copy_prefix(path: Path) -> str:
    return f".{get_sidecar_path(path).name}.vacuum-"


def _is_own_copy(copy: Path) -> bool:
    """Return True if a path is a regular file of this user with one name."""
    status = copy.lstat()
    is_own = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and is_own
