"""Files that are whole or not there: the one place that renames and syncs."""

from __future__ import annotations

import contextlib
import errno
import glob
import itertools
import os
import random
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from session_core.errors import Busy

try:
    import fcntl
except ImportError:  # Windows has none, and a store without a database there has one process
    fcntl = None  # type: ignore[assignment]

_PATIENCE_S = 5.0
"""Who holds a lock for so long has stopped."""

_POLL_S = 0.01
_REPLACE_TRIES = 10
_REPLACE_WAIT_S = 0.05
_NO_SUCH_SYNC = (errno.EINVAL, errno.ENOTSUP)
"""What a file system says that has no sync for folders."""

_NO_SUCH_LINK = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""What a file system says where a file has one name only."""


def write_atomic(path: Path, parts: Iterable[bytes], *, prefix: str, mode: int = 0o600) -> None:
    """Write a file that is seen whole or not at all, and is durable when this returns.

    A link is followed to the file that it stands for. What was there before stays when anything
    fails, and nothing that was begun is left behind.
    """
    target = Path(os.path.realpath(path))
    with _written(target.parent, parts, prefix, mode) as begun:
        _replace(begun, target)
    sync_folder(target.parent)


def write_new(
    path: Path,
    parts: Iterable[bytes],
    *,
    prefix: str,
    mode: int,
    times_ns: tuple[int, int] | None = None,
    owner: Sequence[int] | None = None,
) -> None:
    """Write a file as `write_atomic` does, where there is none; with these times.

    It is that `owner`'s, a user and a group, where the system lets us give it away.

    Raises:
        FileExistsError: something has its name, and stays as it is.
    """
    with _written(path.parent, parts, prefix, mode) as begun:
        if owner is not None and hasattr(os, "chown"):
            with contextlib.suppress(OSError):
                os.chown(begun, *owner)
        if times_ns is not None:
            os.utime(begun, ns=times_ns)
        _place(begun, path)
    sync_folder(path.parent)


@contextlib.contextmanager
def exclusive(path: Path, patience_s: float | None = None) -> Iterator[None]:
    """Hold a lock file against other processes; it stays, and the lock goes with the process.

    Raises:
        Busy: somebody else has held it for so long, five seconds where nothing is said.
    """
    patience_s = _PATIENCE_S if patience_s is None else patience_s
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock(descriptor, path, time.monotonic() + patience_s)
        try:
            yield
        finally:
            if fcntl is not None:  # a child that was forked meanwhile has the descriptor open too
                fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path, deadline: float) -> None:
    while fcntl is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise Busy(f"{path} is held by somebody else; try again") from None
            time.sleep(random.uniform(0, _POLL_S))  # noqa: S311 -- jitter, not a secret
        else:
            return


def set_aside(path: Path, now: float) -> Path:
    """Rename a broken file so that nothing overwrites it, and return its new name.

    A link is followed, and stays for the file that is written next.
    """
    target = Path(os.path.realpath(path))
    target.lstat()
    aside = name_aside(target, now)
    _replace(target, aside)
    sync_folder(target.parent)
    return aside


def name_aside(path: Path, now: float) -> Path:
    """Return a name for what was broken in this file; an empty file takes it, so nobody else."""
    target = Path(os.path.realpath(path))
    stem = f"{target.name}.broken-{time.strftime('%Y%m%d_%H%M%S', time.localtime(now))}"
    names = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
    return next(free for name in names if _take(free := target.with_name(name)))


def sweep(folder: Path, prefix: str, *, older_than_s: float, now: float) -> int:
    """Remove what writes that were killed have left; return how many."""
    removed = 0
    for left in folder.glob(f"{glob.escape(prefix)}*.tmp"):
        with contextlib.suppress(OSError):
            if left.stat().st_mtime < now - older_than_s:
                left.unlink()
                removed += 1
    return removed


def sync_folder(folder: Path) -> None:
    """Make a rename in a folder durable, where the system can."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SUCH_SYNC:
            raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _written(folder: Path, parts: Iterable[bytes], prefix: str, mode: int) -> Iterator[Path]:
    """Write a file of no name that counts, which is gone at the end unless it was given one."""
    descriptor, name = tempfile.mkstemp(prefix=prefix, suffix=".tmp", dir=folder)
    begun = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), mode)
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        yield begun
    except BaseException:
        with contextlib.suppress(OSError):
            begun.unlink()
        raise


def _place(begun: Path, target: Path) -> None:
    """Give a file a name that nothing has."""
    try:
        target.hardlink_to(begun)
    except OSError as error:
        if error.errno not in _NO_SUCH_LINK:
            raise
        if not _take(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from error
        _replace(begun, target)
    else:
        begun.unlink()


def _take(path: Path) -> bool:
    try:
        path.touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        return False
    return True


def _replace(source: Path, target: Path) -> None:
    """Rename over; on Windows a reader may be in the way for a moment."""
    for _ in range(_REPLACE_TRIES - 1):
        try:
            source.replace(target)
        except PermissionError:
            if os.name != "nt":
                raise
            time.sleep(_REPLACE_WAIT_S)
        else:
            return
    source.replace(target)
