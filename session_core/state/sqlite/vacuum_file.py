"""Statements that take long: somebody looks in on them every now and then, and may end them.

A database that keeps a log, written anew by way of a file beside it instead of in memory.

The file holds a moment of the database without its free pages, and is then written back in one
transaction. That begins with its first page: what anybody has committed by then and the file has
not is found under the lock that it takes, and is never written over.
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
from session_core.presence import holders, sidecar
from session_core.state.protocol import Step
from session_core.state.sqlite.connection import Handle, file_uri
from session_core.state.sqlite.opening import open_reader

_INSTRUCTIONS_PER_LOOK = 20_000
"""So many steps of SQLite's own machine are some milliseconds."""


@contextmanager
def stepping(connection: _sqlite3.Connection, step: Step | None) -> Iterator[None]:
    """Call `step` while statements run inside; what it raises ends them, and is raised here.

    Older versions of SQLite check pages without a look at who wants them to end.
    """
    if step is None:
        yield
        return
    raised: list[BaseException] = []
    looks = _looks(step, raised)
    next(looks)
    try:
        connection.set_progress_handler(looks.__next__, _INSTRUCTIONS_PER_LOOK)
        yield
    except _sqlite3.library().Error:
        if not raised:
            raise
    finally:
        connection.set_progress_handler(None, 0)
    if raised:
        raise raised[0]


def _looks(step: Step, raised: list[BaseException]) -> Iterator[bool]:
    """Yield whether to end, once a look; SQLite passes no error on, so it is noted.

    What a signal raises comes up where Python goes on, which a function does before its first
    `try`, and a generator inside of it.
    """
    while True:
        try:
            yield bool(raised)
            if not raised:
                step()
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 -- raised behind the statement
            raised.append(error)


_OK, _BUSY, _LOCKED = 0, 5, 6

_PAGES_PER_LOOK = 256
"""So many pages are some milliseconds."""

_ENDINGS = (".tmp", ".tmp-journal")

_SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"

_at_work: set[Path] = set()
"""The copies of this process; that of another one is open in it."""


class _Overtaken(Exception):
    """Somebody has committed since, or is about to."""


def rewrite(handle: Handle, guard: Handle, path: Path, step: Step | None) -> bool:
    """Write a database anew; return whether nobody was faster, else nothing was changed.

    `handle` writes, and nobody else does with it meanwhile; `guard` only looks.
    """
    with _beside(path) as copy:
        # Open until the end, so that who looks for what was left knows that this was not.
        source = open_reader(copy)
        with closing(source.connection):
            seen, schema = _version(guard), guard.values(_SCHEMA)
            with stepping(handle.connection, step):
                handle.run("VACUUM INTO ?", (file_uri(copy, "mode=rw"),))
            if step is not None:
                step()
            with source.snapshot(), suppress(_Overtaken):
                # One without a page would be written back whole before the first look at it.
                if source.values(_SCHEMA) != schema:
                    _check(guard, seen)
                    raise StorageError(f"{copy} was exchanged; find out by whom, then try again")
                _write_back(source, handle, partial(_check, guard, seen), step)
                return True
    return False


def sweep(path: Path) -> None:
    """Delete the copies of a database that killed processes have left beside it, if that can be."""
    for ending in _ENDINGS:
        with suppress(OSError):
            for left in sidecar(path).parent.glob(f"{glob.escape(_prefix(path))}*{ending}"):
                copy = left.with_name(left.name.removesuffix(ending) + _ENDINGS[0])
                if copy not in _at_work and _is_ours(left) and not holders(copy):
                    left.unlink()


def _write_back(
    source: Handle, handle: Handle, check: Callable[[], None], step: Step | None
) -> None:
    """Write a copy over its database in one transaction, which an error takes back.

    It is checked as soon as that has begun. More pages than one at once may not fit the cache and
    be in the log by then, which `check` could not tell from the commit of somebody else.
    """
    is_checked = False

    def look(status: int, left: int, _: int) -> None:
        nonlocal is_checked
        if status in (_BUSY, _LOCKED):
            raise _Overtaken
        if status != _OK:
            return
        if not is_checked:
            check()
            is_checked = True
        if step is not None and left % _PAGES_PER_LOOK == 0:
            step()

    source.connection.backup(handle.connection, pages=1, progress=look)


def _check(guard: Handle, seen: int) -> None:
    if _version(guard) != seen:
        raise _Overtaken


def _version(guard: Handle) -> int:
    """Return what is another one after a commit of anybody else."""
    return int(guard.value("PRAGMA data_version"))


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """Make an empty file for the owner alone, beside the database; it is gone at the end."""
    copy = _made(path)
    _at_work.add(copy)
    try:
        yield copy
    finally:
        for each in (sidecar(copy, "-journal"), copy):
            with suppress(OSError):
                each.unlink()
        _at_work.discard(copy)


def _made(path: Path) -> Path:
    folder = sidecar(path).parent
    try:
        descriptor, name = tempfile.mkstemp(prefix=_prefix(path), suffix=_ENDINGS[0], dir=folder)
        # Nobody can have a connection to a file that this call itself brings into being.
        os.close(descriptor)
    except OSError as error:
        said = f"no copy can be made in {folder}: {error.strerror}"
        if error.errno == errno.ENOSPC:
            raise StorageFull(f"{said}; free some space, then try again") from error
        raise Denied(f"{said}; check its permissions") from error
    return Path(name)


def _prefix(path: Path) -> str:
    return f".{sidecar(path).name}.vacuum-"


def _is_ours(left: Path) -> bool:
    """Whether it is a file of this user, with no other name and no link."""
    found = left.lstat()
    mine = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and mine
