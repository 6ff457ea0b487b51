"""Messages about missing homes and stores.

A check never creates a home.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

from mcp_serve.stores.homes import ServedHome
from mcp_serve.stores.stores import ServedStores
from session_core import NotFound, SessionDB, find_home

_DATABASE_NAME = "state.db"
_NAMING_SOURCES = ("--home", "MCP_SESSIONS_HOME", "HERMES_HOME")
"""Sources that name a home explicitly; if it is missing, that is an error."""

_BEGIN_ADVICE = (
    "start the agent once, import an export with `mcp-sessions import FILE`, or name another --home"
)
"""Ways to create a home; a home of our own begins with the first write."""

_ADDRESS_ADVICE = (
    "check home=NAME in the address, or let an agent or `mcp-sessions import FILE` make the home"
)


def require_store(served: ServedStores, *, home: bool = False) -> None:
    """Raise an error if there is no store, or with `home` if there is no home.

    Raises:
        NotFound: A named home does not exist, or there is nothing to read at all; `nearest` lists
            similar homes.
    """
    why = explain_wrong_name(served) if served.home_names else None
    if why is not None:
        first = served.get_home()
        raise NotFound(
            f"there is no home in {first.place} ({find_naming_source(served)}): {why}; "
            f"{suggest_remedy(first)}",
            nearest=tuple(map(str, _find_nearby_homes(first))),
        )
    if not served.home_names or (served.transcript_names and not home):
        return
    homes = served.get_homes()
    missing = [find_missing_reason(served_home) for served_home in homes]
    if all(missing):
        others = (
            "; transcripts of other agents are never changed"
            if served.transcript_names
            else ", and no transcripts of other agents"
        )
        raise NotFound(
            f"there is no home yet in {homes[0].place} ({missing[0]}){others}; "
            f"{suggest_remedy(homes[0])}"
        )


def explain_wrong_name(served: ServedStores) -> str | None:
    """Return the reason why the named path is not a home, or None.

    An empty database file is an error even at the default path.
    """
    is_named = find_home(served.options.home).found_by in _NAMING_SOURCES or served.options.stores
    homes = served.get_homes()
    reasons = [find_missing_reason(home) for home in homes]
    return (
        reasons[0]
        if reasons and all(reasons) and (is_named or has_empty_database(homes[0]))
        else None
    )


def list_needless_homes(served: ServedStores) -> list[str]:
    """Return the homes that do not exist and that nothing has named, next to transcripts."""
    if not served.transcript_names or explain_wrong_name(served) is not None:
        return []
    return [name for name in served.home_names if find_missing_reason(served.get_home(name))]


def find_missing_reason(home: ServedHome) -> str | None:
    """Return the reason why a place has no home, or None if it has a home."""
    path, database = home.place, home.db_path
    if database is None or not isinstance(path, Path):
        return home.explain_absence()
    if _is_file(path) and path != database:
        return f"it is a file; a home is a folder with a {_DATABASE_NAME}"
    if has_empty_database(home):
        return f"its {database.name} is empty"
    if _is_present(database) or _is_absent_hermes_database(database):
        return None
    if path == database:
        return "the file does not exist"
    return f"it has no {_DATABASE_NAME}" if path.is_dir() else "the folder does not exist"


def _is_absent_hermes_database(database: Path) -> bool:
    with SessionDB(database, read_only=True, in_hermes_home=True) as db:
        return db.kind == "absent"


def suggest_remedy(home: ServedHome) -> str:
    """Return advice for a place that has no home."""
    if not isinstance(home.place, Path):
        return _ADDRESS_ADVICE
    if _is_file(home.place) and home.place != home.db_path:
        return "name a folder with --home"
    if has_empty_database(home):
        return "restore a backup, or remove the file to start anew"
    return _BEGIN_ADVICE


def has_empty_database(home: ServedHome) -> bool:
    """Return True if the database file of a home exists with zero bytes."""
    return home.db_path is not None and _is_empty_file(home.db_path)


def _is_empty_file(path: Path) -> bool:
    try:
        return path.is_file() and not path.stat().st_size
    except OSError:  # not permitted; opening the database reports it
        return False


def find_naming_source(served: ServedStores) -> str:
    """Return the option, variable or default that chose the home or its first store."""
    home = find_home(served.options.home)
    return home.found_by if served.get_place() == home.place else f"--store {served.names[0]}"


def _find_nearby_homes(home: ServedHome) -> Iterator[Path]:
    """Yield homes above, inside and next to a folder, which may have been meant."""
    path = home.place
    if not isinstance(path, Path):
        return iter(())
    siblings = {folder.name: folder for folder in _list_folders(path.parent)}
    close = difflib.get_close_matches(path.name, siblings)
    meant = (path.parent, *_list_folders(path), *(siblings[name] for name in close))
    return (folder for folder in meant if folder != path and _has_database(folder))


def _has_database(path: Path) -> bool:
    return _is_file(path / _DATABASE_NAME) and not _is_empty_file(path / _DATABASE_NAME)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _list_folders(path: Path) -> list[Path]:
    try:
        return sorted(entry for entry in path.iterdir() if entry.is_dir())
    except OSError:
        return []


def _is_present(path: Path) -> bool:
    """Return True if a path exists or cannot be checked.

    Opening the path reports the error.
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True
