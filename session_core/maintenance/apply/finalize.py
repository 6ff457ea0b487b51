"""Sessions that are ended: their rows, the marks in their routes, and then the hooks, once each.

A chat that is to begin afresh is led to its new session in the same step. On a Hermes home nothing
is noted in the entries, since its own watcher would then skip its plugins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from session_core.activity import ActivitySnapshot
from session_core.errors import Changed
from session_core.hooks import Hooks
from session_core.ledger.execute import suppress_note_errors
from session_core.ledger.types import Member, TrashItem
from session_core.maintenance.apply import preconditions, routes
from session_core.maintenance.members import (
    ConcurrentWrite,
    MemberOutdated,
    PlanProgress,
    RowChange,
    SessionGroup,
    StepDraft,
)
from session_core.maintenance.types import ProtectionReason
from session_core.routing.entries import SessionEntry
from session_core.routing.store import SessionStore
from session_core.state.protocol import StateDatabase
from session_core.types import Revision

_BATCH_CONVERSATIONS = 50
"""So many conversations are ended in one step: the hooks of all of them are called behind it."""

_HOOK_NAME = "on_session_finalize"

CALLED_BY_STORE = "store"
"""With hooks of its own a store tells both, that a session has ended and that another began."""

EndRecord = dict[str, Any]
"""What the hooks are told of a session, with its `chats`, the sessions that those have `begun`, and
those of them that begin one `later`, when this is committed."""


@dataclass(slots=True)
class _FinalizeItems:
    """What the next step ends."""

    members: list[str] = field(default_factory=list)
    members_by_session: dict[str, str] = field(default_factory=dict)
    expected: dict[str, Revision] = field(default_factory=dict)
    changes: list[RowChange] = field(default_factory=list)
    ends: list[EndRecord] = field(default_factory=list)
    entries: dict[str, SessionEntry] = field(default_factory=dict)
    """The chats that are in them."""


class SessionFinalizer:
    """Ends sessions, a piece at a time."""

    def __init__(
        self,
        db: StateDatabase,
        there: Callable[[], ActivitySnapshot],
        progress: PlanProgress,
        store: SessionStore | None,
        hooks: Hooks,
        *,
        what: str,
        start_new: bool,
        clock: Callable[[], float],
        pinned: Callable[[], Collection[str]],
    ) -> None:
        self._db = db
        self._there = there
        self._progress = progress
        self._store = store
        self._hooks = hooks
        self._what = what
        self._start_new = start_new
        self._clock = clock
        self._pinned = pinned
        self._but: tuple[ProtectionReason, ...] = (
            ("routed",) if what in ("sessions", "expired") else ()
        )
        """A chat may be in what is named, or was expired by it."""

    def draft_step(self, members: Sequence[Member]) -> StepDraft:
        """Return what is ended next.

        Raises:
            Denied: chats are to begin afresh, and a gateway lives by now.
        """
        there, taken = self._there(), _FinalizeItems()
        if self._start_new:
            routes.require_no_gateway(there)
        for member in members[:_BATCH_CONVERSATIONS]:
            self._add_conversation(SessionGroup.from_member(member), taken, there)
        return StepDraft(
            tuple(taken.members),
            self._iter_trash_items(taken),
            partial(self._end_sessions, taken, there),
            partial(self._wrap_step, taken),
        )

    def _add_conversation(
        self, group: SessionGroup, taken: _FinalizeItems, there: ActivitySnapshot
    ) -> None:
        preconditions.require_unchanged(
            self._db, group, group.sessions, self._progress, there, removed=False, but=self._but
        )
        chats = self._find_chats(group, there) if self._but else {}
        ends: dict[str, EndRecord] = {}
        for session_id in group.sessions:
            row = dict(self._db.get_session(session_id) or {})
            before = {name: row.get(name) for name in ("ended_at", "end_reason")}
            after = {"ended_at": self._clock(), "end_reason": group.reason}
            taken.changes.append(RowChange("sessions", {"id": session_id}, before, after))
            taken.expected[session_id] = self._progress.get_expected_revision(group, session_id)
            taken.members_by_session[session_id] = group.member
            given = {"session_id": session_id, "platform": row.get("source")}
            ends[session_id] = {
                **given,
                "reason": group.reason,
                "chats": {},
                "begun": [],
                "later": [],
            }
        for key, entry in chats.items():
            # One that has missed a compression is in what continues that, which comes first.
            end = ends.get(entry.session_id) or next(iter(ends.values()))
            end["chats"][key] = entry.session_id
        taken.entries |= chats
        taken.ends += ends.values()
        taken.members.append(group.member)

    def _find_chats(self, group: SessionGroup, there: ActivitySnapshot) -> dict[str, SessionEntry]:
        """Return the chats of a conversation, which have to be those that were there."""
        found: dict[str, SessionEntry] = {}
        store = self._store
        if store is None:
            return found
        for key, session_id in group.routes.items():
            entry = store.get(key)
            if entry is None or entry.session_id != session_id:
                raise MemberOutdated(group.member, "its chat is in another session by now")
            if self._what == "expired" and store.find_expiry_reason(entry) is None:
                raise MemberOutdated(group.member, "its chat was used again since")
            found[key] = entry
        led = {key for each in group.sessions for key in there.routes.get(each, ())}
        if any(store.peek_session_id(key) in group.sessions for key in led - found.keys()):
            raise MemberOutdated(group.member, "another chat came into it since")
        return found

    @property
    def _can_change_routes(self) -> bool:
        return self._start_new or self._db.kind != "hermes"

    def _iter_trash_items(self, taken: _FinalizeItems) -> Iterator[TrashItem]:
        for change in taken.changes:
            yield change.to_trash_item()
        if self._can_change_routes and self._store is not None:
            yield from routes.iter_route_items(self._db, self._store, taken.entries)

    def _end_sessions(
        self, taken: _FinalizeItems, there: ActivitySnapshot, db: StateDatabase
    ) -> dict[str, Any]:
        """End what was taken, if it still is what it was."""
        preconditions.require_not_in_use(
            db, taken.members_by_session, there, self._pinned(), but=self._but
        )
        for session_id, expected in taken.expected.items():
            preconditions.require_revision(
                db, taken.members_by_session[session_id], session_id, expected
            )
        try:
            for change in taken.changes:
                change.write_row(db)
        except Changed as error:
            raise ConcurrentWrite(str(error)) from error
        led: dict[str, str | None] = {}
        for end in taken.ends:
            for key, session_id in end["chats"].items():
                if self._store is None or not self._can_change_routes:
                    continue
                if routes.read_route_text(self._store, key) != taken.entries[key].stored:
                    raise ConcurrentWrite(f"the chat {key} was used just now")
                self._end_chat(self._store, key, session_id, end)
                if key not in end["later"]:
                    led[key] = routes.read_route_text(self._store, key)
        return {"ended": taken.ends, "led": led}

    def _end_chat(self, store: SessionStore, key: str, session_id: str, end: EndRecord) -> None:
        """Let a chat begin afresh, or note in its route that the end of its session is told."""
        if self._start_new and not self._db.has_routing:
            end["later"].append(key)
            end["told"] = CALLED_BY_STORE if store.hooks is not None else False
        elif self._start_new:
            begun = store.reset_session(key)
            end["begun"] += [begun.session_id] if begun is not None else []
            end["told"] = CALLED_BY_STORE if store.hooks is not None else False
        elif store.claim_end(key, session_id):
            store.set_end_delivered(key, session_id)
            end["told"] = False
        else:
            end.setdefault("told", True)

    @contextmanager
    def _wrap_step(self, taken: _FinalizeItems) -> Iterator[None]:
        with ExitStack() as stack:
            together = self._can_change_routes and self._db.has_routing
            if self._store is not None and together and taken.entries:
                ending = [end["session_id"] for end in taken.ends]
                stack.enter_context(self._store.transaction(*taken.entries, ending=ending))
            yield
        for end in taken.ends:
            reset_deferred_chats(self._store, end)
            if not end.get("told"):
                call_end_hooks(self._hooks, self._store, end)


def reset_deferred_chats(store: SessionStore | None, end: EndRecord) -> bool:
    """Let chats begin afresh whose routes are in a file, which is no part of a transaction.

    Return whether the store told both, that a session has ended and that another began.
    """
    told = False
    for key in end["later"] if store is not None else ():
        with suppress_note_errors(f"that the chat {key} begins afresh"):
            if store is not None and store.peek_session_id(key) == end["chats"][key]:
                begun = store.reset_session(key)
                end["begun"] += [begun.session_id] if begun is not None else []
                told = store.hooks is not None
    return told


def call_end_hooks(hooks: Hooks, store: SessionStore | None, end: Mapping[str, Any]) -> None:
    """Call the hooks of a session that was ended, and of those that its chats have begun."""
    beside = _claim_ends(store, end)
    if beside is not None and not any(beside.values()):
        return
    given = {name: end[name] for name in ("session_id", "platform", "reason")}
    begins = None if beside is None else partial(_mark_end_begun, store, end)
    hooks.call_once(_HOOK_NAME, begins, **given)
    for begun in end["begun"]:
        hooks.call(
            "on_session_reset",
            **{**given, "session_id": begun},
            old_session_id=end["session_id"],
            new_session_id=begun,
        )
    if store is not None and beside is not None:
        for key, session_id in end["chats"].items():
            with suppress_note_errors(f"that the end of {session_id} was told"):
                store.set_end_delivered(key, session_id)


def _mark_end_begun(store: SessionStore | None, end: Mapping[str, Any], _: str) -> bool:
    """Note that the end is being told, in whichever chats that is left to do."""
    begun = (
        [store.begin_end_delivery(key, each) for key, each in end["chats"].items()] if store else []
    )
    return any(begun)


def _claim_ends(store: SessionStore | None, end: Mapping[str, Any]) -> dict[str, bool] | None:
    """Return which ends are told here, where that is noted beside a Hermes home; else None."""
    if store is None or store.db is None or store.db.kind != "hermes" or not end["chats"]:
        return None
    if end["begun"]:
        return None
    return {key: store.claim_end(key, each) for key, each in end["chats"].items()}
