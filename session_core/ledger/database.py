"""One SQLite file of the ledger, created at the first write and read as empty before.

A write is durable when it returns, unless the caller asks otherwise. Several processes may have the
file open; the threads of one process take turns. Only the process with the write lock checkpoints
the log, so a checkpoint never runs next to another process's commit.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from session_core import _sqlite3
from session_core.errors import Corrupt, Denied, InvalidInput, SessionError, Unsupported
from session_core.ledger.state_folder import translate_os_errors
from session_core.state import sql_blocks
from session_core.state.sqlite.connection import (
    Connection,
    list_driver_errors,
    make_file_uri,
    translate_error,
)
from session_core.state.sqlite.database_file import get_file_bytes, get_file_identity
from session_core.state.sqlite.lock_wait import execute_with_retry

T = TypeVar("T")

PACKAGE = "session_core.ledger"

_APPLICATION_ID = 1_835_234_163
_READ_FORMAT = """
SELECT (SELECT count(*) FROM sqlite_master), application_id, user_version
FROM pragma_application_id, pragma_user_version
"""
_VERSION_PATTERN = re.compile(r"PRAGMA user_version = (\d+);")
_MAX_LOG_BYTES = 4 << 20
_CHECKPOINT_TIMEOUT_S = 1.0
_FOREIGN_WRITE_BITS = 0o022


class LedgerDatabase:
    """One SQLite file of the ledger with a given schema.

    `find` returns its path, and `make` also creates its folder.
    """

    def __init__(
        self,
        find: Callable[[], Path | None],
        make: Callable[[], Path],
        patience_s: float,
        *,
        schema: str = "schema",
        name: str = "ledger",
        lost: str = "its trash is lost",
    ) -> None:
        self._find = find
        self._make = make
        self._patience_s = patience_s
        self._schema = schema
        self._version = int(_VERSION_PATTERN.findall(sql_blocks.read_script(schema, PACKAGE))[0])
        self._name = name
        self._lost = lost
        self._lock = threading.Lock()
        self._handle: Connection | None = None
        self._writable = False
        self._closed = False
        self._pid = os.getpid()

    def read(self, query: Callable[[Connection], T]) -> T:
        """Run `query` on one snapshot of the file."""
        self._require_own_process()
        with self._lock:
            self._require_open()
            path = self._find()
            handle = (
                self._get_handle(path, writable=False) if path and get_file_bytes(path) else None
            )
            if path is None or handle is None:
                return self._query_empty_database(query)
            with self._translate_errors(path), handle.open_snapshot():
                return (
                    query(handle)
                    if self._has_schema(handle, path)
                    else self._query_empty_database(query)
                )

    def write(self, change: Callable[[Connection], T], *, durable: bool = True) -> T:
        """Run `change` in a transaction and return its result.

        The transaction is durable when this returns, or with the next durable one if `durable` is
        False.
        """
        self._require_own_process()
        with self._lock:
            self._require_open()
            path = self._make()
            handle = self._get_handle(path, writable=True)
            with self._translate_errors(path):
                result = self._run_change(handle, path, change, durable=durable)
            if get_file_bytes(Path(f"{path}-wal")) > _MAX_LOG_BYTES:
                _truncate_log(handle)
            return result

    def _run_change(
        self, handle: Connection, path: Path, change: Callable[[Connection], T], *, durable: bool
    ) -> T:
        handle.connection.rollback()  # an earlier transaction may have been interrupted
        try:
            # An unsynced log survives a crash of the process, not of the machine.
            handle.connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            execute_with_retry(handle, "BEGIN IMMEDIATE", time.monotonic() + self._patience_s)
            # Checked under the lock, since another process may have created the tables first.
            if not self._has_schema(handle, path):
                for statement in sql_blocks.split_statements(self._schema, PACKAGE):
                    handle.execute_update(statement)
            result = change(handle)
            handle.connection.execute("COMMIT")
        finally:
            # In this frame, so that no interrupt can come in between. No effect after COMMIT.
            handle.connection.rollback()
        return result

    def _query_empty_database(self, query: Callable[[Connection], T]) -> T:
        with closing(_sqlite3.connect("file::memory:", busy_timeout_s=0)) as connection:
            for statement in sql_blocks.split_statements(self._schema, PACKAGE):
                connection.execute(statement)
            return query(Connection(connection))

    def reclaim_space(self, *, overwrite: bool = False) -> None:
        """Truncate the log, which returns the space of deleted rows to the disk.

        With `overwrite` the file is rewritten without the remains of deleted rows.
        """
        self._require_own_process()
        with self._lock:
            self._require_open()
            if self._handle is not None and self._writable:
                if overwrite:
                    self._handle.connection.execute("VACUUM")
                _truncate_log(self._handle)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._closed = True
            self._discard_handle()

    def _require_own_process(self) -> None:
        if self._pid != os.getpid():
            raise Unsupported(
                f"this {self._name} was opened before a fork; open it again in the child"
            )

    def _require_open(self) -> None:
        if self._closed:
            raise InvalidInput(f"this {self._name} is closed; open it again")

    def _get_handle(self, path: Path, *, writable: bool) -> Connection:
        """Return the connection, and reopen it if another file has replaced the open file."""
        handle = self._handle
        if (
            handle is not None
            and handle.file == get_file_identity(path)
            and self._writable >= writable
        ):
            return handle
        self._discard_handle()
        with self._translate_errors(path):
            handle = self._handle = (
                self._open_for_writing(path) if writable else _connect(path, "ro")
            )
        handle.file, self._writable = get_file_identity(path), writable
        return handle

    def _open_for_writing(self, path: Path) -> Connection:
        """Open the file for writing, and switch a new or unfinished file to WAL mode."""
        with translate_os_errors(path), suppress(FileExistsError):
            # No other connection can be open on a file that this call creates.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with translate_os_errors(path):
            _check_and_make_private(path)
        handle = _connect(path, "rw")
        try:
            if handle.fetch_value("PRAGMA journal_mode") != "wal":
                deadline = time.monotonic() + self._patience_s
                # After a kill, a read-only connection cannot roll back a journal on disk.
                # auto_vacuum has an effect only before the first table exists.
                for pragma in ("journal_mode=MEMORY", "auto_vacuum=FULL"):
                    handle.connection.execute(f"PRAGMA {pragma}").fetchall()
                execute_with_retry(handle, "PRAGMA journal_mode=WAL", deadline)
            # Only _truncate_log checkpoints.
            handle.connection.execute("PRAGMA wal_autocheckpoint=0")
        except BaseException:
            handle.connection.close()
            raise
        return handle

    def _has_schema(self, handle: Connection, path: Path) -> bool:
        """Return True if the tables exist, or raise if the file has another format or version."""
        ((tables, application_id, version),) = handle.fetch_tuples(_READ_FORMAT)
        if tables == 0:
            return False
        if application_id != _APPLICATION_ID:
            raise Corrupt(f"{path} is not a {self._name}; move it away, and a new one is created")
        if version > self._version:
            raise Unsupported(f"{path} was written by a newer version of this program; update it")
        if version < self._version:
            raise Unsupported(
                f"{path} has an older format that is not supported: move it away, and a new one is "
                f"created, but {self._lost}"
            )
        return True

    @contextmanager
    def _translate_errors(self, path: Path) -> Iterator[None]:
        try:
            yield
        except list_driver_errors() as error:
            raise self._make_error(error, path) from error

    def _make_error(self, error: Exception, path: Path) -> SessionError:
        translated = translate_error(error, path)
        if isinstance(translated, Corrupt) or "unsupported file format" in str(error):
            return Corrupt(
                f"the {self._name} {path} is damaged or not a database: move it away, and a new "
                f"one is created at the next change; the home is unchanged, but {self._lost}"
            )
        return translated

    def _discard_handle(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.connection.close()


def _check_and_make_private(path: Path) -> None:
    """Check that only this user owns and may write a file, and make it private."""
    if not hasattr(os, "geteuid"):
        return
    folder, file = path.parent.stat(), path.stat()
    # The owner of the folder is trusted only if no other user can put files there.
    trusted = {0, os.geteuid(), *(() if folder.st_mode & _FOREIGN_WRITE_BITS else (folder.st_uid,))}
    if not {file.st_uid, path.lstat().st_uid} <= trusted:
        raise Denied(f"{path} belongs to another user; move it away, or choose another folder")
    if file.st_mode & _FOREIGN_WRITE_BITS:
        raise Denied(
            f"{path} is writable by other users; move it away, or chmod 600 it if it is yours"
        )
    if file.st_mode & 0o077:
        with suppress(OSError):  # the file system has no permission bits
            path.chmod(0o600)


def _connect(path: Path, mode: str) -> Connection:
    connection = _sqlite3.connect(
        make_file_uri(path, f"mode={mode}"), busy_timeout_s=_CHECKPOINT_TIMEOUT_S
    )
    try:
        # A file of trash may be on a disk that other users can write.
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA cell_size_check=ON")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return Connection(connection)


def _truncate_log(handle: Connection) -> None:
    """Truncate the log.

    If another connection prevents it, the next write truncates the log.
    """
    with suppress(_sqlite3.load_library().Error):
        handle.connection.execute("PRAGMA busy_timeout=0")
        handle.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    handle.connection.execute(f"PRAGMA busy_timeout={int(_CHECKPOINT_TIMEOUT_S * 1000)}")
