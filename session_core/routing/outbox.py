"""What the hooks are owed: boundaries that are stored in the entry of a chat, and not told yet.

They stand in the same text as the change that makes them, so that both are stored or neither. What
begins to be told leaves the entry just before: a hook that began counts as told.

Who tells that the session of a chat ends, and what is noted of it, so that it is told once.

Whoever tells it claims that first, in the entry, notes there that a hook begins just before it
does, and afterwards that it was told; on a Hermes home, whose entries may not be marked, in `marks`
beside it. A claim of a process that has died counts for nothing, but a hook that began counts as
told.

Boundaries that a chat crosses when it changes its session: owed to the hooks, and then told.

What is owed stands in the entry that the change stores, and leaves it just before it is told. What
a process that has died still owes is told by whoever comes next: at a start, at a tick of the
watcher, or before a message of the chat is answered.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from session_core.chats import check_session_id, get_key_platform
from session_core.errors import InvalidInput, SessionError
from session_core.hooks.specs import FINALIZE, RESET
from session_core.routing.decisions import DatabaseChange, SessionStoreBase
from session_core.routing.entries import PENDING_FIELD, SessionEntry, to_local_time
from session_core.routing.json_backend import JsonBackend
from session_core.routing.leases import (
    BEGUN_FIELD,
    END_CLAIM,
    Mark,
    create_token,
    find_live_holder,
    format_token,
)
from session_core.routing.recovery import is_finally_ended


@dataclass(frozen=True, slots=True)
class PendingBoundary:
    """A boundary that is to be told; `holder` is who does it, since when."""

    id: str
    holder: str
    since: str
    new_session_id: str
    reason: str
    old_session_id: str | None = None
    """The session whose end is to be told, None where it was."""

    used_at: str | None = None
    """When that was last used."""


def list_pending(entry: SessionEntry) -> list[PendingBoundary]:
    """Return what is owed, the oldest first; what cannot be read says nothing."""
    stored = entry.extra.get(PENDING_FIELD)
    found = (_parse_pending(item) for item in stored) if isinstance(stored, list) else ()
    return [owed for owed in found if owed is not None]


def add_pending(entry: SessionEntry, owed: PendingBoundary) -> None:
    """Note what is owed, behind what is owed already."""
    _write_pending(entry, [*list_pending(entry), owed])


def transfer_pending(entry: SessionEntry, *, owed: PendingBoundary, mine: PendingBoundary) -> bool:
    """Let somebody else tell it; return whether it still was as it was read."""
    return owed in list_pending(entry) and _change_pending(entry, owed, lambda _: mine)


def begin_finalize(entry: SessionEntry, owed: PendingBoundary) -> bool:
    """Note that the end is being told; return whether that was left to do."""
    if not any(now.id == owed.id and now.old_session_id for now in list_pending(entry)):
        return False
    return _change_pending(entry, owed, lambda now: replace(now, old_session_id=None))


def begin_reset(entry: SessionEntry, owed: PendingBoundary) -> bool:
    """Note that the beginning is being told, with which nothing is owed any more."""
    return _change_pending(entry, owed, lambda _: None)


def merge_pending(entry: SessionEntry, current: SessionEntry) -> None:
    """Let an entry owe what is owed by now, where nothing else of it was changed meanwhile."""
    if strip_pending(entry.stored) == strip_pending(current.stored) and entry.stored is not None:
        entry.stored = current.stored
        _write_pending(entry, list_pending(current))


def strip_pending(text: str | None) -> str | None:
    """Return the text of an entry as it is when all was told."""
    if text is None or PENDING_FIELD not in text:
        return text
    stored = json.loads(text)
    stored.pop(PENDING_FIELD, None)
    return json.dumps(stored)


def _change_pending(
    entry: SessionEntry,
    owed: PendingBoundary,
    change: Callable[[PendingBoundary], PendingBoundary | None],
) -> bool:
    there = list_pending(entry)
    is_it = [(now.id, now.holder) == (owed.id, owed.holder) for now in there]
    if not any(is_it):
        return False
    changed = (change(now) if it else now for now, it in zip(there, is_it, strict=True))
    _write_pending(entry, [now for now in changed if now is not None])
    return True


def _write_pending(entry: SessionEntry, owed: list[PendingBoundary]) -> None:
    entry.extra.pop(PENDING_FIELD, None)
    if owed:
        entry.extra[PENDING_FIELD] = [
            {name: value for name, value in asdict(one).items() if value} for one in owed
        ]


def _parse_pending(item: Any) -> PendingBoundary | None:
    try:
        owed = PendingBoundary(**item)
        for session_id in (owed.new_session_id, owed.old_session_id):
            if session_id is not None:
                check_session_id(session_id)
    except (TypeError, InvalidInput):
        return None
    given = [value for value in asdict(owed).values() if value is not None]
    return owed if all(isinstance(value, str) for value in given) else None


_MAX_MARKED_USES = 8
"""So many chats that share a session have marks of their own."""


class SessionEnds(SessionStoreBase):
    """Ends are claimed, told and noted."""

    def is_end_delivered(self, entry: SessionEntry) -> bool:
        """Whether the end of a session was told, as it was last used."""
        if entry.expiry_finalized or not self._is_hermes:
            return entry.expiry_finalized
        noted = self.marks.get(entry.session_id)
        return bool(noted) and is_marked_delivered(
            entry, noted, lives=self._is_session_open(entry.session_id)
        )

    def claim_end(self, session_key: str, session_id: str) -> bool:
        """Take on to tell that the session of a chat ends, whatever the clock says.

        Also from somebody else who has taken it on and not begun, since it does end now.
        """
        take = partial(self._take_claim, lives=self._is_session_open(session_id), ends_now=True)
        return self._change_end_record(session_key, session_id, take)

    def begin_end_delivery(self, session_key: str, session_id: str) -> bool:
        """Note that a hook begins to be told of the end that was claimed here, and counts as told.

        False where it began before, was another's by then, or is none any more. Where that cannot
        be noted it is told all the same, better twice than never.
        """

        def change(current: SessionEntry) -> bool:
            is_ours = END_CLAIM.find_holder(current, self._now()) == self._token
            if not is_ours or current.expiry_finalized or has_begun_delivery(current):
                return False
            current.extra[BEGUN_FIELD] = get_last_use(current)
            return True

        return self._try_begin_delivery(
            partial(self._change_end_record, session_key, session_id, change)
        )

    def set_end_delivered(self, session_key: str, session_id: str) -> bool:
        """Note that the end of the session of a chat was told, by whatever path."""

        def change(current: SessionEntry) -> bool:
            END_CLAIM.clear(current)
            is_new, current.expiry_finalized = not current.expiry_finalized, True
            return is_new

        return self._change_end_record(session_key, session_id, change)

    def forget_stale_marks(self) -> None:
        """Forget what is noted beside a Hermes home of sessions in which no chat is any more."""
        if self._is_hermes:
            self.marks.keep_only(
                {entry.session_id for entry in self._copies.list_entries().values()}
            )

    def _take_claim(self, current: SessionEntry, *, lives: bool, ends_now: bool = False) -> bool:
        """Note that the end of a session is told here, unless it was or somebody else does.

        What lives and has no mark was told by nobody, whatever this process remembers. Where a hook
        has begun, that stays noted: what is left to do is to note the end.
        """
        now, token = self._now(), self._token
        holder = END_CLAIM.find_holder(current, now)
        is_left = holder in {None, token} or (ends_now and not has_begun_delivery(current))
        if current.expiry_finalized or not is_left:
            return False
        if holder is None and lives and self.hooks is not None:
            self.hooks.mark_reopened(current.session_id)
        if not has_begun_delivery(current):
            END_CLAIM.clear(current)
        END_CLAIM.put(current, token, now)
        over = not self._is_hermes and self._is_finally_ended(current.session_id)
        if over or self._has_delivered_end(current.session_id, lives=lives):
            current.extra[BEGUN_FIELD] = get_last_use(current)
        return True

    def _has_delivered_end(self, session_id: str, *, lives: bool) -> bool:
        """Whether this process has told the end of a session, by another chat or by its id."""
        return not lives and self.hooks is not None and self.hooks.has_finalized(session_id)

    def _is_finally_ended(self, session_id: str) -> bool:
        """Whether a session has ended for good, so that its end is told by whoever has ended it.

        Not where routes are in a file: the step that has ended it may have been cut short.
        """
        if (
            self.db is None
            or isinstance(self._copies, JsonBackend)
            or self._is_session_open(session_id)
        ):
            return False
        return is_finally_ended(self.db.get_session(session_id))

    def _change_end_record(
        self,
        session_key: str,
        session_id: str,
        change: Callable[[SessionEntry], bool],
        beside: DatabaseChange | None = None,
    ) -> bool:
        """Change what is noted of the end of a session: in its entry, or beside a Hermes home."""

        def change_here(current: SessionEntry) -> bool:
            return current.session_id == session_id and change(current)

        if not self._is_hermes:
            return self._change_entry(session_key, change_here, beside) is not None
        lives = self._is_session_open(session_id)
        with self._flights.hold_lock(session_key):
            current = self._copies.get(session_key)
            return current is not None and self._change_mark(current, change_here, lives=lives)

    def _change_mark(
        self, entry: SessionEntry, change: Callable[[SessionEntry], bool], *, lives: bool
    ) -> bool:
        def step(noted: Mark) -> Mark | None:
            current = entry.copy()
            current.expiry_finalized |= is_marked_delivered(entry, noted, lives=lives)
            is_known = noted.get(END_CLAIM.names[0]) == self._token or BEGUN_FIELD in noted
            # What was told, or claimed here, before the session was used again was another end.
            if not is_known or noted.get("used_at") == get_last_use(entry):
                current.extra |= {name: noted[name] for name in END_CLAIM.names if name in noted}
            return _build_mark(current, noted) if change(current) else None

        return self.marks.change(entry.session_id, step)

    def _mark_reopened(self, session_id: str) -> None:
        """Note that a session was reopened, so that its next end is told again."""
        if self._is_hermes:
            self._told.afterwards.append(partial(self.marks.forget, session_id))
        if self.hooks is not None:
            self._told.afterwards.append(partial(self.hooks.mark_reopened, session_id))

    @property
    def _is_hermes(self) -> bool:
        return self.db is not None and self.db.kind == "hermes"

    @property
    def _token(self) -> str:
        """What this store claims with."""
        return format_token(self._nonce)

    def _try_begin_delivery(self, note: Callable[[], bool]) -> bool:
        """Return whether a hook is to be told, as is noted; it is where that cannot be."""
        try:
            return note()
        except (SessionError, OSError) as error:
            self.report("what a hook is told of could be told a second time", error)
            return True

    def _is_session_open(self, session_id: str) -> bool:
        """Whether a session goes on, up to this step where that is what ends it."""
        step = self._told.open_transaction
        if step is not None and session_id in step.ending:
            return True
        row = None if self.db is None else self.db.get_session(session_id)
        return row is None or row["ended_at"] is None


def has_begun_delivery(entry: SessionEntry) -> bool:
    """Whether a hook has begun to be told that a session ends, as it was last used."""
    return entry.extra.get(BEGUN_FIELD) == get_last_use(entry)


def get_last_use(entry: SessionEntry) -> str:
    """Return by what is known which use of a session is meant: when that was."""
    return entry.updated_at.isoformat()


def is_marked_delivered(entry: SessionEntry, noted: Mark, *, lives: bool) -> bool:
    """Whether an end was told, as noted beside the entry.

    That counts as long as nobody has used the session since, and for one that has ended, whatever
    its last turn has written since.
    """
    told = noted.get("told", [])
    return get_last_use(entry) in told or bool(told and not lives)


def add_delivered_use(told: list[str], use: str | None) -> list[str]:
    """Return the uses of which the end was told, with one more."""
    return told if use is None or use in told else [*told, use][-_MAX_MARKED_USES:]


def _build_mark(entry: SessionEntry, noted: Mark) -> Mark:
    claim = {name: entry.extra[name] for name in END_CLAIM.names if name in entry.extra}
    told: list[str] = noted.get("told", [])
    if entry.expiry_finalized:
        told = add_delivered_use(told, get_last_use(entry))
    return {**claim, "used_at": get_last_use(entry), "told": told}


class BoundaryOutbox(SessionEnds):
    """Boundaries are owed, told, and taken over from the dead."""

    def deliver_pending_hooks(self, session_key: str | None = None) -> None:
        """Tell what processes that have died owed the hooks, of all chats or before more of one is.

        Raises:
            Denied: a live gateway holds the routes, in which that would have to be noted.
        """
        if not self._has_listeners:
            return
        if session_key is None:
            found = self._copies.list_entries(having=PENDING_FIELD)
        else:
            entry = self._copies.get(session_key)
            found = {} if entry is None else {session_key: entry}
        for key, entry in found.items():
            for owed in self._list_orphaned(entry):
                self._deliver_orphaned(key, entry, owed)

    def _add_boundary(self, old: SessionEntry, new: SessionEntry, reason: str) -> None:
        """Owe a boundary to the hooks, in the entry that is to be stored; then it is told.

        It is called inside the step that ends the old session: of several chats that leave one, at
        once or one after another, the first alone finds it alive, and owes its end.
        """
        if self.hooks is None:
            return
        left = self._is_end_pending(old)
        if self._told.open_transaction is not None:
            self._told.open_transaction.ending.discard(old.session_id)
        token = create_token()
        owed = PendingBoundary(
            id=token,
            holder=token,
            since=to_local_time(self._now()).isoformat(),
            new_session_id=new.session_id,
            reason=reason,
            old_session_id=old.session_id if left else None,
            used_at=get_last_use(old),
        )
        noted = self.hooks.has_listeners()
        if noted:
            add_pending(new, owed)
        ended = old.session_id if left or self._is_claimed_here(old) else None
        tell = partial(self._deliver_boundary, old.key, new, owed, ended, noted=noted)
        self._told.afterwards.append(tell)

    def _schedule_orphaned(self, key: str, entry: SessionEntry) -> None:
        """Tell what a process that has died owed, before anything that follows this decision."""
        for owed in self._list_orphaned(entry):
            self._told.afterwards.append(partial(self._deliver_orphaned, key, entry, owed))

    def _deliver_boundary(
        self,
        key: str,
        entry: SessionEntry,
        owed: PendingBoundary,
        ended: str | None,
        *,
        noted: bool = True,
    ) -> None:
        """Call the hooks of a boundary; what another thread tells is waited for."""
        if self.hooks is None:
            return
        platform = str(entry.platform or get_key_platform(entry.session_key))
        begins = partial(self._begin_delivery, key, owed) if noted else None
        self.hooks.call_boundary(ended, owed.new_session_id, platform, owed.reason, begins)

    def _deliver_orphaned(self, key: str, entry: SessionEntry, owed: PendingBoundary) -> None:
        """Tell what is owed by a process that has died, unless somebody else was faster."""
        mine = replace(owed, holder=create_token(), since=to_local_time(self._now()).isoformat())
        if self._change_entry(key, partial(transfer_pending, owed=owed, mine=mine)) is not None:
            self._deliver_boundary(key, entry, mine, mine.old_session_id)

    def _list_orphaned(self, entry: SessionEntry) -> list[PendingBoundary]:
        """Return what the dead owe; where nobody listens it is left to who does."""
        if not self._has_listeners:
            return []
        now = self._now()
        return [
            owed
            for owed in list_pending(entry)
            if not find_live_holder(owed.holder, owed.since, now)
        ]

    def _begin_delivery(self, key: str, owed: PendingBoundary, hook: str) -> bool:
        """Note that a hook is told of a boundary now, and counts as told; False where it was."""
        begin = begin_reset if hook == RESET else begin_finalize

        def decide(entry: SessionEntry | None) -> bool:
            if entry is None:  # it was removed, with what it owed: nobody else tells that
                return True
            if not begin(entry, owed):
                return False
            self._store_entry(key, entry, urgent=False)
            return True

        def note() -> bool:
            elsewhere = hook == FINALIZE and self._is_hermes and not self._mark_begun(owed)
            return self._run_decision(key, decide) and not elsewhere

        return self._try_begin_delivery(note)

    def _mark_begun(self, owed: PendingBoundary) -> bool:
        """Note beside a Hermes home that an end is told, unless a watcher has begun to tell it.

        Where the process dies before it is noted in the route too, the hook has not begun.
        """

        def step(noted: Mark) -> Mark | None:
            told = noted.get("told", [])
            use = owed.used_at
            if use in {noted.get(BEGUN_FIELD), *told} and noted.get(END_CLAIM.names[0]) != owed.id:
                return None
            claim = dict(zip(END_CLAIM.names, (owed.id, owed.since, use), strict=True))
            # Told: another chat in that session knows it by this.
            return {**noted, **claim, "used_at": use, "told": add_delivered_use(told, use)}

        return owed.old_session_id is not None and self.marks.change(owed.old_session_id, step)

    @property
    def _has_listeners(self) -> bool:
        return self.hooks is not None and self.hooks.has_listeners()

    def _is_end_pending(self, old: SessionEntry) -> bool:
        """Whether nobody has begun to tell the end of a session that its chat is leaving.

        Who has only claimed it finds the chat gone.
        """
        lives = self._is_session_open(old.session_id)
        if self._has_delivered_end(old.session_id, lives=lives) or self._is_finally_ended(
            old.session_id
        ):
            return False
        if not self._is_hermes:
            return not (old.expiry_finalized or has_begun_delivery(old))
        noted = self.marks.get(old.session_id)
        return not (
            is_marked_delivered(old, noted, lives=lives)
            or noted.get(BEGUN_FIELD) == get_last_use(old)
        )

    def _is_claimed_here(self, old: SessionEntry) -> bool:
        noted = self.marks.get(old.session_id) if self._is_hermes else old.extra
        return noted.get(END_CLAIM.names[0]) == self._token
