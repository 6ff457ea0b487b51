"""Read-only integrity checks of a database file.

Only a writer can check a search index, so that check runs on a temporary copy.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, nullcontext, suppress
from itertools import islice
from pathlib import Path

from session_core import _sqlite3
from session_core.errors import Unsupported
from session_core.state import sql_blocks
from session_core.state.protocol import StepCallback
from session_core.state.sqlite import extension, fts
from session_core.state.sqlite.admin.vacuum_file import call_step_regularly
from session_core.state.sqlite.connection import Connection, make_file_uri
from session_core.state.sqlite.database_file import has_database, open_reader
from session_core.types import Finding

SQL = sql_blocks.load_blocks("integrity")

_MAX_ERRORS = 100
_MAX_ORPHANS = 10_000
_SHOWN_LINES = 3
_COPY_PAGES = 4096
_ROOM_FACTOR = 1.1
_COPY_PREFIX = "mcp-sessions-check-"
_STALE_COPY_S = 86_400.0
"""Older copies were left by killed processes. No check takes that long."""

_ORPHAN_FINDINGS = {
    "messages": ("orphaned_messages", "messages of missing sessions"),
    "sessions": ("broken_parents", "sessions whose parent is missing"),
}


def check_file(
    path: Path,
    *,
    deep: bool = False,
    step: StepCallback | None = None,
    extension_of: Path | None = None,
) -> list[Finding]:
    """Return the problems of a file, or none if it does not exist.

    `extension_of` is the home whose extension is loaded to check its indexes.
    """
    if not has_database(path):
        return []
    handle = open_reader(path)
    try:
        if extension_of is not None:
            extension.load_extension_if_safe(handle, extension_of)
        with handle.open_snapshot():
            damage, findings = _check_pages(handle, step)
        if damage or not deep:
            return damage or findings
        return findings + _check_file_copy(handle, step, extension_of)
    finally:
        handle.connection.close()


def check_copy(
    handle: Connection, *, deep: bool = False, step: StepCallback | None = None
) -> list[Finding]:
    """Return the problems of a copy of a database in memory."""
    damage, findings = _check_pages(handle, step)
    if damage or not deep:
        return damage or findings
    copy = Connection(_sqlite3.connect("file::memory:", busy_timeout_s=0))
    with closing(copy.connection):
        handle.connection.backup(copy.connection)
        return findings + _check_indexes(copy, step)


def _check_pages(
    handle: Connection, step: StepCallback | None
) -> tuple[list[Finding], list[Finding]]:
    """Return the damage of pages, and the orphans if there is no damage."""
    with call_step_regularly(handle.connection, step):
        damage = list(_find_damage(handle))
        return damage, [] if damage else list(_find_orphans(handle))


def _find_damage(handle: Connection) -> Iterator[Finding]:
    """Check every page, and yield damage of indexes separately, since an index can be rebuilt."""
    try:
        lines = [row[0] for row in handle.fetch_tuples(f"PRAGMA quick_check({_MAX_ERRORS})")]
    except _sqlite3.load_library().DatabaseError as error:
        if "malformed" not in str(error):
            raise
        lines = [str(error)]
    # A trigram index that an older SQLite wrote looks damaged to a newer one. See fts.py.
    lines = [line for line in lines if line != "ok" and not _is_version_difference(line)]
    index = [line for line in lines if "fts5" in line.lower()]
    if index:
        yield Finding("search_index_damaged", len(index), _format_problem(index))
    pages = [line for line in lines if line not in index]
    if pages:
        yield Finding("damaged", len(pages), _format_problem(pages))


def _is_version_difference(line: str) -> bool:
    """Return True if an older SQLite may have caused the error line (see fts.py).

    A check of a copy decides.
    """
    return "malformed inverted index" in line and "messages_fts_trigram" in line


def _format_problem(lines: list[str]) -> str:
    first_lines = [line.replace("\n", " ") for line in lines[:_SHOWN_LINES]]
    return "; ".join(first_lines) + (" and more" if len(lines) > _SHOWN_LINES else "")


def _find_orphans(handle: Connection) -> Iterator[Finding]:
    counted: Counter[str] = Counter()
    rows = handle.connection.execute("PRAGMA foreign_key_check")
    try:
        # Bounded, since a damaged home may have very many orphans.
        for table, *_ in islice(rows, _MAX_ORPHANS):
            counted[table] += 1
    except _sqlite3.load_library().OperationalError as error:
        yield Finding("schema_mismatch", 1, str(error))
    finally:
        rows.close()
    for table, count in sorted(counted.items()):
        code, what = _ORPHAN_FINDINGS.get(
            table, ("orphaned_rows", f"rows of {table} whose session is gone")
        )
        yield Finding(code, count, what + (" (or more)" if count == _MAX_ORPHANS else ""))


def _check_file_copy(
    handle: Connection, step: StepCallback | None, extension_of: Path | None
) -> list[Finding]:
    needed = _get_file_bytes(handle)
    _delete_stale_copies(Path(tempfile.gettempdir()), time.time())
    with tempfile.TemporaryDirectory(prefix=_COPY_PREFIX) as folder:
        free = shutil.disk_usage(folder).free
        if free < needed * _ROOM_FACTOR:
            what = f"the search index was not checked: a copy needs {needed} bytes, {free} are free"
            return [Finding("no_room_for_check", 1, what)]
        copy = Connection(
            _sqlite3.connect(make_file_uri(Path(folder, "copy.db"), "mode=rwc"), busy_timeout_s=1)
        )
        try:
            if extension_of is not None:
                extension.load_extension_if_safe(copy, extension_of)
            _copy_database(handle, copy, step)
            return _check_indexes(copy, step)
        finally:
            copy.connection.close()


def _check_indexes(copy: Connection, step: StepCallback | None) -> list[Finding]:
    with call_step_regularly(copy.connection, step):
        return [
            finding for table in _list_index_tables(copy) for finding in _check_index(copy, table)
        ]


def _delete_stale_copies(folder: Path, now: float) -> None:
    """Delete copies left by killed processes. Copies of other users stay."""
    for copy in folder.glob(f"{_COPY_PREFIX}*"):
        with suppress(OSError):
            if copy.lstat().st_mtime < now - _STALE_COPY_S:
                shutil.rmtree(copy, ignore_errors=True)


def _get_file_bytes(handle: Connection) -> int:
    pages = handle.fetch_value("PRAGMA page_count") or 0
    return int(pages * (handle.fetch_value("PRAGMA page_size") or 0))


def _copy_database(handle: Connection, copy: Connection, step: StepCallback | None) -> None:
    """Copy in steps, from one snapshot unless a snapshot would block writers."""
    wal = handle.fetch_value("PRAGMA journal_mode") == "wal"
    # The copy is deleted after the check, so it needs no durability.
    for pragma in ("journal_mode=OFF", "synchronous=OFF", "trusted_schema=OFF"):
        copy.connection.execute(f"PRAGMA {pragma}")
    # With a rollback journal a snapshot of this length would block writers.
    with handle.open_snapshot() if wal else nullcontext():
        handle.connection.backup(
            copy.connection,
            pages=_COPY_PAGES,
            progress=None if step is None else lambda *_: step(),
            sleep=0.005,
        )
    copy.connection.execute("PRAGMA journal_mode=OFF")


def _list_index_tables(handle: Connection) -> list[str]:
    return [row[0] for row in handle.fetch_tuples(SQL["list_index_tables"])]


def _check_index(handle: Connection, table: str) -> Iterator[Finding]:
    """Check one index against itself, and count the rows missing from it."""
    name = '"' + table.replace('"', '""') + '"'
    try:
        if table == "messages_fts_trigram":
            fts.repair_all_entries(handle)  # entries left out by an older SQLite are no damage
        handle.execute_update(f"INSERT INTO {name}({name}) VALUES ('integrity-check')")  # noqa: S608 -- quoted names of the schema
    except (_sqlite3.load_library().DatabaseError, Unsupported) as error:
        if "malformed" in str(error) or "corrupt" in str(error):
            yield Finding("search_index_damaged", 1, f"the search index {table} is damaged")
        else:
            yield Finding("search_index_unchecked", 1, f"the search index {table}: {error}")
        return
    if handle.has_column(f"{table}_content", "c0") and table.startswith("messages_fts"):
        block = SQL["count_unindexed"].replace("messages_fts_content", f"{table}_content")
        missing = handle.fetch_value(block)
        if missing:
            yield Finding("search_index_incomplete", missing, f"messages missing from {table}")
