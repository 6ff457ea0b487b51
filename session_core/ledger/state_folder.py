"""The state folder of a home: found by its location, created by the first write.

A home of our own keeps the folder next to its database file NAME, as `.mcp-sessions/NAME`, so that
it is moved, copied and deleted with the home; the home id in the database decides to which home
a folder belongs. A Hermes home keeps it in the platform's state folder, bound to the path and the
inode of its database: a home that moved is recognised by its inode, and another database at its
path is another home. Reading creates nothing. A home in a database server has a folder of this
machine for its files.
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
from session_core.state.sqlite.database_file import HERMES_OWNER, find_owner, get_file_bytes

STATE_FOLDER_NAME = ".mcp-sessions"
"""Name of the folder next to the databases of our own."""

PINS_FILE = "pins.db"
_BINDING_FILE = "home.json"
_OBSTRUCTION_ERRNOS = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOENT, errno.ELOOP)
_PRIVATE_MODE = 0o700
_MAX_STEM_LENGTH = 40
_HOME_ID_LENGTH = 12

_Identity = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class FolderBinding:
    """A state folder and the database that it was created for."""

    folder: Path
    db_path: Path
    device: int | None
    inode: int | None
    home: str | None = None
    """Id of the home as stored in that database; None if it was not read."""

    @property
    def is_present(self) -> bool:
        """Return True if the database is still at its path."""
        return _read_identity(self.db_path) == (self.device, self.inode)


class StateFolder:
    """The state folder of the home with this database.

    `root` overrides the parent folder; by default it is the platform's state folder.

    Raises:
        Denied: `root` is in a Hermes home.
    """

    has_files = True
    """Whether it is a folder; False if the database itself has the ledger."""

    shares_transactions = False
    """Whether the ledger is written in the transactions of the home."""

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

    @property
    def scope(self) -> str:
        """Return the name of the home in cursors."""
        return str(self.db_path)

    def load_home_name(self, db: StateDatabase) -> None:
        """Read the home id from an open database, so that the file need not be opened again."""
        # A Hermes home has no id and does not need it: its session ids are unique.
        is_foreign = db.admin.get_capabilities().foreign_gateway
        self.set_home_name(HERMES_OWNER if is_foreign else db.admin.get_home_id())

    def set_home_name(self, home: str | None) -> None:
        """Set the name that distinguishes this home from another with the same path and inode."""
        if home is not None:
            self._asked = _read_identity(self.db_path)
            if home != self._home:
                self._home, self._found = home, None

    def find(self) -> Path | None:
        """Return the folder, or None if nothing was stored for this home yet."""
        identity = _read_identity(self.db_path)
        if self._found is None or identity != self._seen or not self._found.is_dir():
            _, bound = self._locate_folder()
            self._found, self._seen = bound.folder if bound else None, identity
        return self._found

    def has_pins(self) -> bool:
        """Return True if sessions of this home were pinned outside its database."""
        folder = self.find()
        return folder is not None and (not self.has_files or (folder / PINS_FILE).exists())

    def make(self) -> Path:
        """Create the folder, durable and private to its owner, and return it.

        Raises:
            Denied: the folder may not be created, or would be in a Hermes home.
            StorageFull: the disk is full.
        """
        self.check_place()
        expected, existing = self._locate_folder()
        with translate_os_errors(expected.folder.parent):
            folder = existing.folder if existing else _choose_free_folder(expected)
            make_folder(folder)
            for path in (
                folder,
                *([folder.parent] if folder.parent.name == STATE_FOLDER_NAME else []),
            ):
                # An existing folder may be open to others, and the trash holds conversations.
                if path.stat().st_mode & 0o077:
                    path.chmod(_PRIVATE_MODE)
            home = expected.home or (existing.home if existing else None)
            binding = replace(expected, folder=folder, home=home)
            # After a move the path is new. A later search finds the folder by it.
            if existing != binding:
                _write_binding(binding)
        # The identity, because another database at this path is another home.
        self._found, self._seen = folder, (expected.device, expected.inode)
        return folder

    @property
    def place(self) -> Path:
        """Return the path of the folder, which need not exist."""
        expected, existing = self._locate_folder()
        return existing.folder if existing else expected.folder

    @property
    def is_adjacent(self) -> bool:
        """Return True if the folder belongs next to the database, as for a home of our own."""
        return self.place.parent.name == STATE_FOLDER_NAME

    @property
    def trash_name(self) -> str:
        """Return the name of the trash file in a folder that homes may share."""
        folder = self.make()
        return (
            _make_label(self.db_path, self._home)
            if folder.parent.name == STATE_FOLDER_NAME
            else folder.name
        )

    def check_place(self, trash_dir: Path | None = None) -> None:
        """Check that nothing would be stored in a Hermes home, whose copies would contain it.

        A folder for trash is denied in every home, because it is meant for another disk.

        Raises:
            Denied: the folder is in a home; the message names an alternative.
        """
        if self._is_hermes_home():
            instead = "set MCP_SESSIONS_STATE to another folder"
            self._require_outside(self.root, "pass another root" if self._is_named else instead)
        if trash_dir is not None:
            self._require_outside(trash_dir, "choose a trash folder elsewhere")

    def _require_outside(self, folder: Path, instead: str) -> None:
        home = Path(os.path.realpath(self.db_path.parent))
        if Path(os.path.realpath(folder)).is_relative_to(home):
            raise Denied(
                f"{folder} is in the home {home}, and nothing may be stored there; {instead}"
            )

    def _is_hermes_home(self) -> bool:
        home = self._get_home_id()
        if home is None and not self._has_database():
            folder = self.db_path.parent
            return is_hermes_folder(folder) and is_hermes_home(folder)
        return home in (None, HERMES_OWNER)

    def _has_database(self) -> bool:
        return _read_identity(self.db_path) != (None, None) and get_file_bytes(self.db_path) > 0

    def _get_home_id(self) -> str | None:
        """Return the id of the home, or None without a readable database."""
        identity = _read_identity(self.db_path)
        if self._home is None or identity != self._asked:
            self._home, self._asked = _read_home_id(self.db_path), identity
        return self._home

    def _locate_folder(self) -> tuple[FolderBinding, FolderBinding | None]:
        """Return the binding that the folder should have, and the existing binding or None."""
        expected = self._make_binding()
        existing: FolderBinding | None = None
        if not self._is_named and expected.home != HERMES_OWNER:
            adjacent = replace(expected, folder=self._get_adjacent_path())
            existing = _find_adjacent_binding(adjacent)
            if existing is not None or not self._is_hermes_home():
                # A folder from before the move next to the database stays in use.
                old = None if existing else self._find_binding(expected)
                return (expected, old) if old else (adjacent, existing)
        return expected, self._find_binding(expected)

    def _get_adjacent_path(self) -> Path:
        """Return the path next to the real database file, with links resolved."""
        real = Path(os.path.realpath(self.db_path))
        return real.parent / STATE_FOLDER_NAME / real.name

    def _make_binding(self) -> FolderBinding:
        home = self._get_home_id()
        device, inode = _read_identity(self.db_path)
        folder = self.root / _make_label(self.db_path, device, inode)
        return FolderBinding(folder, self.db_path, device, inode, home)

    def _find_binding(self, expected: FolderBinding) -> FolderBinding | None:
        """Return the existing binding of this home, by its path first, then by its inode."""
        bindings = [
            binding
            for binding in list_bindings(self.root)
            if _can_be_same_home(binding.home, expected.home)
        ]
        by_inode = {
            binding.inode: binding for binding in bindings if binding.db_path == expected.db_path
        }
        # Device numbers may change at a restart, so the path and the inode suffice.
        if expected.inode in by_inode:
            return by_inode[expected.inode]
        for binding in bindings:
            same = (binding.device, binding.inode) == (expected.device, expected.inode)
            if same and expected.inode is not None:
                return binding
        return by_inode.get(None)


def _find_adjacent_binding(expected: FolderBinding) -> FolderBinding | None:
    """Return the folder of a home next to its database, also after the file was renamed."""
    for folder in dict.fromkeys((expected.folder, _make_distinct_path(expected))):
        binding = _read_binding(folder)
        if binding is not None and _can_be_same_home(binding.home, expected.home):
            return binding
    if expected.home is None:
        return None
    parent, databases = expected.folder.parent, expected.folder.parent.parent
    for binding in list_bindings(parent):
        # A folder whose own database is still this home belongs to a copy, and is not taken from
        # it.
        if binding.home == expected.home != _read_home_id(databases / binding.db_path.name):
            return binding
    return None


def _read_home_id(db_path: Path) -> str | None:
    """Return the home id that a database stores, or None if it cannot be read."""
    try:
        return find_owner(db_path)
    except (Corrupt, Denied, NotFound, Unsupported):
        return None


def list_bindings(root: Path | None = None) -> list[FolderBinding]:
    """Return the bindings of all state folders, including folders of missing homes."""
    root = find_state_root() if root is None else root
    with translate_os_errors(root):
        try:
            folders = sorted(path for path in root.iterdir() if path.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []
    bindings = (_read_binding(folder) for folder in folders)
    return [binding for binding in bindings if binding is not None]


@contextmanager
def translate_os_errors(path: Path) -> Iterator[None]:
    """Raise `OSError` as an error of this library."""
    try:
        yield
    except OSError as error:
        raise _make_os_error(path, error) from error


def _make_os_error(path: Path, error: OSError) -> SessionError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"no space left for {path}; free some space, then try again")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        if not os.path.lexists(path):
            return Denied(f"{path} cannot be created; check the permissions of its folder")
        return Denied(f"{path} may not be read or written; check its permissions")
    next_ = "check what it is" if error.errno in _OBSTRUCTION_ERRNOS else "check the disk"
    return StorageError(f"{path} cannot be used: {error.strerror}; {next_}, then try again")


def _read_identity(path: Path) -> _Identity:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    except OSError as error:
        raise _make_os_error(path, error) from error
    return status.st_dev, status.st_ino


def _can_be_same_home(home: str | None, other: str | None) -> bool:
    return home is None or other is None or home == other


def _choose_free_folder(expected: FolderBinding) -> Path:
    """Return the folder for a home, or a distinct folder if another home has its name."""
    # If this home has it already, another process has just created it.
    existing = _read_binding(expected.folder)
    return (
        expected.folder
        if existing is None or _can_be_same_home(existing.home, expected.home)
        else _make_distinct_path(expected)
    )


def _make_distinct_path(expected: FolderBinding) -> Path:
    """Return the folder of a home whose usual name another home has."""
    suffix = f"-{expected.home[:_HOME_ID_LENGTH]}" if expected.home else ""
    return expected.folder.with_name(expected.folder.name + suffix)


def _make_label(db_path: Path, *marks: object) -> str:
    """Return a name for the folder or file of a home that is unique to it."""
    text = "\0".join(map(str, (db_path, *marks))).encode("utf-8", "surrogateescape")
    stem = db_path.parent.name.lstrip(".")[:_MAX_STEM_LENGTH] or "home"
    return f"{stem}-{hashlib.sha256(text).hexdigest()[:12]}"


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, each durable in its own parent."""
    missing = [path for path in (folder, *folder.parents) if not path.is_dir()]
    for path in reversed(missing):
        path.mkdir(mode=_PRIVATE_MODE, exist_ok=True)
        _atomic.sync_folder(path.parent)


def _write_binding(binding: FolderBinding) -> None:
    fields = {name: value for name, value in asdict(binding).items() if name != "folder"}
    text = json.dumps({**fields, "db_path": os.fspath(binding.db_path)}, indent=1)
    _atomic.write_atomic(binding.folder / _BINDING_FILE, [text.encode()], prefix=".home_")


def _read_binding(folder: Path) -> FolderBinding | None:
    """Return the binding stored in a folder, or None if it is missing or incomplete."""
    try:
        fields: Any = json.loads(_atomic.read_file(folder / _BINDING_FILE))
        path, home = Path(fields["db_path"]), fields.get("home")
        return FolderBinding(folder, path, fields["device"], fields["inode"], home)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


class MachineFolder:
    """The folder of this machine for a home in a database server, for files outside its database.

    The address of the home, without passwords, names the folder.
    """

    def __init__(self, address: str) -> None:
        digest = hashlib.sha256(address.encode("utf-8", "surrogatepass")).hexdigest()
        self._path = find_state_root() / f"address-{digest[:12]}"

    def find(self) -> Path | None:
        """Return the folder, or None if there is none."""
        return self._path if self._path.is_dir() else None

    def make(self) -> Path:
        """Create the folder, durable and private to its owner, and return it.

        Raises:
            Denied: the folder may not be created.
            StorageFull: the disk is full.
        """
        with translate_os_errors(self._path.parent):
            make_folder(self._path)
        return self._path
