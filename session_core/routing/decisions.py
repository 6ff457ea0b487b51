"""What a thread decides about chats: which are its own meanwhile, and what follows when stored.

How the session of a chat is decided: by one caller at a time, again when another was faster.

Hooks are told once a decision is stored; the next caller of the chat does not wait for them.
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
from session_core.routing.recovery import WhatsAppAliases
from session_core.routing.sql_backend import SqlBackend
from session_core.state.protocol import StateDatabase

if TYPE_CHECKING:
    from session_core.config import GatewayConfig


class RouteTransaction:
    """A step of sessions and routes, and what follows its commit.

    `ending` are the sessions that it ends and that no chat has left in it yet.
    """

    def __init__(self, session_keys: frozenset[str], ending: Collection[str] = ()) -> None:
        self.session_keys = session_keys
        self.ending = set(ending)
        self.afterwards: list[Callable[[], object]] = []


class DecisionState(threading.local):
    """What follows once the decision of this thread is stored, and the step it is a part of.

    `turn` is the key of a chat, and the token of the turn that its message begins.
    """

    afterwards: list[Callable[[], object]]
    turn: tuple[str, str] | None = None

    def __init__(self) -> None:
        self.afterwards = []
        self._step: RouteTransaction | None = None
        self._task: weakref.ref[object] | None = None

    @property
    def open_transaction(self) -> RouteTransaction | None:
        """The step that this task has open in this thread."""
        return self._step if self._task == get_current_task() else None

    @contextmanager
    def enter_transaction(self, step: RouteTransaction) -> Iterator[None]:
        """Let what this task decides inside be a part of a step."""
        self._step, self._task = step, get_current_task()
        try:
            yield
        finally:
            self._step = self._task = None

    def check_task(self) -> None:
        """Make sure that no other task of this thread has a step open.

        Raises:
            Busy: one has, and to wait for it would block both.
        """
        if self._step is not None and self.open_transaction is None:
            raise Busy(
                "another task of this thread has `store.transaction(...)` open; "
                "run such a step as one function: await AsyncSessionStore(store).run(step)"
            )


class KeyLocks:
    """A lock a key, there only while somebody wants it."""

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
"""How often a decision is taken anew when another process was faster."""

_JITTER_S = 0.02

ActiveFn = Callable[[str], bool]
DatabaseChange = Callable[[StateDatabase], object]
"""What changes in the database in the same step as a route."""

Decided = TypeVar("Decided")


class SessionStoreBase:
    """What every decision rests on: the copies, the settings, the clock, one caller a chat."""

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
            from session_core.config import GatewayConfig  # noqa: PLC0415 -- costs an import of pydantic

            config = GatewayConfig()
        self.config = config
        self.db = db
        self.hooks = hooks
        self.report: Reporter = log_fault
        self._folder = Path(sessions_dir)
        self._homes = presence.list_route_homes(self._folder, db.folder if db else None)
        home = self._homes[-1]
        alone = home.parent.name == "profiles" and not config.multiplex_profiles
        self._profile = home.name if alone else ""
        self._aliases = WhatsAppAliases(home)
        self._has_active_processes = has_active_processes_fn
        self._now = now
        self._new_id = new_id or _make_session_id
        self._flights = KeyLocks()
        self._told = DecisionState()
        self._nonce = uuid.uuid4().hex[:8]
        self.marks = marks or DeliveryMarks()
        if db is not None and db.has_routing:
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
        """The folder of the routes, and of the files that some sessions have."""
        return self._folder

    def get_session_key(self, source: SessionSource) -> str:
        """Return the key of a chat.

        Raises:
            InvalidInput: what is given is no source.
        """
        if not isinstance(source, SessionSource):
            raise InvalidInput("a message comes from a SessionSource")
        return build_session_key(
            source,
            group_sessions_per_user=self.config.group_sessions_per_user,
            thread_sessions_per_user=self.config.thread_sessions_per_user,
            profile=source.profile if self.config.multiplex_profiles else None,
            canonical_id=self._aliases.find_canonical,
        )

    def build_session_fields(self, entry: SessionEntry) -> dict[str, Any]:
        """Return what `append_message(create=...)` stores of a chat with its first message."""
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
        """Return what `record_gateway_session_peer` says of a chat in the row of its session."""
        fields = self.build_session_fields(entry)
        fields.pop("profile_name", None)
        return fields

    @contextmanager
    def transaction(self, *session_keys: str, ending: Collection[str] = ()) -> Iterator[None]:
        """What changes inside, in sessions and in the routes of these chats, is one transaction.

        It belongs to one task and one thread: a change of routes by another task of the thread is
        refused at once, and one of the same chats by another thread waits. The mirror follows it,
        and hooks are told, once it is committed. Nothing is removed inside.
        Where routes are in a file alone, they and the sessions change one after another. Who ends
        sessions inside by himself names them: the first chat that leaves one tells its end.

        Raises:
            InvalidInput: a transaction is open already.
            Busy: another task of this thread has such a step open.
        """
        self._prepare_change()
        step = RouteTransaction(frozenset(session_keys), ending)
        with ExitStack() as stack:
            for key in sorted(step.session_keys):
                stack.enter_context(self._flights.hold_lock(key))
            with self._open_transaction(), self._told.enter_transaction(step):
                yield
        for tell in step.afterwards:
            self._run_callback(tell)

    def _change_entry(
        self,
        session_key: str,
        change: Callable[[SessionEntry], bool],
        beside: DatabaseChange | None = None,
    ) -> SessionEntry | None:
        """Change an entry and store it, where there is one and the change says yes."""

        def decide(entry: SessionEntry | None) -> SessionEntry | None:
            if entry is None or not change(entry):
                return None
            self._store_entry(session_key, entry, beside, urgent=False)
            return entry

        return self._run_decision(session_key, decide)

    def _run_decision(self, key: str, decide: Callable[[SessionEntry | None], Decided]) -> Decided:
        """Let one caller a chat decide at a time, again when another process was faster.

        Hooks are told once it is stored, when the next caller may decide already.
        """
        check_key_type(key)
        self._prepare_change(key)
        afterwards: list[Callable[[], object]] = []
        # What is asked while it is decided may decide about another chat.
        outer, self._told.afterwards = self._told.afterwards, afterwards
        try:
            with self._flights.hold_lock(key):
                decided = self._retry_decision(key, decide)
        finally:
            self._told.afterwards = outer
        for tell in afterwards:
            self._run_after_commit(tell)
        return decided

    def _retry_decision(
        self, key: str, decide: Callable[[SessionEntry | None], Decided]
    ) -> Decided:
        for _ in range(0 if self._told.open_transaction else _MAX_ATTEMPTS - 1):
            try:
                return decide(self._copies.get(key))
            except Conflict:
                self._told.afterwards.clear()
            time.sleep(random.uniform(0, _JITTER_S))  # noqa: S311 -- jitter, not a secret
        return decide(self._copies.get(key))

    def _run_after_commit(self, tell: Callable[[], object]) -> None:
        """Do what follows a change: now, or once the step that it is a part of is committed."""
        step = self._told.open_transaction
        if step is None:
            self._run_callback(tell)
        else:
            step.afterwards.append(tell)

    def _run_callback(self, tell: Callable[[], object]) -> None:
        """Do one thing that follows a change, which is stored whatever comes of this."""
        try:
            tell()
        except Exception as error:  # noqa: BLE001 -- what else follows is done all the same
            self.report("what follows a change of a route has failed", error)

    def _store_entry(
        self, key: str, entry: SessionEntry, beside: DatabaseChange | None = None, *, urgent: bool
    ) -> None:
        """Store an entry, and in the same step what changes beside it."""
        begun_in, token = self._told.turn or (None, "")
        if begun_in == key:
            TURN_LEASE.put(entry, token, self._now())
            END_CLAIM.clear(entry)
        step = (
            None
            if beside is None or self.db is None
            else partial(_run_in_transaction, beside, self.db)
        )
        if self._copies.put(key, entry, step):
            self._run_after_commit(partial(self._copies.request_mirror_update, urgent=urgent))

    def _open_transaction(self) -> AbstractContextManager[None]:
        """What changes inside, in routes and sessions, changes together; a file never does."""
        if self.db is None or isinstance(self._copies, JsonBackend):
            return nullcontext()
        return self.db.transaction()

    def _prepare_change(self, session_key: str | None = None) -> None:
        """Refuse where it may not be or would be overwritten, and settle what is elsewhere.

        Refused is also what could wait forever: for a chat that another thread decides about, and
        that thread for the transaction which is open here.
        """
        if self.db is not None and self.db.read_only:
            raise Denied("the database of these routes was opened read-only; open it for writing")
        presence.refuse_if_gateway_runs(self._homes)
        self._told.check_task()
        step = self._told.open_transaction
        if step is not None and session_key in step.session_keys:
            return
        if step is not None or (self.db is not None and self.db.in_transaction):
            raise InvalidInput(
                "routes are not changed in a transaction; "
                "use `with store.transaction(session_key):`, and remove none in it"
            )
        self._copies.prepare_changes()


def check_key_type(session_key: str) -> None:
    """Refuse what names no chat, such as its source.

    Raises:
        InvalidInput: it is no text.
    """
    if not isinstance(session_key, str):
        raise InvalidInput("a chat is named by the text that get_session_key(source) returns")


def _run_in_transaction(beside: DatabaseChange, db: StateDatabase) -> None:
    with db.transaction():
        beside(db)


def _make_session_id(now: datetime) -> str:
    return f"{now:%Y%m%d_%H%M%S}_{uuid.uuid4().hex[:8]}"
