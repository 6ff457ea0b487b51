"""Changes of routes: one thread per chat at a time, retried after a conflict.

A *decision* reads the entry of a chat, decides and stores the new entry. `SessionStoreBase` runs it
under the lock of the chat and repeats it if another process has changed the entry meanwhile. Hooks
are called after the commit.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from session_core import presence
from session_core.chats import SessionSource, build_session_key, get_key_platform
from session_core.errors import Busy, Conflict, Denied, InvalidInput
from session_core.event_loops import get_current_task
from session_core.hooks import Hooks
from session_core.hooks.calls import Reporter, log_fault
from session_core.routing.entries import SessionEntry
from session_core.routing.json_backend import JsonBackend
from session_core.routing.leases import END_CLAIM, TURN_LEASE, DeliveryMarks
from session_core.routing.sql_backend import SqlBackend
from session_core.routing.whatsapp import WhatsAppAliases
from session_core.state.protocol import StateDatabase

if TYPE_CHECKING:
    from session_core.config import GatewayConfig


class RouteTransaction:
    """A transaction over sessions and routes, with the callbacks to run after its commit.

    `ending` holds the sessions that it ends and that no chat has left in it yet.
    """

    def __init__(self, session_keys: frozenset[str], ending: Collection[str] = ()) -> None:
        self.session_keys = session_keys
        self.ending = set(ending)
        self.after_commit: list[Callable[[], object]] = []


class DecisionState(threading.local):
    """The state of the decision that this thread runs, and the transaction that it is a part of.

    `turn` is the key of a chat and the token of the turn that its message begins.
    """

    after_commit: list[Callable[[], object]]
    turn: tuple[str, str] | None = None

    def __init__(self) -> None:
        self.after_commit = []
        self._transaction: RouteTransaction | None = None
        self._task: weakref.ref[object] | None = None

    @property
    def open_transaction(self) -> RouteTransaction | None:
        """The transaction that the current task has open in this thread."""
        return self._transaction if self._task == get_current_task() else None

    @contextmanager
    def enter_transaction(self, transaction: RouteTransaction) -> Iterator[None]:
        """Make the decisions of the current task parts of a transaction."""
        self._transaction, self._task = transaction, get_current_task()
        try:
            yield
        finally:
            self._transaction = self._task = None

    def check_task(self) -> None:
        """Raise if another task of this thread has a transaction open.

        Raises:
            Busy: another task has one open; waiting for it would block both.
        """
        if self._transaction is not None and self.open_transaction is None:
            raise Busy(
                "another task of this thread has `store.transaction(...)` open; "
                "run the transaction in one function: await AsyncSessionStore(store).run(step)"
            )


class KeyLocks:
    """A lock for each key, kept only while a thread uses it."""

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
                if users > 1:
                    self._locks[key] = lock, users - 1


_MAX_ATTEMPTS = 40
"""The number of times that a decision is tried if another process keeps changing the entry."""

_JITTER_S = 0.02

ActiveFn = Callable[[str], bool]
DatabaseChange = Callable[[StateDatabase], object]
"""A change of the database in the same transaction as a route."""

Decision = TypeVar("Decision")


class SessionStoreBase:
    """The base of every decision: backend, settings, clock and locks."""

    def __init__(
        self,
        sessions_dir: str | Path,
        config: GatewayConfig | None = None,
        has_active_processes_fn: ActiveFn | None = None,
        db: StateDatabase | None = None,
        *,
        hooks: Hooks | None = None,
        marks: DeliveryMarks | None = None,
        now: Callable[[], datetime] = datetime.now,
        new_id: Callable[[datetime], str] | None = None,
    ) -> None:
        if config is None:
            from session_core.config import GatewayConfig  # noqa: PLC0415 -- imports pydantic

            config = GatewayConfig()
        self.config = config
        self.db = db
        self.hooks = hooks
        self.report: Reporter = log_fault
        self._folder = Path(sessions_dir)
        self._homes = presence.list_route_homes(self._folder, db.folder if db else None)
        home = self._homes[-1]
        is_own_profile = home.parent.name == "profiles" and not config.multiplex_profiles
        self._profile = home.name if is_own_profile else ""
        self._aliases = WhatsAppAliases(home)
        self._has_active_processes = has_active_processes_fn
        self._now = now
        self._new_id = new_id or _make_session_id
        self._key_locks = KeyLocks()
        self._thread_state = DecisionState()
        self._nonce = uuid.uuid4().hex[:8]
        self.marks = marks or DeliveryMarks()
        if db is not None and db.routes.is_available:
            self._copies: SqlBackend | JsonBackend = SqlBackend(
                db, self._folder, mirrored=config.write_sessions_json
            )
        else:
            self._copies = JsonBackend(
                self._folder,
                home=None if db is None else db.folder,
                explained=db is None or db.kind != "hermes",
            )

    @property
    def sessions_dir(self) -> Path:
        """The folder of the routes and of the files of some sessions."""
        return self._folder

    def get_session_key(self, source: SessionSource) -> str:
        """Return the key of a chat.

        Raises:
            InvalidInput: the argument is not a SessionSource.
        """
        if not isinstance(source, SessionSource):
            raise InvalidInput(f"source must be a SessionSource, got {type(source).__name__}")
        return build_session_key(
            source,
            group_sessions_per_user=self.config.group_sessions_per_user,
            thread_sessions_per_user=self.config.thread_sessions_per_user,
            profile=source.profile if self.config.multiplex_profiles else None,
            canonical_id=self._aliases.find_canonical,
        )

    def build_session_fields(self, entry: SessionEntry) -> dict[str, Any]:
        """Return the fields of a chat for `append_message(create=...)`."""
        origin = entry.origin
        fields: dict[str, Any] = {
            "source": str(entry.platform or get_key_platform(entry.session_key) or "unknown"),
            "session_key": entry.session_key,
            "chat_type": entry.chat_type,
            "display_name": entry.display_name,
        }
        if origin is not None:
            fields |= {
                "user_id": origin.user_id,
                "chat_id": origin.chat_id,
                "thread_id": origin.thread_id,
                "profile_name": origin.profile,
                "origin_json": origin.to_dict(),
            }
        return {name: value for name, value in fields.items() if value is not None}

    def build_peer_fields(self, entry: SessionEntry) -> dict[str, Any]:
        """Return the fields of a chat for `record_gateway_session_peer`."""
        fields = self.build_session_fields(entry)
        fields.pop("profile_name", None)
        return fields

    @contextmanager
    def transaction(self, *session_keys: str, ending: Collection[str] = ()) -> Iterator[None]:
        """Run the block as one transaction over sessions and the routes of these chats.

        The transaction belongs to one task and one thread. Another task of the thread that changes
        routes is refused at once; another thread that changes the same chats waits. The mirror is
        written and hooks are called after the commit. Routes cannot be removed inside. If routes
        are in a file alone, they and the sessions change one after another. A caller that ends
        sessions inside by itself names them in `ending`: the first chat that leaves one delivers
        its end.

        Raises:
            InvalidInput: a transaction is open already.
            Busy: another task of this thread has a transaction open.
        """
        self._prepare_change()
        transaction = RouteTransaction(frozenset(session_keys), ending)
        with ExitStack() as stack:
            for key in sorted(transaction.session_keys):
                stack.enter_context(self._key_locks.hold_lock(key))
            with self._open_transaction(), self._thread_state.enter_transaction(transaction):
                yield
        for callback in transaction.after_commit:
            self._run_callback(callback)

    def _change_entry(
        self,
        session_key: str,
        change: Callable[[SessionEntry], bool],
        database_change: DatabaseChange | None = None,
    ) -> SessionEntry | None:
        """Change and store an entry; return None if there is none or `change` returns False."""

        def decide(entry: SessionEntry | None) -> SessionEntry | None:
            if entry is None or not change(entry):
                return None
            self._store_entry(session_key, entry, database_change, urgent=False)
            return entry

        return self._run_decision(session_key, decide)

    def _run_decision(
        self, key: str, decide: Callable[[SessionEntry | None], Decision]
    ) -> Decision:
        """Run a decision under the lock of its chat, then run the callbacks that it scheduled."""
        check_key_type(key)
        self._prepare_change(key)
        # After the lock is released: the next caller does not wait for the hooks of this one.
        callbacks: list[Callable[[], object]] = []
        # A callback of the caller, such as `has_active_processes_fn`, may start another decision.
        outer_callbacks, self._thread_state.after_commit = (
            self._thread_state.after_commit,
            callbacks,
        )
        try:
            with self._key_locks.hold_lock(key):
                decided = self._retry_decision(key, decide)
        finally:
            self._thread_state.after_commit = outer_callbacks
        for callback in callbacks:
            self._run_after_commit(callback)
        return decided

    def _retry_decision(
        self, key: str, decide: Callable[[SessionEntry | None], Decision]
    ) -> Decision:
        for _ in range(0 if self._thread_state.open_transaction else _MAX_ATTEMPTS - 1):
            try:
                return decide(self._copies.get(key))
            except Conflict:  # another process has changed the entry
                self._thread_state.after_commit.clear()
            time.sleep(random.uniform(0, _JITTER_S))  # noqa: S311 -- jitter, not a secret
        return decide(self._copies.get(key))

    def _run_after_commit(self, callback: Callable[[], object]) -> None:
        """Run a callback now, or after the commit of the open transaction."""
        transaction = self._thread_state.open_transaction
        if transaction is None:
            self._run_callback(callback)
        else:
            transaction.after_commit.append(callback)

    def _run_callback(self, callback: Callable[[], object]) -> None:
        """Run one callback of a change; report its exception, since the change is stored."""
        try:
            callback()
        except Exception as error:  # noqa: BLE001 -- the other callbacks still run
            self.report("a callback after a route change failed", error)

    def _store_entry(
        self,
        key: str,
        entry: SessionEntry,
        database_change: DatabaseChange | None = None,
        *,
        urgent: bool,
    ) -> None:
        """Store an entry and run a change of the database in the same transaction."""
        turn_key, token = self._thread_state.turn or (None, "")
        if turn_key == key:
            TURN_LEASE.put(entry, token, self._now())
            # The session is in use again: a claimed end is void.
            END_CLAIM.clear(entry)
        change_database = (
            None
            if database_change is None or self.db is None
            else partial(_run_in_transaction, database_change, self.db)
        )
        if self._copies.put(key, entry, change_database):
            self._run_after_commit(partial(self._copies.request_mirror_update, urgent=urgent))

    def _open_transaction(self) -> AbstractContextManager[None]:
        """Return a transaction over routes and sessions; routes in a file have none."""
        if self.db is None or isinstance(self._copies, JsonBackend):
            return nullcontext()
        return self.db.transaction()

    def _prepare_change(self, session_key: str | None = None) -> None:
        """Refuse a change that is not allowed or could deadlock; adopt stray entries."""
        if self.db is not None and self.db.read_only:
            raise Denied("the database of these routes is open read-only; open it for writing")
        presence.refuse_if_gateway_runs(self._homes)
        self._thread_state.check_task()
        transaction = self._thread_state.open_transaction
        if transaction is not None and session_key in transaction.session_keys:
            return
        # Another thread may hold the lock of this chat and wait for the transaction open here.
        if transaction is not None or (self.db is not None and self.db.in_transaction):
            raise InvalidInput(
                "routes cannot be changed in a database transaction; "
                "use `with store.transaction(session_key):` and remove no routes in it"
            )
        self._copies.prepare_changes()


def check_key_type(session_key: str) -> None:
    """Raise unless a session key is a string.

    Raises:
        InvalidInput: it is not a string, for example a source.
    """
    if not isinstance(session_key, str):
        raise InvalidInput(
            f"session_key must be a string, got {type(session_key).__name__}; "
            "pass the result of get_session_key(source)"
        )


def _run_in_transaction(database_change: DatabaseChange, db: StateDatabase) -> None:
    with db.transaction():
        database_change(db)


def _make_session_id(now: datetime) -> str:
    return f"{now:%Y%m%d_%H%M%S}_{uuid.uuid4().hex[:8]}"
