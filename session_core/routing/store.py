"""`SessionStore`: which session each chat is in.

Every call reads the table, or the file if there is no database; no entry is cached.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from session_core.errors import Busy, Conflict, InvalidInput, SessionError
from session_core.home import is_same_file
from session_core.routing import entries as routing_entries
from session_core.routing import policies
from session_core.routing.decisions import check_key_type
from session_core.routing.entries import RouteState, SessionEntry
from session_core.routing.outbox import list_pending, merge_pending
from session_core.routing.sessions import SessionInterruptions

if TYPE_CHECKING:
    import os
    from types import TracebackType

    from typing_extensions import Self

    from session_core.hooks import Hooks
    from session_core.state.protocol import StateDatabase


class SessionStore(SessionInterruptions):
    """The routes of a home: the session of each chat."""

    @classmethod
    def open(
        cls,
        home: str | os.PathLike[str],
        db: StateDatabase | None = None,
        *,
        hooks: Hooks | None = None,
    ) -> Self:
        """Open the store of a home with the folder and reset policies of its configuration."""
        from session_core.config import GatewayConfig  # noqa: PLC0415 -- imports pydantic

        config = GatewayConfig.load(home)
        return cls(config.sessions_dir or Path(home, "sessions"), config, db=db, hooks=hooks)

    # -- reading -----------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """The folder of the routes."""
        return self._folder

    @property
    def problems(self) -> list[str]:
        """The entries and files that could not be read or were set aside."""
        return self._copies.problems

    def get(self, session_key: str) -> SessionEntry | None:
        """Return a copy of the entry of a key as it is stored now."""
        check_key_type(session_key)
        return self._copies.get(session_key)

    def load_entries(self) -> dict[str, SessionEntry]:
        """Return all entries by their keys."""
        return self._copies.list_entries()

    def peek_session_id(self, session_key: str) -> str | None:
        """Return the id of the session that a chat is in."""
        entry = self.get(session_key)
        return None if entry is None else entry.session_id

    def lookup_by_session_id(self, session_id: str) -> SessionEntry | None:
        """Return the first entry in this session."""
        matches = (
            entry for entry in self.load_entries().values() if entry.session_id == session_id
        )
        return next(matches, None)

    def list_sessions(self, active_minutes: int | None = None) -> list[SessionEntry]:
        """Return the entries, most recently used first."""
        entries = sorted(
            self.load_entries().values(), key=lambda entry: entry.updated_at, reverse=True
        )
        if active_minutes is None:
            return entries
        now, seconds = self._now(), 60 * active_minutes
        return [entry for entry in entries if policies.is_recently_used(entry, seconds, now)]

    def find_route_state(self, entry: SessionEntry) -> RouteState:
        """Return the state of a route; `stale` and `dangling` routes lead to no usable session."""
        return routing_entries.find_route_state(self, entry)

    # -- marks -------------------------------------------------------------------------------

    def save(self, entry: SessionEntry, *, urgent: bool = False) -> None:
        """Store an entry that the caller has changed; hook calls delivered since stay delivered.

        Raises:
            InvalidInput: the key begins with `_`, which marks metadata.
            Conflict: the entry was changed since it was read.
        """
        if entry.key.startswith("_"):
            raise InvalidInput(
                f"key {entry.key!r} begins with '_', which marks metadata; use another key"
            )
        self._prepare_change(entry.key)
        current = self._copies.get(entry.key)
        if current is not None and current.stored != entry.stored:
            merge_pending(entry, current)
        self._store_entry(entry.key, entry, urgent=urgent or entry.has_new_session)

    def update_session(
        self, session_key: str, last_prompt_tokens: int | None = None
    ) -> SessionEntry | None:
        """Record that a chat was active, and the length of its prompt."""

        def change(entry: SessionEntry) -> bool:
            entry.updated_at = self._now()
            if last_prompt_tokens is not None:
                entry.last_prompt_tokens = last_prompt_tokens
            return True

        return self._change_entry(session_key, change)

    def set_model_override(self, session_key: str, override: dict[str, str] | None) -> bool:
        """Store the model that a chat asked for, or remove it; API keys are never stored.

        Raises:
            InvalidInput: the override is not a mapping.
        """
        if override is not None and not isinstance(override, Mapping):
            raise InvalidInput(
                "override must be a mapping with model, provider or base_url, "
                f"got {type(override).__name__}"
            )

        def change(entry: SessionEntry) -> bool:
            entry.model_override = dict(override) if override else None
            return True

        return self._change_entry(session_key, change) is not None

    # -- repair ------------------------------------------------------------------------------

    def repair_routes(self) -> list[str]:
        """Check each route once, as at a start: repair the damage of a crash; return the keys.

        A route whose session has ended moves to its continuation or to a session that can be
        continued. A route without either is removed, and the next message starts a new session. If
        another process holds the database, the remaining entries stay as they are, and the next
        message of their chats repairs them.
        """
        repaired_keys: list[str] = []
        try:
            self._prepare_change()
            for key, entry in self._copies.list_entries().items():
                if self._has_ended(entry) and self._run_decision(
                    key, partial(self._repair_route, key)
                ):
                    repaired_keys.append(key)
        except Busy as error:
            self.report("some routes were not checked: the database is busy", error)
        return repaired_keys

    def _has_ended(self, entry: SessionEntry) -> bool:
        row = None if self.db is None else self.db.get_session(entry.session_id)
        return row is not None and row["end_reason"] is not None

    def _repair_route(self, key: str, entry: SessionEntry | None) -> bool:
        if entry is None or self.db is None:
            return False
        if entry.expiry_finalized or list_pending(entry) or self.has_active_turn(entry):
            return False  # its next message calls the hooks, or its turn moves the route
        routed_id = entry.session_id
        try:
            if not self._follow_compression(entry):
                has_moved = entry.session_id != routed_id
                if has_moved:
                    self._store_entry(key, entry, self._build_peer_change(entry), urgent=True)
                return has_moved
            if entry.origin and self._recover_session(key, entry.origin, entry, arriving=False):
                return True
            if entry.suspended and not entry.origin:
                return False  # a message would recover the session, which is suspended
        except (Busy, Conflict):
            raise
        except SessionError:
            return False  # the next message tries again
        return bool(self._copies.remove({key: entry}))

    # -- removal -----------------------------------------------------------------------------

    def prune_old_entries(self, max_age_days: int | None) -> int:
        """Remove entries that were not used for this many days; return how many. Acts at once.

        Suspended entries, entries with active processes and entries with pending hook calls stay.
        The sessions are kept.

        Raises:
            InvalidInput: max_age_days is not a number.
        """
        if max_age_days is not None and not isinstance(max_age_days, (int, float)):
            raise InvalidInput(f"max_age_days must be a number or None, got {max_age_days!r}")
        if max_age_days is None or max_age_days <= 0:
            return 0
        now = self._now()
        old = {
            key: entry
            for key, entry in self.load_entries().items()
            if policies.is_prunable(entry, max_age_days, now, active=self._has_active_processes)
            and not list_pending(entry)
        }
        return len(self.remove(old)) if old else 0

    def remove(self, entries: dict[str, SessionEntry]) -> list[str]:
        """Remove entries from the table and the file; return the removed keys. Acts at once.

        An entry that was changed since it was read stays.
        """
        self._prepare_change()
        return self._copies.remove(entries)

    # -- closing -----------------------------------------------------------------------------

    def close(self) -> None:
        """Write the mirror; the caller closes the state database that it opened."""
        self._copies.close()
        self.marks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def check_database(store: SessionStore, db: StateDatabase) -> None:
    """Raise if the routes of a store are in another database.

    Raises:
        InvalidInput: they are in another database.
    """
    path = None if store.db is None else store.db.path
    if path is not None and db.path is not None and not is_same_file(path, db.path):
        raise InvalidInput(
            f"the routes of this store are in {path}, and {db.path} is another database; "
            "open both with the same one"
        )
