"""Entries outside the table of routes, and their adoption into it.

sessions.json alone has them if an older version or another machine has written it. The table has
them under another folder if the home was moved.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from session_core.errors import Conflict
from session_core.routing.recovery import is_gone
from session_core.state.protocol import StateDatabase


@dataclass(slots=True)
class StrayEntries:
    """Entries outside the table, by key, and values that are not entries.

    `broken` holds the unreadable rows that some of the entries replace, `former` the rows of the
    former folder `scope`.
    """

    entries: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    scope: str = ""
    former: dict[str, str] = field(default_factory=dict)
    unreadable: dict[str, Any] = field(default_factory=dict)

    def forget_unreadable(self, keys: Iterable[str]) -> None:
        """Remove unreadable values whose keys have an entry now."""
        for key in keys:
            self.unreadable.pop(key, None)


def find_strays(
    db: StateDatabase,
    scope: str,
    stored: Mapping[str, Any],
    parse: Callable[[str, str], object | None],
) -> StrayEntries:
    """Return entries that the table lacks: those of the former folder, then those of the file."""
    strays = StrayEntries()
    rows = db.routes.load_entries(scope=scope)
    if not rows:
        strays.scope = _find_former_scope(db, scope)
        if strays.scope:
            strays.former = db.routes.load_entries(scope=strays.scope)
            strays.entries |= strays.former
    for key, value in stored.items():
        text, row = json.dumps(value), rows.get(key)
        # A readable row wins over the file; a broken one is replaced by a readable entry.
        if key in strays.entries or (row and (row == text or parse(key, row) is not None)):
            continue
        if can_be_stored(key) and parse(key, text) is not None:
            strays.entries[key] = text
            strays.broken |= {} if row is None else {key: row}
        elif row is None:
            strays.unreadable[key] = value
    return strays


def adopt_strays(db: StateDatabase, scope: str, strays: StrayEntries) -> None:
    """Store stray entries in the table, in one transaction.

    The rows of the former folder are removed unless a store may come back there.
    """
    has_moved = bool(strays.former) and _has_moved(db, scope, strays.scope)
    # One transaction, so that a kill leaves the rows of the former folder.
    with db.transaction():
        for key, text in strays.entries.items():
            try:
                row = strays.broken.get(key)
                db.routes.save_entry(key, text, scope=scope, expect=row)
            except Conflict:
                continue  # another process has stored it meanwhile
        if has_moved:
            db.routes.delete_entries(strays.former, scope=strays.scope)


def can_be_stored(key: str) -> bool:
    """Return True if a key can be a key of the table; a lone surrogate cannot."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def _find_former_scope(db: StateDatabase, scope: str) -> str:
    """Return the missing folder that was written last.

    If a folder that exists was written later, this home is a copy of that one, and adopts no
    entries of the folders that the original left before.
    """
    for other in db.routes.list_scopes():
        if other != scope and is_gone(other):
            return other
        if other != scope and _is_original(db, scope, other):
            break
    return ""


def _is_original(db: StateDatabase, scope: str, other: str) -> bool:
    """Return True if another home has the folder at the same place, and a database of that name."""
    home_parts, other_folder = _get_home_parts(db, scope), Path(other)
    if not home_parts or db.path is None or other_folder.parts[-len(home_parts) :] != home_parts:
        return False
    return (other_folder.parents[len(home_parts) - 1] / db.path.name).is_file()


def _get_home_parts(db: StateDatabase, scope: str) -> tuple[str, ...]:
    """Return the parts of a folder below the folder of its database, or () if it is elsewhere."""
    home, folder = db.folder.resolve() if db.folder else None, PurePath(scope)
    return folder.relative_to(home).parts if home and folder.is_relative_to(home) else ()


def _has_moved(db: StateDatabase, scope: str, former: str) -> bool:
    """Return True if the home was in the former folder and moved here with its database.

    If the folders have another place relative to their database, the home stayed and one of its
    stores is temporarily missing. Another process that has the database open may see the folder.
    """
    home_parts, former_folder = _get_home_parts(db, scope), PurePath(former)
    if not home_parts or db.folder is None or former_folder.is_relative_to(db.folder.resolve()):
        return False
    return former_folder.parts[-len(home_parts) :] == home_parts and not db.admin.list_holders()
