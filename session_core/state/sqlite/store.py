"""The connections of one database: a pool of readers, one writer, and the guard before it.

Readers are `mode=ro`. A writer is opened only behind a guard, a `mode=ro` connection that outlives
it: while the guard is open no close of ours can unlink the log of a process that has lost its
locks. A Hermes database gets no DDL and no pragma that stays in the file.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from session_core import driver, home, presence
from session_core.errors import (
    Busy,
    Denied,
    InvalidInput,
    SessionError,
    StorageError,
    Unsupported,
)
from session_core.state.sqlite import index
from session_core.state.sqlite.handle import Handle, translate
from session_core.state.sqlite.opening import (
    create,
    empty_handle,
    exists,
    finish_leftover,
    identity,
    look_at,
    open_reader,
    open_writer,
    size,
)
from session_core.state.sqlite.writer import Writer

if TYPE_CHECKING:
    from typing_extensions import Self

    from session_core.models import HomeKind

T = TypeVar("T")

_LONG_LOG_BYTES = 4 << 20

_TIDY_S = 5.0
"""How long a search or a close brings the search index up to date, where that is far behind."""

_EXIT_WAIT_S = 1.0
"""How long the end of the process waits for a thread that is in the middle of a change."""


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
        if not patience_s >= 0:
            raise InvalidInput(f"patience_s is {patience_s}; at least 0")
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

    @property
    def in_transaction(self) -> bool:
        """Whether this thread has a transaction open."""
        writer = self._open.writer
        return writer is not None and writer.current is not None

    def close(self) -> None:
        """Close every connection; the last change that returned is durable."""
        writer = self._open.writer
        if self.in_transaction:
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
        with self._errors(), fit_to_bind():
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
        self._check_alive()
        with self._errors(), fit_to_bind():
            if self._open.writer is None and not self.read_only and not exists(self.path):
                # What is refused, or changes nothing, does not bring a home into being.
                changed, result = _rehearse(step)
                if not changed:
                    return result
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
        asked = ", ".join(holders) or "another connection, perhaps of this process"
        return Busy(
            f"the database {self.path} is held by {asked}; let it finish, then try again",
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

    def _reader(self) -> Handle:
        file = identity(self.path)
        while self._open.readers:
            try:
                handle = self._open.readers.pop()
            except IndexError:
                break
            if handle.file == file:
                return handle
            handle.connection.close()
        if not exists(self.path):
            if self._open.exists:
                raise StorageError(f"{self.path} is gone; put it back, or open another")
            return empty_handle()
        handle, self._immutable = open_reader(self.path)
        kind = look_at(handle, self.path)
        if kind is None:
            handle.connection.close()
            return empty_handle()
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
                # Nothing here may refer to `self`: whoever drops it unclosed relies on its end.
                self._open.writer = Writer(
                    partial(open_writer, self.path),
                    checkpoint="FULL" if own else "PASSIVE",
                    patience_s=self._patience_s,
                    check=partial(self._open.check_same_file, self.path),
                    overdue=size(Path(f"{self.path}-wal")) > _LONG_LOG_BYTES,
                    afterwards=index.catch_up,
                )
            return self._open.writer

    def _prepare(self) -> None:
        """Make our own database where there is none, and open the guard."""
        finish_leftover(self.path)
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

    def check_same_file(self, path: Path) -> None:
        if self.guard is not None and self.guard.file != identity(path):
            raise StorageError(
                f"another file was put in the place of {path}, or none; open it again"
            )

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


def _rehearse(step: Callable[[Handle], T]) -> tuple[bool, T]:
    """Run a step on an empty database in memory; say whether it changed anything."""
    handle = empty_handle()
    with closing(handle.connection):
        before = handle.connection.total_changes
        with handle.snapshot():
            result = step(handle)
        return handle.connection.total_changes > before, result


@contextmanager
def fit_to_bind() -> Iterator[None]:
    """Name what the driver says of values that no column takes, which the caller gave."""
    try:
        yield
    except (OverflowError, UnicodeEncodeError) as error:
        raise InvalidInput("a number beyond 64 bits, or text with half a character") from error
