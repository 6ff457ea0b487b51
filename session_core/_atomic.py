"""Read, replace, lock and sync whole files: the one place that does.

A read opens regular files only and is bounded. A write refuses a target that is not a regular file,
that has another owner, or that a link puts outside the home.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import itertools
import os
import random
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from session_core.errors import Busy, Denied

try:
    import fcntl
except ImportError:  # Windows has none, and a store without a database there has one process
    fcntl = None  # type: ignore[assignment]

_LOCK_TIMEOUT_S = 5.0
"""Who holds a lock for so long has stopped."""

_LOCK_POLL_S = 0.01
_REPLACE_TRIES = 10
_REPLACE_WAIT_S = 0.05
_SYNC_UNSUPPORTED_ERRNOS = (errno.EINVAL, errno.ENOTSUP)
"""What a file system says that has no sync for folders."""

_LINK_UNSUPPORTED_ERRNOS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""What a file system says where a file has one name only."""


MAX_SMALL_FILE_BYTES = 4_000_000
"""The most bytes of a configuration or a record of a process."""


def read_file(path: Path, limit: int = MAX_SMALL_FILE_BYTES) -> bytes:
    """Return the bytes of a regular file; a link is followed, a FIFO or a device never waited for.

    Raises:
        OSError: it cannot be read, is not a regular file, or has more than `limit` bytes.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(limit + 1) if size <= limit else b""
    if max(size, len(data)) > limit:
        raise OSError(errno.EFBIG, f"larger than {limit:,} bytes", str(path))
    return data


@contextlib.contextmanager
def open_regular(path: Path, *, is_link_followed: bool = True) -> Iterator[BinaryIO]:
    """Open a regular file for reading; the open file itself is checked, so no swap goes unseen.

    Raises:
        OSError: it cannot be opened, or is not a regular file.
    """
    _check_regular(os.stat(path, follow_symlinks=is_link_followed), path)  # noqa: PTH116 -- text too
    flags = (
        os.O_RDONLY
        | _get_open_flag("O_NONBLOCK")
        | _get_open_flag("O_CLOEXEC")
        | _get_open_flag("O_BINARY")
    )
    flags |= 0 if is_link_followed else _get_open_flag("O_NOFOLLOW")
    with os.fdopen(os.open(path, flags), "rb") as file:
        _check_regular(os.fstat(file.fileno()), path)
        yield file


def _get_open_flag(name: str) -> int:
    return int(getattr(os, name, 0))


def _check_regular(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))


def find_target(path: Path, home: Path | None = None) -> Path:
    """Return the file that a write to `path` replaces: `path` itself, or the target of its link.

    A link is followed within the home, and to a file of its own folder. A folder that is itself
    a link may lead out of the home, to a folder of the home's owner.

    Raises:
        Denied: a link leads out of the home, the target is not a regular file, or the target or
            its folder has another owner.
    """
    target, folder = Path(os.path.realpath(path)), Path(os.path.realpath(path.parent))
    base = folder if home is None else Path(os.path.realpath(home))
    if target.parent != folder and (home is None or not target.is_relative_to(base)):
        raise Denied(f"{path} is a link that leads out of {base}; replace the link with a file")
    owners = _list_trusted_owners(base, folder)
    if owners and folder.stat().st_uid not in owners:
        raise Denied(f"{folder} is the folder of another user; name another folder")
    with contextlib.suppress(FileNotFoundError):
        status = target.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise Denied(f"{path} is not a regular file; move it away")
        if owners and status.st_uid not in owners:
            raise Denied(f"{path} is the file of another user; move it away, or chown it")
    return target


def _list_trusted_owners(base: Path, folder: Path, user: int | None = None) -> frozenset[int]:
    """Return the users whose files may be replaced; the set is empty if the system has no users.

    Outside the home a file of root is replaced only for a home of root.
    """
    if not hasattr(os, "geteuid"):
        return frozenset()
    user = os.geteuid() if user is None else user
    is_inside = folder.is_relative_to(base)
    return frozenset({base.stat().st_uid, *((user,) if is_inside or user else ())})


def write_atomic(
    path: Path,
    parts: Iterable[bytes],
    *,
    prefix: str,
    mode: int = 0o600,
    home: Path | None = None,
) -> None:
    """Write a file that is seen whole or not at all, and is durable when this returns.

    A link within the home stays a link. What was there before stays when anything fails, and
    nothing that was begun is left behind. Root keeps the owner of the file that it replaces.

    Raises:
        Denied: `find_target` refuses the path.
    """
    target = find_target(path, home)
    with _write_temporary(target.parent, parts, prefix, mode) as begun:
        _keep_owner(begun, target)
        _replace_file(begun, target)
    sync_folder(target.parent)


def _keep_owner(begun: Path, target: Path) -> None:
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        with contextlib.suppress(OSError):
            status = target.lstat()
            os.chown(begun, status.st_uid, status.st_gid)


def write_new_file(
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
    with _write_temporary(path.parent, parts, prefix, mode) as begun:
        if owner is not None and hasattr(os, "chown"):
            with contextlib.suppress(OSError):
                os.chown(begun, *owner)
        if times_ns is not None:
            os.utime(begun, ns=times_ns)
        _link_new(begun, path)
    sync_folder(path.parent)


@contextlib.contextmanager
def hold_file_lock(path: Path, patience_s: float | None = None) -> Iterator[None]:
    """Hold a lock file against other processes; it stays, and the lock goes with the process.

    Raises:
        Busy: somebody else has held it for so long, five seconds where nothing is said.
    """
    patience_s = _LOCK_TIMEOUT_S if patience_s is None else patience_s
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    flags = os.O_RDWR | os.O_CREAT | _get_open_flag("O_NOFOLLOW") | _get_open_flag("O_NONBLOCK")
    descriptor = os.open(path, flags, 0o600)
    try:
        _check_regular(os.fstat(descriptor), path)
        _wait_for_lock(descriptor, path, time.monotonic() + patience_s)
        try:
            yield
        finally:
            if fcntl is not None:  # a child that was forked meanwhile has the descriptor open too
                fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _wait_for_lock(descriptor: int, path: Path, deadline: float) -> None:
    while fcntl is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise Busy(f"{path} is held by somebody else; try again") from None
            time.sleep(random.uniform(0, _LOCK_POLL_S))  # noqa: S311 -- jitter, not a secret
        else:
            return


def rename_broken_file(path: Path, now: float, home: Path | None = None) -> Path:
    """Rename a broken file so that nothing overwrites it, and return its new name.

    A link within the home is followed, and stays for the file that is written next.

    Raises:
        Denied: `find_target` refuses the path.
    """
    target = find_target(path, home)
    target.lstat()
    aside = reserve_broken_name(target, now)
    _replace_file(target, aside)
    sync_folder(target.parent)
    return aside


def reserve_broken_name(path: Path, now: float, home: Path | None = None) -> Path:
    """Return a name for what was broken in this file; an empty file takes it, so nobody else.

    Raises:
        Denied: `find_target` refuses the path.
    """
    target = find_target(path, home)
    stem = f"{target.name}.broken-{time.strftime('%Y%m%d_%H%M%S', time.localtime(now))}"
    names = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
    return next(free for name in names if _create_empty(free := target.with_name(name)))


def delete_leftovers(folder: Path, prefix: str, *, older_than_s: float, now: float) -> int:
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
        if error.errno not in _SYNC_UNSUPPORTED_ERRNOS:
            raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _write_temporary(
    folder: Path, parts: Iterable[bytes], prefix: str, mode: int
) -> Iterator[Path]:
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


def _link_new(begun: Path, target: Path) -> None:
    """Give a file a name that nothing has."""
    try:
        target.hardlink_to(begun)
    except OSError as error:
        if error.errno not in _LINK_UNSUPPORTED_ERRNOS:
            raise
        if not _create_empty(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from error
        _replace_file(begun, target)
    else:
        begun.unlink()


def _create_empty(path: Path) -> bool:
    try:
        path.touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        return False
    return True


def _replace_file(source: Path, target: Path) -> None:
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
