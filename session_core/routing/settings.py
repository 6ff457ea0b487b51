"""`StoreSettings`: the folder, configuration, hooks and clock that the parts share."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from session_core import processes
from session_core.chats import SessionSource, WhatsAppAliases, build_session_key
from session_core.errors import InvalidInput
from session_core.hooks import Hooks
from session_core.hooks.foreign_calls import Reporter, log_fault
from session_core.state.protocol import StateDatabase

if TYPE_CHECKING:
    from session_core.config import GatewayConfig

HasActiveProcesses = Callable[[str], bool]
"""Returns True if a process of the chat with this session key is at work."""


class StoreSettings:
    """The settings of a store.

    `config`, `hooks` and `report` may be replaced at any time.
    """

    def __init__(
        self,
        folder: Path | None,
        config: GatewayConfig,
        db: StateDatabase | None,
        *,
        hooks: Hooks | None = None,
        has_active_processes: HasActiveProcesses | None = None,
        now: Callable[[], datetime] | None = None,
        new_id: Callable[[datetime], str] | None = None,
    ) -> None:
        self.folder = folder
        self.config = config
        self.db = db
        self.hooks = hooks
        self.report: Reporter = log_fault
        self.has_active_processes = has_active_processes
        self.now = now or self._get_time
        self.new_id = new_id or _make_session_id
        self.homes = processes.list_candidate_homes(folder, db.folder if db else None)
        home = self.homes[-1] if self.homes else None
        is_own_profile = (
            home is not None and home.parent.name == "profiles" and not config.multiplex_profiles
        )
        self.profile = home.name if home is not None and is_own_profile else ""
        self._aliases = None if home is None else WhatsAppAliases(home)

    def _get_time(self) -> datetime:
        """Return the local time by the clock of the home's server, which all machines share."""
        offset_s = 0.0 if self.db is None else self.db.admin.get_clock_offset()
        return datetime.fromtimestamp(time.time() + offset_s)  # noqa: DTZ006 -- entries have local time

    @property
    def is_hermes(self) -> bool:
        """True if the gateway of Hermes reads the entries with its own watcher."""
        return self.db is not None and self.db.admin.get_capabilities().foreign_gateway

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
            canonical_id=None if self._aliases is None else self._aliases.find_canonical,
        )


def _make_session_id(now: datetime) -> str:
    return f"{now:%Y%m%d_%H%M%S}_{uuid.uuid4().hex[:8]}"
