"""The database file: how it is opened for reading and for writing, and whose it is.

Readers are `mode=ro`. A writer is opened only behind a guard, a `mode=ro` connection that outlives
it: while the guard is open no close of ours can unlink the log of a process that has lost its
locks. A Hermes database gets no DDL and no pragma that stays in the file.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from session_core import driver, home, presence
from session_core.errors import (
    Busy,
    Corrupt,
    Denied,
    InvalidInput,
    SessionError,
    StorageError,
    Unsupported,
)
from session_core.state.sqlite import blocks, index
from session_core.state.sqlite.handle import Handle, file_uri, translate
from session_core.state.sqlite.writer import Writer, patiently

if TYPE_CHECKING:
    from typing_extensions import Self

    from session_core.models import HomeKind

T = TypeVar("T")

_LONG_LOG_BYTES = 4 << 20

_TIDY_S = 5.0
"""How long a search or a close brings the search index up to date, where that is far behind."""

_EXIT_WAIT_S = 1.0
"""How long the end of the process waits for a thread that is in the middle of a change."""

_creating = threading.Lock()

MARK = "mcp_sessions_home"
"""The key in `state_meta` that says that a database is ours."""

_NEEDED = {
    "sessions": ("id", "source", "started_at", "ended_at", "end_reason", "title", "archived"),
    "messages": ("id", "session_id", "role", "content", "timestamp", "active"),
}


class Store:
    """Opens, reads, writes and closes one database; the nouns are added by its subclasses."""

    def __init__(
        self,
        db_path: str | os.PathLike[str] | None = None,
        *,
        read_only: bool = False,
        patience_s: float = 20.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        db_path = home.find_home().db_path if db_path is None else db_path
        self.path = Path(os.path.abspath(db_path))  # noqa: PTH100 -- no symlink is resolved
        if os.path.isdir(self.path):  # noqa: PTH112 -- a folder that may not be looked at raises none
            raise InvalidInput(f"{self.path} is a directory; name the database file in it")
        self.read_only = read_only
        self._patience_s = patience_s
        self._clock = clock
        self._pid = os.getpid()
        self._open = _Open()
        self._lock = threading.Lock()
        self._kind: HomeKind | None = None
        self._immutable = False
        self._closer = weakref.finalize(self, _Open.close, self._open, _EXIT_WAIT_S)

    @property
    def kind(self) -> HomeKind:
        """Whose home this is; a file that is not there yet becomes ours at the first write."""
        return self._read(lambda _: self._kind or self._kind_of_missing())

    @property
    def immutable(self) -> bool:
        """Whether it is read as a file that cannot change, on a mount that nobody can write."""
        self._read(lambda _: None)
        return self._immutable

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that this thread changes inside is one transaction, or nothing of it is.

        Keep it short: no hook, model call or file is waited for inside.
        """
        with self._errors(), self._writer().transaction():
            yield

    def close(self) -> None:
        """Close every connection; the last change that returned is durable."""
        writer = self._open.writer
        if writer is not None and writer.current is not None:
            raise InvalidInput("this thread has a transaction open; close the database after it")
        if writer is not None and self._kind == "own" and self._pid == os.getpid():
            writer.tidy(_TIDY_S)
        if self._closer.detach() is not None:
            self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _read(self, look: Callable[[Handle], T]) -> T:
        """Run `look` on one moment of the database."""
        self._check_alive()
        writer = self._open.writer
        inside = writer.current if writer else None
        with self._errors(), _fit_to_bind():
            if inside is not None:
                inside.seen.clear()
                return look(inside)
            handle = self._reader()
            try:
                with handle.snapshot():
                    return look(handle)
            finally:
                self._open.give_back(handle)

    def _write(self, step: Callable[[Handle], T]) -> T:
        """Run `step` in a transaction; it may be run again, so it changes nothing else."""
        with self._errors(), _fit_to_bind():
            return self._writer().run(step)

    def _tidy(self) -> None:
        """Bring the search index up to date; where that fails, a search reads what it lacks."""
        with suppress(SessionError), self._errors():
            self._writer().tidy(_TIDY_S)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except driver.library().Error as error:
            translated = translate(error, self.path)
            if isinstance(translated, Busy):
                translated = self._busy()
            raise translated from error

    def _busy(self) -> SessionError:
        holders = [str(holder) for holder in presence.holders(self.path)]
        asked = f"held by {', '.join(holders)}" if holders else "held by another connection"
        return Busy(
            f"the database {self.path} is {asked}; let it finish or stop it, then try again",
            holders=holders,
        )

    def _check_alive(self) -> None:
        if self._open.closed:
            raise InvalidInput("this session database is closed; open it again")
        if self._pid != os.getpid():
            raise Unsupported("a database that was opened before a fork; open it in the child")

    def _kind_of_missing(self) -> HomeKind:
        named = self.path.name == home.DATABASE
        return "absent" if named and home.looks_like_hermes(self.path.parent) else "own"

    def _check_same_file(self) -> None:
        guard = self._open.guard
        if guard is not None and guard.file != _identity(self.path):
            raise StorageError(
                f"another file was put in the place of {self.path}, or none; open it again"
            )

    def _reader(self) -> Handle:
        file = _identity(self.path)
        while self._open.readers:
            try:
                handle = self._open.readers.pop()
            except IndexError:
                break
            if handle.file == file:
                return handle
            handle.connection.close()
        if not _exists(self.path):
            if self._open.exists:
                raise StorageError(f"{self.path} is gone; put it back, or open another")
            return _empty_handle()
        handle, self._immutable = open_reader(self.path)
        kind = look_at(handle, self.path)
        if kind is None:
            handle.connection.close()
            return _empty_handle()
        self._kind, self._open.exists = kind, True
        return handle

    def _writer(self) -> Writer:
        self._check_alive()
        if self.read_only:
            raise Denied("this session database was opened read-only")
        with self._lock:
            if self._open.writer is None:
                self._prepare()
                own = self._kind == "own"
                self._open.writer = Writer(
                    lambda: open_writer(self.path),
                    checkpoint="FULL" if own else "PASSIVE",
                    patience_s=self._patience_s,
                    check=self._check_same_file,
                    overdue=own and _size(Path(f"{self.path}-wal")) > _LONG_LOG_BYTES,
                    afterwards=index.catch_up if own else lambda _: 0,
                )
            return self._open.writer

    def _prepare(self) -> None:
        """Make our own database where there is none, and open the guard."""
        _finish_leftover(self.path)
        if self.kind == "absent":
            raise Denied(
                f"{self.path.parent} is a Hermes home without a state database; "
                "start Hermes once, which makes it, then try again"
            )
        if self._kind is None:
            self._kind = create(self.path, self._patience_s)
            self._open.exists = True
        if self._immutable:
            raise Denied(f"{self.path} is on a mount that cannot be written")
        guard, _ = open_reader(self.path)
        self._open.guard = guard


class _Open:
    """The connections of a store, which close in the one order that is safe."""

    def __init__(self) -> None:
        self.readers: list[Handle] = []
        self.writer: Writer | None = None
        self.guard: Handle | None = None
        self.exists = False
        self.closed = False
        self._pid = os.getpid()

    def give_back(self, handle: Handle) -> None:
        if self.closed or handle.stands_in:
            handle.connection.close()
        else:
            self.readers.append(handle)

    def close(self, wait_s: float = -1) -> None:
        self.closed = True
        if self._pid != os.getpid():
            return  # after a fork they are the parent's, and a thread that is not here may lead
        if self.writer is not None and not self.writer.close(wait_s):
            return  # a thread is inside; the process ends, and closing out of order would be worse
        while self.readers:
            self.readers.pop().connection.close()
        if self.guard is not None:
            self.guard.connection.close()
        self.writer = self.guard = None


@contextmanager
def _fit_to_bind() -> Iterator[None]:
    """Name what the driver says of values that no column takes, which the caller gave."""
    try:
        yield
    except (OverflowError, UnicodeEncodeError) as error:
        raise InvalidInput("a number beyond 64 bits, or text with half a character") from error


def open_reader(path: Path) -> tuple[Handle, bool]:
    """Open `mode=ro`; return the handle and whether it had to be `immutable`."""
    file = _identity(path)
    handle, immutable = _open_reader(path)
    handle.file = file
    return handle, immutable


def _open_reader(path: Path) -> tuple[Handle, bool]:
    try:
        return _connect(file_uri(path, "mode=ro")), False
    except driver.library().OperationalError as error:
        if _left_over(path, error):
            raise StorageError(
                f"{path} was left in the middle of a change by a program that died; "
                "start Hermes once, or change anything, which takes that back"
            ) from error
        if not _unwritable_mount(path) or _exists(Path(f"{path}-wal")):
            raise
        return _connect(file_uri(path, "mode=ro&immutable=1")), True


def _left_over(path: Path, error: Exception) -> bool:
    """Whether a database that keeps no log has a journal that only a writer may take back."""
    return "readonly" in str(error) and _exists(Path(f"{path}-journal"))


def _finish_leftover(path: Path) -> None:
    if not _exists(path) or not _exists(Path(f"{path}-journal")):
        return
    try:
        handle, _ = open_reader(path)
    except StorageError:
        handle = _connect(file_uri(path, "mode=rw"))
    handle.connection.close()


def open_writer(path: Path) -> Handle:
    """Open for writing; settings of the connection only, none that stays in the file."""
    handle = _connect(file_uri(path, "mode=rw"))
    # Before SQLite 3.42 the triggers of Hermes may not touch its search index without this trust.
    trust = "trusted_schema=ON"
    for pragma in ("foreign_keys=ON", "wal_autocheckpoint=0", "synchronous=FULL", trust):
        handle.connection.execute(f"PRAGMA {pragma}")
    return handle


def look_at(handle: Handle, path: Path) -> HomeKind | None:
    """Return whose database this is, None for a file with nothing in it.

    Raises:
        Corrupt: it is no session database.
        Unsupported: its schema is too old.
    """
    if handle.value("SELECT count(*) FROM sqlite_master") == 0:
        return None
    for table, needed in _NEEDED.items():
        if not handle.has(table):
            raise Corrupt(f"{path} is no session database: it has no table {table}")
        missing = [column for column in needed if not handle.has(table, column)]
        if missing:
            raise Unsupported(
                f"the schema of {path} is too old ({table} has no {missing[0]}); "
                "open it once with Hermes 0.17 or later, which brings it up to date"
            )
    if not handle.has("state_meta"):
        return "hermes"
    mark = handle.value("SELECT value FROM state_meta WHERE key = ?", (MARK,))
    return "hermes" if mark is None else "own"


def create(path: Path, patience_s: float) -> HomeKind:
    """Make a database of our own, readable by its owner alone; another process may be faster.

    Return whose it is then.
    """
    with _creating:
        _touch(path)
        guard: Handle | None = None
        handle = _connect(file_uri(path, "mode=rw"))
        try:
            _keep_a_log(handle, time.monotonic() + patience_s)
            writer = Writer(lambda: handle, checkpoint="FULL", patience_s=patience_s)
            guard, _ = open_reader(path)
            writer.run(_write_schema)
            return look_at(guard, path) or "own"
        finally:
            handle.connection.close()
            if guard is not None:
                guard.connection.close()


def _keep_a_log(handle: Handle, deadline: float) -> None:
    if handle.value("PRAGMA journal_mode") == "wal":
        return
    # A journal in a file, left by a kill, would have to be rolled back before anybody can read.
    patiently(handle, "PRAGMA journal_mode=MEMORY", deadline)
    patiently(handle, "PRAGMA journal_mode=WAL", deadline)


def _touch(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Nobody can have a connection to a file that this call itself brings into being.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise Denied(f"{path} may not be created: {error.strerror}") from error


def _write_schema(handle: Handle) -> None:
    if handle.has("sessions"):
        return
    for name in ("schema", "index"):
        for statement in blocks.statements(name):
            handle.run(statement)
    handle.run("INSERT INTO state_meta VALUES (?, ?)", (MARK, uuid.uuid4().hex))


def _connect(uri: str) -> Handle:
    connection = driver.connect(uri, busy_timeout_s=1.0)
    try:
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA cell_size_check=ON")
        connection.execute("PRAGMA data_version").fetchone()
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return Handle(connection)


def _empty_handle() -> Handle:
    """Return what a home holds before its first write."""
    handle = Handle(driver.connect("file::memory:", busy_timeout_s=0))
    handle.stands_in = True
    for name in ("schema", "index"):
        for statement in blocks.statements(name):
            handle.run(statement)
    return handle


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 -- asked before every use
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _exists(path: Path) -> bool:
    return _size(path) > 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except OSError as error:
        raise Denied(f"{path} may not be looked at: {error.strerror}") from error


def _unwritable_mount(path: Path) -> bool:
    return hasattr(os, "statvfs") and bool(os.statvfs(path).f_flag & os.ST_RDONLY)
