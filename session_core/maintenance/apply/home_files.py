"""Move files of a home to the trash and back, with their bytes, times and permissions.

A file is deleted only while it is unchanged since it was kept, and restored only if its name is
free. Links are not followed. Databases and the files next to them are never opened, since closing
such a file would drop the locks that this process holds on it.

A step keeps its files before it begins and deletes them after its commit.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal

from session_core import _atomic
from session_core.errors import Changed, Corrupt, Denied, NotFound
from session_core.ledger.execute import suppress_note_errors
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import translate_os_errors
from session_core.ledger.types import Step, TrashItem
from session_core.maintenance.members import MemberOutdated
from session_core.maintenance.restore.unrestored_items import UnrestoredItems
from session_core.maintenance.select import orphans
from session_core.routing.mirror import TEMP_PREFIX

FILE_KIND = "file"
"""The kind of the trash item with a file's metadata as JSON; its pieces follow immediately."""

PIECE_KIND = "file piece"

FileRestoreOutcome = Literal["restored", "present", "taken"]

_PIECE_BYTES = 1 << 20
_DATABASE_PATTERN = re.compile(r"\.(db|sqlite3?)(\Z|[.-])", re.IGNORECASE)
_MODE_BITS = 0o777


def iter_file_items(path: Path, home: Path) -> Iterator[TrashItem]:
    """Yield the trash items of a file: its head, which `delete_file` needs, then its bytes.

    The head names the file by its path in the home, which may move.

    Raises:
        NotFound: the file does not exist.
        Denied: it is not an ordinary file, or is a database.
        Changed: another process is writing it.
    """
    with translate_os_errors(path), _open_ordinary_file(path) as (file, file_stat):
        head = {
            "name": _make_stored_name(path, home),
            **_encode_stat(file_stat),
            "sha256": _compute_digest(file),
        }
        yield TrashItem(FILE_KIND, head)
        # Read the bytes after the digest: a write in between shows as a different second digest.
        file.seek(0)
        second_digest = hashlib.sha256()
        while piece := file.read(_PIECE_BYTES):
            second_digest.update(piece)
            yield TrashItem(PIECE_KIND, piece)
        if second_digest.hexdigest() != head["sha256"] or not _has_same_stat(
            os.fstat(file.fileno()), head
        ):
            raise Changed(f"{path} is being written; plan again")


def delete_file(head: Mapping[str, Any], home: Path, store: Path | None = None) -> bool:
    """Delete a file if it is unchanged since it was kept, and return True if it is gone.

    Raises:
        Denied: it may not be read or deleted, or does not belong to this home.
    """
    path = _resolve_path(head, home, store)
    try:
        with translate_os_errors(path):
            if not _is_unchanged(path, head):
                return False
            with suppress(FileNotFoundError):
                path.unlink()
            # The deletion must survive a power failure before it is reported.
            _atomic.sync_folder(path.parent)
    except NotFound:
        pass
    return True


def restore_file(
    head: Mapping[str, Any], trash_items: Iterator[TrashItem], home: Path, store: Path | None = None
) -> FileRestoreOutcome:
    """Write a file from the pieces that come next in the trash, and consume exactly these pieces.

    An existing file with the name stays: `present` if it has the same bytes, else `taken`.

    Raises:
        Corrupt: the pieces belong to another file.
        Denied: it may not be written, or its path is neither in the home nor in the `store`.
    """
    path = _resolve_path(head, home, store)
    pieces = _iter_file_content(head, trash_items)
    with translate_os_errors(path):
        # The folder may have been removed with its last file.
        path.parent.mkdir(parents=True, exist_ok=True)
        times = head["accessed_ns"], head["modified_ns"]
        try:
            _atomic.write_new_file(
                path,
                pieces,
                prefix=TEMP_PREFIX,
                mode=head["mode"],
                times_ns=times,
                owner=head.get("owner"),
            )
        except FileExistsError:
            return "present" if _has_same_content(path, head) else "taken"
    return "restored"


def _is_unchanged(path: Path, head: Mapping[str, Any]) -> bool:
    """Return True if a file has the kept bytes, and still has its name after they were read."""
    try:
        with _open_ordinary_file(path) as (file, file_stat):
            if not _has_same_stat(file_stat, head) or _compute_digest(file) != head["sha256"]:
                return False
            path_stat = path.lstat()
            return _has_same_stat(path_stat, head) and bool(os.path.samestat(file_stat, path_stat))
    except Denied:
        return False


def _has_same_content(path: Path, head: Mapping[str, Any]) -> bool:
    """Return True if an ordinary file has these bytes.

    The times of the file may differ.
    """
    try:
        with _open_ordinary_file(path) as (file, file_stat):
            return bool(
                file_stat.st_size == head["bytes"] and _compute_digest(file) == head["sha256"]
            )
    except (Denied, NotFound):
        return False


@contextmanager
def _open_ordinary_file(path: Path) -> Iterator[tuple[BinaryIO, os.stat_result]]:
    """Open an ordinary file for reading, and refuse links and databases."""
    try:
        path_stat = path.lstat()
        if not stat.S_ISREG(path_stat.st_mode):
            raise Denied(f"{path} is not an ordinary file; it is left unchanged")
        if _is_database(path, path_stat):
            raise Denied(f"{path} is a database; it is never handled as a file")
        with _atomic.open_regular(path, is_link_followed=False) as file:
            yield file, os.fstat(file.fileno())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"{path} does not exist") from error


def _is_database(path: Path, file_stat: os.stat_result) -> bool:
    """Return True if a file has the name of a database, or is a hard link to one nearby."""
    if _DATABASE_PATTERN.search(path.name):
        return True
    # A file with a single name is not a link to a database.
    if file_stat.st_nlink == 1:
        return False
    entries = (entry for folder in (path.parent, path.parent.parent) for entry in folder.iterdir())
    return any(
        _DATABASE_PATTERN.search(entry.name) and os.path.samestat(entry.lstat(), file_stat)
        for entry in entries
    )


def _iter_file_content(
    head: Mapping[str, Any], trash_items: Iterator[TrashItem]
) -> Iterator[bytes]:
    bytes_left = int(head["bytes"])
    digest = hashlib.sha256()
    while bytes_left > 0:
        item = next(trash_items, None)
        if item is None or item.what != PIECE_KIND:
            break
        bytes_left -= len(item.value)
        digest.update(item.value)
        yield item.value
    # This raises before the new file gets its name.
    if digest.hexdigest() != head["sha256"]:
        raise Corrupt(f"the trash of {head['name']} is incomplete; it cannot be restored")


def _encode_stat(file_stat: os.stat_result) -> dict[str, Any]:
    return {
        "bytes": file_stat.st_size,
        "modified_ns": file_stat.st_mtime_ns,
        "accessed_ns": file_stat.st_atime_ns,
        "mode": stat.S_IMODE(file_stat.st_mode) & _MODE_BITS,
        "owner": [file_stat.st_uid, file_stat.st_gid],
    }


def _has_same_stat(file_stat: os.stat_result, head: Mapping[str, Any]) -> bool:
    return (file_stat.st_size, file_stat.st_mtime_ns) == (head["bytes"], head["modified_ns"])


def _compute_digest(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while piece := file.read(_PIECE_BYTES):
        digest.update(piece)
    return digest.hexdigest()


def _resolve_path(head: Mapping[str, Any], home: Path, store: Path | None) -> Path:
    """Return the path of a kept file, and refuse paths outside the home and the `store`."""
    path = home / str(head["name"])
    folder = Path(os.path.realpath(path.parent))
    bounds = [Path(os.path.realpath(root)) for root in (home, store) if root is not None]
    # The name comes from the trash: it must not lead out of the home, not even through a link.
    if ".." in path.parts or not any(folder.is_relative_to(root) for root in bounds):
        raise Denied(f"{path} is outside this home; it is left unchanged")
    return path


def _make_stored_name(path: Path, home: Path) -> str:
    """Return the path of a file relative to the home, or its absolute path outside the home."""
    try:
        return path.absolute().relative_to(home.absolute()).as_posix()
    except ValueError:
        return str(path.absolute())


NAMES_KEY = "names"
"""The key in a step's result that lists the files of removed sessions, also those left in place."""

FileHead = Mapping[str, Any]

_MAX_WARNINGS = 20


def collect_file_items(
    path: Path, home: Path, heads: list[FileHead], member: str
) -> Iterator[TrashItem]:
    """Yield the trash items of a file and add its head to `heads`.

    A file that is not accessible is skipped.

    Raises:
        MemberOutdated: another process is writing it.
    """
    try:
        for item in iter_file_items(path, home):
            if item.what == FILE_KIND:
                heads.append(item.value)
            yield item
    except Changed as error:
        raise MemberOutdated(member, str(error)) from error
    except (Denied, NotFound):
        return


def delete_files(heads: Iterable[FileHead], home: Path, store: Path | None = None) -> None:
    """Delete files that are unchanged since they were kept, and log failed deletions."""
    for head in heads:
        with suppress_note_errors(f"the deletion of {head['name']}"):
            delete_file(head, home, store)


def finish_deletions(ledger: Ledger, step: Step, home: Path, store: Path | None = None) -> None:
    """Delete the files of a step that was interrupted after its commit, except restored files."""
    if not (step.result or {}).get("files"):
        return
    with suppress_note_errors(f"the deletion of the files of step {step.id}"):
        unrestored = UnrestoredItems.from_result(ledger.get_last_attempt(step.id))
        file_heads = (item.value for item in ledger.read_trash(step.id) if item.what == FILE_KIND)
        pending = [
            head for head in file_heads if unrestored is None or head["name"] in unrestored.files
        ]
        delete_files(pending, home, store)


def list_file_warnings(steps: Iterable[Step], folder: Path, exempt: Collection[str]) -> list[str]:
    """Return warnings about files of removed sessions that still exist.

    Files of the sessions in `exempt` may exist.
    """
    owners = orphans.FileOwners(exempt)
    results = (step.result for step in steps if isinstance(step.result, dict))
    names = [name for result in results for name in result.get(NAMES_KEY, ())]
    remaining = [
        name
        for name in names
        if _is_present(folder / name) and owners.find_owner(name) not in exempt
    ]
    warnings = [
        f"{name} of a removed session still exists: it is a link, a database or not an "
        "ordinary file, could not be deleted, or was being written"
        for name in remaining[:_MAX_WARNINGS]
    ]
    unlisted = len(remaining) - len(warnings)
    return [*warnings, f"{unlisted:,} more of these files still exist"] if unlisted else warnings


def _is_present(path: Path) -> bool:
    with suppress(OSError):
        path.lstat()
        return True
    return False
