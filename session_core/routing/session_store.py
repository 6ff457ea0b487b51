"""`SessionStore`: which session each chat is in.

The store creates the parts of this package and delegates to them; DESIGN.md lists the parts and
their states. Every call reads the table, or the file if there is no database. No entry is cached.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from session_core._typing import Self
from session_core.chats import SessionSource
from session_core.config import GatewayConfig
from session_core.errors import InvalidInput
from session_core.home import is_same_file
from session_core.hooks import Hooks
from session_core.hooks.foreign_calls import Reporter
from session_core.routing import entries as routing_entries
from session_core.routing.decisions import RouteDecisions, check_key_type
from session_core.routing.entries import RouteState, SessionEntry
from session_core.routing.json_backend import JsonBackend
from session_core.routing.leases import DeliveryMarks
from session_core.routing.outbox import HookOutbox, SessionEnds
from session_core.routing.pending_boundaries import (
    list_pending_boundaries,
    merge_pending_boundaries,
)
from session_core.routing.policies import ResetPolicies, is_recently_used
from session_core.routing.router import SessionRouter
from session_core.routing.settings import HasActiveProcesses, StoreSettings
from session_core.routing.sql_backend import SqlBackend
from session_core.routing.turn_records import TurnRecords
from session_core.state.protocol import StateDatabase


class SessionStore:
    """The routes of a home: the session of each chat.

    Without `sessions_dir`, the routes are only in the database, and no file mirrors them. Without
    `db`, or with a database that has no table of routes, they are only in `sessions.json`.

    Args:
        sessions_dir: the folder of `sessions.json`.
        config: the settings, such as the reset policies.
        has_active_processes_fn: a function that receives a session key and returns True if a
            process of the chat is at work. Then no policy ends its session.
        db: the database of the home.
        hooks: the hooks that starts and ends of sessions call.
        marks: the delivered ends of a Hermes home.
        now: the clock.
        new_id: a function that receives the time and returns the id of a new session.

    Example:
        >>> from session_core import SessionDB, SessionSource, SessionStore
        >>> chat = SessionSource(platform="telegram", chat_id="42")
        >>> with SessionDB(":memory:") as db, SessionStore(db=db) as store:
        ...     entry = store.get_or_create_session(chat)
        ...     entry.session_key, store.get_or_create_session(chat).session_id == entry.session_id
        ('agent:main:telegram:dm:42', True)
    """

    def __init__(
        self,
        sessions_dir: str | Path | None = None,
        config: GatewayConfig | None = None,
        has_active_processes_fn: HasActiveProcesses | None = None,
        db: StateDatabase | None = None,
        *,
        hooks: Hooks | None = None,
        marks: DeliveryMarks | None = None,
        now: Callable[[], datetime] | None = None,
        new_id: Callable[[datetime], str] | None = None,
    ) -> None:
        if config is None:
            from session_core.config import GatewayConfig  # noqa: PLC0415 -- imports pydantic

            config = GatewayConfig()
        self.settings = StoreSettings(
            None if sessions_dir is None else Path(sessions_dir),
            config,
            db,
            hooks=hooks,
            has_active_processes=has_active_processes_fn,
            now=now,
            new_id=new_id,
        )
        self.backend = _open_backend(self.settings)
        self.decisions = RouteDecisions(self.settings, self.backend)
        self.policies = ResetPolicies(self.settings)
        self.ends = SessionEnds(self.settings, self.decisions, self.policies, marks)
        self.outbox = HookOutbox(self.settings, self.decisions, self.ends)
        self.turns = TurnRecords(self.settings, self.decisions, self.policies)
        self.router = SessionRouter(
            self.settings, self.decisions, self.policies, self.ends, self.outbox
        )

    @classmethod
    def open(
        cls,
        home: str | os.PathLike[str],
        db: StateDatabase | None = None,
        *,
        hooks: Hooks | None = None,
    ) -> Self:
        """Open the store of a home with the folder and reset policies of its configuration.

        Args:
            home: the folder of the home, with `config.yaml` and `gateway.json`.
            db: the database of the home.
            hooks: the hooks that starts and ends of sessions call.
        """
        from session_core.config import GatewayConfig  # noqa: PLC0415 -- imports pydantic

        config = GatewayConfig.load(home)
        return cls(config.sessions_dir or Path(home, "sessions"), config, db=db, hooks=hooks)

    # -- settings ----------------------------------------------------------------------------

    @property
    def db(self) -> StateDatabase | None:
        """The state database, or None if the routes are in a file alone."""
        return self.settings.db

    @property
    def config(self) -> GatewayConfig:
        """The configuration, which may be replaced."""
        return self.settings.config

    @config.setter
    def config(self, config: GatewayConfig) -> None:
        self.settings.config = config

    @property
    def hooks(self) -> Hooks | None:
        """The hooks that report changes of sessions. They may be replaced."""
        return self.settings.hooks

    @hooks.setter
    def hooks(self, hooks: Hooks | None) -> None:
        self.settings.hooks = hooks

    @property
    def report(self) -> Reporter:
        """The function that receives faults which stop no change. It may be replaced."""
        return self.settings.report

    @report.setter
    def report(self, report: Reporter) -> None:
        self.settings.report = report

    @property
    def marks(self) -> DeliveryMarks:
        """The records of delivered ends of a Hermes home. They may be replaced."""
        return self.ends.marks

    @marks.setter
    def marks(self, marks: DeliveryMarks) -> None:
        self.ends.marks = marks

    @property
    def folder(self) -> Path | None:
        """The folder of the routes, or None if they are in the database alone."""
        return self.settings.folder

    @property
    def sessions_dir(self) -> Path | None:
        """The folder of the routes and of the files of some sessions, or None."""
        return self.settings.folder

    @property
    def scope(self) -> str:
        """The name of the store among the routes of its database."""
        folder = self.settings.folder
        return "" if folder is None else str(folder.resolve())

    @property
    def problems(self) -> list[str]:
        """Descriptions of entries and files that could not be read or were moved away."""
        return self.backend.problems

    def get_session_key(self, source: SessionSource) -> str:
        """Return the key of a chat.

        Raises:
            InvalidInput: the argument is not a SessionSource.
        """
        return self.settings.get_session_key(source)

    def build_session_fields(self, entry: SessionEntry) -> dict[str, Any]:
        """Return the fields of an entry for `append_message(create=...)`."""
        return routing_entries.build_session_fields(entry)

    def build_peer_fields(self, entry: SessionEntry) -> dict[str, Any]:
        """Return the fields of an entry for `record_gateway_session_peer`."""
        return routing_entries.build_peer_fields(entry)

    # -- reading -----------------------------------------------------------------------------

    def get(self, session_key: str) -> SessionEntry | None:
        """Return a copy of the stored entry of a key, or None."""
        check_key_type(session_key)
        return self.backend.get(session_key)

    def load_entries(self) -> dict[str, SessionEntry]:
        """Return all entries by their session keys."""
        return self.backend.list_entries()

    def peek_session_id(self, session_key: str) -> str | None:
        """Return the id of a chat's session, or None if the chat has no route."""
        entry = self.get(session_key)
        return None if entry is None else entry.session_id

    def lookup_by_session_id(self, session_id: str) -> SessionEntry | None:
        """Return the first entry of a chat that is in this session, or None."""
        matches = (
            entry for entry in self.load_entries().values() if entry.session_id == session_id
        )
        return next(matches, None)

    def list_sessions(self, active_minutes: int | None = None) -> list[SessionEntry]:
        """Return the entries, most recently used first.

        With `active_minutes`, only entries that were used in the last minutes are returned.
        """
        entries = sorted(
            self.load_entries().values(), key=lambda entry: entry.updated_at, reverse=True
        )
        if active_minutes is None:
            return entries
        now, seconds = self.settings.now(), 60 * active_minutes
        return [entry for entry in entries if is_recently_used(entry, seconds, now)]

    def find_route_state(self, entry: SessionEntry) -> RouteState:
        """Return the state of a route.

        A `stale` or `dangling` route leads to no usable session.
        """
        return self.policies.find_route_state(entry)

    def find_expiry_reason(self, entry: SessionEntry) -> str | None:
        """Return the reason for which the policy ends a session now, or None.

        A session with an active turn does not end.
        """
        return self.policies.find_expiry_reason(entry)

    def is_session_finalizable(self, entry: SessionEntry) -> bool:
        """Return True if the policy of this chat can end its session."""
        return self.policies.is_session_finalizable(entry)

    def is_ended_elsewhere(self, entry: SessionEntry) -> bool:
        """Return True if another chat's policy ended the session and this chat's would not.

        Several chats can share a session, each with its own reset policy.
        """
        return self.policies.is_ended_elsewhere(entry)

    def has_active_turn(self, entry: SessionEntry) -> bool:
        """Return True if a live process runs a turn in the session.

        A turn counts for at most six hours.
        """
        return self.policies.has_active_turn(entry)

    # -- the session of a chat ---------------------------------------------------------------

    def get_or_create_session(
        self, source: SessionSource, force_new: bool = False, *, turn: str | None = None
    ) -> SessionEntry:
        """Return the entry of a chat for an incoming message, in a new session if a reset is due.

        The entry names the session of the chat. The session has no row until its first message is
        appended. Messages that force a new session at the same moment share one.

        Args:
            source: the chat and the sender of the message.
            force_new: start a new session in any case.
            turn: the token of a turn, which the same commit records as `begin_turn` does.
        """
        return self.router.route_message(source, force_new=force_new, turn=turn).entry

    def reset_session(
        self, session_key: str, display_name: str | None = None
    ) -> SessionEntry | None:
        """Start a new session on request, and end the current session of the chat.

        Return None if the chat has no route.
        """
        return self.router.reset_session(session_key, display_name)

    def switch_session(self, session_key: str, target_session_id: str) -> SessionEntry | None:
        """Move a chat to an existing session, end its current session, and return the entry.

        The target session is reopened. Return None if the chat has no route.

        Raises:
            InvalidInput: the session id is not safe.
            NotFound: the session does not exist.
        """
        return self.router.switch_session(session_key, target_session_id)

    def move_to_continuation(
        self, session_key: str, old_session_id: str, new_session_id: str
    ) -> SessionEntry:
        """Move a route to the session that a compression has created.

        If the route leads to that session already, nothing is written.

        Raises:
            NotFound: the chat has no route.
            Conflict: the chat is in another session by now.
        """
        return self.router.move_to_continuation(session_key, old_session_id, new_session_id)

    def repair_routes(self) -> list[str]:
        """Check each route and repair the damage of a crash.

        Return the repaired keys. A route whose session has ended moves to its continuation or to a
        session that can be continued. A route without either is removed, and the next message
        starts a new session. If another process holds the database, the remaining entries stay as
        they are, and the next message of their chats repairs them.
        """
        return self.router.repair_routes()

    def transaction(
        self, *session_keys: str, ending: Collection[str] = ()
    ) -> AbstractContextManager[None]:
        """Run the `with` block as one transaction over sessions and the routes of these chats.

        The transaction belongs to one task and one thread. Another task of the thread that changes
        routes is refused at once; another thread that changes the same chats waits. The mirror is
        written and hooks are called after the commit. Routes cannot be removed inside. If routes
        are in a file alone, the file and the sessions change one after the other. A caller that
        ends sessions in the block names them in `ending`: the first chat that leaves such a session
        delivers its end.

        Raises:
            InvalidInput: a transaction is open already.
            Busy: another task of this thread has a transaction open.
        """
        return self.decisions.transaction(session_keys, ending)

    # -- turns and marks ---------------------------------------------------------------------

    def save(self, entry: SessionEntry, *, urgent: bool = False) -> None:
        """Store an entry that the caller has changed.

        Hook calls that were delivered since the entry was read stay delivered.

        Raises:
            InvalidInput: the key begins with `_`, which marks metadata.
            Conflict: the entry was changed since it was read.
        """
        if entry.key.startswith("_"):
            raise InvalidInput(
                f"key {entry.key!r} begins with '_', which marks metadata; use another key"
            )
        decision = self.decisions.begin_unlocked(entry.key)
        current = decision.entry
        # A hook delivered since then changed only the pending boundaries, which is not a conflict.
        if current is not None and current.stored != entry.stored:
            merge_pending_boundaries(entry, current)
        decision.save_entry(entry, urgent=urgent or entry.has_new_session)

    def update_session(
        self, session_key: str, last_prompt_tokens: int | None = None
    ) -> SessionEntry | None:
        """Record that a chat was active, and the token count of its last prompt."""
        return self.turns.update_session(session_key, last_prompt_tokens)

    def set_model_override(self, session_key: str, override: dict[str, str] | None) -> bool:
        """Store the model that a chat asked for, or remove it. API keys are never stored.

        Raises:
            InvalidInput: the override is not a mapping.
        """
        return self.turns.set_model_override(session_key, override)

    def begin_turn(self, session_key: str, session_id: str) -> str:
        """Record that an agent is at work in the session of a chat.

        Return the token of the turn. Until the turn ends, no policy of any process ends the
        session. A later turn replaces this turn. Nothing is recorded if the chat is in another
        session by now.
        """
        return self.turns.begin_turn(session_key, session_id)

    def drop_turn(self, session_key: str, token: str) -> bool:
        """Remove a turn without recording its end."""
        return self.turns.drop_turn(session_key, token)

    def end_turn(
        self,
        session_key: str,
        session_id: str,
        last_prompt_tokens: int | None = None,
        *,
        finished: bool = True,
        token: str | None = None,
    ) -> SessionEntry | None:
        """Record the end of a turn.

        Return None if the chat is in another session by now. The flags of a reset are cleared, and
        a finished turn clears an interruption. With a token, nothing is recorded if a later turn of
        any process has replaced this turn.
        """
        return self.turns.end_turn(
            session_key, session_id, last_prompt_tokens, finished=finished, token=token
        )

    def suspend_session(self, session_key: str) -> bool:
        """Make the next message start a new session, without regard to the reset policy."""
        return self.turns.suspend_session(session_key)

    def mark_resume_pending(self, session_key: str, reason: str = "restart_timeout") -> bool:
        """Record that a turn was interrupted, unless the session is suspended."""
        return self.turns.mark_resume_pending(session_key, reason)

    def clear_resume_pending(self, session_key: str) -> bool:
        """Record that the turn after an interruption has finished."""
        return self.turns.clear_resume_pending(session_key)

    def suspend_recently_active(self, max_age_seconds: int = 120) -> int:
        """Mark sessions that were in use just before an unclean stop as interrupted.

        Return their number. Sessions with an agent at work in a live process were not interrupted.
        """
        return self.turns.suspend_recently_active(max_age_seconds)

    # -- deliveries of hooks -----------------------------------------------------------------

    def is_end_delivered(self, entry: SessionEntry) -> bool:
        """Return True if the end of the current use of a session was delivered."""
        return self.ends.is_end_delivered(entry)

    def claim_end(self, session_key: str, session_id: str) -> bool:
        """Claim the end of a chat's session, without regard to its reset policy.

        The claim of another process is replaced unless its hook call has begun.
        """
        return self.ends.claim_end(session_key, session_id)

    def claim_expiry(self, entry: SessionEntry) -> bool:
        """Claim the end of an expired session, so that only one process delivers it.

        Return False if the session is no longer expired, or if another process holds a claim. A
        claim lasts until its process finishes or dies, at most one hour.
        """
        return self.ends.claim_expiry(entry)

    def begin_end_delivery(self, session_key: str, session_id: str) -> bool:
        """Record that the hook of an end claimed by this store is called now.

        The call then counts as delivered. Return False if the hook has begun already or the claim
        was lost. If the record cannot be written, return True: a second call is better than none.
        """
        return self.ends.begin_end_delivery(session_key, session_id)

    def set_end_delivered(self, session_key: str, session_id: str) -> bool:
        """Record that the end of a chat's session was delivered, by any process or caller."""
        return self.ends.set_end_delivered(session_key, session_id)

    def set_expiry_finalized(
        self, entry: SessionEntry, *, clear_model_override: bool = True
    ) -> bool:
        """Record in the route and in the session's row that an expired session was finalized.

        This store must hold the claim. If the session is in use again, the claim is removed and the
        next end is delivered. On a Hermes home the record is a delivery mark, because Hermes' own
        watcher would otherwise skip its plugins.
        """
        return self.ends.set_expiry_finalized(entry, clear_model_override=clear_model_override)

    def deliver_pending_hooks(self, session_key: str | None = None) -> None:
        """Deliver the hook calls left pending by dead processes, for all chats or for one.

        Raises:
            Denied: a live gateway holds the routes, so the delivery cannot be recorded.
        """
        self.outbox.deliver_pending_hooks(session_key)

    def forget_stale_marks(self) -> None:
        """Remove the marks of sessions that no chat of a Hermes home is in."""
        self.ends.forget_stale_marks()

    # -- removal and closing -----------------------------------------------------------------

    def prune_old_entries(self, max_age_days: int | None) -> int:
        """Remove entries that were not used for `max_age_days` days.

        Return their number. The change is made at once, without a plan. Suspended entries, entries
        with active processes and entries with pending hook calls stay. The sessions are kept.

        Raises:
            InvalidInput: max_age_days is not a number.
        """
        if max_age_days is not None and not isinstance(max_age_days, (int, float)):
            raise InvalidInput(f"max_age_days must be a number or None, got {max_age_days!r}")
        if max_age_days is None or max_age_days <= 0:
            return 0
        # A boundary is delivered from its entry: with the entry its hook call would be lost.
        old = {
            key: entry
            for key, entry in self.load_entries().items()
            if self.policies.is_prunable(entry, max_age_days) and not list_pending_boundaries(entry)
        }
        return len(self.remove(old)) if old else 0

    def remove(self, entries: dict[str, SessionEntry]) -> list[str]:
        """Remove entries from the table and the file.

        Return the removed keys. The change is made at once, without a plan. An entry that was
        changed since it was read stays.
        """
        self.decisions.prepare_change()
        return self.backend.remove(entries)

    def close(self) -> None:
        """Write the mirror and close the store. The state database stays open."""
        self.backend.close()
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
    """Raise `InvalidInput` if the routes of a store are in another database.

    Raises:
        InvalidInput: they are in another database.
    """
    if store.db is not None and not _is_same_home(store.db, db):
        raise InvalidInput(
            f"the routes of this store are in {_name_home(store.db)}, and {_name_home(db)} is "
            "another database; open both with the same one"
        )


def _open_backend(settings: StoreSettings) -> SqlBackend | JsonBackend:
    """Return the backend for the table, or for the file if the database has no table of routes."""
    folder, db = settings.folder, settings.db
    if db is not None and db.routes.is_available:
        return SqlBackend(db, folder, mirrored=settings.config.write_sessions_json)
    if folder is None:
        raise InvalidInput(
            "a session store needs sessions_dir, or a database that stores routes: pass one of them"
        )
    return JsonBackend(
        folder, home=None if db is None else db.folder, explained=not settings.is_hermes
    )


def _is_same_home(first: StateDatabase, second: StateDatabase) -> bool:
    """Return True if two databases belong to one home: the same file, or the same home id."""
    if first is second:
        return True
    if first.path is not None and second.path is not None:
        # A Hermes home has no id, and a copy of another home has the id of its original.
        return is_same_file(first.path, second.path)
    if first.path is not None or second.path is not None:
        return False
    home_id = first.admin.get_home_id()
    return home_id is not None and home_id == second.admin.get_home_id()


def _name_home(db: StateDatabase) -> str:
    """Return the path of a home, or its id if it has no file."""
    return str(db.path) if db.path is not None else f"home {db.admin.get_home_id()}"
