"""Files of a home to the trash and back: their bytes, their times and who may read them.

A file goes only while it is what was kept of it, and comes back only where nothing has its name. No
link is followed. A database and what lies beside one are never opened: closing such a file would
drop the locks of this process on it.

Files that go with a step: kept before it, and deleted once it is committed.
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
from session_core.maintenance.restore.remainder import Remainder
from session_core.maintenance.select import orphans
from session_core.routing.mirror import TEMP_PREFIX

FILE_KIND = "file"
"""What the head of a file is kept as: JSON with what it was; its pieces follow at once."""

PIECE_KIND = "file piece"

FileRestoreOutcome = Literal["restored", "present", "taken"]

_PIECE_BYTES = 1 << 20
_DATABASE_PATTERN = re.compile(r"\.(db|sqlite3?)(\Z|[.-])", re.IGNORECASE)
_MODE_BITS = 0o777


def keep_file(path: Path, home: Path) -> Iterator[TrashItem]:
    """Yield what brings a file back: its head, which `remove` takes, and then its bytes.

    It is named by its place in the home, which may move.

    Raises:
        NotFound: it is not there.
        Denied: it is no ordinary file, or a database.
        Changed: somebody is writing it.
    """
    with translate_os_errors(path), _open_ordinary_file(path) as (file, found):
        head = {
            "name": _make_stored_name(path, home),
            **_encode_stat(found),
            "sha256": _compute_digest(file),
        }
        yield TrashItem(FILE_KIND, head)
        file.seek(0)
        again = hashlib.sha256()
        while piece := file.read(_PIECE_BYTES):
            again.update(piece)
            yield TrashItem(PIECE_KIND, piece)
        if again.hexdigest() != head["sha256"] or not _has_same_stat(os.fstat(file.fileno()), head):
            raise Changed(f"{path} is being written; plan again")


def delete_file(head: Mapping[str, Any], home: Path, store: Path | None = None) -> bool:
    """Delete a file that is still as it was kept; say whether it is gone.

    Raises:
        Denied: it may not be read or deleted, or is no file of this home.
    """
    path = _resolve_path(head, home, store)
    try:
        with translate_os_errors(path):
            if not _is_unchanged(path, head):
                return False
            with suppress(FileNotFoundError):
                path.unlink()
            _atomic.sync_folder(path.parent)
    except NotFound:
        pass
    return True


def restore_file(
    head: Mapping[str, Any], rest: Iterator[TrashItem], home: Path, store: Path | None = None
) -> FileRestoreOutcome:
    """Write a file whose pieces are next in what was kept; take exactly those.

    One that has its name by now stays: `present` where it is the same one, else `taken`.

    Raises:
        Corrupt: the pieces are not those of this file.
        Denied: it may not be written, or its place is neither in the home nor in the `store`.
    """
    path = _resolve_path(head, home, store)
    pieces = _iter_pieces(head, rest)
    with translate_os_errors(path):
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
    """Whether a file is what was kept, and still has its name when all of it was read."""
    try:
        with _open_ordinary_file(path) as (file, found):
            if not _has_same_stat(found, head) or _compute_digest(file) != head["sha256"]:
                return False
            now = path.lstat()
            return _has_same_stat(now, head) and bool(os.path.samestat(found, now))
    except Denied:
        return False


def _has_same_content(path: Path, head: Mapping[str, Any]) -> bool:
    """Whether there is an ordinary file with these bytes, whatever its times are."""
    try:
        with _open_ordinary_file(path) as (file, found):
            return bool(found.st_size == head["bytes"] and _compute_digest(file) == head["sha256"])
    except (Denied, NotFound):
        return False


@contextmanager
def _open_ordinary_file(path: Path) -> Iterator[tuple[BinaryIO, os.stat_result]]:
    """Open an ordinary file to be read; no link, and no database."""
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise Denied(f"{path} is no ordinary file; it is left as it is")
        if _is_database(path, found):
            raise Denied(f"{path} is a database; it is never touched as a file")
        with _atomic.open_regular(path, is_link_followed=False) as file:
            yield file, os.fstat(file.fileno())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"{path} is not there") from error


def _is_database(path: Path, found: os.stat_result) -> bool:
    """Whether a file is a database by its name, or another name of one that lies near."""
    if _DATABASE_PATTERN.search(path.name):
        return True
    if found.st_nlink == 1:
        return False
    near = (one for folder in (path.parent, path.parent.parent) for one in folder.iterdir())
    return any(
        _DATABASE_PATTERN.search(one.name) and os.path.samestat(one.lstat(), found) for one in near
    )


def _iter_pieces(head: Mapping[str, Any], rest: Iterator[TrashItem]) -> Iterator[bytes]:
    left = int(head["bytes"])
    digest = hashlib.sha256()
    while left > 0:
        kept = next(rest, None)
        if kept is None or kept.what != PIECE_KIND:
            break
        left -= len(kept.value)
        digest.update(kept.value)
        yield kept.value
    if digest.hexdigest() != head["sha256"]:
        raise Corrupt(f"what was kept of {head['name']} is not whole; it cannot be restored")


def _encode_stat(found: os.stat_result) -> dict[str, Any]:
    return {
        "bytes": found.st_size,
        "modified_ns": found.st_mtime_ns,
        "accessed_ns": found.st_atime_ns,
        "mode": stat.S_IMODE(found.st_mode) & _MODE_BITS,
        "owner": [found.st_uid, found.st_gid],
    }


def _has_same_stat(found: os.stat_result, head: Mapping[str, Any]) -> bool:
    return (found.st_size, found.st_mtime_ns) == (head["bytes"], head["modified_ns"])


def _compute_digest(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while piece := file.read(_PIECE_BYTES):
        digest.update(piece)
    return digest.hexdigest()


def _resolve_path(head: Mapping[str, Any], home: Path, store: Path | None) -> Path:
    """Return where a file was, by what stands in the trash: nowhere else is anything touched."""
    path = home / str(head["name"])
    folder = Path(os.path.realpath(path.parent))
    bounds = [Path(os.path.realpath(each)) for each in (home, store) if each is not None]
    if ".." in path.parts or not any(folder.is_relative_to(each) for each in bounds):
        raise Denied(f"{path} is no place for a file of this home; it is left as it is")
    return path


def _make_stored_name(path: Path, home: Path) -> str:
    """Return the place of a file in the home, else where it is."""
    try:
        return path.absolute().relative_to(home.absolute()).as_posix()
    except ValueError:
        return str(path.absolute())


NAMES_KEY = "names"
"""In the result of a step: the files of what it took, also those that may not be touched."""

FileHead = Mapping[str, Any]

_MAX_WARNINGS = 20


def collect_file(path: Path, home: Path, heads: list[FileHead], member: str) -> Iterator[TrashItem]:
    """Yield what brings a file back, and note its head; one that may not be touched is left.

    Raises:
        Outdated: somebody is writing it.
    """
    try:
        for kept in keep_file(path, home):
            if kept.what == FILE_KIND:
                heads.append(kept.value)
            yield kept
    except Changed as error:
        raise MemberOutdated(member, str(error)) from error
    except (Denied, NotFound):
        return


def delete_files(heads: Iterable[FileHead], home: Path, store: Path | None = None) -> None:
    """Delete files that are still as they were kept; where one cannot be, that is reported."""
    for head in heads:
        with suppress_note_errors(f"that {head['name']} is deleted"):
            delete_file(head, home, store)


def finish_deletions(ledger: Ledger, step: Step, home: Path, store: Path | None = None) -> None:
    """Delete what a step has kept that was cut short behind its commit, but what came back."""
    if not (step.result or {}).get("files"):
        return
    with suppress_note_errors(f"that the files of step {step.id} are deleted"):
        left = Remainder.from_result(ledger.get_last_attempt(step.id))
        kept = (each.value for each in ledger.read_trash(step.id) if each.what == FILE_KIND)
        gone = [head for head in kept if left is None or head["name"] in left.files]
        delete_files(gone, home, store)


def warn_of_remaining_files(steps: Iterable[Step], folder: Path, but: Collection[str]) -> list[str]:
    """Return warnings of the files of what steps have removed that are still there.

    Those of some sessions may be there.
    """
    owners = orphans.FileOwners(but)
    results = (step.result for step in steps if isinstance(step.result, dict))
    names = [name for result in results for name in result.get(NAMES_KEY, ())]
    found = [
        name for name in names if _is_present(folder / name) and owners.find_owner(name) not in but
    ]
    said = [
        f"{name} of a session that was removed is still there: it is a link, a database or no "
        "ordinary file, could not be deleted, or was written just then"
        for name in found[:_MAX_WARNINGS]
    ]
    rest = len(found) - len(said)
    return [*said, f"{rest:,} more such files are still there"] if rest else said


def _is_present(path: Path) -> bool:
    with suppress(OSError):
        path.lstat()
        return True
    return False
