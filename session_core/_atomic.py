"""Reading, replacing, locking and syncing of whole files.

Reads are bounded and open regular files only. Writes refuse a target that is not a regular file,
that has another owner, or that a link places outside the home.
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
"""The default time to wait for a lock; a longer hold means that its holder is stuck."""

_LOCK_POLL_S = 0.01
_REPLACE_TRIES = 10
_REPLACE_WAIT_S = 0.05
_SYNC_UNSUPPORTED_ERRNOS = (errno.EINVAL, errno.ENOTSUP)
"""Errors of file systems without sync for folders."""

_LINK_UNSUPPORTED_ERRNOS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of file systems without hard links."""


MAX_SMALL_FILE_BYTES = 4_000_000
"""The size limit of a configuration file or a process record."""


def read_file(path: Path, limit: int = MAX_SMALL_FILE_BYTES) -> bytes:
    """Return the bytes of a regular file.

    Links are followed. FIFOs and devices never block.

    Raises:
        OSError: the file cannot be read, is not a regular file, or has more than `limit` bytes.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(limit + 1) if size <= limit else b""
    if max(size, len(data)) > limit:
        raise OSError(errno.EFBIG, f"larger than {limit:,} bytes", str(path))
    return data


@contextlib.contextmanager
def open_regular(path: Path, *, is_link_followed: bool = True) -> Iterator[BinaryIO]:
    """Open a regular file for reading.

    The check covers the open file, so that a swap is noticed.

    Raises:
        OSError: the file cannot be opened or is not a regular file.
    """
    _check_regular(path.stat(follow_symlinks=is_link_followed), path)
    flags = (
        os.O_RDONLY
        | _get_open_flag("O_NONBLOCK")
        | _get_open_flag("O_CLOEXEC")
        | _get_open_flag("O_BINARY")
    )
    # Without O_NONBLOCK, opening a FIFO would wait for a writer.
    flags |= 0 if is_link_followed else _get_open_flag("O_NOFOLLOW")
    with os.fdopen(os.open(path, flags), "rb") as file:
        _check_regular(os.fstat(file.fileno()), path)
        yield file


def _get_open_flag(name: str) -> int:
    return int(getattr(os, name, 0))


def _check_regular(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))


def find_write_target(path: Path, home: Path | None = None) -> Path:
    """Return the file that a write to `path` replaces: `path` itself, or the target of its link.

    A link is followed within the home and within its own folder. A linked folder may be outside of
    the home if it belongs to the home's owner.

    Raises:
        Denied: a link leads out of the home, the target is not a regular file, or the target or its
            folder has another owner.
    """
    target, folder = Path(os.path.realpath(path)), Path(os.path.realpath(path.parent))
    base = folder if home is None else Path(os.path.realpath(home))
    if target.parent != folder and (home is None or not target.is_relative_to(base)):
        raise Denied(f"{path} is a link to a file outside of {base}; replace it with a file")
    owners = _list_trusted_owners(base, folder)
    if owners and folder.stat().st_uid not in owners:
        raise Denied(f"{folder} belongs to another user; choose another folder")
    with contextlib.suppress(FileNotFoundError):
        status = target.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise Denied(f"{path} is not a regular file; move it away")
        if owners and status.st_uid not in owners:
            raise Denied(f"{path} belongs to another user; move it away or chown it")
    return target


def _list_trusted_owners(base: Path, folder: Path, user: int | None = None) -> frozenset[int]:
    """Return the users whose files may be replaced.

    The set is empty if the system has no users. Outside the home a file of root is replaced only
    for a home of root.
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
    """Replace a file atomically and durably.

    A link within the home is kept. After an error the previous file is unchanged and no temporary
    file remains. Root keeps the owner of the file that it replaces.

    Raises:
        Denied: `find_write_target` refuses the path.
    """
    target = find_write_target(path, home)
    with _write_temporary(target.parent, parts, prefix, mode) as temporary:
        _copy_owner(temporary, target)
        _replace_file(temporary, target)
    # The rename is durable only after a sync of the folder.
    sync_folder(target.parent)


def _copy_owner(temporary: Path, target: Path) -> None:
    # Containers run as root on homes of other users.
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        with contextlib.suppress(OSError):
            status = target.lstat()
            os.chown(temporary, status.st_uid, status.st_gid)


def write_new_file(
    path: Path,
    parts: Iterable[bytes],
    *,
    prefix: str,
    mode: int,
    times_ns: tuple[int, int] | None = None,
    owner: Sequence[int] | None = None,
) -> None:
    """Write a file durably if the name is free, optionally with times and an owner.

    `owner` is a user and a group, set if the system permits it.

    Raises:
        FileExistsError: the name is taken; the existing file is unchanged.
    """
    with _write_temporary(path.parent, parts, prefix, mode) as temporary:
        if owner is not None and hasattr(os, "chown"):
            with contextlib.suppress(OSError):
                os.chown(temporary, *owner)
        if times_ns is not None:
            os.utime(temporary, ns=times_ns)
        _link_to_free_name(temporary, path)
    sync_folder(path.parent)


@contextlib.contextmanager
def hold_file_lock(path: Path, patience_s: float | None = None) -> Iterator[None]:
    """Hold a lock file against other processes.

    The file stays, and the lock ends with the process.

    Raises:
        Busy: another process has held the lock for `patience_s`, by default five seconds.
    """
    patience_s = _LOCK_TIMEOUT_S if patience_s is None else patience_s
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # A planted link must not redirect the open, and a planted FIFO must not block it.
    flags = os.O_RDWR | os.O_CREAT | _get_open_flag("O_NOFOLLOW") | _get_open_flag("O_NONBLOCK")
    descriptor = os.open(path, flags, 0o600)
    try:
        _check_regular(os.fstat(descriptor), path)
        _wait_for_lock(descriptor, path, time.monotonic() + patience_s)
        try:
            yield
        finally:
            if fcntl is not None:  # a child forked meanwhile has the descriptor open too
                fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _wait_for_lock(descriptor: int, path: Path, deadline: float) -> None:
    while fcntl is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise Busy(f"{path} is locked by another process; try again") from None
            time.sleep(random.uniform(0, _LOCK_POLL_S))  # noqa: S311 -- jitter, not a secret
        else:
            return


def rename_broken_file(path: Path, now: float, home: Path | None = None) -> Path:
    """Rename a broken file so that nothing overwrites it, and return its new name.

    A link within the home is followed and kept for the next write.

    Raises:
        Denied: `find_write_target` refuses the path.
    """
    target = find_write_target(path, home)
    # Raises for a missing file before a name is reserved.
    target.lstat()
    broken = reserve_broken_name(target, now)
    _replace_file(target, broken)
    sync_folder(target.parent)
    return broken


def reserve_broken_name(path: Path, now: float, home: Path | None = None) -> Path:
    """Create an empty file with a free name for a broken file, and return its path.

    Raises:
        Denied: `find_write_target` refuses the path.
    """
    target = find_write_target(path, home)
    stem = f"{target.name}.broken-{time.strftime('%Y%m%d_%H%M%S', time.localtime(now))}"
    names = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
    return next(free for name in names if _create_if_free(free := target.with_name(name)))


def delete_leftovers(folder: Path, prefix: str, *, older_than_s: float, now: float) -> int:
    """Delete temporary files of writes that were killed, and return their number."""
    removed = 0
    for temporary in folder.glob(f"{glob.escape(prefix)}*.tmp"):
        with contextlib.suppress(OSError):
            # A young file may belong to a writer that is at work.
            if temporary.stat().st_mtime < now - older_than_s:
                temporary.unlink()
                removed += 1
    return removed


def sync_folder(folder: Path) -> None:
    """Make a rename in a folder durable, if the system supports it."""
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
    """Write a temporary file, which is deleted if the block fails."""
    descriptor, name = tempfile.mkstemp(prefix=prefix, suffix=".tmp", dir=folder)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), mode)
            file.writelines(parts)
            file.flush()
            # Before the rename, or a crash could leave the new name with no content.
            os.fsync(file.fileno())
        yield temporary
    # An interrupt must not leave the file either.
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _link_to_free_name(temporary: Path, target: Path) -> None:
    """Give a temporary file a name that must be free."""
    try:
        target.hardlink_to(temporary)
    except OSError as error:
        if error.errno not in _LINK_UNSUPPORTED_ERRNOS:
            raise
        # Without hard links an empty file reserves the name.
        if not _create_if_free(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from error
        _replace_file(temporary, target)
    else:
        temporary.unlink()


def _create_if_free(path: Path) -> bool:
    try:
        path.touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        return False
    return True


def _replace_file(source: Path, target: Path) -> None:
    """Rename a file over another.

    On Windows a reader may block this for a moment.
    """
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
