"""The index file in the state folder, its schema and its transactions.

The index can always be rebuilt from the transcripts. A damaged file is therefore replaced, and a
commit is not synced: a crash of the machine may lose the newest part of the index, which is then
read again.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from session_core import _sqlite3
from session_core.errors import Busy, Denied, StorageError, StorageFull
from session_core.state import sql_blocks
from session_core.transcripts import label_view

SQL = sql_blocks.load_blocks("index", "session_core.transcripts")

LAYOUT = 4
"""The version of the schema. Each version has a file of its own."""

_SCHEMA = [body for name, body in SQL.items() if name.startswith("create_")]
_BUSY_TIMEOUT_S = 2.0
_LOG_PAUSE_S = 0.05
_MAX_FREE_SHARE = 16
SHRINK_PAGES = 2000
"""Pages to give back at once: about 30 ms."""
_PRIVATE_MODE = 0o700
_FULL_CODE, _BUSY_CODE, _CANNOT_OPEN_CODE, _READ_ONLY_CODE = 13, 5, 14, 8
_DAMAGED_CODES = (11, 26)
_PRIMARY_CODE_MASK = 0xFF

_ABANDONED_S = 7 * 86_400.0
"""The time after which the index of an earlier version counts as abandoned. Another client may
still use it.
"""

_FILE_PATTERN = re.compile(r"index-(\d{1,9})\.db")
_FILE_SUFFIXES = ("-wal", "-shm", "")


class Index:
    """The index with two connections: one for reads, one for changes.

    Raises:
        Denied: the folder of the index cannot be created or written.
        StorageFull: the disk is full.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"index-{LAYOUT}.db"
        self.writing = threading.RLock()
        """The lock for changes of the index and the catalog."""
        self._has_cleaned = False
        self.reading = threading.RLock()
        with translate_errors():
            make_private_folder(folder)
            try:
                self._open_connections()
            except _sqlite3.load_library().DatabaseError as error:
                if _get_code(error) not in _DAMAGED_CODES:
                    raise
                self._replace_file()

    def close(self) -> None:
        """Close both connections."""
        with self.writing, self.reading:
            self._writer.close()
            self._reader.close()

    def read(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[Any]:
        """Run a SELECT and return its rows."""
        with self.reading, translate_errors():
            return self._reader.execute(sql, parameters).fetchall()

    @contextmanager
    def open_snapshot(self) -> Iterator[None]:
        """Run the reads of the `with` block on one snapshot."""
        with self.reading, translate_errors():
            if self._reader.in_transaction:
                yield
                return
            self._reader.execute("BEGIN")
            try:
                yield
            finally:
                self._reader.rollback()

    @contextmanager
    def open_transaction(self) -> Iterator[_sqlite3.Connection]:
        """Run the `with` block as one transaction that changes the index.

        Raises:
            Busy: another process holds the write lock for too long.
        """
        with self.writing, translate_errors():
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            finally:
                # In this frame, so that no interrupt can come in between. No effect after COMMIT.
                self._writer.rollback()

    def get_data_version(self) -> int:
        """Return a number that changes with each commit of another connection."""
        with self.reading, translate_errors():
            return int(self._reader.execute("PRAGMA data_version").fetchone()[0])

    def update_labels(self) -> None:
        """Make the current labels visible to the next reads."""
        with self.reading, translate_errors():
            if self._labels.is_outdated() and not self._reader.in_transaction:
                self._reader.execute("PRAGMA query_only=0")
                self._labels.update_view()
                self._reader.execute("PRAGMA query_only=1")

    def overwrite_removed_bytes(self, tries: int) -> bool:
        """Overwrite removed bytes.

        Return False if another process still reads them.
        """
        with self.writing, translate_errors():
            # Free pages may hold texts of rows that were removed before.
            self._writer.execute("VACUUM")
            # So may the index of an earlier version of the program.
            remove_earlier_files(self.path.parent, LAYOUT)
            return truncate_log(self._writer, tries)

    def release_space(self) -> bool:
        """Return many free pages to the file system.

        Return True if more are left. Merges of words leave about a tenth of the file free.
        """
        with self.writing, translate_errors():
            free, pages = (
                int(self._writer.execute(f"PRAGMA {name}").fetchone()[0])
                for name in ("freelist_count", "page_count")
            )
            if free <= max(SHRINK_PAGES, pages // _MAX_FREE_SHARE):
                return False
            self._writer.execute(f"PRAGMA incremental_vacuum({SHRINK_PAGES})").fetchall()
            return True

    def remove_abandoned(self) -> None:
        """Remove unused indexes of earlier versions, once per process."""
        if not self._has_cleaned:
            self._has_cleaned = True
            remove_abandoned_files(self.path.parent, LAYOUT)

    def _open_connections(self) -> None:
        self._writer = self._connect()
        try:
            # Before the file has a page, since it cannot be changed later.
            self._writer.execute("PRAGMA auto_vacuum=INCREMENTAL")
            self._writer.execute("PRAGMA journal_mode=WAL")
            self._writer.execute("PRAGMA synchronous=NORMAL")
            self._writer.execute("PRAGMA cache_size=-8000")
            self._create_schema()
            self._reader = self._connect()
            self._labels = label_view.LabelView(
                self._reader, self.path.with_name(label_view.FILE_NAME)
            )
            self._reader.execute("PRAGMA query_only=1")
        except BaseException:
            self._writer.close()
            raise

    def _connect(self) -> _sqlite3.Connection:
        return _sqlite3.connect(f"{self.path.as_uri()}?mode=rwc", busy_timeout_s=_BUSY_TIMEOUT_S)

    def _create_schema(self) -> None:
        row = self._writer.execute("PRAGMA user_version").fetchone()
        if row[0] == LAYOUT:
            return
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            for statement in _SCHEMA:
                self._writer.execute(statement)
            self._writer.execute(SQL["configure_words"])
            self._writer.execute(SQL["put_epoch"])
            # In the transaction of the tables: a kill leaves all of the schema or nothing.
            self._writer.execute(f"PRAGMA user_version={LAYOUT}")
            self._writer.execute("COMMIT")
        finally:
            self._writer.rollback()

    def _replace_file(self) -> None:
        """Start with an empty file. A process that has the damaged file open keeps it."""
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(f"{self.path}{suffix}")  # noqa: PTH108 -- the path is text with a suffix
        self._open_connections()


def truncate_log(writer: _sqlite3.Connection, tries: int) -> bool:
    """Write the log into the file and empty it.

    Return False if another process reads it.
    """
    for left in range(tries - 1, -1, -1):
        if not writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            return True
        time.sleep(_LOG_PAUSE_S if left else 0)
    return False


@contextmanager
def translate_errors(
    subject: str = "the index of transcripts", remedy: str = "restart to build it again"
) -> Iterator[None]:
    """Translate errors of SQLite and of the file system into errors of the library."""
    library = _sqlite3.load_library()
    try:
        yield
    except library.OperationalError as error:
        code = _get_code(error)
        if code == _BUSY_CODE:
            raise Busy(f"{subject} is being written; try again") from error
        if code == _FULL_CODE:
            raise StorageFull(f"the disk is full; {subject} cannot grow") from error
        if code in (_CANNOT_OPEN_CODE, _READ_ONLY_CODE):
            raise Denied(f"{subject} cannot be written; check its folder") from error
        raise StorageError(f"{subject} cannot be used; {remedy}") from error
    except library.DatabaseError as error:
        if _get_code(error) in _DAMAGED_CODES:
            raise StorageError(f"{subject} is damaged; {remedy}") from error
        raise
    except PermissionError as error:
        raise Denied(f"the folder of {subject.removeprefix('the ')} cannot be written") from error


def _get_code(error: BaseException) -> int:
    """Return the primary result code of an SQLite error, which Python 3.10 does not provide."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        return int(code) & _PRIMARY_CODE_MASK
    text = str(error)
    known = {"locked": 5, "full": 13, "unable to open": 14, "readonly": 8, "malformed": 11}
    known["not a database"] = 26
    return next((number for part, number in known.items() if part in text), 1)


def make_private_folder(folder: Path) -> None:
    """Create a folder that only its owner can open."""
    try:
        folder.mkdir(mode=_PRIVATE_MODE, parents=True, exist_ok=True)
        if folder.stat().st_mode & 0o077:
            folder.chmod(_PRIVATE_MODE)
    except PermissionError:
        raise
    except OSError as error:  # a read-only disk, or a file in the place of the folder
        raise Denied(
            f"{folder} cannot be made: {error.strerror}; set MCP_SESSIONS_STATE"
        ) from error


def remove_abandoned_files(folder: Path, layout: int) -> None:
    """Remove files of earlier layouts that are not open and were not written for a week."""
    for path in list(_iterate_earlier(folder, layout)):
        with suppress(OSError):
            written = max(file.stat().st_mtime for file in _list_files(path) if file.exists())
            if time.time() - written > _ABANDONED_S:
                _remove_unused(path)


def remove_earlier_files(folder: Path, layout: int) -> None:
    """Remove the files of earlier layouts. A process that has such a file open keeps it.

    Raises:
        OSError: a file cannot be removed.
    """
    for path in list(_iterate_earlier(folder, layout)):
        for file in _list_files(path):
            file.unlink(missing_ok=True)


def _iterate_earlier(folder: Path, layout: int) -> Iterator[Path]:
    for path in folder.glob("index-*.db"):
        name_match = _FILE_PATTERN.fullmatch(path.name)
        if name_match and int(name_match[1]) < layout:
            yield path


def _list_files(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in _FILE_SUFFIXES]


def _remove_unused(path: Path) -> None:
    """Remove a file under its exclusive lock, which fails while another connection is open."""
    library = _sqlite3.load_library()
    with closing(_sqlite3.connect(f"{path.as_uri()}?mode=rw", busy_timeout_s=0)) as db:
        try:
            # The log can be left only by the last connection.
            db.execute("PRAGMA journal_mode=DELETE")
            db.execute("BEGIN EXCLUSIVE")
        except library.OperationalError:
            return
        except library.DatabaseError:  # a damaged file serves no version
            pass
        path.unlink()
