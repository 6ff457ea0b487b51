"""What belongs to a session that is not there: rows, files, and locks of compressions that died.

A file is taken for one of a session by its name alone, and only by the names that are known: a
snapshot, a transcript whose name has the form of an id, a dump of a request, and what a killed
writer has left of the mirror. All others are somebody's own, sessions.json above all.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from session_core.ledger.state_folder import translate_os_errors
from session_core.maintenance.select import protection
from session_core.maintenance.select.snapshot import NO_FILTER, MaintenanceSnapshot
from session_core.maintenance.types import (
    OrphanedFile,
    OrphanedRows,
    PlanRequest,
    ProtectionReason,
    SelectedSessions,
    Selection,
)
from session_core.routing.mirror import MIRROR_NAME, TEMP_PREFIX
from session_core.types import HomeFacts, InventoryItem

_SNAPSHOT, _DUMP = "session_", "request_dump_"
_ID_PATTERN = re.compile(r"(?:cron_[\w-]+_)?\d{8}_\d{6}(?:_(?:[0-9a-f]{6}|[0-9a-f]{8}))?\Z")
_SAFE_PATTERN = re.compile(r"[\w-]+\Z")
_DUMP_PATTERN = re.compile(r".+_\d{8}_\d{6}(?:_\d+)?\Z")
_MAX_NAME_LENGTH = 96


def select_orphaned_rows(
    scene: MaintenanceSnapshot, facts: HomeFacts, wanted: PlanRequest
) -> Selection[OrphanedRows]:
    """Choose the rows of sessions that are not there, table by table.

    Where a chat is still led to such a session, its next message makes it again, with these rows.
    What one table tells of when it was gone on with is true of its rows in all of them.
    """
    chosen: list[OrphanedRows] = []
    protected: Counter[ProtectionReason] = Counter()
    cutoff = scene.get_cutoff(wanted)
    fresh = {o.session_id for o in facts.orphans if o.last_at is not None and o.last_at >= cutoff}
    for each in facts.orphans if wanted.where == NO_FILTER else ():
        if each.session_id in scene.conversations.stocks:
            continue
        if each.session_id in scene.alive.routes:
            protected["routed"] += 1
        elif scene.alive.company.describe_active_user(each.session_id, 0, routed=False) is not None:
            protected["live"] += 1
        elif each.session_id in fresh:
            protected["fresh"] += 1
        else:
            name = f"{each.table}/{each.session_id}"
            why = f"of session {each.session_id}, which is not there"
            chosen.append(
                OrphanedRows(name, why, each.table, each.column, each.session_id, each.rows)
            )
    return Selection.from_items(chosen, protected)


def select_broken_links(
    scene: MaintenanceSnapshot, wanted: PlanRequest
) -> Selection[SelectedSessions]:
    """Choose the sessions that are to lose their parent: one that is not there, or a descendant.

    Of a cycle that is the one that began first, which is where its conversation begins.
    """
    chosen: list[SelectedSessions] = []
    protected: Counter[ProtectionReason] = Counter()
    broken = [
        (each, f"its parent {each.parent_id} is not there")
        for each in scene.conversations.parentless_sessions
    ]
    cycles = scene.conversations.cycles
    broken += [
        (each[0], f"in a circle of {len(each)}, each the next one's parent") for each in cycles
    ]
    allows = scene.build_session_filter(wanted.where)
    for session, why in broken:
        if not allows(session):
            continue
        routed = session.id in scene.alive.routes
        active_at = session.last_active_at
        if (
            scene.alive.company.describe_active_user(session.id, active_at, routed=routed)
            is not None
        ):
            protected["live"] += 1
        else:
            chosen.append(SelectedSessions(session.id, session.title, why, (), (session.id,)))
    return Selection.from_items(chosen, protected)


def select_dead_locks(
    scene: MaintenanceSnapshot, facts: HomeFacts, wanted: PlanRequest
) -> Selection[OrphanedRows]:
    """Choose the locks of compressions that ran out so long ago."""
    cutoff = scene.get_cutoff(wanted)
    stocks, allows = scene.conversations.stocks, _build_filter(scene, wanted)
    return Selection(
        tuple(
            OrphanedRows(
                id=f"compression_locks/{each.session_id}",
                why=f"ran out {protection.format_age(each.expires_at, scene.now)}",
                table="compression_locks",
                column="session_id",
                session_id=each.session_id,
                rows=1,
            )
            for each in facts.claims
            if each.kind == "compression" and each.session_id is not None
            if each.expires_at is not None and each.expires_at < cutoff
            if allows(stocks.get(each.session_id))
        )
    )


def _build_filter(
    scene: MaintenanceSnapshot, wanted: PlanRequest
) -> Callable[[InventoryItem | None], bool]:
    """Return whether a filter is true of a session that may not be there."""
    allows, any_of_them = scene.build_session_filter(wanted.where), wanted.where == NO_FILTER
    return lambda stock: any_of_them if stock is None else allows(stock)


def select_orphaned_files(
    scene: MaintenanceSnapshot, folder: Path, wanted: PlanRequest
) -> Selection[OrphanedFile]:
    """Choose the files of sessions that are not there, where nothing was written for so long."""
    chosen: list[OrphanedFile] = []
    protected: Counter[ProtectionReason] = Counter()
    cutoff = scene.get_cutoff(wanted)
    alive = scene.alive
    known = {*scene.conversations.stocks, *alive.routes, *alive.company.leases}
    names = FileOwners(known)
    for path, found in _iter_files(folder) if wanted.where == NO_FILTER else ():
        owner = names.find_owner(path.name)
        if owner is None or owner in known:
            continue
        if found.st_mtime >= cutoff:
            protected["fresh"] += 1
            continue
        words = "left by a writer that was killed" if not owner else "its session is not there"
        why = f"{words}, written {protection.format_age(found.st_mtime, scene.now)}"
        chosen.append(OrphanedFile(path.name, why, path, found.st_size, found.st_mtime_ns))
    return Selection.from_items(chosen, protected)


def find_session_files(folder: Path, session_ids: Collection[str]) -> dict[str, list[Path]]:
    """Return the files of sessions, by their ids, in one look at the folder; links are among them.

    Whoever keeps them leaves what is no ordinary file, and says so.
    """
    names = FileOwners(session_ids)
    found: dict[str, list[Path]] = {}
    for path, _ in _iter_files(folder, ordinary=False):
        owner = names.find_owner(path.name)
        if owner in names.known:
            found.setdefault(str(owner), []).append(path)
    return found


class FileOwners:
    """Of which session a file is, by its name."""

    def __init__(self, session_ids: Iterable[str]) -> None:
        self.known = frozenset(session_ids)
        self._by_safe: Mapping[str, str] = {make_safe_name(each): each for each in self.known}

    def find_owner(self, name: str) -> str | None:
        """Return the session of a file: its id where that is known, else what stands in the name.

        None where it is no file of a session, nothing for what a killed writer has left.
        """
        if name == MIRROR_NAME or (name[:1] == "." and not name.startswith(TEMP_PREFIX)):
            return None
        stem, dot, suffix = name.rpartition(".")
        if name.startswith(TEMP_PREFIX):
            return "" if suffix == "tmp" else None
        if not dot or suffix not in ("json", "jsonl"):
            return None
        if suffix == "json" and stem.startswith(_DUMP):
            return self._find_dump_owner(stem.removeprefix(_DUMP))
        if stem in self.known:
            return stem
        if suffix == "json" and stem.startswith(_SNAPSHOT):
            safe = stem.removeprefix(_SNAPSHOT)
            return self._by_safe.get(safe, safe if _SAFE_PATTERN.match(safe) else None)
        return stem if _ID_PATTERN.match(stem) else None

    def _find_dump_owner(self, stem: str) -> str | None:
        """Return whose dump this is: a session that is there, else one by the time behind it."""
        ends = [place for place, sign in enumerate(stem) if sign == "_"]
        for end in reversed(ends):
            for owner in (self._by_safe.get(stem[:end]), stem[:end]):
                if owner in self.known:
                    return owner
        return stem if _DUMP_PATTERN.match(stem) else None


def make_safe_name(session_id: str) -> str:
    """Return what stands for an id in the name of a file."""
    safe = re.sub(r"[^\w-]", "_", session_id).strip("._")[:_MAX_NAME_LENGTH]
    if safe == session_id != "":
        return safe
    digest = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{safe or 'session'}_{digest[:12]}"


def _iter_files(folder: Path, *, ordinary: bool = True) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the ordinary files in a folder; a link is none, and leads who knows where.

    Where others are asked for as well, all but folders.

    Raises:
        SessionError: the folder cannot be read.
    """
    if not folder.exists():
        return
    with translate_os_errors(folder), os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode) or not (ordinary or stat.S_ISDIR(found.st_mode)):
                yield folder / entry.name, found
