"""Transactions and read snapshots of callers: each belongs to one task in one thread."""

from __future__ import annotations

import os
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from session_core.errors import InvalidInput, StorageError, Unsupported
from session_core.event_loops import get_current_task
from session_core.state.sqlite.write_queue import get_thread_token

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from session_core.state.postgres.connection import PostgresConnection
    from session_core.state.postgres.store import PostgresStore


class CallerBlock:
    """A block of one task in one thread with its own connection."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._handle: PostgresConnection | None = None
        self._caller: tuple[object, object] | None = None
        self._pid = os.getpid()
        self._dropper: weakref.finalize[Any, Any] | None = None

    @property
    def is_of_caller(self) -> bool:
        """True if calls of the current task and thread belong to this block."""
        return self._caller == (get_thread_token(), get_current_task())

    @property
    def is_of_thread(self) -> bool:
        """True if the block began in the current thread."""
        return self._caller is not None and self._caller[0] == get_thread_token()

    def get_handle(self) -> PostgresConnection:
        """Return the connection of the block."""
        if self._handle is None or not self._handle.in_transaction:
            raise StorageError("the transaction was ended by an error; begin a new one")
        return self._handle

    def _hold(self, handle: PostgresConnection) -> None:
        self._handle = handle
        self._caller = (get_thread_token(), get_current_task())
        # A block that is dropped without its exit would hold the lock until the process ends.
        self._dropper = weakref.finalize(self, _drop_connection, self._store, handle, self._pid)

    def _release(self) -> PostgresConnection:
        """End the block and return its connection."""
        self._caller = None
        handle = cast("PostgresConnection", self._handle)
        self._handle = None
        if self._dropper is not None:
            self._dropper.detach()
        return handle


def _drop_connection(store: PostgresStore, handle: PostgresConnection, pid: int) -> None:
    """Roll back an abandoned block, unless it belongs to a parent process."""
    if pid == os.getpid():
        store.release_connection(handle)


class ReadSnapshot(CallerBlock):
    """The reads of one task in one thread, all at one moment of the database."""

    is_index_behind = False
    """Whether a search has found texts to index, which waits for the end."""

    def __enter__(self) -> None:
        if self._store.find_transaction() or self._store.find_snapshot():
            return
        with self._store.translate_errors():
            self._hold(self._store.begin_read())
        self._store.snapshots.append(weakref.ref(self, self._store.snapshots.remove))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handle is None or self._pid != os.getpid():
            return
        handle = self._release()
        with self._store.translate_errors():
            self._store.end_read(handle)
        if kind is None and self.is_index_behind:
            self._store.update_search_index()


class Transaction(CallerBlock):
    """The changes of one task in one thread: a transaction, or a savepoint of an outer one."""

    def __init__(self, store: PostgresStore, *, linked: bool) -> None:
        super().__init__(store)
        self._linked = linked
        self._part: AbstractContextManager[None] | None = None

    def __enter__(self) -> None:
        outer = self._store.find_transaction()
        with self._store.translate_errors():
            if outer is not None:
                handle = outer.get_handle()
                if handle.linked and not self._linked:
                    raise InvalidInput(
                        "the open transaction checks links; use linked=False in one of its own"
                    )
                self._part = handle.isolate_failure()
                self._part.__enter__()
                return
            self._store.check_writable()
            handle = self._store.begin_write()
        handle.linked = self._linked
        self._hold(handle)
        self._store.transactions.append(weakref.ref(self, self._store.transactions.remove))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pid != os.getpid():
            if kind is None:
                raise Unsupported(
                    "the transaction belongs to the parent process, which continues it"
                )
            return
        if self._part is not None:
            part, self._part = self._part, None
            with self._store.translate_errors():
                # This rolls back to the savepoint, and the error of the caller is raised again.
                part_error = error if kind is None or error is not None else kind()
                try:
                    part.__exit__(kind, part_error, trace)
                except BaseException as raised:
                    if raised is not part_error:
                        raise
            self._forget_open_handle(kind)
            return
        if self._handle is None:
            return
        handle = self._release()
        with self._store.translate_errors():
            self._store.end_write(handle, commit=kind is None)

    def _forget_open_handle(self, kind: type[BaseException] | None) -> None:
        outer = self._store.find_transaction()
        if kind is not None and outer is not None:
            # The caches may hold values of the undone changes.
            outer.get_handle().forget_all()
