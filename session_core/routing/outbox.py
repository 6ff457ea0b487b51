"""The outbox: pending calls of session hooks, stored with the change that causes them.

Terms:

- The hooks are `on_session_finalize` (a session has ended) and `on_session_reset` (a chat is in
  another session). To *deliver* a call means to call its hook. A call is *pending* until a process
  stores that the call *begins*. The process stores this directly before it calls the hook.
- A *boundary* is the move of a chat from session A to session B by a reset, a switch or a reset
  policy. It has two calls: finalize A, then reset to B.
- An *end without a successor* is the end of session A while its chat stays in A. It has one call:
  finalize A. The expiry watcher causes it, or a caller that ends a session.
- A *use* of a session by a chat begins with a message, and ends with the next message of the chat.
  The entry's `updated_at` names it. The end of each use is delivered.
- A *delivery mark* states, outside the entry, which ends were delivered. Only Hermes homes have
  marks (see below).

**Boundary** (`HookOutbox`). If one of the hooks may have implementations, the commit that stores B
also stores a `PendingBoundary` in the entry of the chat: either both are stored or neither is.

    state            stored as                  next state is stored by
    pending          old_session_id is A        record_finalize_begun, before finalize A
    finalize begun   old_session_id is None     record_reset_begun, before reset to B
    reset begun      boundary is removed        nothing follows: the delivery is done

If the end of A was delivered before, the boundary is stored in the state "finalize begun".

**End without a successor** (`SessionEnds`). A process first claims the end.

    state            stored as                  next state is stored by
    open             no claim                   claim_expiry or claim_end
    claimed          END_CLAIM with its token   begin_end_delivery, before finalize A
    begun            BEGUN_FIELD with the use   set_expiry_finalized or set_end_delivered
    delivered        expiry_finalized           the next message in A: open again

If a message moves the chat to B after the claim and before the begin, its boundary takes over the
finalize call and the claim lapses. If the message begins a turn in A, the claim is void.

**Ends that a plan causes** are delivered by `maintenance.apply.session_finalizer`. The step of the
plan stores them in its result, and they are pending until `Ledger.finish_step` records the step as
finished. The chats that start a new session have boundaries as above. The chats of a Hermes home
have claims as above. For all other ends no begin is recorded: if the process is killed after the
commit and before `finish_step`, these calls are made again.

**Delivery.** The thread that committed the change calls the hooks directly after the commit. Before
each call it stores the next state with a compare-and-swap of the entry, so that only one thread of
one process makes the call. `Hooks` remembers the deliveries of its process and makes other threads
wait for a running call.

**After a crash.** Before the commit nothing was changed and nothing is pending. After the commit
another process takes over the boundary of the dead process, its *holder*: at its start or in a tick
of the watcher (`deliver_pending_hooks`), or before a message, a reset or a switch of the chat
(`schedule_takeovers`). A holder counts as dead if its process is gone, or one hour after it took
the delivery. The claim of a dead process is void and can be taken again.

A call that has begun counts as delivered: if the process is killed during the call, the call is not
repeated. If the begin cannot be stored, for example on a full disk, the hook is called anyway and
may be called again later.

**Hermes homes.** Entries of a Hermes home carry no record of an end without a successor, because
Hermes' own watcher would then skip its plugins. Instead a `DeliveryMark` outside the home
(`SessionEnds.marks`) holds the claim, the begun use and the delivered uses of each session.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from session_core.chats import get_key_platform
from session_core.errors import SessionError
from session_core.hooks.specs import FINALIZE, RESET
from session_core.routing.entries import PENDING_FIELD, SessionEntry, to_local_time
from session_core.routing.leases import (
    BEGUN_FIELD,
    END_CLAIM,
    DeliveryMark,
    DeliveryMarks,
    create_token,
    find_live_holder,
    format_token,
)
from session_core.routing.pending_boundaries import (
    PendingBoundary,
    add_pending_boundary,
    list_pending_boundaries,
    record_finalize_begun,
    record_reset_begun,
    transfer_pending_boundary,
)
from session_core.routing.recovery import is_finally_ended

if TYPE_CHECKING:
    from session_core.routing.decisions import DatabaseChange, RouteDecision, RouteDecisions
    from session_core.routing.policies import ResetPolicies
    from session_core.routing.settings import StoreSettings
    from session_core.state.protocol import StateDatabase
    from session_core.types import SessionRow


_MAX_MARKED_USES = 8
"""The number of delivered uses that a mark can hold, one per chat in the session."""


class SessionEnds:
    """Records the deliveries of ends without a successor: claim, begin, delivered."""

    def __init__(
        self,
        settings: StoreSettings,
        decisions: RouteDecisions,
        policies: ResetPolicies,
        marks: DeliveryMarks | None = None,
    ) -> None:
        self.marks = marks or DeliveryMarks()
        self._settings = settings
        self._decisions = decisions
        self._policies = policies
        self._nonce = uuid.uuid4().hex[:8]

    def is_end_delivered(self, entry: SessionEntry) -> bool:
        """Return True if the end of the current use of a session was delivered."""
        if entry.expiry_finalized or not self._settings.is_hermes:
            return entry.expiry_finalized
        mark = self.marks.get(entry.session_id)
        return bool(mark) and is_marked_delivered(
            entry, mark, is_open=self.is_session_open(entry.session_id)
        )

    def claim_end(self, session_key: str, session_id: str) -> bool:
        """Claim the end of a chat's session, without regard to its reset policy."""
        is_open = self.is_session_open(session_id)
        change = partial(self._take_claim, is_open=is_open, ends_now=True)
        return self._change_end_record(session_key, session_id, change)

    def claim_expiry(self, entry: SessionEntry) -> bool:
        """Claim the end of an expired session, so that only one process delivers it."""
        is_open = self.is_session_open(entry.session_id)

        def take_claim_if_expired(current: SessionEntry) -> bool:
            is_expired = self._policies.find_expiry_reason(current) is not None
            return is_expired and self._take_claim(current, is_open=is_open)

        return self._change_end_record(entry.key, entry.session_id, take_claim_if_expired)

    def begin_end_delivery(self, session_key: str, session_id: str) -> bool:
        """Record that the finalize call of an end claimed by this store begins.

        Return False if the hook must not be called.
        """

        def record_begin(current: SessionEntry) -> bool:
            is_ours = END_CLAIM.find_holder(current, self._settings.now()) == self._token
            if not is_ours or current.expiry_finalized or has_begun_delivery(current):
                return False
            current.extra[BEGUN_FIELD] = get_last_use(current)
            return True

        return self.try_record_begin(
            partial(self._change_end_record, session_key, session_id, record_begin)
        )

    def set_end_delivered(self, session_key: str, session_id: str) -> bool:
        """Record that the end of a chat's session was delivered, by any process or caller."""

        def record_delivered(current: SessionEntry) -> bool:
            END_CLAIM.clear(current)
            is_new, current.expiry_finalized = not current.expiry_finalized, True
            return is_new

        return self._change_end_record(session_key, session_id, record_delivered)

    def set_expiry_finalized(self, entry: SessionEntry, *, clear_model_override: bool) -> bool:
        """Record in the route and in the session's row that an expired session was finalized."""
        is_finalized = False

        def record_finalized(current: SessionEntry) -> bool:
            nonlocal is_finalized
            is_finalized = self._policies.find_expiry_reason(current) is not None
            if not END_CLAIM.clear(current, self._token):
                is_finalized = False
                return False
            current.expiry_finalized = is_finalized
            if is_finalized and clear_model_override:
                current.model_override = None
            return True

        def end_session(db: StateDatabase) -> None:
            if is_finalized:
                db.set_expiry_finalized(entry.session_id)
                db.promote_to_session_reset(entry.session_id, "session_reset")

        return (
            self._change_end_record(entry.key, entry.session_id, record_finalized, end_session)
            and is_finalized
        )

    def schedule_reopened(self, decision: RouteDecision, session_id: str) -> None:
        """Schedule to forget the delivered end of a reopened session, after the commit."""
        if self._settings.is_hermes:
            decision.after_commit.append(partial(self.marks.forget, session_id))
        if self._settings.hooks is not None:
            decision.after_commit.append(partial(self._settings.hooks.mark_reopened, session_id))

    def forget_stale_marks(self) -> None:
        """Remove the marks of sessions that no chat of a Hermes home is in."""
        if self._settings.is_hermes:
            entries = self._decisions.backend.list_entries().values()
            self.marks.keep_only({entry.session_id for entry in entries})

    def is_end_pending(self, old: SessionEntry) -> bool:
        """Return True if no process has begun to deliver the end of a session its chat leaves."""
        # A claim alone does not count: its holder finds the chat gone and calls no hook.
        row = self._get_row(old.session_id)
        is_open = self._is_open(old.session_id, row)
        if self._has_delivered_end(old.session_id, is_open=is_open) or self._is_finally_ended(
            old.session_id, row
        ):
            return False
        if not self._settings.is_hermes:
            return not (old.expiry_finalized or has_begun_delivery(old))
        mark = self.marks.get(old.session_id)
        return not (
            is_marked_delivered(old, mark, is_open=is_open)
            or mark.get(BEGUN_FIELD) == get_last_use(old)
        )

    def is_claimed_here(self, entry: SessionEntry) -> bool:
        """Return True if this store holds the claim of an end."""
        is_hermes = self._settings.is_hermes
        record = self.marks.get(entry.session_id) if is_hermes else entry.extra
        return record.get(END_CLAIM.token_name) == self._token

    def record_finalize_in_mark(self, boundary: PendingBoundary) -> bool:
        """Record the finalize call of a boundary in the mark of a Hermes session.

        The call begins now and counts as delivered. Return False if another delivery of this use
        has begun.
        """

        def change_mark(mark: DeliveryMark) -> DeliveryMark | None:
            delivered_uses = mark.get("told", [])
            use = boundary.used_at
            is_recorded = use in {mark.get(BEGUN_FIELD), *delivered_uses}
            # With this boundary's id: a process died after it stored the mark and before it stored
            # the begin in the entry, so the hook was not called.
            if is_recorded and mark.get(END_CLAIM.token_name) != boundary.id:
                return None
            claim = dict(zip(END_CLAIM.names, (boundary.id, boundary.since, use), strict=True))
            # The delivered use informs other chats in that session.
            delivered_uses = add_delivered_use(delivered_uses, use)
            return {**mark, **claim, "used_at": use, "told": delivered_uses}

        old_session_id = boundary.old_session_id
        return old_session_id is not None and self.marks.change(old_session_id, change_mark)

    def try_record_begin(self, record: Callable[[], bool]) -> bool:
        """Record the begin of a hook call with `record`.

        Return whether to call the hook. If the record cannot be written, report the error and
        return True.
        """
        try:
            return record()
        except (SessionError, OSError) as error:
            self._settings.report("a hook call could not be recorded and may be repeated", error)
            return True

    def is_session_open(self, session_id: str) -> bool:
        """Return True if a session has not ended, or ends in the open transaction."""
        return self._is_open(session_id, self._get_row(session_id))

    def _take_claim(self, current: SessionEntry, *, is_open: bool, ends_now: bool = False) -> bool:
        """Write a claim unless the end was delivered or another live process holds it.

        With `ends_now`, the claim of another process is replaced unless its call has begun.
        """
        now, token, hooks = self._settings.now(), self._token, self._settings.hooks
        holder = END_CLAIM.find_holder(current, now)
        is_free = holder in {None, token} or (ends_now and not has_begun_delivery(current))
        if current.expiry_finalized or not is_free:
            return False
        if holder is None and is_open and hooks is not None:
            # The stored state wins over the memory of this process: nothing was delivered.
            hooks.mark_reopened(current.session_id)
        if not has_begun_delivery(current):
            END_CLAIM.clear(current)
        END_CLAIM.put(current, token, now)
        is_ended = not self._settings.is_hermes and self._is_finally_ended(
            current.session_id, self._get_row(current.session_id)
        )
        if is_ended or self._has_delivered_end(current.session_id, is_open=is_open):
            # The hook was called on another path; only `expiry_finalized` is left to set.
            current.extra[BEGUN_FIELD] = get_last_use(current)
        return True

    def _has_delivered_end(self, session_id: str, *, is_open: bool) -> bool:
        """Return True if this process has finalized a session that is not open."""
        hooks = self._settings.hooks
        return not is_open and hooks is not None and hooks.has_finalized(session_id)

    def _is_finally_ended(self, session_id: str, row: SessionRow | None) -> bool:
        """Return True if a session ended for good, so that its ender delivers the end."""
        # Routes in a file do not change in one commit with their sessions: the change that ended
        # this one may have been interrupted before it stored a boundary.
        if not self._decisions.backend.is_transactional or self._is_open(session_id, row):
            return False
        return is_finally_ended(row)

    def _is_open(self, session_id: str, row: SessionRow | None) -> bool:
        return row is None or row["ended_at"] is None or self._decisions.is_ending(session_id)

    def _get_row(self, session_id: str) -> SessionRow | None:
        return None if self._settings.db is None else self._settings.db.get_session(session_id)

    def _change_end_record(
        self,
        session_key: str,
        session_id: str,
        change: Callable[[SessionEntry], bool],
        database_change: DatabaseChange | None = None,
    ) -> bool:
        """Change the record of an end in the entry, or in the mark of a Hermes session."""
        decisions = self._decisions

        def change_if_current(current: SessionEntry) -> bool:
            return current.session_id == session_id and change(current)

        if not self._settings.is_hermes:
            changed = decisions.change_entry(session_key, change_if_current, database_change)
            return changed is not None
        is_open = self.is_session_open(session_id)
        with decisions.locks.hold_lock(session_key):
            current = decisions.backend.get(session_key)
            return current is not None and self._change_mark(
                current, change_if_current, is_open=is_open
            )

    def _change_mark(
        self, entry: SessionEntry, change: Callable[[SessionEntry], bool], *, is_open: bool
    ) -> bool:
        """Apply a change of an entry to the mark of its session.

        The change is made on a copy of the entry that holds the values of the mark, and the result
        is stored as the mark.
        """

        def change_mark(mark: DeliveryMark) -> DeliveryMark | None:
            current = entry.copy()
            current.expiry_finalized |= is_marked_delivered(entry, mark, is_open=is_open)
            is_valid = mark.get(END_CLAIM.token_name) == self._token or BEGUN_FIELD in mark
            # A call or claim from before the last use belongs to an earlier end.
            if not is_valid or mark.get("used_at") == get_last_use(entry):
                current.extra |= {name: mark[name] for name in END_CLAIM.names if name in mark}
            return _build_mark(current, mark) if change(current) else None

        return self.marks.change(entry.session_id, change_mark)

    @property
    def _token(self) -> str:
        """The token with which this store claims ends."""
        return format_token(self._nonce)


def has_begun_delivery(entry: SessionEntry) -> bool:
    """Return True if the finalize call of the current use of a session has begun."""
    return entry.extra.get(BEGUN_FIELD) == get_last_use(entry)


def get_last_use(entry: SessionEntry) -> str:
    """Return the time of the last use of a session, which identifies that use."""
    return entry.updated_at.isoformat()


def is_marked_delivered(entry: SessionEntry, mark: DeliveryMark, *, is_open: bool) -> bool:
    """Return True if a mark records the end of this use, or any end of a closed session."""
    # The last turn of a session may still write after the end was delivered.
    delivered_uses = mark.get("told", [])
    return get_last_use(entry) in delivered_uses or bool(delivered_uses and not is_open)


def add_delivered_use(delivered_uses: list[str], use: str | None) -> list[str]:
    """Return the delivered uses with `use` added, newest last."""
    if use is None or use in delivered_uses:
        return delivered_uses
    return [*delivered_uses, use][-_MAX_MARKED_USES:]


def _build_mark(entry: SessionEntry, mark: DeliveryMark) -> DeliveryMark:
    claim = {name: entry.extra[name] for name in END_CLAIM.names if name in entry.extra}
    delivered_uses: list[str] = mark.get("told", [])
    if entry.expiry_finalized:
        delivered_uses = add_delivered_use(delivered_uses, get_last_use(entry))
    return {**claim, "used_at": get_last_use(entry), "told": delivered_uses}


class HookOutbox:
    """Stores pending boundaries, delivers them, and takes them over from dead processes."""

    def __init__(
        self, settings: StoreSettings, decisions: RouteDecisions, ends: SessionEnds
    ) -> None:
        self._settings = settings
        self._decisions = decisions
        self._ends = ends

    def add_boundary(
        self, decision: RouteDecision, old: SessionEntry, new: SessionEntry, reason: str
    ) -> None:
        """Add a pending boundary to the entry `new`, and schedule its delivery.

        The boundary is stored only if a hook has implementations. The hooks are called after the
        commit.
        """
        hooks = self._settings.hooks
        if hooks is None:
            return
        # Runs inside the commit that ends the old session: of several chats that leave it, only
        # the first finds it open, and its boundary includes the end.
        is_end_pending = self._ends.is_end_pending(old)
        if decision.transaction is not None:
            decision.transaction.ending.discard(old.session_id)
        token = create_token()
        boundary = PendingBoundary(
            id=token,
            holder=token,
            since=to_local_time(self._settings.now()).isoformat(),
            new_session_id=new.session_id,
            reason=reason,
            old_session_id=old.session_id if is_end_pending else None,
            used_at=get_last_use(old),
        )
        is_stored = hooks.has_listeners()
        if is_stored:
            add_pending_boundary(new, boundary)
        finalize_id = old.session_id if is_end_pending or self._ends.is_claimed_here(old) else None
        deliver = partial(
            self._deliver_boundary, old.key, new, boundary, finalize_id, is_stored=is_stored
        )
        decision.after_commit.append(deliver)

    def schedule_takeovers(self, decision: RouteDecision) -> None:
        """Schedule the delivery of boundaries of dead processes, before other hook calls."""
        if decision.entry is not None:
            decision.after_commit += [
                partial(self._take_over_boundary, decision.key, decision.entry, boundary)
                for boundary in self._list_ownerless_boundaries(decision.entry)
            ]

    def deliver_pending_hooks(self, session_key: str | None) -> None:
        """Deliver the hook calls left pending by dead processes, for all chats or for one."""
        if not self._has_listeners():
            return
        backend = self._decisions.backend
        if session_key is None:
            entries = backend.list_entries(having=PENDING_FIELD)
        else:
            entry = backend.get(session_key)
            entries = {} if entry is None else {session_key: entry}
        for key, entry in entries.items():
            for boundary in self._list_ownerless_boundaries(entry):
                self._take_over_boundary(key, entry, boundary)

    def _deliver_boundary(
        self,
        key: str,
        entry: SessionEntry,
        boundary: PendingBoundary,
        finalize_id: str | None,
        *,
        is_stored: bool = True,
    ) -> None:
        """Call the hooks of a boundary.

        Wait for calls of it that another thread has begun.
        """
        if self._settings.hooks is None:
            return
        platform = str(entry.platform or get_key_platform(entry.session_key))
        begin = partial(self._begin_delivery, key, boundary) if is_stored else None
        self._settings.hooks.call_boundary(
            finalize_id, boundary.new_session_id, platform, boundary.reason, begin
        )

    def _take_over_boundary(self, key: str, entry: SessionEntry, boundary: PendingBoundary) -> None:
        """Take over and deliver a boundary, unless another process was faster."""
        since = to_local_time(self._settings.now()).isoformat()
        transferred = replace(boundary, holder=create_token(), since=since)
        transfer = partial(transfer_pending_boundary, boundary=boundary, transferred=transferred)
        if self._decisions.change_entry(key, transfer) is not None:
            self._deliver_boundary(key, entry, transferred, transferred.old_session_id)

    def _list_ownerless_boundaries(self, entry: SessionEntry) -> list[PendingBoundary]:
        """Return the boundaries whose holder is dead.

        Return none if no hook has implementations in this process.
        """
        if PENDING_FIELD not in entry.extra or not self._has_listeners():
            return []
        now = self._settings.now()
        return [
            boundary
            for boundary in list_pending_boundaries(entry)
            if not find_live_holder(boundary.holder, boundary.since, now)
        ]

    def _begin_delivery(self, key: str, boundary: PendingBoundary, hook: str) -> bool:
        """Record that a hook of a boundary is called now.

        Return False if it was called before.
        """
        record_begun = record_reset_begun if hook == RESET else record_finalize_begun

        def store_begin(decision: RouteDecision) -> bool:
            entry = decision.entry
            if entry is None:  # removed with its boundaries: no other process delivers them
                return True
            if not record_begun(entry, boundary):
                return False
            decision.save_entry(entry)
            return True

        def record_begin() -> bool:
            is_refused = (
                hook == FINALIZE
                and self._settings.is_hermes
                and not self._ends.record_finalize_in_mark(boundary)
            )
            return self._decisions.run_decision(key, store_begin) and not is_refused

        return self._ends.try_record_begin(record_begin)

    def _has_listeners(self) -> bool:
        return self._settings.hooks is not None and self._settings.hooks.has_listeners()
