"""How the session of a chat is decided: by one caller at a time, again when another was faster.

Hooks are told when a decision is stored, and nobody is kept waiting by them.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
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

_TRIES = 8
"""How often a decision is taken anew when another process was faster."""

ActiveFn = Callable[[str], bool]
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
        self, session_key: str, change: Callable[[SessionEntry], bool]
    ) -> SessionEntry | None:
        """Change an entry and store it, where there is one and the change says yes."""

        def decide(entry: SessionEntry | None) -> SessionEntry | None:
            if entry is None:
                return None
            with self._step():
                if not change(entry):
                    return None
                self._copies.put(session_key, entry)
            self._copies.changed(urgent=False)
            return entry

        return self._deciding(session_key, decide)

    def _deciding(self, key: str, decide: Callable[[SessionEntry | None], Decided]) -> Decided:
        """Let one caller a chat decide at a time, again when another process was faster.

        Hooks are told when the decision is stored and nobody is kept waiting by them.
        """
        self._ready()
        with self._flights.of(key):
            for left in reversed(range(_TRIES)):
                self._told.boundaries = []
                try:
                    decided = decide(self._copies.get(key))
                    break
                except Conflict:
                    if not left:
                        raise
        for old, new, reason in self._told.boundaries:
            self._tell(old, new, reason)
        return decided

    def _tell(self, old: SessionEntry, new: SessionEntry, reason: str) -> None:
        """Call the hooks of a boundary; the end of an expired session was told already."""
        if self.hooks is None:
            return
        platform = str(new.platform or platform_of(new.session_key))
        ended = None if old.expiry_finalized else old.session_id
        self.hooks.boundary(ended, new.session_id, platform, reason)

    def _put(self, key: str, entry: SessionEntry, *, urgent: bool) -> None:
        self._copies.put(key, entry)
        self._copies.changed(urgent=urgent)

    def _step(self) -> AbstractContextManager[None]:
        """What changes inside, in routes and sessions, changes together."""
        return nullcontext() if self.db is None else self.db.transaction()

    def _ready(self) -> None:
        """Refuse where a live gateway would overwrite the change, and settle what is elsewhere."""
        if self.db is not None and self.db.kind == "hermes":
            live = presence.gateway(self._folder.parent)
            if live is not None and live.pid != os.getpid():
                raise Denied(
                    f"a gateway (pid {live.pid}) holds the routes of this home in memory and would "
                    "overwrite the change; stop it, then try again"
                )
        self._copies.settle()


class _Told(threading.local):
    """The boundaries that the decision of this thread has crossed."""

    boundaries: list[tuple[SessionEntry, SessionEntry, str]]


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
