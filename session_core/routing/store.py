"""`SessionStore`: which session each chat is in.

The truth is in the table (or the file, without a database) and asked each time: no entry is held.
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
    """The sessions that chats are in."""

    @classmethod
    def open(
        cls,
        home: str | os.PathLike[str],
        db: StateDatabase | None = None,
        *,
        hooks: Hooks | None = None,
    ) -> Self:
        """Open the store of a home as its configuration says: which folder, which policies."""
        from session_core.config import GatewayConfig  # noqa: PLC0415 -- costs an import of pydantic

        config = GatewayConfig.load(home)
        return cls(config.sessions_dir or Path(home, "sessions"), config, db=db, hooks=hooks)

    # -- looking -----------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """The folder of the routes."""
        return self._folder

    @property
    def problems(self) -> list[str]:
        """What could not be read, and what was set aside."""
        return self._copies.problems

    def get(self, session_key: str) -> SessionEntry | None:
        """Return the entry of a key as it is now; it is the caller's own until it is saved."""
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
        """Return the entry that leads to a session."""
        found = (entry for entry in self.load_entries().values() if entry.session_id == session_id)
        return next(found, None)

    def list_sessions(self, active_minutes: int | None = None) -> list[SessionEntry]:
        """Return the entries, the one that was used last first."""
        found = sorted(
            self.load_entries().values(), key=lambda entry: entry.updated_at, reverse=True
        )
        if active_minutes is None:
            return found
        now, seconds = self._now(), 60 * active_minutes
        return [entry for entry in found if policies.is_recently_used(entry, seconds, now)]

    def find_route_state(self, entry: SessionEntry) -> RouteState:
        """Return the state of a route: `stale` and `dangling` are those that lead nowhere."""
        return routing_entries.find_route_state(self, entry)

    # -- marks -------------------------------------------------------------------------------

    def save(self, entry: SessionEntry, *, urgent: bool = False) -> None:
        """Store an entry that the caller has changed; what was told since stays told.

        Raises:
            InvalidInput: its key begins with `_`, like what is no entry.
            Conflict: somebody else has changed it since it was read.
        """
        if entry.key.startswith("_"):
            raise InvalidInput(
                f"an entry under {entry.key!r} would never be read; name it otherwise"
            )
        self._prepare_change(entry.key)
        current = self._copies.get(entry.key)
        if current is not None and current.stored != entry.stored:
            merge_pending(entry, current)
        self._store_entry(entry.key, entry, urgent=urgent or entry.has_new_session)

    def update_session(
        self, session_key: str, last_prompt_tokens: int | None = None
    ) -> SessionEntry | None:
        """Note that a chat was active, and how long its prompt was."""

        def change(entry: SessionEntry) -> bool:
            entry.updated_at = self._now()
            if last_prompt_tokens is not None:
                entry.last_prompt_tokens = last_prompt_tokens
            return True

        return self._change_entry(session_key, change)

    def set_model_override(self, session_key: str, override: dict[str, str] | None) -> bool:
        """Store the model that a chat asked for, or forget it; a key of an interface never is.

        Raises:
            InvalidInput: an override names what it sets, such as `model`.
        """
        if override is not None and not isinstance(override, Mapping):
            raise InvalidInput("an override is a mapping with a model, a provider, a base_url")

        def change(entry: SessionEntry) -> bool:
            entry.model_override = dict(override) if override else None
            return True

        return self._change_entry(session_key, change) is not None

    # -- healing -----------------------------------------------------------------------------

    def repair_routes(self) -> list[str]:
        """Look at each route once, as at a start: heal what a crash has left; return the keys.

        A route whose session has ended is led to its continuation or to the session that can be
        gone on with. One that leads nowhere is removed, and the next message begins afresh. If
        another process holds the database, the entries that are left stay as they are, and the
        next message of their chats heals them.
        """
        healed: list[str] = []
        try:
            self._prepare_change()
            for key, entry in self._copies.list_entries().items():
                if self._has_ended(entry) and self._run_decision(
                    key, partial(self._repair_route, key)
                ):
                    healed.append(key)
        except Busy as error:
            self.report("not all routes could be checked against their sessions", error)
        return healed

    def _has_ended(self, entry: SessionEntry) -> bool:
        row = None if self.db is None else self.db.get_session(entry.session_id)
        return row is not None and row["end_reason"] is not None

    def _repair_route(self, key: str, entry: SessionEntry | None) -> bool:
        if entry is None or self.db is None:
            return False
        if entry.expiry_finalized or list_pending(entry) or self.has_active_turn(entry):
            return False  # its reset is told with its next message, or its turn leads it on
        arrived_id = entry.session_id
        try:
            if not self._follow_compression(entry):
                moved = entry.session_id != arrived_id
                if moved:
                    self._store_entry(key, entry, self._build_peer_change(entry), urgent=True)
                return moved
            if entry.origin and self._recover_session(key, entry.origin, entry, arriving=False):
                return True
            if entry.suspended and not entry.origin:
                return False  # a message would find its session again, and that is suspended
        except (Busy, Conflict):
            raise
        except SessionError:
            return False  # what cannot be looked up now is looked up when a message comes
        return bool(self._copies.remove({key: entry}))

    # -- removal -----------------------------------------------------------------------------

    def prune_old_entries(self, max_age_days: int | None) -> int:
        """Remove entries that were not used for so many days; return how many. Acts at once.

        Suspended ones stay, those with active processes, and those of which hooks are owed
        something. The sessions themselves are kept.

        Raises:
            InvalidInput: that is no number of days.
        """
        if max_age_days is not None and not isinstance(max_age_days, (int, float)):
            raise InvalidInput("the age is a number of days, or None for no end")
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
        """Remove entries, as they were read, from both copies; return the keys of those that were.

        One that was changed since stays. Acts at once.
        """
        self._prepare_change()
        return self._copies.remove(entries)

    # -- ending ------------------------------------------------------------------------------

    def close(self) -> None:
        """Bring the mirror up to date; the state database is closed by whoever opened it."""
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
    """Make sure that the routes of a store are kept in that database, or in none.

    Raises:
        InvalidInput: they are kept in another database.
    """
    own = None if store.db is None else store.db.path
    if own is not None and db.path is not None and not is_same_file(own, db.path):
        raise InvalidInput(
            f"the routes of this store are in {own}, and {db.path} is another database; "
            "open both with the same one"
        )
