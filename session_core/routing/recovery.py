"""The session of a chat whose route was lost or leads nowhere.

Entries that are not in the table under the folder of the store: where they are, and their move.

They are in sessions.json alone, where an older version or another machine has written it, or in the
table under the folder in which this home once was.

The ids of one person on WhatsApp, as the bridge of a Hermes home has noted that they are one.

It keeps a file for each id, `lid-mapping-ID.json`, with the id that it stands for, and one for the
way back, `lid-mapping-ID_reverse.json`. Of all that are connected the shortest stands for all.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any

from session_core._atomic import read_file
from session_core.chats import SessionSource, get_key_profile, normalize_text, normalize_whatsapp_id
from session_core.errors import Conflict
from session_core.state.protocol import StateDatabase
from session_core.types import SessionRow

RESUMABLE_REASONS = ("agent_close", "ws_orphan_reap", "superseded_by_resume", "startup_orphan_reap")
"""Ends that mean that only the agent was closed, not the conversation."""

_CUT_SHORT_REASONS = ("compression", "session_switch")
"""Ends of what somebody went on from, but not this chat, whose route still leads there: that died
before its continuation or the route was stored, or another chat has left the session they shared.
"""

CONTINUABLE_REASONS = (*RESUMABLE_REASONS, *_CUT_SHORT_REASONS)
"""Ends after which a chat goes on with the session that its route leads to."""

_UNFINISHED_REASONS = (*RESUMABLE_REASONS, "compression")

_POLICY_REASONS = ("idle", "daily")

_REQUESTED_REASONS = ("session_reset", "new_session")
"""Ends that somebody has asked for, before which nothing is gone on with."""


def find_session(
    db: StateDatabase,
    session_key: str,
    source: SessionSource,
    routed: str | None = None,
    profile: str = "",
    *,
    kept: bool = False,
) -> SessionRow | None:
    """Return the session that a chat can go on with, None where it begins afresh.

    First the newest session of the chat; then the one that the route led to, since somebody had
    switched to it, nothing says whose it is, or it was `kept` though others have ended it; then the
    newest that lives or can be resumed, down to the last reset, of the chat or of its route; and
    last the newest whose compression died before its continuation. One that ended by compression
    stands for its tip, whoever wrote that without the key of the chat. That of another profile than
    the key's or the home's is somebody else's conversation.
    """
    profiles = {get_key_profile(session_key), profile}
    newest = _find_newest(db, session_key, source)
    own = None if routed is None else db.get_session(routed)

    def goes_on(row: SessionRow, resumable: Collection[str | None]) -> bool:
        return (
            _has_profile(row, profiles)
            and not _is_before_reset(row, own)
            and _can_continue(db, row, resumable)
        )

    if newest is not None and goes_on(newest, RESUMABLE_REASONS):
        return newest
    if own is not None and _can_continue(
        db, own, (own["end_reason"],) if kept else CONTINUABLE_REASONS
    ):
        return own
    cut_short = None
    for row in _iter_since_reset(db, session_key, source):
        if goes_on(row, RESUMABLE_REASONS):
            return row
        if cut_short is None and goes_on(row, _CUT_SHORT_REASONS):
            cut_short = row
    return cut_short


def is_finally_ended(row: SessionRow | None) -> bool:
    """Whether a session has ended for good, which is told by whoever has ended it."""
    return (
        row is not None
        and row["ended_at"] is not None
        and row["end_reason"] not in _UNFINISHED_REASONS
    )


def is_ended_by_policy(row: SessionRow) -> bool:
    """Whether a policy has ended a session, by whichever of the chats that are in it."""
    if row["end_reason"] == "session_reset":
        return bool(row.get("expiry_finalized"))  # as a watcher leaves it
    return row["end_reason"] in _POLICY_REASONS


def parse_start_time(row: SessionRow) -> datetime | None:
    """Return when a session began, where that is a time that a calendar has."""
    try:
        return datetime.fromtimestamp(row["started_at"])  # noqa: DTZ006 -- local, as stored
    except (OverflowError, OSError, ValueError, TypeError):
        return None


def _is_before_reset(row: SessionRow, routed: SessionRow | None) -> bool:
    """Whether a session began before the one that the route leads to, and that was reset."""
    if routed is None or routed["end_reason"] not in _REQUESTED_REASONS:
        return False
    began, reset_began = parse_start_time(row), parse_start_time(routed)
    return began is not None and reset_began is not None and began <= reset_began


def _has_profile(row: SessionRow, profiles: Collection[str]) -> bool:
    return get_key_profile(row.get("session_key") or "") in {"", *profiles}


def _iter_since_reset(
    db: StateDatabase, session_key: str, source: SessionSource
) -> Iterator[SessionRow]:
    """Yield what lives, can be resumed or was compressed, newest first, down to a reset."""
    ended_as = (*RESUMABLE_REASONS, "compression", *_REQUESTED_REASONS)
    older_than, seen = None, set()
    while True:
        found = _find_latest(db, session_key, source, ended_as, older_than)
        tip = found and _find_tip(db, found)
        if found is None or tip is None or tip["end_reason"] in _REQUESTED_REASONS:
            return
        if tip["id"] not in seen:
            yield tip
        older_than = found["id"]
        seen.add(tip["id"])


def _find_newest(db: StateDatabase, session_key: str, source: SessionSource) -> SessionRow | None:
    newest = _find_latest(db, session_key, source)
    return newest and _find_tip(db, newest)


def _find_latest(
    db: StateDatabase,
    session_key: str,
    source: SessionSource,
    ended_as: Collection[str] | None = None,
    older_than: str | None = None,
) -> SessionRow | None:
    return db.find_latest_session_for_peer(
        source=str(source.platform),
        session_key=session_key,
        user_id=source.user_id,
        chat_id=source.chat_id,
        chat_type=source.chat_type,
        thread_id=source.thread_id,
        ended_as=ended_as,
        older_than=older_than,
    )


def _find_tip(db: StateDatabase, row: SessionRow) -> SessionRow | None:
    if row["end_reason"] != "compression":
        return row
    return db.get_session(db.get_compression_tip(row["id"]))


def _can_continue(db: StateDatabase, row: SessionRow, resumable: Collection[str | None]) -> bool:
    if row["ended_at"] is not None and row["end_reason"] not in resumable:
        return False
    return db.message_count(row["id"]) > 0


@dataclass(slots=True)
class StrayEntries:
    """Texts of entries by their keys, those of a former folder, and what is no entry.

    Some stand for a row that is none: `broken` has that.
    """

    entries: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    scope: str = ""
    former: dict[str, str] = field(default_factory=dict)
    unreadable: dict[str, Any] = field(default_factory=dict)

    def forget_unreadable(self, keys: Iterable[str]) -> None:
        """Forget what another entry has taken the place of."""
        for key in keys:
            self.unreadable.pop(key, None)


def find_strays(
    db: StateDatabase,
    scope: str,
    stored: Mapping[str, Any],
    parse: Callable[[str, str], object | None],
) -> StrayEntries:
    """Return what the table lacks: first from where the home once was, then from the file."""
    found = StrayEntries()
    known = db.load_gateway_routing_entries(scope=scope)
    if not known:
        found.scope = _find_former_scope(db, scope)
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


def adopt_strays(db: StateDatabase, scope: str, found: StrayEntries) -> None:
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


def _find_former_scope(db: StateDatabase, scope: str) -> str:
    """Return the folder that is not there any more and was written last.

    If a home that is there was written later, this one is its copy, and takes nothing of the
    folders that the home left before.
    """
    for other in db.list_gateway_routing_scopes():
        if other != scope and is_gone(other):
            return other
        if other != scope and _is_original(db, scope, other):
            break
    return ""


def _is_original(db: StateDatabase, scope: str, other: str) -> bool:
    """Return True if the folder lies in a home as ours does, with a database of the same name."""
    inside, there = _get_home_parts(db, scope), Path(other)
    if not inside or db.path is None or there.parts[-len(inside) :] != inside:
        return False
    return (there.parents[len(inside) - 1] / db.path.name).is_file()


def _get_home_parts(db: StateDatabase, scope: str) -> tuple[str, ...]:
    """Return the parts of a folder below the folder of its database, none if it is elsewhere."""
    home, here = db.folder.resolve() if db.folder else None, PurePath(scope)
    return here.relative_to(home).parts if home and here.is_relative_to(home) else ()


def _has_moved(db: StateDatabase, scope: str, former: str) -> bool:
    """Whether a home was there, and is here now with its database, as far as can be told.

    Where the folders lie otherwise to their database, it stayed and only one of its stores is out
    of sight; where another process has it open, that may see the folder.
    """
    inside, there = _get_home_parts(db, scope), PurePath(former)
    if not inside or db.folder is None or there.is_relative_to(db.folder.resolve()):
        return False
    return there.parts[-len(inside) :] == inside and not db.list_holders()


_SAFE_ID = re.compile(r"[A-Za-z0-9@.+-]+")
"""Ids that may become a part of a file name."""

_FILE_SUFFIXES = ("", "_reverse")

Stamp = tuple[int, int]


class WhatsAppAliases:
    """The ids of one home; a file is read again only when it was changed."""

    def __init__(self, home: Path) -> None:
        self._older = home / "whatsapp" / "session"
        self._newer = home / "platforms" / "whatsapp" / "session"
        self._read: dict[str, tuple[Stamp, str]] = {}

    def find_canonical(self, given: str) -> str:
        """Return the id that stands for the same person as this one."""
        folder = self._find_folder()
        found: set[str] = set()
        left = [given]
        while left:
            one = left.pop()
            if one not in found and _SAFE_ID.fullmatch(one):
                found.add(one)
                left += [
                    self._read_mapped_id(f"{folder}/lid-mapping-{one}{end}.json")
                    for end in _FILE_SUFFIXES
                ]
        return min(found, key=lambda one: (len(one), one), default=given)

    def _find_folder(self) -> Path:
        """Return the folder of the bridge: the older one where something is in it."""
        with suppress(OSError), os.scandir(self._older) as entries:
            if next(entries, None) is not None:
                return self._older
        return self._newer

    def _read_mapped_id(self, path: str) -> str:
        """Return the id that a file says, or nothing."""
        try:
            stat = os.stat(path)  # noqa: PTH116 -- text
        except (OSError, ValueError):
            return ""
        stamp = stat.st_mtime_ns, stat.st_size
        known = self._read.get(path)
        if known is None or known[0] != stamp:
            self._read[path] = known = stamp, _parse_id_file(path)
        return known[1]


def _parse_id_file(path: str) -> str:
    try:
        stored = json.loads(read_file(Path(path)))
    except (OSError, ValueError, RecursionError):
        return ""
    return normalize_whatsapp_id(normalize_text(stored) or "")
