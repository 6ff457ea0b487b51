"""The state folder of a home: found by the path and the inode of its database, made when written.

A home that moved is known by its inode; another database in its place is another home, and the
folder of the first stays, also where the system gave it the same inode and it says itself that it
is another. Reading makes nothing.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from session_core import _files
from session_core.errors import Denied, SessionError, StorageError, StorageFull
from session_core.home import looks_like_hermes, state_root

HERMES = "hermes"
"""What a home of Hermes is known as, which has no name of its own."""

_BINDING = "home.json"
_IN_THE_WAY = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOENT, errno.ELOOP)
_PRIVATE = 0o700
_STEM_LENGTH = 40
_HOME_LENGTH = 12


@dataclass(frozen=True, slots=True)
class Bound:
    """A state folder, and the database that it was made for."""

    folder: Path
    db_path: Path
    device: int | None
    inode: int | None
    home: str | None = None
    """What that database said that it is; None where it was not asked."""

    @property
    def present(self) -> bool:
        """Whether that database is still where it was."""
        return _identity(self.db_path) == (self.device, self.inode)


class StateFolder:
    """The state folder of the home with this database."""

    def __init__(self, db_path: str | os.PathLike[str], *, root: Path | None = None) -> None:
        self.db_path = Path(os.path.abspath(db_path))  # noqa: PTH100 -- no symlink is resolved
        self.root = state_root() if root is None else root
        self._home: str | None = None
        self._found: Path | None = None
        self._seen: tuple[int | None, int | None] = (None, None)

    def know(self, home: str | None) -> None:
        """Tell it what the database says that it is: another may have its path and its inode."""
        if home is not None and home != self._home:
            self._home, self._found = home, None

    def find(self) -> Path | None:
        """Return the folder, None where nothing was kept of this home yet."""
        seen = _identity(self.db_path)
        if self._found is None or seen != self._seen or not self._found.is_dir():
            bound = self._bound(self._here())
            self._found, self._seen = bound.folder if bound else None, seen
        return self._found

    def make(self) -> Path:
        """Return the folder, which is there when this returns, durable, and its owner's alone.

        Raises:
            Denied: it may not be made, or would be in a home of Hermes.
            StorageFull: there is no room for it.
        """
        # Another folder with a database of ours in it may be anybody's, also the user's own.
        if self._home == HERMES or looks_like_hermes(self.db_path.parent):
            self.require_outside(self.root, "set MCP_SESSIONS_STATE to a folder that is not")
        with refusals(self.root):
            here = self._here()
            there = self._bound(here)
            folder = there.folder if there else _free(here)
            _make(folder)
            if folder.stat().st_mode & 0o077:
                folder.chmod(_PRIVATE)
            home = here.home or (there.home if there else None)
            wanted = replace(here, folder=folder, home=home)
            if there != wanted:
                _write(wanted)
        self._found, self._seen = folder, (here.device, here.inode)
        return folder

    def require_outside(self, folder: Path, instead: str) -> None:
        """Refuse a folder in the home, whose copies and exports would have what is kept in there.

        Raises:
            Denied: it is in there; the message says what to do instead.
        """
        home = Path(os.path.realpath(self.db_path.parent))
        if Path(os.path.realpath(folder)).is_relative_to(home):
            raise Denied(f"{folder} is in the home {home}, where nothing is kept; {instead}")

    def _here(self) -> Bound:
        device, inode = _identity(self.db_path)
        label = f"{self.db_path}\0{device}\0{inode}".encode("utf-8", "surrogateescape")
        stem = self.db_path.parent.name.lstrip(".")[:_STEM_LENGTH] or "home"
        name = f"{stem}-{hashlib.sha256(label).hexdigest()[:12]}"
        return Bound(self.root / name, self.db_path, device, inode, self._home)

    def _bound(self, here: Bound) -> Bound | None:
        """Return what was bound to this home: by its path first, then as one that has moved."""
        bounds = [it for it in known(self.root) if _may_be_one(it.home, here.home)]
        named = {bound.inode: bound for bound in bounds if bound.db_path == here.db_path}
        # The number of a device may be another one after a restart.
        if here.inode in named:
            return named[here.inode]
        for bound in bounds:
            same = (bound.device, bound.inode) == (here.device, here.inode)
            if same and here.inode is not None:
                return bound
        return named.get(None)


def known(root: Path | None = None) -> list[Bound]:
    """Return every state folder, also those whose home is gone."""
    root = state_root() if root is None else root
    with refusals(root):
        try:
            folders = sorted(path for path in root.iterdir() if path.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []
    found = (_read(folder) for folder in folders)
    return [bound for bound in found if bound is not None]


@contextmanager
def refusals(path: Path) -> Iterator[None]:
    """Say in our words what the system refuses to do with a folder."""
    try:
        yield
    except OSError as error:
        raise _refusal(path, error) from error


def _refusal(path: Path, error: OSError) -> SessionError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"no room left for {path}; free some space, then try again")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Denied(f"{path} may not be read or written; check its permissions")
    next_ = "check what it is" if error.errno in _IN_THE_WAY else "check the disk"
    return StorageError(f"{path} could not be used: {error.strerror}; {next_}, then try again")


def _identity(path: Path) -> tuple[int | None, int | None]:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    except OSError as error:
        raise _refusal(path, error) from error
    return found.st_dev, found.st_ino


def _may_be_one(home: str | None, other: str | None) -> bool:
    return home is None or other is None or home == other


def _free(here: Bound) -> Path:
    """Return the folder for a home, which another home of this path and inode may have already.

    Where this home has it, another process has made it just now.
    """
    taken = _read(here.folder)
    if taken is None or here.home is None or _may_be_one(taken.home, here.home):
        return here.folder
    return here.folder.with_name(f"{here.folder.name}-{here.home[:_HOME_LENGTH]}")


def _make(folder: Path) -> None:
    """Make a folder and those above it that are missing, each durable in the one above."""
    missing = [path for path in (folder, *folder.parents) if not path.is_dir()]
    for path in reversed(missing):
        path.mkdir(mode=_PRIVATE, exist_ok=True)
        _files.sync_folder(path.parent)


def _write(bound: Bound) -> None:
    fields = {name: value for name, value in asdict(bound).items() if name != "folder"}
    text = json.dumps({**fields, "db_path": os.fspath(bound.db_path)}, indent=1)
    _files.write_atomic(bound.folder / _BINDING, [text.encode()], prefix=".home_")


def _read(folder: Path) -> Bound | None:
    """Return what a folder is bound to; one whose making was cut short is bound to nothing."""
    try:
        fields: Any = json.loads((folder / _BINDING).read_text(encoding="utf-8"))
        path, home = Path(fields["db_path"]), fields.get("home")
        return Bound(folder, path, fields["device"], fields["inode"], home)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
