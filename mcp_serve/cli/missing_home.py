"""What is said where a home is asked for and none is there; nothing is made by looking."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

from mcp_serve.profiles import ServedProfiles
from session_core import NotFound, SessionDB, find_home

_DATABASE_NAME = "state.db"
_NAMING_SOURCES = ("--home", "MCP_SESSIONS_HOME", "HERMES_HOME")
"""By what a home is named, which is not there then by mistake."""

_BEGIN_ADVICE = (
    "start the agent once, import an export with `mcp-sessions import FILE`, or name another --home"
)
"""What begins a home; one of our own begins with whatever is written first."""


def require_home(served: ServedProfiles) -> None:
    """Refuse where a home or a profile was named, and there is none.

    Raises:
        NotFound: so it is; `nearest` has the homes that are close to it.
    """
    why = explain_wrong_name(served)
    if why is not None:
        path = served.get_path()
        raise NotFound(
            f"there is no home in {path} ({find_naming_source(served)}): {why}; "
            f"{suggest_remedy(path)}",
            nearest=tuple(map(str, _find_similar_homes(path))),
        )


def explain_wrong_name(served: ServedProfiles) -> str | None:
    """Return why what was named is no home, None where there is one or none was named.

    An empty file was a database, or is to be one; where it is does not matter.
    """
    is_named = find_home(served.options.home).found_by in _NAMING_SOURCES or served.options.profiles
    paths = [served.get_path(name) for name in served.names]
    reasons = [find_missing_reason(path) for path in paths]
    return reasons[0] if all(reasons) and (is_named or has_empty_database(paths[0])) else None


def format_missing_note(served: ServedProfiles) -> str | None:
    """Return the sentence that there is no home yet, None where there is one, or several are."""
    path = served.get_path()
    missing = find_missing_reason(path) if len(served.names) == 1 else None
    return (
        None
        if missing is None
        else f"There is no home yet in {path}: {missing}; {suggest_remedy(path)}."
    )


def find_missing_reason(path: Path) -> str | None:
    """Return why a folder is no home, None where it is one."""
    database = find_home(path).db_path
    if _is_file(path) and path != database:
        return f"it is a file; a home is a folder with a {_DATABASE_NAME}"
    if has_empty_database(path):
        return f"its {database.name} is empty"
    if _is_present(database) or _is_hermes_home(database):
        return None
    if path == database:
        return "the file does not exist"
    return f"it has no {_DATABASE_NAME}" if path.is_dir() else "the folder does not exist"


def _is_hermes_home(database: Path) -> bool:
    with SessionDB(database, read_only=True, in_hermes_home=True) as db:
        return db.kind == "absent"


def suggest_remedy(path: Path) -> str:
    """Return what can be done about it."""
    if _is_file(path) and path != find_home(path).db_path:
        return "name a folder with --home"
    if has_empty_database(path):
        return "restore a backup, or remove the file to start anew"
    return _BEGIN_ADVICE


def has_empty_database(path: Path) -> bool:
    """Whether there is a database in a home with nothing in it, not even that it is one."""
    database = find_home(path).db_path
    try:
        return database.is_file() and not database.stat().st_size
    except OSError:  # where nobody may look, opening it says so
        return False


def find_naming_source(served: ServedProfiles) -> str:
    """Return by what the home, or the first of its profiles, was chosen."""
    name = served.names[0]
    return find_home(served.options.home).found_by if name == "default" else f"--profile {name}"


def _find_similar_homes(path: Path) -> Iterator[Path]:
    """Yield the homes above, in and beside a folder, whose name may have been meant."""
    siblings = {each.name: each for each in _list_folders(path.parent)}
    close = difflib.get_close_matches(path.name, siblings)
    meant = (path.parent, *_list_folders(path), *(siblings[name] for name in close))
    return (each for each in meant if each != path and _has_database(each))


def _has_database(path: Path) -> bool:
    return _is_file(path / _DATABASE_NAME) and not has_empty_database(path)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _list_folders(path: Path) -> list[Path]:
    try:
        return sorted(each for each in path.iterdir() if each.is_dir())
    except OSError:
        return []


def _is_present(path: Path) -> bool:
    """Whether something is there; where nobody may look there may be, which opening it says."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True
