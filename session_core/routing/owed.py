"""What the hooks are owed: boundaries that are stored in the entry of a chat, and not told yet.

They stand in the same text as the change that makes them, so that both are stored or neither. What
begins to be told leaves the entry just before: a hook that began counts as told.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from session_core.errors import InvalidInput
from session_core.keys import check_session_id
from session_core.routing.entries import UNTOLD, SessionEntry


@dataclass(frozen=True, slots=True)
class Owed:
    """A boundary that is to be told; `holder` is who does it, since when."""

    id: str
    holder: str
    since: str
    new_session_id: str
    reason: str
    old_session_id: str | None = None
    """The session whose end is to be told, None where it was."""

    used_at: str | None = None
    """When that was last used."""


def owed_by(entry: SessionEntry) -> list[Owed]:
    """Return what is owed, the oldest first; what cannot be read says nothing."""
    stored = entry.extra.get(UNTOLD)
    found = (_parsed(item) for item in stored) if isinstance(stored, list) else ()
    return [owed for owed in found if owed is not None]


def owe(entry: SessionEntry, owed: Owed) -> None:
    """Note what is owed, behind what is owed already."""
    _put(entry, [*owed_by(entry), owed])


def take_over(entry: SessionEntry, *, owed: Owed, mine: Owed) -> bool:
    """Let somebody else tell it; return whether it still was as it was read."""
    return owed in owed_by(entry) and _change(entry, owed, lambda _: mine)


def begin_finalize(entry: SessionEntry, owed: Owed) -> bool:
    """Note that the end is being told; return whether that was left to do."""
    if not any(now.id == owed.id and now.old_session_id for now in owed_by(entry)):
        return False
    return _change(entry, owed, lambda now: replace(now, old_session_id=None))


def begin_reset(entry: SessionEntry, owed: Owed) -> bool:
    """Note that the beginning is being told, with which nothing is owed any more."""
    return _change(entry, owed, lambda _: None)


def owe_as(entry: SessionEntry, current: SessionEntry) -> None:
    """Let an entry owe what is owed by now, where nothing else of it was changed meanwhile."""
    if without_owed(entry.stored) == without_owed(current.stored) and entry.stored is not None:
        entry.stored = current.stored
        _put(entry, owed_by(current))


def without_owed(text: str | None) -> str | None:
    """Return the text of an entry as it is when all was told."""
    if text is None or UNTOLD not in text:
        return text
    stored = json.loads(text)
    stored.pop(UNTOLD, None)
    return json.dumps(stored)


def _change(entry: SessionEntry, owed: Owed, change: Callable[[Owed], Owed | None]) -> bool:
    there = owed_by(entry)
    is_it = [(now.id, now.holder) == (owed.id, owed.holder) for now in there]
    if not any(is_it):
        return False
    changed = (change(now) if it else now for now, it in zip(there, is_it, strict=True))
    _put(entry, [now for now in changed if now is not None])
    return True


def _put(entry: SessionEntry, owed: list[Owed]) -> None:
    entry.extra.pop(UNTOLD, None)
    if owed:
        entry.extra[UNTOLD] = [
            {name: value for name, value in asdict(one).items() if value} for one in owed
        ]


def _parsed(item: Any) -> Owed | None:
    try:
        owed = Owed(**item)
        for session_id in (owed.new_session_id, owed.old_session_id):
            if session_id is not None:
                check_session_id(session_id)
    except (TypeError, InvalidInput):
        return None
    given = [value for value in asdict(owed).values() if value is not None]
    return owed if all(isinstance(value, str) for value in given) else None
