"""Entries that are not in the table under the folder of the store: where they are, and their move.

They are in sessions.json alone, where an older version or another machine has written it, or in the
table under the folder in which this home once was.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from session_core.errors import Conflict
from session_core.state.contract import StateDatabase


@dataclass(slots=True)
class Found:
    """Texts of entries by their keys, those of a former folder, and what is no entry."""

    entries: dict[str, str] = field(default_factory=dict)
    scope: str = ""
    former: dict[str, str] = field(default_factory=dict)
    unreadable: dict[str, Any] = field(default_factory=dict)

    def forget(self, keys: Iterable[str]) -> None:
        """Forget what another entry has taken the place of."""
        for key in keys:
            self.unreadable.pop(key, None)


def find(
    db: StateDatabase,
    scope: str,
    stored: Mapping[str, Any],
    parse: Callable[[str, str], object | None],
) -> Found:
    """Return what the table lacks: first from where the home once was, then from the file."""
    found = Found()
    known = db.load_gateway_routing_entries(scope=scope)
    if not known:
        found.scope = _former(db, scope)
        if found.scope:
            found.former = db.load_gateway_routing_entries(scope=found.scope)
            found.entries |= found.former
    for key, value in stored.items():
        if key in known or key in found.entries:
            continue
        text = json.dumps(value)
        if can_be_stored(key) and parse(key, text) is not None:
            found.entries[key] = text
        else:
            found.unreadable[key] = value
    return found


def settle(db: StateDatabase, scope: str, found: Found) -> None:
    """Store in the table what was found, in one step; nothing stays where the home once was."""
    with db.transaction():
        for key, text in found.entries.items():
            try:
                db.save_gateway_routing_entry(key, text, scope=scope, expect=None)
            except Conflict:
                continue  # somebody else has put it there meanwhile
        if found.former:
            db.delete_gateway_routing_entries(found.former, scope=found.scope)


def can_be_stored(key: str) -> bool:
    """Whether a key of the file can be one of the table: half a character cannot."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def _former(db: StateDatabase, scope: str) -> str:
    """Return the folder that is not there any more and was written last."""
    others = (other for other in db.gateway_routing_scopes() if other != scope)
    return next((other for other in others if os.path.isabs(other) and _is_gone(other)), "")  # noqa: PTH117 -- text


def _is_gone(folder: str) -> bool:
    """Whether nothing is there; a folder that may not be looked at is."""
    try:
        os.stat(folder)  # noqa: PTH116 -- text
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return False
