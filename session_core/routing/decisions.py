"""Changes of routes: one thread per chat at a time, retried after a conflict.

`RouteDecisions.run_decision` reads the entry of a chat under the lock of that chat and passes it to
a function as a `RouteDecision`. The function decides and stores the new entry. If another process
has changed the entry meanwhile, the decision is dropped and made again. Calls that a decision
schedules, such as hooks, run after the commit, without the lock.
"""

from __future__ import annotations

import random
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from session_core import processes
from session_core.errors import Busy, Conflict, Denied, InvalidInput
from session_core.event_loops import get_current_task
from session_core.routing.leases import END_CLAIM, TURN_LEASE
from session_core.state.protocol import StateDatabase

if TYPE_CHECKING:
    from session_core.routing.entries import SessionEntry
    from session_core.routing.json_backend import JsonBackend
    from session_core.routing.settings import StoreSettings
    from session_core.routing.sql_backend import SqlBackend

DatabaseChange = Callable[[StateDatabase], object]
"""A change of the database to make in the same transaction as the change of a route."""

AfterCommit = Callable[[], object]

_MAX_ATTEMPTS = 40
"""The number of attempts if another process keeps changing the entry."""

_JITTER_S = 0.02

Decided = TypeVar("Decided")


class RouteTransaction:
    """A transaction over sessions and routes, with the callbacks to run after its commit.

    `ending` holds the ids of sessions that the transaction ends and that no chat has left so far.
    """

    def __init__(self, session_keys: frozenset[str], ending: Collection[str] = ()) -> None:
        self.session_keys = session_keys
        self.ending = set(ending)
        self.after_commit: list[AfterCommit] = []


class OpenTransaction(threading.local):
    """The transaction that is open in this thread, and the task that opened it."""

    def __init__(self) -> None:
        self._transaction: RouteTransaction | None = None
        self._task: weakref.ref[object] | None = None

    def find_transaction(self) -> RouteTransaction | None:
        """Return the transaction that the current task has open in this thread."""
        if self._transaction is None or self._task != get_current_task():
            return None
        return self._transaction

    def find_transaction_for_change(self) -> RouteTransaction | None:
        """Return the open transaction of the current task, in which a change must take part.

        Raises:
            Busy: another task of this thread has a transaction open; waiting would block both.
        """
        if self._transaction is not None and self._task != get_current_task():
            raise Busy(
                "another task of this thread has `store.transaction(...)` open; "
                "run the transaction in one function: await AsyncSessionStore(store).run(step)"
            )
        return self._transaction

    @contextmanager
    def enter_transaction(self, transaction: RouteTransaction) -> Iterator[None]:
        """Set the open transaction of this thread while the block runs."""
        self._transaction, self._task = transaction, get_current_task()
        try:
            yield
        finally:
            self._transaction = self._task = None


class KeyLocks:
    """Locks by key, each kept only while a thread uses it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._locks: dict[str, tuple[threading.RLock, int]] = {}

    @contextmanager
    def hold_lock(self, key: str) -> Iterator[None]:
        """Hold the lock of a key."""
        with self._mutex:
            lock, users = self._locks.get(key, (threading.RLock(), 0))
            self._locks[key] = lock, users + 1
        try:
            with lock:
                yield
        finally:
            with self._mutex:
                lock, users = self._locks.pop(key)
                # Its last user drops it, or the mapping would keep a lock for every chat.
                if users > 1:
                    self._locks[key] = lock, users - 1


class RouteDecision:
    """One decision on a chat: the entry that was read, and the calls to make after the commit.

    With `turn_token`, storing the entry also records that the message of this decision begins the
    turn with that token.
    """

    def __init__(
        self,
        decisions: RouteDecisions,
        key: str,
        transaction: RouteTransaction | None,
        turn_token: str | None = None,
    ) -> None:
        self.key = key
        self.entry = decisions.backend.get(key)
        self.transaction = transaction
        self.after_commit: list[AfterCommit] = []
        self._decisions = decisions
        self._turn_token = turn_token

    def save_entry(
        self,
        entry: SessionEntry,
        database_change: DatabaseChange | None = None,
        *,
        urgent: bool = False,
    ) -> None:
        """Store an entry and run `database_change` in the same transaction.

        The mirror is written after the commit: before this method returns if `urgent`, else soon.

        Raises:
            Conflict: the entry was changed since it was read.
        """
        settings, backend = self._decisions.settings, self._decisions.backend
        if self._turn_token is not None:
            # In the commit of the message: before a commit of its own, a watcher could end the
            # session.
            TURN_LEASE.put(entry, self._turn_token, settings.now())
            # The session is in use again: a claimed end is void.
            END_CLAIM.clear(entry)
        change: Callable[[], object] | None = None
        if database_change is not None and settings.db is not None:
            change = partial(database_change, settings.db)
            if not backend.is_transactional:
                change = partial(_run_in_transaction, change, settings.db)
        if backend.put(self.key, entry, change):
            update_mirror = partial(backend.request_mirror_update, urgent=urgent)
            self._decisions.call_after_commit(update_mirror, self.transaction)


class RouteDecisions:
    """Runs the decisions of a store with its locks, retries and transactions."""

    def __init__(self, settings: StoreSettings, backend: SqlBackend | JsonBackend) -> None:
        self.settings = settings
        self.backend = backend
        self.locks = KeyLocks()
        self._open = OpenTransaction()

    def run_decision(
        self,
        key: str,
        decide: Callable[[RouteDecision], Decided],
        *,
        turn_token: str | None = None,
    ) -> Decided:
        """Run a decision under the lock of its chat, then the callbacks that it scheduled.

        Raises:
            Conflict: another process has changed the entry at every attempt.
        """
        check_key_type(key)
        transaction = self.prepare_change(key)
        # Only the caller of a transaction can repeat all of it.
        attempts = 1 if transaction else _MAX_ATTEMPTS
        with self.locks.hold_lock(key):
            while True:
                attempts -= 1
                try:
                    decision = RouteDecision(self, key, transaction, turn_token)
                    decided = decide(decision)
                    break
                except Conflict:  # another process has changed the entry
                    if not attempts:
                        raise
                time.sleep(random.uniform(0, _JITTER_S))  # noqa: S311 -- jitter, not a secret
        # After the lock is released: the next caller does not wait for the hooks of this one.
        for callback in decision.after_commit:
            self.call_after_commit(callback, transaction)
        return decided

    def change_entry(
        self,
        key: str,
        change: Callable[[SessionEntry], bool],
        database_change: DatabaseChange | None = None,
    ) -> SessionEntry | None:
        """Change an entry with `change` and store it.

        Return None if the chat has no entry or if `change` returns False.
        """

        def decide_change(decision: RouteDecision) -> SessionEntry | None:
            entry = decision.entry
            if entry is None or not change(entry):
                return None
            decision.save_entry(entry, database_change)
            return entry

        return self.run_decision(key, decide_change)

    def begin_unlocked(self, key: str) -> RouteDecision:
        """Return a decision without a lock and without retries, to store one entry."""
        return RouteDecision(self, key, self.prepare_change(key))

    def call_after_commit(
        self, callback: AfterCommit, transaction: RouteTransaction | None
    ) -> None:
        """Run a callback now, or after the commit of the transaction."""
        if transaction is None:
            self._run_callback(callback)
        else:
            transaction.after_commit.append(callback)

    def is_ending(self, session_id: str) -> bool:
        """Return True if the open transaction ends a session that no chat has left so far."""
        transaction = self._open.find_transaction()
        return transaction is not None and session_id in transaction.ending

    @contextmanager
    def transaction(self, session_keys: Collection[str], ending: Collection[str]) -> Iterator[None]:
        """Run the `with` block as one transaction over sessions and the routes of these chats."""
        self.prepare_change()
        transaction = RouteTransaction(frozenset(session_keys), ending)
        with ExitStack() as stack:
            # Always in the same order, so that two transactions do not wait for each other.
            for key in sorted(transaction.session_keys):
                stack.enter_context(self.locks.hold_lock(key))
            with self._open_transaction(), self._open.enter_transaction(transaction):
                yield
        # After commit and locks: a hook may change the same chats.
        for callback in transaction.after_commit:
            self._run_callback(callback)

    def prepare_change(self, session_key: str | None = None) -> RouteTransaction | None:
        """Check that routes may be changed now, and adopt stray entries.

        Return the open transaction in which the change takes part, or None.
        """
        db = self.settings.db
        if db is not None and db.read_only:
            raise Denied("the database of these routes is open read-only; open it for writing")
        # A gateway has the routes in memory and would overwrite the change.
        processes.refuse_if_gateway_runs(self.settings.homes)
        transaction = self._open.find_transaction_for_change()
        if transaction is not None and session_key in transaction.session_keys:
            return transaction
        # Another thread may hold the lock of this chat and wait for the transaction open here.
        if transaction is not None or (db is not None and db.in_transaction):
            raise InvalidInput(
                "routes cannot be changed in a database transaction; "
                "use `with store.transaction(session_key):` and remove no routes in it"
            )
        self.backend.prepare_changes()
        return None

    def _open_transaction(self) -> AbstractContextManager[None]:
        """Return a database transaction, or a null context if the routes are in a file."""
        db = self.settings.db
        return (
            db.transaction() if db is not None and self.backend.is_transactional else nullcontext()
        )

    def _run_callback(self, callback: AfterCommit) -> None:
        """Run a callback of a change that is stored already.

        Report its exception.
        """
        try:
            callback()
        except Exception as error:  # noqa: BLE001 -- the other callbacks still run
            self.settings.report("a callback after a route change failed", error)


def check_key_type(session_key: str) -> None:
    """Raise `InvalidInput` unless a session key is a string.

    Raises:
        InvalidInput: the value is not a string; a caller may have passed a source.
    """
    if not isinstance(session_key, str):
        raise InvalidInput(
            f"session_key must be a string, got {type(session_key).__name__}; "
            "pass the result of get_session_key(source)"
        )


def _run_in_transaction(change: Callable[[], object], db: StateDatabase) -> None:
    with db.transaction():
        change()
