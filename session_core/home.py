"""The choice of the home to serve and the kind of a folder, without opening a database."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from session_core.errors import Unsupported

DATABASE_NAME = "state.db"

# A drive of Windows has one letter.
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)

DATABASE_SCHEMES = ("postgresql", "postgres")
DEFAULT_HOME_NAME = "main"
"""The home of an address that names none."""

# The options of an address that are neither secrets nor may hold one.
_SHOWN_OPTIONS = ("service", "host", "hostaddr", "port", "dbname", "user", "home", "schema")
_SECRET_OPTIONS = ("password", "sslpassword")
_HOST = re.compile(r"(?:[\w.\-%]*|\[[\da-fA-F:.%\w]+\])(?::\d*)?")

_FILE_SUFFIX = ".db"
_MAX_NAME_LENGTH = 200
_MIRROR_PATH = "sessions/sessions.json"
_HERMES_FOUND = "the home of Hermes"
_HOME_FILES = ("config.yaml", "gateway.json", _MIRROR_PATH)

OWN_HOME_NOTE = "This home was made by mcp-sessions"
"""Text at the start of the mirror file of our own homes."""

_EXPLANATION_BYTES = 2_000


def is_hermes_home(folder: Path) -> bool:
    """Return True if a folder found by search is a Hermes home, even without a database.

    Other folders are not judged by file names, which an application may use as well.
    """
    return any(_can_file_exist(folder / sign) for sign in _HOME_FILES) and not _has_own_mirror(
        folder
    )


def is_hermes_folder(folder: Path, environ: Mapping[str, str] | None = None) -> bool:
    """Return True for the folder of the installed Hermes or of one of its profiles."""
    env = os.environ if environ is None else environ
    named = [make_absolute(env["HERMES_HOME"])] if env.get("HERMES_HOME") else []
    roots = {os.path.realpath(root) for root in (*named, _find_default_hermes_home(env))}
    real = Path(os.path.realpath(folder))
    is_profile = real.parent.name == "profiles" and str(real.parent.parent) in roots
    return str(real) in roots or is_profile


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """The address of a home in a database server.

    As text it has no password.
    """

    address: str = field(repr=False)
    """The whole address, for the driver only: it may have a password."""

    @property
    def name(self) -> str:
        """The name of the home, which is also the name of its store."""
        return dict(self._list_options()).get("home") or DEFAULT_HOME_NAME

    @property
    def can_be_shown(self) -> bool:
        """True if the address surely has no password, so that it may be shown whole."""
        has_secret = any(name in _SECRET_OPTIONS for name, _ in self._list_options())
        return self._is_unambiguous() and ":" not in self._split_address()[1] and not has_secret

    def __str__(self) -> str:
        """Return the address without passwords, and without options that could hold one."""
        from urllib.parse import urlencode  # noqa: PLC0415 -- the first answer of a server does not need it

        scheme, user, hosts, database = self._split_address()
        if not self._is_unambiguous():
            return f"{scheme}://…"
        user = user.partition(":")[0] + "@" if user else ""
        shown_options = [
            (name, value) for name, value in self._list_options() if name in _SHOWN_OPTIONS
        ]
        options = f"?{urlencode(shown_options, safe='/,:')}" if shown_options else ""
        return f"{scheme}://{user}{hosts}{database}{options}"

    def _is_unambiguous(self) -> bool:
        """Return False if a password that is not escaped may look like another part."""
        _, _, hosts, database = self._split_address()
        query = self.address.partition("?")[2]
        is_split = not any(char in hosts + database + query for char in "@#")
        return is_split and all(map(_HOST.fullmatch, hosts.split(",")))

    def _split_address(self) -> tuple[str, str, str, str]:
        """Return the scheme, the user with a password, the hosts, and the path of the database."""
        scheme, _, rest = self.address.partition("://")
        authority, slash, database = rest.partition("?")[0].partition("/")
        user, _, hosts = authority.rpartition("@")
        return scheme, user, hosts, slash + database

    def _list_options(self) -> list[tuple[str, str]]:
        from urllib.parse import parse_qsl  # noqa: PLC0415 -- the first answer of a server does not need it

        return parse_qsl(self.address.partition("?")[2], keep_blank_values=True)


HomePlace = Path | DatabaseAddress
"""Where a home is: its folder, its database file, or an address."""


@dataclass(frozen=True, slots=True)
class Home:
    """The place of a state database and a session store, and how it was found.

    `place` is a folder, a file that ends in `.db`, or the address of a home in a database server.
    """

    place: HomePlace
    found_by: str

    @property
    def path(self) -> Path | None:
        """The folder or file, or None for an address."""
        return None if isinstance(self.place, DatabaseAddress) else self.place

    @property
    def db_path(self) -> Path | None:
        """The path of the state database, which need not exist, or None for an address."""
        return None if self.path is None else get_database_path(self.path)


def get_database_path(home: Path) -> Path:
    """Return the state database of a folder, or a file that ends in `.db` itself."""
    is_file = home.suffix == _FILE_SUFFIX and not home.is_dir()
    return home if is_file else home / DATABASE_NAME


def is_same_file(first: Path, second: Path) -> bool:
    """Return True if two paths name the same file, which need not exist."""
    try:
        return first.samefile(second)
    except OSError:
        return os.path.realpath(first) == os.path.realpath(second)


def find_home(
    explicit: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None
) -> Home:
    """Return the home to serve.

    The first of these is used: `explicit`, `MCP_SESSIONS_HOME`, `HERMES_HOME`, an installed Hermes
    home, or the data folder of the platform. The home need not exist.

    Args:
        explicit: a path, which is used literally, or an address.
        environ: the environment variables; by default, the variables of the process.

    Raises:
        Unsupported: an address has a scheme that no engine opens.
    """
    env = os.environ if environ is None else environ
    if explicit is not None:
        return Home(_parse_place(explicit, "--home"), "--home")
    for name in ("MCP_SESSIONS_HOME", "HERMES_HOME"):
        if env.get(name):
            return Home(_parse_place(env[name], name), name)
    # An installed Hermes is preferred to a new home of our own.
    default = _find_default_hermes_home(env)
    if _is_installed(default):
        return Home(default, _HERMES_FOUND)
    return Home(_find_own_home(env), "the data folder of this platform")


def find_scheme(text: str) -> str | None:
    """Return the scheme of an address, such as `postgresql`, or None for a path."""
    match = _SCHEME.match(text)
    return None if match is None else match[1].lower()


def _parse_place(home: str | os.PathLike[str], named_by: str) -> HomePlace:
    scheme = find_scheme(home) if isinstance(home, str) else None
    if isinstance(home, str) and scheme in DATABASE_SCHEMES and named_by != "HERMES_HOME":
        return DatabaseAddress(home)
    if scheme is not None:
        # The address itself may hold a password.
        raise Unsupported(
            f"{named_by} is an address that begins with {scheme}://; name a folder, a file that "
            "ends in .db, or, except for Hermes, a postgresql:// address"
        )
    return make_absolute(home)


def find_state_root(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder for state about homes, which need not exist."""
    env = os.environ if environ is None else environ
    if env.get("MCP_SESSIONS_STATE"):
        return make_absolute(env["MCP_SESSIONS_STATE"])
    # Platforms with one folder for everything use the plain name for our own home.
    shared = sys.platform in ("win32", "darwin")
    name = "mcp-sessions-state" if shared else "mcp-sessions"
    return _find_platform_folder(env, "XDG_STATE_HOME", "state") / name


def list_homes(home: Home, environ: Mapping[str, str] | None = None) -> dict[str, HomePlace]:
    """Return the homes that can be served, by store name, the given home first.

    `hermes` is a Hermes home, `hermes:NAME` is one of its profiles, and `own` is a home of our own.
    If the home has an address, its name is in the address. Homes at their usual places are included
    unless `--home` named another home.

    Args:
        home: the result of `find_home`.
        environ: the environment variables; by default, the variables of the process.
    """
    env = os.environ if environ is None else environ
    homes = _map_stores_of_home(home, env)
    if home.found_by != "--home":
        default, own = _find_default_hermes_home(env), _find_own_home(env)
        if "hermes" not in homes and _is_installed(default):
            homes |= _map_stores_of_home(Home(default, _HERMES_FOUND), env) | homes
        if _can_file_exist(own / DATABASE_NAME):
            homes.setdefault("own", own)
    return homes


def _map_stores_of_home(home: Home, env: Mapping[str, str]) -> dict[str, HomePlace]:
    """Return a home by store name, and the profiles of a Hermes home."""
    if isinstance(home.place, DatabaseAddress):
        return {home.place.name: home.place}
    # The kind of a database is known only when it is opened, so a folder is judged by its place
    # and its other files.
    folder = get_database_path(home.place).parent
    profiles = _list_profiles(home.place)
    is_found = home.found_by in ("HERMES_HOME", _HERMES_FOUND)
    if is_found or profiles or is_hermes_folder(folder, env) or is_hermes_home(folder):
        named: dict[str, HomePlace] = {f"hermes:{path.name}": path for path in profiles}
        return {"hermes": home.place, **named}
    return {"own": home.place}


def _list_profiles(root: Path) -> list[Path]:
    try:
        return sorted(path for path in (root / "profiles").iterdir() if path.is_dir())
    except OSError:
        return []


def find_active_profile(root: Path) -> str | None:
    """Return the profile that Hermes starts by default.

    It is reported, never followed.
    """
    from session_core._atomic import open_regular  # noqa: PLC0415 -- the first answer of a server does not need it

    try:
        with open_regular(root / "active_profile") as file:
            name = file.read(_MAX_NAME_LENGTH).decode("utf-8", "replace")
            return name.strip() or None
    except OSError:
        return None


def _is_installed(hermes: Path) -> bool:
    return _can_file_exist(hermes / DATABASE_NAME) or is_hermes_home(hermes)


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


def _can_file_exist(path: Path) -> bool:
    """Return True if a file exists, or if permissions hide whether it does."""
    try:
        path.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def make_absolute(path: str | os.PathLike[str]) -> Path:
    """Return a path with `~` expanded, without resolving links."""
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
