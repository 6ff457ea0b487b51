"""Recovery of routes: the session to continue, entries outside the table, and WhatsApp aliases.

Entries are outside the table if sessions.json alone has them, written by an older version or
another machine, or if the home was moved and the table has them under its former folder.

The WhatsApp bridge of a Hermes home keeps a file for each id, `lid-mapping-ID.json`, with the id
that it stands for, and one for the way back, `lid-mapping-ID_reverse.json`. The shortest of all
connected ids stands for the person.
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
"""End reasons that closed the agent but not the conversation."""

_CUT_SHORT_REASONS = ("compression", "session_switch")
"""End reasons of sessions that were left without the route of this chat: the process died before it
stored the continuation or the route, or another chat left the session that both shared.
"""

CONTINUABLE_REASONS = (*RESUMABLE_REASONS, *_CUT_SHORT_REASONS)
"""End reasons after which a chat continues the session of its route."""

_UNFINISHED_REASONS = (*RESUMABLE_REASONS, "compression")

_POLICY_REASONS = ("idle", "daily")

_REQUESTED_REASONS = ("session_reset", "new_session")
"""End reasons of requested resets; no earlier session is continued."""


def find_session(
    db: StateDatabase,
    session_key: str,
    source: SessionSource,
    routed: str | None = None,
    profile: str = "",
    *,
    kept: bool = False,
) -> SessionRow | None:
    """Return the session that a chat can continue, or None if it starts a new one.

    The candidates are, in this order:

    - the newest session of the chat;
    - the session of the route: the chat was switched to it, its row names no chat, or it is `kept`
      although other chats ended it;
    - the newest session that is open or resumable, back to the last reset of the chat or of its
      route;
    - the newest session whose compression was interrupted before its continuation.

    A session that ended by compression is replaced by its tip, even if the tip has no session key.
    A session of a profile other than that of the key or the home belongs to another conversation.
    """
    profiles = {get_key_profile(session_key), profile}
    newest = _find_newest(db, session_key, source)
    routed_row = None if routed is None else db.get_session(routed)

    def can_continue(row: SessionRow, resumable: Collection[str | None]) -> bool:
        return (
            _has_profile(row, profiles)
            and not _is_before_reset(row, routed_row)
            and _can_continue(db, row, resumable)
        )

    if newest is not None and can_continue(newest, RESUMABLE_REASONS):
        return newest
    if routed_row is not None and _can_continue(
        db, routed_row, (routed_row["end_reason"],) if kept else CONTINUABLE_REASONS
    ):
        return routed_row
    cut_short = None
    for row in _iter_since_reset(db, session_key, source):
        if can_continue(row, RESUMABLE_REASONS):
            return row
        if cut_short is None and can_continue(row, _CUT_SHORT_REASONS):
            cut_short = row
    return cut_short


def is_finally_ended(row: SessionRow | None) -> bool:
    """Return True if a session ended for good, so that its end is delivered by its ender."""
    return (
        row is not None
        and row["ended_at"] is not None
        and row["end_reason"] not in _UNFINISHED_REASONS
    )


def is_ended_by_policy(row: SessionRow) -> bool:
    """Return True if the reset policy of any of its chats ended a session."""
    if row["end_reason"] == "session_reset":
        return bool(row.get("expiry_finalized"))  # as a watcher leaves it
    return row["end_reason"] in _POLICY_REASONS


def parse_start_time(row: SessionRow) -> datetime | None:
    """Return the start time of a session, or None if it is not a valid time."""
    try:
        return datetime.fromtimestamp(row["started_at"])  # noqa: DTZ006 -- local, as stored
    except (OverflowError, OSError, ValueError, TypeError):
        return None


def _is_before_reset(row: SessionRow, routed: SessionRow | None) -> bool:
    """Return True if a session began before the session of the route, which was reset."""
    if routed is None or routed["end_reason"] not in _REQUESTED_REASONS:
        return False
    started_at, reset_started_at = parse_start_time(row), parse_start_time(routed)
    return (
        started_at is not None and reset_started_at is not None and started_at <= reset_started_at
    )


def _has_profile(row: SessionRow, profiles: Collection[str]) -> bool:
    return get_key_profile(row.get("session_key") or "") in {"", *profiles}


def _iter_since_reset(
    db: StateDatabase, session_key: str, source: SessionSource
) -> Iterator[SessionRow]:
    """Yield sessions that are open, resumable or compressed, newest first, back to a reset."""
    ended_as = (*RESUMABLE_REASONS, "compression", *_REQUESTED_REASONS)
    older_than, seen_ids = None, set()
    while True:
        row = _find_latest(db, session_key, source, ended_as, older_than)
        tip = row and _find_tip(db, row)
        if row is None or tip is None or tip["end_reason"] in _REQUESTED_REASONS:
            return
        if tip["id"] not in seen_ids:
            yield tip
        older_than = row["id"]
        seen_ids.add(tip["id"])


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
    rows = db.load_gateway_routing_entries(scope=scope)
    if not rows:
        strays.scope = _find_former_scope(db, scope)
        if strays.scope:
            strays.former = db.load_gateway_routing_entries(scope=strays.scope)
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
    with db.transaction():
        for key, text in strays.entries.items():
            try:
                row = strays.broken.get(key)
                db.save_gateway_routing_entry(key, text, scope=scope, expect=row)
            except Conflict:
                continue  # another process has stored it meanwhile
        if has_moved:
            db.delete_gateway_routing_entries(strays.former, scope=strays.scope)


def can_be_stored(key: str) -> bool:
    """Return True if a key can be a key of the table; a lone surrogate cannot."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_gone(folder: str) -> bool:
    """Return True if a folder does not exist; a folder that cannot be examined does."""
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
    """Return the missing folder that was written last.

    If a folder that exists was written later, this home is a copy of that one, and adopts no
    entries of the folders that the original left before.
    """
    for other in db.list_gateway_routing_scopes():
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
    return former_folder.parts[-len(home_parts) :] == home_parts and not db.list_holders()


_SAFE_ID = re.compile(r"[A-Za-z0-9@.+-]+")
"""Ids that may be part of a file name."""

_FILE_SUFFIXES = ("", "_reverse")

Stamp = tuple[int, int]


class WhatsAppAliases:
    """The WhatsApp ids of one home; a file is read again only after a change."""

    def __init__(self, home: Path) -> None:
        self._older = home / "whatsapp" / "session"
        self._newer = home / "platforms" / "whatsapp" / "session"
        self._read: dict[str, tuple[Stamp, str]] = {}

    def find_canonical(self, whatsapp_id: str) -> str:
        """Return the id that stands for the same person as this id."""
        folder = self._find_folder()
        connected_ids: set[str] = set()
        pending_ids = [whatsapp_id]
        while pending_ids:
            current_id = pending_ids.pop()
            if current_id not in connected_ids and _SAFE_ID.fullmatch(current_id):
                connected_ids.add(current_id)
                pending_ids += [
                    self._read_mapped_id(f"{folder}/lid-mapping-{current_id}{suffix}.json")
                    for suffix in _FILE_SUFFIXES
                ]
        return min(
            connected_ids, key=lambda current_id: (len(current_id), current_id), default=whatsapp_id
        )

    def _find_folder(self) -> Path:
        """Return the older folder of the bridge if it has files, else the newer one."""
        with suppress(OSError), os.scandir(self._older) as entries:
            if next(entries, None) is not None:
                return self._older
        return self._newer

    def _read_mapped_id(self, path: str) -> str:
        """Return the id in a file, or an empty string."""
        try:
            stat = os.stat(path)  # noqa: PTH116 -- text
        except (OSError, ValueError):
            return ""
        stamp = stat.st_mtime_ns, stat.st_size
        cached = self._read.get(path)
        if cached is None or cached[0] != stamp:
            self._read[path] = cached = stamp, _parse_id_file(path)
        return cached[1]


def _parse_id_file(path: str) -> str:
    try:
        stored = json.loads(read_file(Path(path)))
    except (OSError, ValueError, RecursionError):
        return ""
    return normalize_whatsapp_id(normalize_text(stored) or "")
