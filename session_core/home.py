"""The choice of the home to serve and the kind of a folder, without opening a database."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from session_core.errors import Unsupported

DATABASE_NAME = "state.db"

# A drive of Windows has one letter.
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)

_FILE_SUFFIX = ".db"
_MAX_NAME_LENGTH = 200
_MIRROR_PATH = "sessions/sessions.json"
_HERMES_FOUND = "the home of Hermes"
_HOME_FILES = ("config.yaml", "gateway.json", _MIRROR_PATH)

OWN_HOME_NOTE = "This home was made by mcp-sessions"
"""Text at the start of the mirror file of our own homes."""

_EXPLANATION_BYTES = 2_000


def is_hermes_home(folder: Path) -> bool:
    """Return True if a folder that was found as a Hermes home is one, even without a database.

    Other folders are not judged by file names, which an application may use as well.
    """
    return any(_has_file(folder / sign) for sign in _HOME_FILES) and not _has_own_mirror(folder)


def is_hermes_folder(folder: Path, environ: Mapping[str, str] | None = None) -> bool:
    """Return True for the folder of the installed Hermes or of one of its profiles."""
    env = os.environ if environ is None else environ
    named = [_make_absolute(env["HERMES_HOME"])] if env.get("HERMES_HOME") else []
    roots = {os.path.realpath(root) for root in (*named, _find_default_hermes_home(env))}
    real = Path(os.path.realpath(folder))
    is_profile = real.parent.name == "profiles" and str(real.parent.parent) in roots
    return str(real) in roots or is_profile


@dataclass(frozen=True, slots=True)
class Home:
    """The folder of a state database and a session store, and how it was found.

    If the database has another name, `path` is that file, which ends in `.db`.
    """

    path: Path
    found_by: str

    @property
    def db_path(self) -> Path:
        """The path of the state database, which need not exist."""
        is_file = self.path.suffix == _FILE_SUFFIX and not self.path.is_dir()
        return self.path if is_file else self.path / DATABASE_NAME


def is_same_file(first: Path, second: Path) -> bool:
    """Return True if two paths name the same file, which need not exist."""
    try:
        return first.samefile(second)
    except OSError:
        return os.path.realpath(first) == os.path.realpath(second)


def find_home(
    explicit: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None
) -> Home:
    """Return the home to serve; an explicit path is used literally.

    Raises:
        Unsupported: the home is named by an address, which is not a path.
    """
    env = os.environ if environ is None else environ
    if explicit is not None:
        _require_path(explicit, "--home")
        return Home(_make_absolute(explicit), "--home")
    for name in ("MCP_SESSIONS_HOME", "HERMES_HOME"):
        if env.get(name):
            _require_path(env[name], name)
            return Home(_make_absolute(env[name]), name)
    # An installed Hermes is preferred to a new home of our own.
    default = _find_default_hermes_home(env)
    if _is_installed(default):
        return Home(default, _HERMES_FOUND)
    return Home(_find_own_home(env), "the data folder of this platform")


def find_scheme(text: str) -> str | None:
    """Return the scheme of an address, such as `postgresql`; None for a path."""
    match = _SCHEME.match(text)
    return None if match is None else match[1].lower()


def _require_path(home: str | os.PathLike[str], named_by: str) -> None:
    scheme = find_scheme(home) if isinstance(home, str) else None
    if scheme is not None:
        # The address itself may hold a password.
        raise Unsupported(
            f"{named_by} is an address that begins with {scheme}://, but must be a folder or a "
            "file that ends in .db; the library opens addresses with session_core.open_home"
        )


def find_state_root(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder for state about homes; it need not exist."""
    env = os.environ if environ is None else environ
    if env.get("MCP_SESSIONS_STATE"):
        return _make_absolute(env["MCP_SESSIONS_STATE"])
    # Platforms with one folder for everything use the plain name for our own home.
    shared = sys.platform in ("win32", "darwin")
    name = "mcp-sessions-state" if shared else "mcp-sessions"
    return _find_platform_folder(env, "XDG_STATE_HOME", "state") / name


def list_homes(home: Home, environ: Mapping[str, str] | None = None) -> dict[str, Path]:
    """Return the homes that can be served by store name, the given one first.

    `hermes` is a Hermes home, `hermes:NAME` one of its profiles, `own` a home of our own. Homes at
    their usual places are included unless `--home` named another one.
    """
    env = os.environ if environ is None else environ
    homes = _name_home(home, env)
    if home.found_by != "--home":
        default, own = _find_default_hermes_home(env), _find_own_home(env)
        if "hermes" not in homes and _is_installed(default):
            homes |= _name_home(Home(default, _HERMES_FOUND), env)
        if _has_file(own / DATABASE_NAME):
            homes.setdefault("own", own)
    return homes


def _name_home(home: Home, env: Mapping[str, str]) -> dict[str, Path]:
    """Return a home and, if it is one of Hermes, its profiles, by store name."""
    # The kind of a database is known only when it is opened, so a folder is judged by its place
    # and its other files.
    folder = home.db_path.parent
    profiles = _list_profiles(home.path)
    is_found = home.found_by in ("HERMES_HOME", _HERMES_FOUND)
    if is_found or profiles or is_hermes_folder(folder, env) or is_hermes_home(folder):
        return {"hermes": home.path} | {f"hermes:{path.name}": path for path in profiles}
    return {"own": home.path}


def _list_profiles(root: Path) -> list[Path]:
    try:
        return sorted(path for path in (root / "profiles").iterdir() if path.is_dir())
    except OSError:
        return []


def find_active_profile(root: Path) -> str | None:
    """Return the profile that Hermes starts by default; it is reported, never followed."""
    from session_core._atomic import open_regular  # noqa: PLC0415 -- behind the first answer

    try:
        with open_regular(root / "active_profile") as file:
            name = file.read(_MAX_NAME_LENGTH).decode("utf-8", "replace")
            return name.strip() or None
    except OSError:
        return None


def _is_installed(hermes: Path) -> bool:
    return _has_file(hermes / DATABASE_NAME) or is_hermes_home(hermes)


def _has_own_mirror(folder: Path) -> bool:
    """Return True if we wrote the mirror of the routes, for a home of our own."""
    path = folder / _MIRROR_PATH
    try:
        if not path.is_file():  # a pipe would block the reader
            return False
        with path.open("rb") as file:
            return OWN_HOME_NOTE.encode() in file.read(_EXPLANATION_BYTES)
    except OSError:
        return False


def _has_file(path: Path) -> bool:
    """Return True if a file exists, or if permissions hide whether it does."""
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


def _find_own_home(env: Mapping[str, str]) -> Path:
    return _find_platform_folder(env, "XDG_DATA_HOME", "share") / "mcp-sessions"


def _find_platform_folder(env: Mapping[str, str], variable: str, below_local: str) -> Path:
    """Return the platform's folder for application data, by XDG on Linux."""
    if sys.platform == "win32" and env.get("LOCALAPPDATA"):
        return Path(env["LOCALAPPDATA"])
    if sys.platform == "darwin":
        return _find_user_folder(env) / "Library" / "Application Support"
    # The XDG specification says that relative paths are invalid and must be ignored.
    if Path(env.get(variable, "")).is_absolute():
        return Path(env[variable])
    return _find_user_folder(env) / ".local" / below_local
