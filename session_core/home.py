"""Which home is served, and what kind of folder it is; nothing here opens a database."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DATABASE_NAME = "state.db"

_FILE_SUFFIX = ".db"
_MAX_NAME_LENGTH = 200
_MIRROR_PATH = "sessions/sessions.json"
_HOME_FILES = ("config.yaml", "gateway.json", _MIRROR_PATH)

OWN_HOME_NOTE = "This home was made by mcp-sessions"
"""What the explanation at the start of the mirror of a home of our own says."""

_EXPLANATION_BYTES = 2_000


def is_hermes_home(folder: Path) -> bool:
    """Return True if a folder that was found as a Hermes home is one, even without a database.

    An application may have files of these names, so other folders are not judged by them.
    """
    return any(_has_file(folder / sign) for sign in _HOME_FILES) and not _has_own_mirror(folder)


def is_hermes_folder(folder: Path, environ: Mapping[str, str] | None = None) -> bool:
    """Return True if this is the folder of the installed Hermes, or of a profile in it."""
    env = os.environ if environ is None else environ
    named = [_make_absolute(env["HERMES_HOME"])] if env.get("HERMES_HOME") else []
    roots = {os.path.realpath(root) for root in (*named, _find_default_hermes_home(env))}
    real = Path(os.path.realpath(folder))
    is_profile = real.parent.name == "profiles" and str(real.parent.parent) in roots
    return str(real) in roots or is_profile


@dataclass(frozen=True, slots=True)
class Home:
    """The folder with a state database and a session store, and how it was found.

    A home whose database has another name is named by that file, which ends in `.db`.
    """

    path: Path
    found_by: str

    @property
    def db_path(self) -> Path:
        """Where its state database is or will be."""
        is_file = self.path.suffix == _FILE_SUFFIX and not self.path.is_dir()
        return self.path if is_file else self.path / DATABASE_NAME


def is_same_file(one: Path, other: Path) -> bool:
    """Return True if two paths name one file, which need not be there."""
    try:
        return one.samefile(other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def find_home(
    explicit: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None
) -> Home:
    """Return the home to serve; a path that was given is taken literally, never skipped."""
    env = os.environ if environ is None else environ
    if explicit is not None:
        return Home(_make_absolute(explicit), "--home")
    for name in ("MCP_SESSIONS_HOME", "HERMES_HOME"):
        if env.get(name):
            return Home(_make_absolute(env[name]), name)
    default = _find_default_hermes_home(env)
    if _has_file(default / DATABASE_NAME) or is_hermes_home(default):
        return Home(default, "the home of Hermes")
    return Home(
        _find_platform_folder(env, "XDG_DATA_HOME", "share") / "mcp-sessions",
        "the data folder of this platform",
    )


def find_state_root(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder for what is kept about homes and not in them; it need not be there."""
    env = os.environ if environ is None else environ
    if env.get("MCP_SESSIONS_STATE"):
        return _make_absolute(env["MCP_SESSIONS_STATE"])
    # Where a platform has one folder for all of it, a home of our own is in there by that name.
    shared = sys.platform in ("win32", "darwin")
    name = "mcp-sessions-state" if shared else "mcp-sessions"
    return _find_platform_folder(env, "XDG_STATE_HOME", "state") / name


def list_profiles(root: Path) -> dict[str, Path]:
    """Return the homes below a root by name; `default` is the root itself, always."""
    folder = root / "profiles"
    try:
        below = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        below = []
    return {"default": root} | {path.name: path for path in below if path.name != "default"}


def find_active_profile(root: Path) -> str | None:
    """Return the profile in which Hermes starts where none is named; it is told, never followed."""
    from session_core._atomic import open_regular  # noqa: PLC0415 -- behind the first answer

    try:
        with open_regular(root / "active_profile") as file:
            name = file.read(_MAX_NAME_LENGTH).decode("utf-8", "replace")
            return name.strip() or None
    except OSError:
        return None


def _has_own_mirror(folder: Path) -> bool:
    """Return True if the mirror of the routes was written by us for a home of our own."""
    path = folder / _MIRROR_PATH
    try:
        if not path.is_file():  # a pipe would block the reader
            return False
        with path.open("rb") as file:
            return OWN_HOME_NOTE.encode() in file.read(_EXPLANATION_BYTES)
    except OSError:
        return False


def _has_file(path: Path) -> bool:
    """Whether there is such a file; where nobody may look there may be one, so that counts."""
    try:
        path.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def _make_absolute(path: str | os.PathLike[str]) -> Path:
    return Path(os.path.abspath(os.path.expanduser(path)))  # noqa: PTH100, PTH111 -- no symlink is resolved


def _find_user_folder(env: Mapping[str, str]) -> Path:
    return Path(env["HOME"]) if env.get("HOME") else Path.home()


def _find_default_hermes_home(env: Mapping[str, str]) -> Path:
    if sys.platform == "win32" and env.get("LOCALAPPDATA"):
        return Path(env["LOCALAPPDATA"]) / "hermes"
    return _find_user_folder(env) / ".hermes"


def _find_platform_folder(env: Mapping[str, str], variable: str, below_local: str) -> Path:
    """Return where programs keep what is theirs; `variable` and the last name are those of XDG."""
    if sys.platform == "win32" and env.get("LOCALAPPDATA"):
        return Path(env["LOCALAPPDATA"])
    if sys.platform == "darwin":
        return _find_user_folder(env) / "Library" / "Application Support"
    # By its specification a relative path in there is not valid and to be ignored.
    if Path(env.get(variable, "")).is_absolute():
        return Path(env[variable])
    return _find_user_folder(env) / ".local" / below_local
