"""The state folder of a home: found where the home is, made at the first write.

A home of our own keeps it next to its database file NAME, as `.mcp-sessions/NAME`, so that it is
moved, copied and deleted with the home; the name in the database decides whose it is. A Hermes home
keeps it in the platform's state folder, bound to the path and the inode of its database: a home
that moved is known by its inode, and another database in its place is another home. Reading makes
nothing.
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

from session_core import _atomic
from session_core.errors import (
    Corrupt,
    Denied,
    NotFound,
    SessionError,
    StorageError,
    StorageFull,
    Unsupported,
)
from session_core.home import find_state_root, is_hermes_folder, is_hermes_home
from session_core.state.protocol import StateDatabase
from session_core.state.sqlite.opening import HERMES_OWNER, find_owner, get_file_bytes

STATE_FOLDER_NAME = ".mcp-sessions"
"""What the folder next to the databases of our own is called."""

_BINDING_FILE = "home.json"
_OBSTRUCTION_ERRNOS = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOENT, errno.ELOOP)
_PRIVATE_MODE = 0o700
_MAX_STEM_LENGTH = 40
_HOME_ID_LENGTH = 12

_Identity = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class FolderBinding:
    """A state folder, and the database that it was made for."""

    folder: Path
    db_path: Path
    device: int | None
    inode: int | None
    home: str | None = None
    """What that database said that it is; None where it was not asked."""

    @property
    def is_present(self) -> bool:
        """Whether that database is still where it was."""
        return _read_identity(self.db_path) == (self.device, self.inode)


class StateFolder:
    """The state folder of the home with this database.

    `root` is another place for it; without one, a Hermes home has it in the platform's folder.

    Raises:
        Denied: `root` is in a Hermes home.
    """

    def __init__(self, db_path: str | os.PathLike[str], *, root: Path | None = None) -> None:
        self.db_path = Path(os.path.abspath(db_path))  # noqa: PTH100 -- no symlink is resolved
        self.root = find_state_root() if root is None else root
        self._is_named = root is not None
        self._home: str | None = None
        self._asked: _Identity = (None, None)
        self._found: Path | None = None
        self._seen: _Identity = (None, None)
        if self._is_named:
            self.check_place()

    def load_home_name(self, db: StateDatabase) -> None:
        """Ask the open database which home it is; a file of its own need not be opened then."""
        # A home of Hermes has no name; its sessions have names that no other home has.
        self.set_home_name(db.get_home_id() if db.kind == "own" else HERMES_OWNER)

    def set_home_name(self, home: str | None) -> None:
        """Tell it what the database says that it is: another may have its path and its inode."""
        if home is not None:
            self._asked = _read_identity(self.db_path)
            if home != self._home:
                self._home, self._found = home, None

    def find(self) -> Path | None:
        """Return the folder, None where nothing was kept of this home yet."""
        seen = _read_identity(self.db_path)
        if self._found is None or seen != self._seen or not self._found.is_dir():
            _, bound = self._locate_folder()
            self._found, self._seen = bound.folder if bound else None, seen
        return self._found

    def make(self) -> Path:
        """Return the folder, which is there when this returns, durable, and its owner's alone.

        Raises:
            Denied: it may not be made, or would be in a Hermes home.
            StorageFull: there is no room for it.
        """
        self.check_place()
        here, there = self._locate_folder()
        with translate_os_errors(here.folder.parent):
            folder = there.folder if there else _choose_free_folder(here)
            _make_folder(folder)
            for path in (
                folder,
                *([folder.parent] if folder.parent.name == STATE_FOLDER_NAME else []),
            ):
                if path.stat().st_mode & 0o077:
                    path.chmod(_PRIVATE_MODE)
            home = here.home or (there.home if there else None)
            wanted = replace(here, folder=folder, home=home)
            if there != wanted:
                _write_binding(wanted)
        self._found, self._seen = folder, (here.device, here.inode)
        return folder

    @property
    def place(self) -> Path:
        """Where the folder is, or will be made."""
        here, there = self._locate_folder()
        return there.folder if there else here.folder

    @property
    def is_beside_database(self) -> bool:
        """Whether the folder belongs next to the database, as that of a home of our own."""
        return self.place.parent.name == STATE_FOLDER_NAME

    @property
    def trash_name(self) -> str:
        """The name of the file for its trash in a folder that homes may share."""
        folder = self.make()
        return (
            _make_label(self.db_path, self._home)
            if folder.parent.name == STATE_FOLDER_NAME
            else folder.name
        )

    def check_place(self, trash_dir: Path | None = None) -> None:
        """Refuse a folder in a Hermes home, whose copies would have what is kept there.

        A folder for trash is refused in every home: it is for another disk.

        Raises:
            Denied: it is there; the message names another place.
        """
        if self._is_hermes_home():
            instead = "set MCP_SESSIONS_STATE to a folder that is not"
            self._require_outside(self.root, "pass another root" if self._is_named else instead)
        if trash_dir is not None:
            self._require_outside(trash_dir, "name a folder elsewhere for the trash")

    def _require_outside(self, folder: Path, instead: str) -> None:
        home = Path(os.path.realpath(self.db_path.parent))
        if Path(os.path.realpath(folder)).is_relative_to(home):
            raise Denied(f"{folder} is in the home {home}, where nothing is kept; {instead}")

    def _is_hermes_home(self) -> bool:
        home = self._get_home_name()
        if home is None and not self._has_database():
            folder = self.db_path.parent
            return is_hermes_folder(folder) and is_hermes_home(folder)
        return home in (None, HERMES_OWNER)

    def _has_database(self) -> bool:
        return _read_identity(self.db_path) != (None, None) and get_file_bytes(self.db_path) > 0

    def _get_home_name(self) -> str | None:
        """Return the name of the home, None if it has no database, or one that cannot be read."""
        seen = _read_identity(self.db_path)
        if self._home is None or seen != self._asked:
            self._home, self._asked = _read_home_name(self.db_path), seen
        return self._home

    def _locate_folder(self) -> tuple[FolderBinding, FolderBinding | None]:
        """Return where the folder belongs, and the one that there is."""
        here = self._make_binding()
        there: FolderBinding | None = None
        if not self._is_named and here.home != HERMES_OWNER:
            beside = replace(here, folder=self._get_adjacent_path())
            there = _find_adjacent_binding(beside)
            if there is not None or not self._is_hermes_home():
                # One that was made before it was kept next to the database stays in use.
                old = None if there else self._find_binding(here)
                return (here, old) if old else (beside, there)
        return here, self._find_binding(here)

    def _get_adjacent_path(self) -> Path:
        """Return the place next to the database file itself, whatever links lead to it."""
        real = Path(os.path.realpath(self.db_path))
        return real.parent / STATE_FOLDER_NAME / real.name

    def _make_binding(self) -> FolderBinding:
        home = self._get_home_name()
        device, inode = _read_identity(self.db_path)
        folder = self.root / _make_label(self.db_path, device, inode)
        return FolderBinding(folder, self.db_path, device, inode, home)

    def _find_binding(self, here: FolderBinding) -> FolderBinding | None:
        """Return what was bound to this home: by its path first, then as one that has moved."""
        bounds = [it for it in list_bindings(self.root) if _can_be_same_home(it.home, here.home)]
        named = {bound.inode: bound for bound in bounds if bound.db_path == here.db_path}
        # The number of a device may be another one after a restart.
        if here.inode in named:
            return named[here.inode]
        for bound in bounds:
            same = (bound.device, bound.inode) == (here.device, here.inode)
            if same and here.inode is not None:
                return bound
        return named.get(None)


def _find_adjacent_binding(wanted: FolderBinding) -> FolderBinding | None:
    """Return the folder of a home next to its database, also if the file was renamed."""
    for folder in dict.fromkeys((wanted.folder, _make_distinct_path(wanted))):
        bound = _read_binding(folder)
        if bound is not None and _can_be_same_home(bound.home, wanted.home):
            return bound
    if wanted.home is None:
        return None
    kept, databases = wanted.folder.parent, wanted.folder.parent.parent
    for bound in list_bindings(kept):
        if bound.home == wanted.home != _read_home_name(databases / bound.db_path.name):
            return bound
    return None


def _read_home_name(db_path: Path) -> str | None:
    """Return what a database says that it is, None if there is none that can be read."""
    try:
        return find_owner(db_path)
    except (Corrupt, Denied, NotFound, Unsupported):
        return None


def list_bindings(root: Path | None = None) -> list[FolderBinding]:
    """Return every state folder, also those whose home is gone."""
    root = find_state_root() if root is None else root
    with translate_os_errors(root):
        try:
            folders = sorted(path for path in root.iterdir() if path.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []
    found = (_read_binding(folder) for folder in folders)
    return [bound for bound in found if bound is not None]


@contextmanager
def translate_os_errors(path: Path) -> Iterator[None]:
    """Say in our words what the system refuses to do with a folder."""
    try:
        yield
    except OSError as error:
        raise _make_os_error(path, error) from error


def _make_os_error(path: Path, error: OSError) -> SessionError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"no room left for {path}; free some space, then try again")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Denied(f"{path} may not be read or written; check its permissions")
    next_ = "check what it is" if error.errno in _OBSTRUCTION_ERRNOS else "check the disk"
    return StorageError(f"{path} could not be used: {error.strerror}; {next_}, then try again")


def _read_identity(path: Path) -> _Identity:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    except OSError as error:
        raise _make_os_error(path, error) from error
    return found.st_dev, found.st_ino


def _can_be_same_home(home: str | None, other: str | None) -> bool:
    return home is None or other is None or home == other


def _choose_free_folder(here: FolderBinding) -> Path:
    """Return the folder for a home, which another home of this path and inode may have already.

    Where this home has it, another process has made it just now.
    """
    taken = _read_binding(here.folder)
    return (
        here.folder
        if taken is None or _can_be_same_home(taken.home, here.home)
        else _make_distinct_path(here)
    )


def _make_distinct_path(here: FolderBinding) -> Path:
    """Return the folder of a home where another one has the name."""
    suffix = f"-{here.home[:_HOME_ID_LENGTH]}" if here.home else ""
    return here.folder.with_name(here.folder.name + suffix)


def _make_label(db_path: Path, *marks: object) -> str:
    """Return a name for the folder or file of a home that no other home has."""
    text = "\0".join(map(str, (db_path, *marks))).encode("utf-8", "surrogateescape")
    stem = db_path.parent.name.lstrip(".")[:_MAX_STEM_LENGTH] or "home"
    return f"{stem}-{hashlib.sha256(text).hexdigest()[:12]}"


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing, each durable in the one above."""
    missing = [path for path in (folder, *folder.parents) if not path.is_dir()]
    for path in reversed(missing):
        path.mkdir(mode=_PRIVATE_MODE, exist_ok=True)
        _atomic.sync_folder(path.parent)


def _write_binding(bound: FolderBinding) -> None:
    fields = {name: value for name, value in asdict(bound).items() if name != "folder"}
    text = json.dumps({**fields, "db_path": os.fspath(bound.db_path)}, indent=1)
    _atomic.write_atomic(bound.folder / _BINDING_FILE, [text.encode()], prefix=".home_")


def _read_binding(folder: Path) -> FolderBinding | None:
    """Return what a folder is bound to; one whose making was cut short is bound to nothing."""
    try:
        fields: Any = json.loads(_atomic.read_file(folder / _BINDING_FILE))
        path, home = Path(fields["db_path"]), fields.get("home")
        return FolderBinding(folder, path, fields["device"], fields["inode"], home)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
