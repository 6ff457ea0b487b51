"""Database files: opening, creation, identity, and the schema of our own homes."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import uuid
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from session_core import _sqlite3
from session_core.errors import Corrupt, Denied, NotFound, StorageError, Unsupported
from session_core.processes import get_sidecar_path
from session_core.state import sql_blocks
from session_core.state.sqlite.connection import (
    Connection,
    make_file_uri,
    translate_error,
)
from session_core.state.sqlite.lock_wait import execute_with_retry, is_busy
from session_core.state.sqlite.writer import Writer

if TYPE_CHECKING:
    from session_core.types import HomeKind


_CREATION_LOCK = threading.Lock()

_EMPTY_JOURNAL_BYTES = 512
"""Size of a journal with nothing but its header, as during the creation of a database."""

_MAX_WAL_BYTES = 16 << 20
"""A log that one large change made longer is truncated to this size when it restarts."""

HOME_ID_KEY = "mcp_sessions_home"
"""The key in `state_meta` that marks a database as our own."""

_SELECT_META = "SELECT value FROM state_meta WHERE key = ?"

_SCHEMA_KEY = "mcp_sessions_schema"
"""The key in `state_meta` of the number of our own schema, which is 1 without it."""

OWN_SCHEMA_SQL = sql_blocks.load_blocks("own_schema")

_SCHEMA_STEPS = (OWN_SCHEMA_SQL["add_application_data"],)
"""The statements that lead from each number to the next."""

OWN_SCHEMA = 1 + len(_SCHEMA_STEPS)

HERMES_OWNER = "hermes"
"""The owner of every Hermes home, which has no id of its own."""

_REQUIRED_COLUMNS = {
    "sessions": ("id", "source", "started_at", "ended_at", "end_reason", "title", "archived"),
    "messages": ("id", "session_id", "role", "content", "timestamp", "active"),
}

_HERMES_COLUMNS = (("sessions", "source"), ("messages", "session_id"), ("messages", "role"))
"""The columns of every schema of Hermes, also of those that are too old."""

_FOREIGN_TABLES = {
    "a session database of Google ADK": ("app_states", "user_states", "events"),
    "a session database of the OpenAI Agents SDK": ("agent_sessions", "agent_messages"),
}


def open_reader(path: Path) -> Connection:
    """Open a database with `mode=ro`.

    If that is impossible on a read-only mount, open it as immutable.
    """
    has_database(path)  # opening an empty file, even for reading, would delete the log next to it
    # Taken first: if the file is replaced now, the identity differs and the reader is not reused.
    file, unchanged = get_file_identity(path), get_file_identity(path, immutable=True)
    handle = _open_reader(path)
    handle.file = unchanged if handle.immutable else file
    return handle


def _open_reader(path: Path) -> Connection:
    try:
        return _connect(make_file_uri(path, "mode=ro"))
    except _sqlite3.load_library().OperationalError as error:
        if _has_hot_journal(path, error):
            raise StorageError(
                f"{path} has an unfinished change of a program that crashed; "
                "start Hermes once, or make any change, to roll it back"
            ) from error
        if is_busy(error) or not _is_read_only_mount(path):
            raise
        if get_file_bytes(get_sidecar_path(path, "-wal")):
            raise Denied(
                f"{path} has a log and is on a read-only mount, so it cannot be read while another "
                "program writes it; close that program everywhere, or mount the folder writable"
            ) from error
        handle = _connect(make_file_uri(path, "mode=ro&immutable=1"))
        handle.immutable = True
        return handle


def _has_hot_journal(path: Path, error: Exception) -> bool:
    """Return True if a database without a log has a journal that only a writer can roll back."""
    return "readonly" in str(error) and get_file_bytes(get_sidecar_path(path, "-journal")) > 0


def roll_back_hot_journal(path: Path) -> None:
    """Roll back the journal that a killed writer of a database without a log has left."""
    if not has_database(path) or not get_file_bytes(get_sidecar_path(path, "-journal")):
        return
    try:
        handle = open_reader(path)
    except StorageError:
        handle = _connect(make_file_uri(path, "mode=rw"))
    handle.connection.close()


def open_writer(path: Path, *, own: bool) -> Connection:
    """Open a database for writing, with settings of the connection only, not of the file."""
    handle = _connect(make_file_uri(path, "mode=rw"))
    # Before SQLite 3.42 the triggers of Hermes may not touch its search index without this trust.
    trust = "trusted_schema=ON"
    # NORMAL syncs a log only at checkpoints, so a power failure could take reported commits back.
    for pragma in ("foreign_keys=ON", "wal_autocheckpoint=0", "synchronous=FULL", trust):
        handle.connection.execute(f"PRAGMA {pragma}")
    if sys.platform == "darwin":  # fsync alone leaves data in the cache of the disk
        handle.connection.execute("PRAGMA checkpoint_fullfsync=ON")
    if own:
        handle.connection.execute(f"PRAGMA journal_size_limit={_MAX_WAL_BYTES}")
    return handle


_SELECT_VIEW = "SELECT 1 FROM sqlite_master WHERE type = 'view' AND name = ? COLLATE NOCASE"


def find_home_kind(handle: Connection, path: Path) -> HomeKind | None:
    """Return the kind of a database, or None if it is empty.

    Raises:
        Corrupt: it is not a session database.
        Unsupported: its schema is too old.
    """
    if handle.fetch_value("SELECT count(*) FROM sqlite_master") == 0:
        return None
    for table, needed in _REQUIRED_COLUMNS.items():
        if not handle.has_column(table):
            raise _make_foreign_error(handle, path, f"it has no table {table}")
        if handle.fetch_value(_SELECT_VIEW, (table,)):  # a view may be endless
            raise Corrupt(f"{path} is not a session database: its {table} is a view")
        missing = [column for column in needed if not handle.has_column(table, column)]
        if missing and not all(handle.has_column(*column) for column in _HERMES_COLUMNS):
            raise _make_foreign_error(handle, path, f"its {table} has no {missing[0]}")
        if missing:
            raise Unsupported(
                f"the schema of {path} is too old ({table} has no {missing[0]}); "
                "open it once with Hermes 0.17 or later, which brings it up to date"
            )
    if not handle.has_column("state_meta") or handle.fetch_value(_SELECT_VIEW, ("state_meta",)):
        return "hermes"
    mark = handle.fetch_value(_SELECT_META, (HOME_ID_KEY,))
    return "hermes" if mark is None else "own"


def _make_foreign_error(handle: Connection, path: Path, reason: str) -> Corrupt:
    """Return the error for the database of another program, with its name if it is known."""
    for name, tables in _FOREIGN_TABLES.items():
        if all(handle.has_column(table) for table in tables):
            return Corrupt(
                f"{path} is {name}, not a home; pass the path of another file or folder, "
                "and leave this file to that program"
            )
    return Corrupt(
        f"{path} is not a session database: {reason}; pass the path of another file or folder"
    )


def find_owner(path: Path) -> str | None:
    """Return the id of a home of our own, `HERMES_OWNER`, or None without a database.

    Raises:
        SessionError: it cannot be read, or is not a session database.
    """
    if not has_database(path):
        return None
    try:
        handle = open_reader(path)
        with closing(handle.connection):
            kind = find_home_kind(handle, path)
            return str(handle.fetch_value(_SELECT_META, (HOME_ID_KEY,))) if kind == "own" else kind
    except _sqlite3.load_library().Error as error:
        raise translate_error(error, path) from error


def create_database(path: Path, patience_s: float) -> HomeKind:
    """Create our own database, readable by its owner alone, and return the kind of the result.

    The kind differs if another process creates the database first.
    """
    with _CREATION_LOCK:
        _create_empty_file(path)
        guard: Connection | None = None
        handle = _connect(make_file_uri(path, "mode=rw"))
        try:
            _enable_wal(handle, time.monotonic() + patience_s)
            writer = Writer(lambda: handle, own=True, patience_s=patience_s)
            # Without it, the close below could delete a log that another process writes already.
            guard = open_reader(path)
            writer.run_in_transaction(_create_home_if_missing)
            return find_home_kind(guard, path) or "own"
        finally:
            handle.connection.close()
            if guard is not None:
                guard.connection.close()


def _enable_wal(handle: Connection, deadline: float) -> None:
    if handle.fetch_value("PRAGMA journal_mode") == "wal":
        return
    # A journal file left by a killed process would have to be rolled back before any read.
    execute_with_retry(handle, "PRAGMA journal_mode=MEMORY", deadline)
    execute_with_retry(handle, "PRAGMA journal_mode=WAL", deadline)


def _create_empty_file(path: Path) -> None:
    """Create an empty file with owner-only access, or restrict an empty file that exists."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(FileExistsError):
            # Closing the file drops no locks: no connection to a new file exists yet.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        if not get_file_bytes(path):
            path.chmod(0o600)
    except OSError as error:
        raise Denied(
            f"{path} cannot be created with owner-only access: {error.strerror}; check its folder"
        ) from error


def _create_home_if_missing(handle: Connection) -> None:
    """Create the tables and the home id, unless the tables exist."""
    # Looked up under the lock: another process may have created the tables first.
    if handle.has_column("sessions"):
        return
    _create_tables(handle)
    # In the transaction of the tables: without this mark it would be taken for a Hermes home.
    handle.execute_update("INSERT INTO state_meta VALUES (?, ?)", (HOME_ID_KEY, uuid.uuid4().hex))


def _create_tables(handle: Connection) -> None:
    for name in ("schema", "index"):
        for statement in sql_blocks.split_statements(name):
            handle.execute_update(statement)
    update_schema(handle)


def update_schema_once(handle: Connection) -> None:
    """Update the schema of a home of our own, unless this connection has done so."""
    # In the transaction of the first change, so that both are stored or none.
    if _SCHEMA_KEY not in handle.cache:
        update_schema(handle)
        handle.cache[_SCHEMA_KEY] = True


def update_schema(handle: Connection) -> None:
    """Update the schema of a home of our own in the open transaction."""
    number = _read_schema_number(handle)
    # A home of a newer version has more, never less.
    if number >= OWN_SCHEMA:
        return
    for block in _SCHEMA_STEPS[number - 1 :]:
        for statement in sql_blocks.split_block(block):
            handle.execute_update(statement)
    values = (_SCHEMA_KEY, str(OWN_SCHEMA))
    handle.execute_update("INSERT OR REPLACE INTO state_meta VALUES (?, ?)", values)
    handle.forget_schema()


def _read_schema_number(handle: Connection) -> int:
    stored = handle.fetch_value(_SELECT_META, (_SCHEMA_KEY,))
    return int(stored) if str(stored).isdecimal() else 1


def _connect(uri: str) -> Connection:
    connection = _sqlite3.connect(uri, busy_timeout_s=1.0)
    try:
        # A file from elsewhere must not run functions through its views and triggers.
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA cell_size_check=ON")
        # SQLite opens a file at the first statement. Its errors belong to the opening.
        connection.execute("PRAGMA data_version").fetchone()
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return Connection(connection)


def open_empty() -> Connection:
    """Open an empty database in memory, with the schema of our own home."""
    handle = Connection(_sqlite3.connect("file::memory:", busy_timeout_s=0))
    handle.is_placeholder = True
    # The statements take nine times as long as a copy of their result.
    template = _make_template(os.getpid())
    with template.lock:
        template.connection.backup(handle.connection)
    handle.connection.execute("PRAGMA foreign_keys=ON")
    return handle


class _Template(NamedTuple):
    """An empty database in memory to copy from, by one thread at a time."""

    connection: _sqlite3.Connection
    lock: threading.Lock


@cache
def _make_template(_: int) -> _Template:
    """Return the template of a process.

    A fork could inherit a lock that no thread releases, so each process has its own.
    """
    handle = Connection(_sqlite3.connect("file::memory:", busy_timeout_s=0))
    _create_tables(handle)
    template = _Template(handle.connection, threading.Lock())
    atexit.register(_close_template, template)
    return template


def _close_template(template: _Template) -> None:
    # Later exit handlers get a new template.
    _make_template.cache_clear()
    with template.lock:
        template.connection.close()


def get_file_identity(path: Path, *, immutable: bool = False) -> tuple[int, ...] | None:
    """Return the identity of a file, or None if it does not exist.

    For an `immutable` reader, the size, time and log of the file are part of the identity.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 -- faster than Path.stat, before every use
    except OSError:
        return None
    file = (status.st_dev, status.st_ino)
    if not immutable:
        return file
    return (
        *file,
        status.st_size,
        status.st_mtime_ns,
        get_file_bytes(get_sidecar_path(path, "-wal")),
    )


def has_database(path: Path) -> bool:
    """Return True if the database exists.

    Raises:
        Corrupt: the file is empty or missing, and its content is in a log.
        NotFound: it is a link to a missing file.
    """
    # The log is read before the file, since a new database fills them in the other order.
    logs = [log for log, empty_bytes in _list_log_files(path) if get_file_bytes(log) > empty_bytes]
    if get_file_bytes(path):
        return True
    if logs:
        raise Corrupt(
            f"{path} is empty or missing, but its log {logs[0]} is not: restore both from one "
            "backup, or move the log away to start with an empty database"
        )
    if path.is_symlink() and not path.exists():
        raise NotFound(
            f"{path} is a link to {path.readlink()}, which does not exist; mount it, create an "
            "empty file of that name, or remove the link"
        )
    return False


def _list_log_files(path: Path) -> tuple[tuple[Path, int], ...]:
    """Return the log files of a database, each with its size when it is empty."""
    return (
        (get_sidecar_path(path, "-wal"), 0),
        (get_sidecar_path(path, "-journal"), _EMPTY_JOURNAL_BYTES),
    )


def get_file_bytes(path: Path) -> int:
    """Return the size of a file, or 0 if it does not exist."""
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except OSError as error:
        raise Denied(f"{path} cannot be accessed: {error.strerror}") from error


def _is_read_only_mount(path: Path) -> bool:
    try:
        return hasattr(os, "statvfs") and bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False
