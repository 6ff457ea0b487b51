"""Finalize sessions: end their rows, mark their routes, then call the hooks once for each.

A chat that starts a new session is routed to it in the same step. On a Hermes home the entries are
not marked, since the watcher of Hermes would then skip its own plugins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from session_core.activity import ActivitySnapshot
from session_core.errors import Changed
from session_core.hooks import Hooks
from session_core.ledger.execute import suppress_note_errors
from session_core.ledger.types import Member, TrashItem
from session_core.maintenance import kinds
from session_core.maintenance.apply import preconditions, route_removal
from session_core.maintenance.apply.step_items import PartRun
from session_core.maintenance.members import (
    ConcurrentWrite,
    MemberOutdated,
    RowChange,
    SessionGroup,
    StepDraft,
)
from session_core.maintenance.types import ProtectionReason
from session_core.routing.entries import SessionEntry
from session_core.routing.session_store import SessionStore
from session_core.state.protocol import StateDatabase
from session_core.types import Revision

_BATCH_CONVERSATIONS = 50
"""The most conversations that one step ends; the hooks of all of them are called after it."""

_HOOK_NAME = "on_session_finalize"

CALLED_BY_STORE = "store"
"""A store with hooks of its own calls them for both the ended session and the new one."""

EndRecord = dict[str, Any]
"""The arguments of a session's end hooks, with its `chats`, the sessions that those have `begun`,
and the chats that begin one `later`, after the commit."""


@dataclass(slots=True)
class _FinalizeItems:
    """The sessions that the next step ends."""

    members: list[str] = field(default_factory=list)
    members_by_session: dict[str, str] = field(default_factory=dict)
    expected: dict[str, Revision] = field(default_factory=dict)
    changes: list[RowChange] = field(default_factory=list)
    ends: list[EndRecord] = field(default_factory=list)
    entries: dict[str, SessionEntry] = field(default_factory=dict)
    """The route entries of their chats, by key."""


class SessionFinalizer:
    """Ends the sessions of a plan, one step at a time."""

    def __init__(self, run: PartRun) -> None:
        self._db = run.home.db
        self._get_activity = run.get_activity
        self._progress = run.progress
        self._store = run.home.store
        self._hooks = run.home.hooks
        self._clock = run.home.clock
        self._list_pinned = run.home.list_pinned
        self._start_new: bool = run.plan.about["wanted"]["start_new"]
        self._kind = kinds.PLAN_KINDS[run.plan.kind]
        self._exempt: tuple[ProtectionReason, ...] = ("routed",) if self._kind.ends_routed else ()

    def draft_step(self, members: Sequence[Member]) -> StepDraft:
        """Return the next sessions to end.

        Raises:
            Denied: chats are to start new sessions and a gateway is running.
        """
        activity, items = self._get_activity(), _FinalizeItems()
        if self._start_new:
            route_removal.require_no_gateway(activity)
        # A small step keeps the time between the commit and the last hook short.
        for member in members[:_BATCH_CONVERSATIONS]:
            self._add_conversation(SessionGroup.from_member(member), items, activity)
        return StepDraft(
            tuple(items.members),
            self._iter_trash_items(items),
            partial(self._end_sessions, items, activity),
            partial(self._wrap_step, items),
        )

    def _add_conversation(
        self, group: SessionGroup, items: _FinalizeItems, activity: ActivitySnapshot
    ) -> None:
        preconditions.require_unchanged(
            self._db,
            group,
            group.sessions,
            self._progress,
            activity,
            removed=False,
            exempt=self._exempt,
        )
        # Without the exemption a session with a chat is protected, so there is none to look for.
        chats = self._find_chats(group, activity) if self._exempt else {}
        ends: dict[str, EndRecord] = {}
        for session_id in group.sessions:
            row = dict(self._db.get_session(session_id) or {})
            before = {name: row.get(name) for name in ("ended_at", "end_reason")}
            after = {"ended_at": self._clock(), "end_reason": group.reason}
            items.changes.append(RowChange("sessions", {"id": session_id}, before, after))
            items.expected[session_id] = self._progress.get_expected_revision(group, session_id)
            items.members_by_session[session_id] = group.member
            hook_arguments = {"session_id": session_id, "platform": row.get("source")}
            ends[session_id] = {
                **hook_arguments,
                "reason": group.reason,
                "chats": {},
                "begun": [],
                "later": [],
            }
        for key, entry in chats.items():
            # A chat that has missed a compression belongs to the continuation, which comes first.
            end = ends.get(entry.session_id) or next(iter(ends.values()))
            end["chats"][key] = entry.session_id
        items.entries |= chats
        items.ends += ends.values()
        items.members.append(group.member)

    def _find_chats(
        self, group: SessionGroup, activity: ActivitySnapshot
    ) -> dict[str, SessionEntry]:
        """Return the chats of a conversation, which must be the same as in the plan."""
        chats: dict[str, SessionEntry] = {}
        store = self._store
        if store is None:
            return chats
        for key, session_id in group.routes.items():
            entry = store.get(key)
            if entry is None or entry.session_id != session_id:
                raise MemberOutdated(group.member, "its chat is routed to another session by now")
            if self._kind.follows_policy and store.find_expiry_reason(entry) is None:
                raise MemberOutdated(group.member, "its chat was used again since")
            chats[key] = entry
        routed_keys = {
            key for session_id in group.sessions for key in activity.routes.get(session_id, ())
        }
        if any(store.peek_session_id(key) in group.sessions for key in routed_keys - chats.keys()):
            raise MemberOutdated(group.member, "another chat was routed to it since")
        return chats

    @property
    def _can_change_routes(self) -> bool:
        return self._start_new or not self._db.admin.get_capabilities().foreign_gateway

    def _iter_trash_items(self, items: _FinalizeItems) -> Iterator[TrashItem]:
        for change in items.changes:
            yield change.to_trash_item()
        if self._can_change_routes and self._store is not None:
            yield from route_removal.iter_route_items(self._db, self._store, items.entries)

    def _end_sessions(
        self, items: _FinalizeItems, activity: ActivitySnapshot, db: StateDatabase
    ) -> dict[str, Any]:
        """End the drafted sessions if they are unchanged."""
        preconditions.require_not_in_use(
            db, items.members_by_session, activity, self._list_pinned(), exempt=self._exempt
        )
        for session_id, expected in items.expected.items():
            preconditions.require_revision(
                db, items.members_by_session[session_id], session_id, expected
            )
        try:
            for change in items.changes:
                change.write_row(db)
        except Changed as error:
            raise ConcurrentWrite(str(error)) from error
        route_texts: dict[str, str | None] = {}
        for end in items.ends:
            for key, session_id in end["chats"].items():
                if self._store is None or not self._can_change_routes:
                    continue
                # The plan kept this text for the restore; a chat that was used since has another
                # one.
                if route_removal.read_route_text(self._store, key) != items.entries[key].stored:
                    raise ConcurrentWrite(f"the chat {key} was used just now")
                self._end_chat(self._store, key, session_id, end)
                # A restore puts the old route back only over this text.
                if key not in end["later"]:
                    route_texts[key] = route_removal.read_route_text(self._store, key)
        return {"ended": items.ends, "led": route_texts}

    def _end_chat(self, store: SessionStore, key: str, session_id: str, end: EndRecord) -> None:
        """Start a new session for a chat, or mark its route so that the end is delivered once."""
        # Routes in a file are outside of the transaction: those chats start over after the commit.
        if self._start_new and not self._db.routes.is_available:
            end["later"].append(key)
            end["told"] = CALLED_BY_STORE if store.hooks is not None else False
        elif self._start_new:
            new_entry = store.reset_session(key)
            end["begun"] += [new_entry.session_id] if new_entry is not None else []
            end["told"] = CALLED_BY_STORE if store.hooks is not None else False
        elif store.claim_end(key, session_id):
            store.set_end_delivered(key, session_id)
            end["told"] = False
        else:
            end.setdefault("told", True)

    @contextmanager
    def _wrap_step(self, items: _FinalizeItems) -> Iterator[None]:
        with ExitStack() as stack:
            in_transaction = self._can_change_routes and self._db.routes.is_available
            if self._store is not None and in_transaction and items.entries:
                ended_ids = [end["session_id"] for end in items.ends]
                stack.enter_context(self._store.transaction(*items.entries, ending=ended_ids))
            yield
        # After the commit: no hook hears of an end that is rolled back.
        for end in items.ends:
            reset_deferred_chats(self._store, end)
            if not end.get("told"):
                call_end_hooks(self._hooks, self._store, end)


def reset_deferred_chats(store: SessionStore | None, end: EndRecord) -> bool:
    """Start new sessions for chats with routes in a file, which no transaction covers.

    Return True if the store called the hooks for both the ended and the new session.
    """
    hooks_called = False
    for key in end["later"] if store is not None else ():
        with suppress_note_errors(f"the new session of chat {key}"):
            # A call after a crash finds the chats that have moved already.
            if store is not None and store.peek_session_id(key) == end["chats"][key]:
                new_entry = store.reset_session(key)
                end["begun"] += [new_entry.session_id] if new_entry is not None else []
                hooks_called = store.hooks is not None
    return hooks_called


def call_end_hooks(hooks: Hooks, store: SessionStore | None, end: Mapping[str, Any]) -> None:
    """Call the hooks of an ended session and of the sessions that its chats have begun."""
    claims = _claim_ends(store, end)
    if claims is not None and not any(claims.values()):
        return
    arguments = {name: end[name] for name in ("session_id", "platform", "reason")}
    on_begin = None if claims is None else partial(_mark_end_begun, store, end)
    # `on_begin` runs before the first hook, so that a crash does not repeat the calls. An end
    # without claims has only its step: a kill before that is finished repeats the calls.
    hooks.call_once(_HOOK_NAME, on_begin, **arguments)
    for new_id in end["begun"]:
        hooks.call(
            "on_session_reset",
            **{**arguments, "session_id": new_id},
            old_session_id=end["session_id"],
            new_session_id=new_id,
        )
    if store is not None and claims is not None:
        for key, session_id in end["chats"].items():
            with suppress_note_errors(f"the delivery of the end of {session_id}"):
                store.set_end_delivered(key, session_id)


def _mark_end_begun(store: SessionStore | None, end: Mapping[str, Any], _: str) -> bool:
    """Record in each chat that awaits the end that its delivery has begun."""
    started = (
        [store.begin_end_delivery(key, session_id) for key, session_id in end["chats"].items()]
        if store
        else []
    )
    return any(started)


def _claim_ends(store: SessionStore | None, end: Mapping[str, Any]) -> dict[str, bool] | None:
    """Return the ends claimed here by chat, or None if the home records no ends."""
    if store is None or not store.settings.is_hermes or not end["chats"]:
        return None
    if end["begun"]:
        return None
    return {key: store.claim_end(key, session_id) for key, session_id in end["chats"].items()}
