"""The root folders of other agents' stores, and the files in them, found by a sweep.

A sweep opens no file. It follows no symbolic link below a root, and it counts the files that it
leaves out.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeGuard

from session_core.transcripts.format import DatabaseFormat, FileFormat
from session_core.transcripts.places import find_user_folder

AnyFormat = FileFormat | DatabaseFormat

_MAX_DEPTH = 12


def is_database_format(reader: AnyFormat) -> TypeGuard[DatabaseFormat]:
    """Return True if a format reads databases."""
    return hasattr(reader, "read_changes")


@dataclass(frozen=True, slots=True)
class Root:
    """A folder that contains a store, and the format that reads the store."""

    format: AnyFormat
    path: str
    """The real path."""


class FileIdentity(NamedTuple):
    """Values that identify a file and its current content."""

    device: int
    inode: int
    size: int
    mtime_ns: int


@dataclass(slots=True)
class Sweep:
    """The files of a root by their relative paths, and counts of files left out."""

    files: dict[str, FileIdentity] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    foreign: int = 0
    """The number of files and folders of other users."""
    links: int = 0
    unreadable: int = 0


def find_roots(
    formats: Iterable[AnyFormat], environ: Mapping[str, str] | None = None
) -> list[Root]:
    """Return the roots of the formats, without duplicates.

    They need not exist.
    """
    env = os.environ if environ is None else environ
    home = find_user_folder(env)
    roots = dict[tuple[str, int], Root]()
    for reader in formats:
        for path in reader.find_roots(env, home):
            real = os.path.realpath(path)
            roots.setdefault((real, id(reader)), Root(reader, real))
    return list(roots.values())


def get_identity(status: os.stat_result) -> FileIdentity:
    """Return the identity of a file from its status."""
    return FileIdentity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def sweep_root(
    root: Root,
    is_wanted: Callable[[str], bool],
    user_id: int | None,
    on_folder: Callable[[str], object] | None = None,
) -> Sweep:
    """Return the wanted files below a root, except files of users other than `user_id`.

    `on_folder` is called with each folder before its files are listed.
    """
    sweep = Sweep()
    folders = [("", root.path)]
    while folders:
        prefix, folder = folders.pop()
        if on_folder is not None:
            on_folder(prefix.rstrip("/"))
        try:
            with os.scandir(folder) as entries:
                sweep.folders.append(prefix.rstrip("/"))
                for entry in entries:
                    path = prefix + entry.name
                    if entry.is_symlink():
                        sweep.links += 1
                    elif entry.is_dir(follow_symlinks=False):
                        if prefix.count("/") < _MAX_DEPTH and root.format.match_folder(path):
                            folders.append((path + "/", entry.path))
                    elif is_wanted(path):
                        _add_entry(sweep, path, entry, user_id)
        except OSError:
            # A folder that vanished is not one that cannot be read.
            sweep.unreadable += os.path.lexists(folder)
    return sweep


def _add_entry(sweep: Sweep, path: str, entry: os.DirEntry[str], user_id: int | None) -> None:
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return
    _add_file(sweep, path, status, user_id)


def update_file(sweep: Sweep, root: Root, path: str, user_id: int | None) -> None:
    """Update the identity of one wanted file in a sweep."""
    sweep.files.pop(path, None)
    try:
        status = os.lstat(os.path.join(root.path, path))  # noqa: PTH118 -- os.path avoids building a Path
    except OSError:
        return
    _add_file(sweep, path, status, user_id)


def _add_file(sweep: Sweep, path: str, status: os.stat_result, user_id: int | None) -> None:
    """Add a regular file to a sweep, or count it if it belongs to another user."""
    if user_id is not None and status.st_uid != user_id:
        sweep.foreign += 1
    elif stat.S_ISREG(status.st_mode):
        sweep.files[path] = get_identity(status)
