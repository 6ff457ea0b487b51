"""How the session of a chat is decided: by one caller at a time, again when another was faster.

Hooks are told when a decision is stored, and nobody is kept waiting by them.
"""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from session_core import presence
from session_core.errors import Conflict, Denied
from session_core.hooks import Hooks
from session_core.keys import SessionSource, build_session_key, platform_of
from session_core.routing import policies
from session_core.routing.entries import SessionEntry
from session_core.routing.file import File
from session_core.routing.table import Table
from session_core.state.contract import StateDatabase

if TYPE_CHECKING:
    from session_core.settings import GatewayConfig

_TRIES = 40
"""How often a decision is taken anew when another process was faster."""

_JITTER_S = 0.02

ActiveFn = Callable[[str], bool]
Beside = Callable[[StateDatabase], object]
"""What changes in the database in the same step as a route."""

Decided = TypeVar("Decided")


class Deciding:
    """What every decision rests on: the copies, the settings, the clock, one caller a chat."""

    def __init__(
        self,
        sessions_dir: str | Path,
        config: GatewayConfig | None = None,
        has_active_processes_fn: ActiveFn | None = None,
        db: StateDatabase | None = None,
        *,
        hooks: Hooks | None = None,
        now: Callable[[], datetime] = datetime.now,
        new_id: Callable[[datetime], str] | None = None,
    ) -> None:
        if config is None:
            from session_core.settings import GatewayConfig  # noqa: PLC0415 -- costs an import of pydantic

            config = GatewayConfig()
        self.config = config
        self.db = db
        self.hooks = hooks
        self._folder = Path(sessions_dir)
        self._has_active_processes = has_active_processes_fn
        self._now = now
        self._new_id = new_id or _new_id
        self._flights = _Flights()
        self._told = _Told()
        if db is not None and db.has_routing:
            self._copies: Table | File = Table(
                db, self._folder, mirrored=config.write_sessions_json
            )
        else:
            self._copies = File(self._folder, explained=db is None or db.kind != "hermes")

    def key_of(self, source: SessionSource) -> str:
        """Return the key of a chat."""
        return build_session_key(
            source,
            group_sessions_per_user=self.config.group_sessions_per_user,
            thread_sessions_per_user=self.config.thread_sessions_per_user,
            profile=source.profile if self.config.multiplex_profiles else None,
        )

    def is_session_expired(self, entry: SessionEntry) -> str | None:
        """Return the reason for which the policy would end a session now."""
        return policies.reset_reason(
            entry,
            self.config.policy_for(entry.platform, entry.chat_type),
            self._now(),
            has_active_processes=self._has_active_processes,
        )

    def session_fields(self, entry: SessionEntry) -> dict[str, Any]:
        """Return what `append_message(create=...)` stores of a chat with its first message."""
        origin = entry.origin
        fields: dict[str, Any] = {
            "source": str(entry.platform or platform_of(entry.session_key) or "unknown"),
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

    def _change(
        self,
        session_key: str,
        change: Callable[[SessionEntry], bool],
        beside: Beside | None = None,
    ) -> SessionEntry | None:
        """Change an entry and store it, where there is one and the change says yes."""

        def decide(entry: SessionEntry | None) -> SessionEntry | None:
            if entry is None or not change(entry):
                return None
            self._put(session_key, entry, beside, urgent=False)
            return entry

        return self._deciding(session_key, decide)

    def _deciding(self, key: str, decide: Callable[[SessionEntry | None], Decided]) -> Decided:
        """Let one caller a chat decide at a time, again when another process was faster.

        Hooks are told when the decision is stored and nobody is kept waiting by them.
        """
        self._ready()
        with self._flights.of(key):
            for left in reversed(range(_TRIES)):
                self._told.afterwards = []
                try:
                    decided = decide(self._copies.get(key))
                    break
                except Conflict:
                    if not left:
                        raise
                time.sleep(random.uniform(0, _JITTER_S))  # noqa: S311 -- jitter, not a secret
        for tell in self._told.afterwards:
            tell()
        return decided

    def _crossed(self, old: SessionEntry, new: SessionEntry, reason: str) -> None:
        """Note a boundary, whose hooks are called once the decision is stored."""
        self._told.afterwards.append(partial(self._tell, old, new, reason))

    def _went_on(self, session_id: str) -> None:
        """Note that a session was reopened, so that its next end is told again."""
        if self.hooks is not None:
            self._told.afterwards.append(partial(self.hooks.reopened, session_id))

    def _tell(self, old: SessionEntry, new: SessionEntry, reason: str) -> None:
        """Call the hooks of a boundary; the end of an expired session was told already."""
        if self.hooks is None:
            return
        platform = str(new.platform or platform_of(new.session_key))
        ended = None if old.expiry_finalized else old.session_id
        self.hooks.boundary(ended, new.session_id, platform, reason)

    def _put(
        self, key: str, entry: SessionEntry, beside: Beside | None = None, *, urgent: bool
    ) -> None:
        """Store an entry, and in the same step what changes beside it."""
        with self._step() if beside else nullcontext():
            stored = self._copies.put(key, entry)
            if beside is not None and self.db is not None:
                beside(self.db)
        if stored:
            self._copies.changed(urgent=urgent)

    def _step(self) -> AbstractContextManager[None]:
        """What changes inside, in routes and sessions, changes together; a file never does."""
        if self.db is None or isinstance(self._copies, File):
            return nullcontext()
        return self.db.transaction()

    def _ready(self) -> None:
        """Refuse where a live gateway would overwrite the change, and settle what is elsewhere."""
        live = presence.gateway(self._folder.parent)
        if live is not None and live.pid != os.getpid():
            raise Denied(
                f"a gateway (pid {live.pid}) holds the routes of this home in memory and would "
                "overwrite the change; stop it, then try again"
            )
        self._copies.settle()


class _Told(threading.local):
    """What is told once the decision of this thread is stored."""

    afterwards: list[Callable[[], object]]


class _Flights:
    """A lock a key, there only while somebody wants it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._locks: dict[str, tuple[threading.RLock, int]] = {}

    @contextmanager
    def of(self, key: str) -> Iterator[None]:
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


def _new_id(now: datetime) -> str:
    return f"{now:%Y%m%d_%H%M%S}_{uuid.uuid4().hex[:8]}"
