"""Undoing a compression: restore its rows, ids, flags, counters, title and routes.

In place, messages added since the compression stay. A continuation without changes is deleted. A
continuation with changes is deleted only by a plan, which lists the data that it drops. All dropped
data goes to the trash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from session_core.compression import ranges
from session_core.compression.chat_routes import ChatRoutes, RoutedChats
from session_core.compression.locks import CompressionLocks
from session_core.compression.plan import WATCHED_TABLES
from session_core.compression.types import (
    KINDS,
    UNDO,
    CommittedChange,
    CompressionResult,
    NotCompressed,
    UndoPlan,
    UndoResult,
    build_goal_key,
    fingerprint_session,
    finish_plan,
    settle_plan,
)
from session_core.errors import Changed, Conflict, InvalidInput
from session_core.ledger.execute import (
    delete_step_marks,
    delete_undone_trash,
    resume_steps,
    run_step,
    suppress_note_errors,
)
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import Member, StoredPlan, TrashItem
from session_core.state.protocol import StateDatabase
from session_core.types import MessageRow, RowImages


@dataclass(frozen=True, slots=True)
class PastCompression:
    """A finished compression, and the data that it stored for the undo."""

    batch: str
    step: str
    result: CompressionResult
    change: CommittedChange
    row: Mapping[str, Any]
    """The session's row before the compression."""

    @classmethod
    def from_batch(cls, ledger: Ledger, batch: str) -> PastCompression:
        """Load the compression of a batch.

        Raises:
            NotFound: the batch does not exist.
            Conflict: it was undone, or its trash is gone.
            InvalidInput: the batch is not a compression.
        """
        ledger.get_undoable_batch(batch)
        steps = ledger.list_steps(batch)
        if len(steps) != 1 or "compressed" not in (steps[0].result or {}):
            raise InvalidInput(
                f"batch {batch} is not a compression; undo it with Maintenance.restore"
            )
        step, result = steps[0], steps[0].result
        (row_item,) = ledger.read_trash(step.id)
        change = CommittedChange(**result["done"])
        return cls(
            batch,
            step.id,
            CompressionResult.from_json(result["compressed"]),
            change,
            row_item.value,
        )

    @property
    def old_session_id(self) -> str:
        """The id of the session that was compressed."""
        return self.result.old_session_id

    def require_old_session(self, db: StateDatabase) -> None:
        """Check that the session that was compressed still exists.

        Raises:
            Conflict: it was deleted, or its id belongs to another session by now.
        """
        # The start time distinguishes it from a later session with the same id.
        row = db.get_session(self.old_session_id)
        if row is None or row["started_at"] != self.row["started_at"]:
            raise Conflict(
                f"session {self.old_session_id} was deleted since; it cannot be restored by an undo"
            )

    @property
    def summary_ids(self) -> list[int]:
        """The ids of the summary messages."""
        return list(self.change.made[: len(self.change.made) - len(self.change.carried)])

    @property
    def copies(self) -> dict[int, int]:
        """The ids of the copies by the ids of their originals."""
        copies = self.change.made[len(self.summary_ids) :]
        return dict(zip(self.change.carried, copies, strict=True))


def collect_in_place_trash(past: PastCompression, db: StateDatabase) -> Iterator[TrashItem]:
    """Yield the rows that undoing a compression in place deletes or changes."""
    yield TrashItem("session", db.get_session(past.old_session_id))
    for message_id in past.change.made:
        yield TrashItem("message", db.get_message(message_id))
    row_keys = tuple((message_id, past.old_session_id) for message_id in past.change.made)
    yield from collect_related_rows(db, [RowImages("messages", ("id", "session_id"), row_keys)])


def collect_related_rows(db: StateDatabase, images: Iterable[RowImages]) -> Iterator[TrashItem]:
    """Yield the rows of other tables that are deleted or changed with these rows."""
    for image in db.rows.read_referring_images(
        table_image for table_image in images if not table_image.shared
    ):
        yield TrashItem("beside", image.pack())


def reactivate_messages(past: PastCompression, db: StateDatabase) -> dict[str, Any]:
    """Make the original rows live again in place of the summary and the copies.

    An original becomes live only if its copy is live, and the summarized range only if its summary
    is live.
    """
    inserted = _read_inserted_rows(past, db)
    row: Mapping[str, Any] = db.get_session(past.old_session_id) or {}
    has_live_summary = any(_is_live(inserted[message_id]) for message_id in past.summary_ids)
    flags = {message_id: pair for message_id, *pair in past.change.flags}
    for original, copy in past.copies.items():
        # If a copy was rewound since, its original gets the flags of the copy.
        if not _is_live(inserted[copy]):
            flags.pop(original, None)
    if not has_live_summary:
        flags |= {message_id: [0, 0] for message_id in past.change.replaced}
    db.rows.restore_compacted(
        past.old_session_id,
        [*past.change.replaced, *past.change.carried],
        copies=past.copies,
        flags=flags,
        drop=past.change.made,
    )
    counters = {
        name: _compute_restored_counter(before, after, row.get(name))
        for name, (before, after) in past.change.counted.items()
    }
    db.rows.put_session_fields(past.old_session_id, counters)
    restored = len(past.change.replaced) + len(past.change.carried)
    return asdict(UndoResult(past.old_session_id, restored, len(past.change.made)))


def _read_inserted_rows(past: PastCompression, db: StateDatabase) -> dict[int, MessageRow]:
    """Return the rows that the compression added.

    Raises:
        Conflict: a row was deleted or compacted since.
    """
    rows = [db.get_message(message_id) for message_id in past.change.made]
    inserted = {row["id"]: row for row in rows if row and row["session_id"] == past.old_session_id}
    past.require_old_session(db)
    if len(inserted) < len(rows):
        raise Conflict(
            f"messages that compression {past.batch} added to session {past.old_session_id} "
            "were deleted since; restore them first, then undo"
        )
    if any(row.get("compacted") and not _is_live(row) for row in inserted.values()):
        raise Conflict(f"session {past.old_session_id} was compressed again since; undo that first")
    return inserted


def _is_live(row: MessageRow) -> bool:
    return row.get("active") in (1, None)


def _compute_restored_counter(before: Any, after: Any, now: Any) -> int | None:
    """Return a counter before the compression plus the amount added since."""
    since = (now or 0) - (after or 0)
    return (before or 0) + since if since else before


_MAX_ROWS = 1 << 62


@dataclass(frozen=True, slots=True)
class DroppedSessions:
    """The sessions to delete with their fingerprints, the continuation first."""

    sessions: dict[str, dict[str, str]]
    detached: tuple[str, ...]
    """Sessions that lose their parent."""

    def list_changes(self, past: PastCompression) -> tuple[str, ...]:
        """Return the names of the parts of the continuation that changed since the compression."""
        now, then = self.sessions.get(past.change.session_id), past.change.left
        if now is None:
            return ()
        return tuple(
            sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))
        )

    def is_lossless(self, past: PastCompression) -> bool:
        """Return True if only unchanged results of the compression would be dropped."""
        return self.sessions.keys() <= {past.change.session_id} and not self.list_changes(past)


def find_dropped_sessions(db: StateDatabase, past: PastCompression) -> DroppedSessions:
    """Return a continuation, the sessions that continue it, and the delegates of all of them.

    Raises:
        Conflict: the session that was compressed no longer exists.
    """
    past.require_old_session(db)
    sessions, detached = _find_descendants(db, past.change.session_id)
    return DroppedSessions(
        {session_id: fingerprint_session(db, session_id) for session_id in sessions},
        tuple(detached),
    )


def collect_dropped_rows(
    dropped: DroppedSessions, past: PastCompression, db: StateDatabase
) -> Iterator[TrashItem]:
    """Yield all rows that will be deleted or changed, including unknown columns."""
    yield TrashItem("parent", db.get_session(past.old_session_id))
    for session_id in dropped.sessions:
        yield TrashItem("session", db.get_session(session_id))
        for message in db.get_messages(session_id, include_inactive=True):
            yield TrashItem("message", message)
        for table, rows in db.rows.read_belongings(session_id).items():
            for row in rows:
                yield TrashItem(table, row)
        yield from collect_related_rows(
            db,
            [
                *db.rows.read_session_images(session_id),
                db.rows.read_message_images(session_id, None, _MAX_ROWS)[0],
            ],
        )
        for row in db.rows.list_routing_rows(session_id):
            yield TrashItem("gateway_routing", row)
        goal = db.get_meta(build_goal_key(session_id))
        if goal is not None:
            yield TrashItem("state_meta", {"key": build_goal_key(session_id), "value": goal})
    for session_id in dropped.detached:
        yield TrashItem("detached", db.get_session(session_id))


def drop_continuation(
    planned_drop: DroppedSessions,
    past: PastCompression,
    routes: ChatRoutes,
    chats: RoutedChats,
    db: StateDatabase,
) -> dict[str, Any]:
    """Delete the continuation and reopen the session that was compressed.

    Raises:
        Changed: the continuation has changed since it was checked.
    """
    # In the transaction, so that the deleted rows are exactly the rows in the trash.
    if find_dropped_sessions(db, past) != planned_drop:
        raise Changed("the conversation has changed during the undo; undo again")
    # Moving the routes below writes their chat into this row, so it is read first.
    row = dict(db.get_session(past.old_session_id) or {})
    texts = {
        _get_row_key(route_row): route_row["entry_json"]
        for route_row in routes.list_rows(past.change.session_id)
    }
    routes.redirect_chats(chats, past.old_session_id)
    for route in past.change.routes:
        # A route that its chat has changed since is not replaced by the old route.
        if texts.get(_get_row_key(route["row"])) == route["left"]:
            db.rows.put_routing_row(route["row"])
    dropped = sum(db.message_count(session_id) for session_id in planned_drop.sessions)
    for session_id in planned_drop.sessions:
        db.delete_meta(build_goal_key(session_id))
    # Children before their parents.
    db.delete_sessions(list(reversed(planned_drop.sessions)))
    # A goal that was set since stays.
    if past.change.goal is not None and db.get_meta(build_goal_key(past.old_session_id)) is None:
        db.set_meta(build_goal_key(past.old_session_id), past.change.goal)
    lost_title = _restore_session(db, past, row)
    restored = db.get_revision(past.old_session_id).live
    return asdict(UndoResult(past.old_session_id, restored, dropped, lost_title))


def _find_descendants(db: StateDatabase, child: str) -> tuple[list[str], list[str]]:
    """Return the sessions to delete with a continuation, and the sessions to detach from them."""
    if db.get_session(child) is None:
        return [], []
    chain = db.get_compression_lineage(child)
    session_ids, detached = chain[chain.index(child) :], list[str]()
    # The list grows meanwhile: the delegates of a delegate are deleted with it.
    for session_id in session_ids:
        for row in db.list_children(session_id):
            if row["id"] in session_ids:
                continue
            is_delegate = db.get_link_kind(row["id"]) == "delegate"
            (session_ids if is_delegate else detached).append(row["id"])
    return session_ids, detached


def _restore_session(db: StateDatabase, past: PastCompression, row: dict[str, Any]) -> str | None:
    """Restore the session row from before its end.

    Return its title if another session has that title by now, else None.
    """
    # A session that was ended in another way since stays ended.
    if row["end_reason"] == "compression":
        row |= {name: past.row[name] for name in ("ended_at", "end_reason")}
    lost_title = None
    for name in ("title", "handoff_state"):
        if name in row and row[name] is None:
            row[name] = past.row[name]
    if row["title"] is not None:
        holder = db.get_session_by_title(row["title"])
        if holder is not None and holder["id"] != past.old_session_id:
            lost_title, row["title"] = row["title"], None
    now: dict[str, Any] = {**(db.get_session(past.old_session_id) or {})}
    db.rows.put_session_fields(
        past.old_session_id, {k: v for k, v in row.items() if now.get(k) != v}
    )
    return lost_title


def _get_row_key(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["scope"], row["session_key"]


_DROP_REASON = "it continues the compression that is undone"


class CompressionUndo:
    """Undoes the compressions of one home."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        routes: ChatRoutes,
        locks: CompressionLocks,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._routes = routes
        self._locks = locks
        self._clock = clock

    def undo_compression(self, batch: str, client: str) -> UndoResult:
        """Undo a compression, or only plan the undo if it would drop later messages."""
        old = PastCompression.from_batch(self._ledger, batch).old_session_id
        return self._locks.run_locked([old], partial(self._undo_batch, batch, client), patient=True)

    def plan_undo(self, batch: str) -> UndoPlan | None:
        """Plan to undo a compression.

        Return None if the undo would drop nothing.
        """
        old = PastCompression.from_batch(self._ledger, batch).old_session_id
        return self._locks.run_locked([old], partial(self._plan_if_lossy, batch), patient=True)

    def apply_undo_plan(self, handle: str, client: str) -> UndoResult:
        """Apply a plan to undo a compression."""
        plan = self._get_plan(handle)
        if plan.state != "finished":
            old = plan.about["session_id"]
            return self._locks.run_locked(
                [old], partial(self._apply_once, handle, client), patient=True
            )
        return UndoResult(**plan.result)

    def _undo_batch(self, batch: str, client: str) -> UndoResult:
        # The previous holder of the lock may have undone it, or died while doing so.
        resume_steps(self._db, self._ledger, KINDS)
        past = PastCompression.from_batch(self._ledger, batch)
        # Refused before anything is recorded in the ledger.
        self._db.rows.check_rows_writable(WATCHED_TABLES)
        if past.result.shape == "in_place":
            return self._run_undo_step(
                past,
                partial(collect_in_place_trash, past),
                partial(reactivate_messages, past),
                client=client,
            )
        dropped = find_dropped_sessions(self._db, past)
        if dropped.is_lossless(past):
            return self._drop_continuation(past, dropped, client)
        return UndoResult(past.old_session_id, 0, 0, plan=self._record_plan(past, dropped))

    def _plan_if_lossy(self, batch: str) -> UndoPlan | None:
        resume_steps(self._db, self._ledger, KINDS)
        past = PastCompression.from_batch(self._ledger, batch)
        self._db.rows.check_rows_writable(WATCHED_TABLES)
        if past.result.shape == "in_place":
            return None
        dropped = find_dropped_sessions(self._db, past)
        return None if dropped.is_lossless(past) else self._record_plan(past, dropped)

    def _apply_once(self, handle: str, client: str) -> UndoResult:
        """Apply a plan under its lock, unless another process has applied it meanwhile."""
        plan = self._get_plan(handle)
        if plan.state == "finished":
            return UndoResult(**plan.result)
        return self._apply_plan(plan, client)

    def _get_plan(self, handle: str) -> StoredPlan:
        resume_steps(self._db, self._ledger, KINDS)
        plan = self._ledger.get_plan(handle)
        if plan.kind != UNDO:
            raise InvalidInput(
                f"plan {handle} is not an undo of a compression but one to {plan.kind}"
            )
        return settle_plan(self._db, self._ledger, plan) if plan.state == "applying" else plan

    def _apply_plan(self, plan: StoredPlan, client: str) -> UndoResult:
        past = PastCompression.from_batch(self._ledger, plan.about["batch"])
        self._db.rows.check_rows_writable(WATCHED_TABLES)
        dropped = find_dropped_sessions(self._db, past)
        planned = {member.id: member.revision for member in plan.members}
        if dropped != DroppedSessions(planned, tuple(plan.about["detached"])):
            self._ledger.close_plan(plan.handle)
            raise Changed("the conversation has changed since; plan the undo again")
        result = self._drop_continuation(past, dropped, client, plan=plan.handle)
        finish_plan(self._ledger, plan.handle, asdict(result))
        return result

    def _record_plan(self, past: PastCompression, dropped: DroppedSessions) -> UndoPlan:
        members = [
            Member(session_id, state, _DROP_REASON)
            for session_id, state in dropped.sessions.items()
        ]
        count = sum(self._db.message_count(session_id) for session_id in dropped.sessions)
        new_messages, changed = max(count - len(past.change.made), 0), dropped.list_changes(past)
        about = {
            "batch": past.batch,
            "session_id": past.old_session_id,
            "detached": dropped.detached,
            "warnings": list(_list_warnings(new_messages, changed, dropped.detached)),
        }
        plan = self._ledger.add_plan(UNDO, members, about)
        return UndoPlan(
            plan=plan.handle,
            session_id=past.old_session_id,
            expires_at=plan.expires_at,
            sessions=tuple(dropped.sessions),
            messages=new_messages,
            changed=changed,
            detached=dropped.detached,
        )

    def _drop_continuation(
        self,
        past: PastCompression,
        dropped: DroppedSessions,
        client: str,
        plan: str | None = None,
    ) -> UndoResult:
        def run_drop_step() -> UndoResult:
            chats = self._routes.find_chats(dropped.sessions or [past.change.session_id])
            self._require_unused(dropped, chats)
            return self._run_undo_step(
                past,
                partial(collect_dropped_rows, dropped, past),
                partial(drop_continuation, dropped, past, self._routes, chats),
                client=client,
                within=partial(self._open_transaction, dropped, chats),
                plan=plan,
                members=tuple(dropped.sessions),
            )

        # All sessions are locked, so that none is compressed while it is deleted.
        return self._locks.run_locked(tuple(dropped.sessions), run_drop_step, patient=True)

    def _run_undo_step(
        self,
        past: PastCompression,
        before: Callable[[StateDatabase], Iterable[TrashItem]],
        change: Callable[[StateDatabase], dict[str, Any]],
        *,
        client: str,
        within: Callable[[], AbstractContextManager[object]] = nullcontext,
        plan: str | None = None,
        members: Sequence[str] = (),
    ) -> UndoResult:
        """Run the step that undoes a compression, after moving all that it deletes to the trash."""
        batch = self._ledger.begin_plan(plan).batch_id if plan else self._ledger.add_batch(UNDO).id
        result = run_step(
            self._db,
            self._ledger,
            batch,
            before=before,
            change=change,
            members=members if plan else (),
            undoes=past.step,
            within=within,
        )
        delete_step_marks(self._db, self._ledger)
        undo_result = UndoResult(**result)
        counts = {"restored": undo_result.restored, "dropped": undo_result.dropped}
        with suppress_note_errors(f"{UNDO} of {undo_result.session_id}"):
            self._ledger.add_audit_entry(
                client, f"{UNDO} of {undo_result.session_id}", plan, counts
            )
        delete_undone_trash(self._ledger)
        return undo_result

    def _open_transaction(
        self, dropped: DroppedSessions, chats: RoutedChats
    ) -> AbstractContextManager[object]:
        # This check is too slow for a transaction. A later writer is noticed inside it.
        self._require_unused(dropped, chats)
        return self._routes.open_transaction(chats)

    def _require_unused(self, dropped: DroppedSessions, chats: RoutedChats) -> None:
        """Raise NotCompressed if an agent may be using a session that would be deleted."""
        for session_id in dropped.sessions:
            row = self._db.get_session(session_id)
            if row is None:
                continue
            last_messages = self._db.read_window(session_id, limit=1).messages
            active_at = last_messages[-1]["timestamp"] if last_messages else row["started_at"]
            routed = bool(chats.keys.get(session_id))
            activity_text = ranges.describe_active_agent(
                self._db, row, active_at, routed=routed, now=self._clock()
            )
            if activity_text is not None:
                raise NotCompressed("live", f"{activity_text}; stop it, then undo again")


def _list_warnings(
    new_messages: int, changed: Sequence[str], detached: Sequence[str]
) -> Iterator[str]:
    """Yield a warning for each kind of data that a plan drops."""
    if new_messages:
        yield f"{new_messages:,} messages added since go to the trash"
    others = [name for name in changed if name != "messages" or not new_messages]
    if others:
        yield f"changes made since go to the trash: {', '.join(others)}"
    if detached:
        yield f"{len(detached):,} sessions lose their parent"
