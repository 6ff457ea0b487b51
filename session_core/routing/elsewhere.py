"""Entries that are not in the table under the folder of the store: where they are, and their move.

They are in sessions.json alone, where an older version or another machine has written it, or in the
table under the folder in which this home once was.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from session_core.errors import Conflict
from session_core.state.contract import StateDatabase


@dataclass(slots=True)
class Strays:
    """Texts of entries by their keys, those of a former folder, and what is no entry.

    Some stand for a row that is none: `broken` has that.
    """

    entries: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    scope: str = ""
    former: dict[str, str] = field(default_factory=dict)
    unreadable: dict[str, Any] = field(default_factory=dict)

    def forget(self, keys: Iterable[str]) -> None:
        """Forget what another entry has taken the place of."""
        for key in keys:
            self.unreadable.pop(key, None)


def find_strays(
    db: StateDatabase,
    scope: str,
    stored: Mapping[str, Any],
    parse: Callable[[str, str], object | None],
) -> Strays:
    """Return what the table lacks: first from where the home once was, then from the file."""
    found = Strays()
    known = db.load_gateway_routing_entries(scope=scope)
    if not known:
        found.scope = _former(db, scope)
        if found.scope:
            found.former = db.load_gateway_routing_entries(scope=found.scope)
            found.entries |= found.former
    for key, value in stored.items():
        text, row = json.dumps(value), known.get(key)
        if key in found.entries or (row and (row == text or parse(key, row) is not None)):
            continue
        if can_be_stored(key) and parse(key, text) is not None:
            found.entries[key] = text
            found.broken |= {} if row is None else {key: row}
        elif row is None:
            found.unreadable[key] = value
    return found


def settle_strays(db: StateDatabase, scope: str, found: Strays) -> None:
    """Store in the table what was found, in one step.

    Nothing stays where the home once was, unless a store may come back there.
    """
    moved = bool(found.former) and _has_moved(db, scope, found.scope)
    with db.transaction():
        for key, text in found.entries.items():
            try:
                row = found.broken.get(key)
                db.save_gateway_routing_entry(key, text, scope=scope, expect=row)
            except Conflict:
                continue  # somebody else has put it there meanwhile
        if moved:
            db.delete_gateway_routing_entries(found.former, scope=found.scope)


def can_be_stored(key: str) -> bool:
    """Whether a key of the file can be one of the table: half a character cannot."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_gone(folder: str) -> bool:
    """Whether this is a folder of which nothing is there; one that may not be looked at is."""
    if not os.path.isabs(folder):  # noqa: PTH117 -- text
        return False
    try:
        os.stat(folder)  # noqa: PTH116 -- text
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return False


def _former(db: StateDatabase, scope: str) -> str:
    """Return the folder that is not there any more and was written last.

    If a home that is there was written later, this one is its copy, and takes nothing of the
    folders that the home left before.
    """
    for other in db.gateway_routing_scopes():
        if other != scope and is_gone(other):
            return other
        if other != scope and _is_original(db, scope, other):
            break
    return ""


def _is_original(db: StateDatabase, scope: str, other: str) -> bool:
    """Return True if the folder lies in a home as ours does, with a database of the same name."""
    inside, there = _place_in_home(db, scope), Path(other)
    if not inside or db.path is None or there.parts[-len(inside) :] != inside:
        return False
    return (there.parents[len(inside) - 1] / db.path.name).is_file()


def _place_in_home(db: StateDatabase, scope: str) -> tuple[str, ...]:
    """Return the parts of a folder below the folder of its database, none if it is elsewhere."""
    home, here = db.folder.resolve() if db.folder else None, PurePath(scope)
    return here.relative_to(home).parts if home and here.is_relative_to(home) else ()


def _has_moved(db: StateDatabase, scope: str, former: str) -> bool:
    """Whether a home was there, and is here now with its database, as far as can be told.

    Where the folders lie otherwise to their database, it stayed and only one of its stores is out
    of sight; where another process has it open, that may see the folder.
    """
    inside, there = _place_in_home(db, scope), PurePath(former)
    if not inside or db.folder is None or there.is_relative_to(db.folder.resolve()):
        return False
    return there.parts[-len(inside) :] == inside and not db.holders()
