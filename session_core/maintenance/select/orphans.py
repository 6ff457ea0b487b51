"""Select data of missing sessions: rows, files, broken links and locks of dead compressions.

A file is matched to a session only by its name, and only by known forms: a snapshot, a transcript
named by an id, a dump of a request, and a temporary file of the mirror. All other files, above all
sessions.json, are left alone.
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
from session_core.maintenance.home_context import get_session_folder
from session_core.maintenance.members import PlanDraft
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
    snapshot: MaintenanceSnapshot, facts: HomeFacts, request: PlanRequest
) -> Selection[OrphanedRows]:
    """Select the rows of missing sessions, table by table.

    If a chat is still routed to such a session, its next message creates the session again, with
    these rows. The last activity in one table counts for the rows of the session in all tables.
    """
    selected: list[OrphanedRows] = []
    protected: Counter[ProtectionReason] = Counter()
    cutoff = snapshot.get_cutoff(request)
    fresh = {
        rows.session_id
        for rows in facts.orphans
        if rows.last_at is not None and rows.last_at >= cutoff
    }
    for orphan in facts.orphans if request.where == NO_FILTER else ():
        if orphan.session_id in snapshot.conversations.sessions:
            continue
        if orphan.session_id in snapshot.activity.routes:
            protected["routed"] += 1
        elif (
            snapshot.activity.company.describe_active_user(orphan.session_id, 0, routed=False)
            is not None
        ):
            protected["live"] += 1
        elif orphan.session_id in fresh:
            protected["fresh"] += 1
        else:
            name = f"{orphan.table}/{orphan.session_id}"
            reason = f"of session {orphan.session_id}, which does not exist"
            selected.append(
                OrphanedRows(
                    name, reason, orphan.table, orphan.column, orphan.session_id, orphan.rows
                )
            )
    return Selection.from_items(selected, protected)


def select_broken_links(
    snapshot: MaintenanceSnapshot, request: PlanRequest
) -> Selection[SelectedSessions]:
    """Select the sessions with a missing parent, or with a descendant as their parent.

    Of a cycle that is the oldest session, the root of its conversation.
    """
    selected: list[SelectedSessions] = []
    protected: Counter[ProtectionReason] = Counter()
    broken = [
        (session, f"its parent {session.parent_id} does not exist")
        for session in snapshot.conversations.parentless_sessions
    ]
    cycles = snapshot.conversations.cycles
    broken += [
        (cycle[0], f"in a cycle of {len(cycle)}, each the parent of the next") for cycle in cycles
    ]
    matches = snapshot.build_session_filter(request.where)
    for session, reason in broken:
        if not matches(session):
            continue
        routed = session.id in snapshot.activity.routes
        active_at = session.last_active_at
        if (
            snapshot.activity.company.describe_active_user(session.id, active_at, routed=routed)
            is not None
        ):
            protected["live"] += 1
        else:
            selected.append(SelectedSessions(session.id, session.title, reason, (), (session.id,)))
    return Selection.from_items(selected, protected)


def select_dead_locks(
    snapshot: MaintenanceSnapshot, facts: HomeFacts, request: PlanRequest
) -> Selection[OrphanedRows]:
    """Select the locks of compressions that expired before the cutoff."""
    cutoff = snapshot.get_cutoff(request)
    sessions, matches = snapshot.conversations.sessions, _build_filter(snapshot, request)
    return Selection(
        tuple(
            OrphanedRows(
                id=f"compression_locks/{claim.session_id}",
                why=f"ran out {protection.format_age(claim.expires_at, snapshot.now)}",
                table="compression_locks",
                column="session_id",
                session_id=claim.session_id,
                rows=1,
            )
            for claim in facts.claims
            if claim.kind == "compression" and claim.session_id is not None
            if claim.expires_at is not None and claim.expires_at < cutoff
            if matches(sessions.get(claim.session_id))
        )
    )


def _build_filter(
    snapshot: MaintenanceSnapshot, request: PlanRequest
) -> Callable[[InventoryItem | None], bool]:
    """Return a function that matches a session id against the filter.

    The session may be missing.
    """
    matches, is_unfiltered = (
        snapshot.build_session_filter(request.where),
        request.where == NO_FILTER,
    )
    return lambda session: is_unfiltered if session is None else matches(session)


def select_orphaned_files(
    snapshot: MaintenanceSnapshot, folder: Path, request: PlanRequest
) -> Selection[OrphanedFile]:
    """Select the files of missing sessions that were not written since the cutoff."""
    selected: list[OrphanedFile] = []
    protected: Counter[ProtectionReason] = Counter()
    cutoff = snapshot.get_cutoff(request)
    activity = snapshot.activity
    # A session that a route or a lease names may have files before it has a row.
    known_ids = {*snapshot.conversations.sessions, *activity.routes, *activity.company.leases}
    owners = FileOwners(known_ids)
    for path, file_stat in _iter_files(folder) if request.where == NO_FILTER else ():
        owner = owners.find_owner(path.name)
        if owner is None or owner in known_ids:
            continue
        if file_stat.st_mtime >= cutoff:
            protected["fresh"] += 1
            continue
        cause = "left by a killed writer" if not owner else "its session does not exist"
        reason = f"{cause}, written {protection.format_age(file_stat.st_mtime, snapshot.now)}"
        selected.append(
            OrphanedFile(path.name, reason, path, file_stat.st_size, file_stat.st_mtime_ns)
        )
    return Selection.from_items(selected, protected)


def add_orphans(draft: PlanDraft, request: PlanRequest) -> None:
    """Add the rows, locks, links and files of missing sessions to a plan."""
    facts = draft.snapshot.db.admin.read_health_facts()
    _add_rows(draft, "rows", select_orphaned_rows(draft.snapshot, facts, request))
    locks = select_dead_locks(draft.snapshot, facts, request)
    # A lock is removed with its session.
    remaining = tuple(lock for lock in locks.items if lock.session_id not in draft.sessions)
    _add_rows(draft, "locks", Selection(remaining, locks.protected))
    _add_links(draft, request)
    _add_files(draft, request)


def _add_rows(draft: PlanDraft, part: str, selected: Selection[OrphanedRows]) -> None:
    for rows in selected.items:
        record = {
            "table": rows.table,
            "column": rows.column,
            "session": rows.session_id,
            "rows": rows.rows,
        }
        draft.add_member(part, rows.id, record, rows.why)
        draft.rows += rows.rows if rows.table == "messages" else 0
    draft.protected.update(selected.protected)


def _add_links(draft: PlanDraft, request: PlanRequest) -> None:
    selected = select_broken_links(draft.snapshot, request)
    for link in selected.items:
        if link.id in draft.sessions or link.id in draft.left_behind:
            continue  # the session or its parent is removed
        parent = draft.snapshot.conversations.sessions[link.id].parent_id
        draft.add_member("links", link.id, parent, link.why, title=link.title)
    draft.protected.update(selected.protected)


def _add_files(draft: PlanDraft, request: PlanRequest) -> None:
    folder = get_session_folder(draft.snapshot.db, draft.snapshot.store)
    if folder is None:
        return
    selected = select_orphaned_files(draft.snapshot, folder, request)
    for file in selected.items:
        record = {"bytes": file.bytes, "modified_ns": file.modified_ns}
        draft.add_member("files", file.id, record, file.why)
        draft.file_bytes += file.bytes
    draft.protected.update(selected.protected)


def find_session_files(folder: Path, session_ids: Collection[str]) -> dict[str, list[Path]]:
    """Return the files of sessions by session id, including links, in one scan of the folder.

    The caller leaves files that are not ordinary, and reports them.
    """
    owners = FileOwners(session_ids)
    paths: dict[str, list[Path]] = {}
    for path, _ in _iter_files(folder, ordinary=False):
        owner = owners.find_owner(path.name)
        if owner in owners.known:
            paths.setdefault(str(owner), []).append(path)
    return paths


class FileOwners:
    """Finds the session of a file by the file's name."""

    def __init__(self, session_ids: Iterable[str]) -> None:
        self.known = frozenset(session_ids)
        self._by_safe: Mapping[str, str] = {make_safe_name(id_): id_ for id_ in self.known}

    def find_owner(self, name: str) -> str | None:
        """Return the session of a file: a known id if the name has one, else the id in the name.

        Return None if it is not a file of a session, and an empty string for a temporary file of a
        writer.
        """
        # Hidden files and the mirror itself belong to no session.
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
        """Return the session of a dump: a known id, else the rest of the name without its time."""
        positions = [index for index, char in enumerate(stem) if char == "_"]
        # An id may contain underscores: try the longest one first.
        for end in reversed(positions):
            for owner in (self._by_safe.get(stem[:end]), stem[:end]):
                if owner in self.known:
                    return owner
        return stem if _DUMP_PATTERN.match(stem) else None


def make_safe_name(session_id: str) -> str:
    """Return a session id as it appears in file names."""
    safe = re.sub(r"[^\w-]", "_", session_id).strip("._")[:_MAX_NAME_LENGTH]
    if safe == session_id != "":
        return safe
    digest = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{safe or 'session'}_{digest[:12]}"


def _iter_files(folder: Path, *, ordinary: bool = True) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the ordinary files in a folder.

    If `ordinary` is False, yield all entries except folders.

    Links are not followed.

    Raises:
        SessionError: the folder cannot be read.
    """
    if not folder.exists():
        return
    with translate_os_errors(folder), os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda item: item.name):
            try:
                file_stat = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISREG(file_stat.st_mode) or not (ordinary or stat.S_ISDIR(file_stat.st_mode)):
                yield folder / entry.name, file_stat
