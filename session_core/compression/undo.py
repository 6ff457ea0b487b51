"""A compression that was done, as the ledger has it, and how one in place is taken back.

What goes where a continuation is taken back: it and what came of it, all in the trash first.

Taking a compression back: the rows, ids, flags, counters, title and routes of before.

In place what was said since stays. A continuation that is as it was left is deleted; where one has
gone on, that is a plan that says what it would drop, and what it drops is kept in the trash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from session_core.compression import ranges
from session_core.compression.locks import CompressionLocks
from session_core.compression.plan import WATCHED_TABLES
from session_core.compression.routes import ChatRoutes, RoutedChats
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
    clear_marks,
    delete_content,
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
    """A compression that was done, and what it kept."""

    batch: str
    step: str
    compressed: CompressionResult
    done: CommittedChange
    row: Mapping[str, Any]
    """The session's row before it."""

    @classmethod
    def from_batch(cls, ledger: Ledger, batch: str) -> PastCompression:
        """Return the compression of a batch.

        Raises:
            NotFound: there is no such batch.
            Conflict: it was undone, or its trash is gone.
            InvalidInput: it is one of something else.
        """
        ledger.get_undoable_batch(batch)
        steps = ledger.list_steps(batch)
        if len(steps) != 1 or "compressed" not in (steps[0].result or {}):
            raise InvalidInput(f"batch {batch} is no compression; restore it elsewhere")
        step, result = steps[0], steps[0].result
        (kept,) = ledger.read_trash(step.id)
        done = CommittedChange(**result["done"])
        return cls(
            batch, step.id, CompressionResult.from_json(result["compressed"]), done, kept.value
        )

    @property
    def old_session_id(self) -> str:
        """The session that was compressed."""
        return self.compressed.old_session_id

    def require_old_session(self, db: StateDatabase) -> None:
        """Make sure that the session that was compressed is there.

        Raises:
            Conflict: it is not, or another has its id by now.
        """
        row = db.get_session(self.old_session_id)
        if row is None or row["started_at"] != self.row["started_at"]:
            raise Conflict(
                f"session {self.old_session_id} was deleted since; there is nothing to go back to"
            )

    @property
    def summary_ids(self) -> list[int]:
        """The rows of the summary."""
        return list(self.done.made[: len(self.done.made) - len(self.done.carried)])

    @property
    def copies(self) -> dict[int, int]:
        """What was carried on in place, and its copies."""
        copies = self.done.made[len(self.summary_ids) :]
        return dict(zip(self.done.carried, copies, strict=True))


def collect_in_place_trash(past: PastCompression, db: StateDatabase) -> Iterator[TrashItem]:
    """Yield what taking back a compression in place deletes, and the row that it changes."""
    yield TrashItem("session", db.get_session(past.old_session_id))
    for each in past.done.made:
        yield TrashItem("message", db.get_message(each))
    known = tuple((each, past.old_session_id) for each in past.done.made)
    yield from collect_related_rows(db, [RowImages("messages", ("id", "session_id"), known)])


def collect_related_rows(db: StateDatabase, images: Iterable[RowImages]) -> Iterator[TrashItem]:
    """Yield the rows of other tables that go with these, or are emptied, as some tables have it."""
    for image in db.read_referring_images(each for each in images if not each.shared):
        yield TrashItem("beside", image.pack())


def revive_messages(past: PastCompression, db: StateDatabase) -> dict[str, Any]:
    """Let the rows of before be live again in place of the summary and of the copies.

    What became of a copy becomes of its original, and what of the summary of the whole range.
    """
    put = _read_inserted_rows(past, db)
    counted = db.get_session(past.old_session_id) or {}
    stands = any(_is_live(put[each]) for each in past.summary_ids)
    flags = {each: pair for each, *pair in past.done.flags}
    for original, copy in past.copies.items():
        if not _is_live(put[copy]):
            flags.pop(original, None)
    if not stands:
        flags |= {each: [0, 0] for each in past.done.replaced}
    db.restore_compacted(
        past.old_session_id,
        [*past.done.replaced, *past.done.carried],
        copies=past.copies,
        flags=flags,
        drop=past.done.made,
    )
    counters = {
        name: _restore_counter(before, after, counted.get(name))
        for name, (before, after) in past.done.counted.items()
    }
    db.put_session_fields(past.old_session_id, counters)
    restored = len(past.done.replaced) + len(past.done.carried)
    return asdict(UndoResult(past.old_session_id, restored, len(past.done.made)))


def _read_inserted_rows(past: PastCompression, db: StateDatabase) -> dict[int, MessageRow]:
    """Return what the compression has put there, which must be there and not compacted again."""
    rows = [db.get_message(each) for each in past.done.made]
    found = {row["id"]: row for row in rows if row and row["session_id"] == past.old_session_id}
    past.require_old_session(db)
    if len(found) < len(rows):
        raise Conflict(
            f"messages that compression {past.batch} put into session {past.old_session_id} "
            "were deleted "
            "since, so it cannot be undone; restore what has deleted them first"
        )
    if any(row.get("compacted") and not _is_live(row) for row in found.values()):
        raise Conflict(f"session {past.old_session_id} was compressed again since; undo that first")
    return found


def _is_live(row: MessageRow) -> bool:
    return row.get("active") in (1, None)


def _restore_counter(before: Any, after: Any, now: Any) -> int | None:
    """Return a counter as it was stored, with what came since."""
    since = (now or 0) - (after or 0)
    return (before or 0) + since if since else before


_MAX_ROWS = 1 << 62


@dataclass(frozen=True, slots=True)
class DroppedSessions:
    """The sessions that go, the continuation first, each with what it is now."""

    sessions: dict[str, dict[str, str]]
    detached: tuple[str, ...]
    """Sessions that lose their parent."""

    def list_changes(self, past: PastCompression) -> tuple[str, ...]:
        """Return by name what of the continuation is not what the compression has left."""
        now, then = self.sessions.get(past.done.session_id), past.done.left
        if now is None:
            return ()
        return tuple(sorted(n for n in now.keys() | then.keys() if now.get(n) != then.get(n)))

    def is_lossless(self, past: PastCompression) -> bool:
        """Whether all that goes is what the compression has made, if it is not gone already."""
        return self.sessions.keys() <= {past.done.session_id} and not self.list_changes(past)


def find_dropped_sessions(db: StateDatabase, past: PastCompression) -> DroppedSessions:
    """Return a continuation, what continues it, and the delegates of both.

    Raises:
        Conflict: the session that it came from is not there any more.
    """
    past.require_old_session(db)
    sessions, detached = _find_descendants(db, past.done.session_id)
    return DroppedSessions(
        {each: fingerprint_session(db, each) for each in sessions}, tuple(detached)
    )


def collect_dropped_rows(
    doomed: DroppedSessions, past: PastCompression, db: StateDatabase
) -> Iterator[TrashItem]:
    """Yield all rows that will be deleted or changed, with columns that we know nothing of."""
    yield TrashItem("parent", db.get_session(past.old_session_id))
    for each in doomed.sessions:
        yield TrashItem("session", db.get_session(each))
        for message in db.get_messages(each, include_inactive=True):
            yield TrashItem("message", message)
        for table, rows in db.read_belongings(each).items():
            for row in rows:
                yield TrashItem(table, row)
        yield from collect_related_rows(
            db, [*db.read_session_images(each), db.read_message_images(each, None, _MAX_ROWS)[0]]
        )
        for row in db.list_routing_rows(each):
            yield TrashItem("gateway_routing", row)
        goal = db.get_meta(build_goal_key(each))
        if goal is not None:
            yield TrashItem("state_meta", {"key": build_goal_key(each), "value": goal})
    for each in doomed.detached:
        yield TrashItem("detached", db.get_session(each))


def drop_continuation(
    doomed: DroppedSessions,
    past: PastCompression,
    routes: ChatRoutes,
    led: RoutedChats,
    db: StateDatabase,
) -> dict[str, Any]:
    """Delete what has gone on, and go on with what it came from.

    Raises:
        Changed: it is not what was looked at.
    """
    if find_dropped_sessions(db, past) != doomed:
        raise Changed("the conversation has gone on meanwhile; undo again")
    row = dict(db.get_session(past.old_session_id) or {})
    texts = {
        _get_row_key(found): found["entry_json"] for found in routes.list_rows(past.done.session_id)
    }
    routes.redirect_chats(led, past.old_session_id)
    for route in past.done.routes:
        if texts.get(_get_row_key(route["row"])) == route["left"]:
            db.put_routing_row(route["row"])
    dropped = sum(db.message_count(each) for each in doomed.sessions)
    for each in doomed.sessions:
        db.delete_meta(build_goal_key(each))
    db.delete_sessions(list(reversed(doomed.sessions)))
    if past.done.goal is not None and db.get_meta(build_goal_key(past.old_session_id)) is None:
        db.set_meta(build_goal_key(past.old_session_id), past.done.goal)
    lost_title = _restore_session(db, past, row)
    restored = db.get_revision(past.old_session_id).live
    return asdict(UndoResult(past.old_session_id, restored, dropped, lost_title))


def _find_descendants(db: StateDatabase, child: str) -> tuple[list[str], list[str]]:
    """Return the sessions that go with a continuation, and those that lose their parent."""
    if db.get_session(child) is None:
        return [], []
    chain = db.get_compression_lineage(child)
    found, detached = chain[chain.index(child) :], list[str]()
    for each in found:
        for row in db.list_children(each):
            if row["id"] in found:
                continue
            delegate = db.get_link_kind(row["id"]) == "delegate"
            (found if delegate else detached).append(row["id"])
    return found, detached


def _restore_session(db: StateDatabase, past: PastCompression, row: dict[str, Any]) -> str | None:
    """Make the session what it was before it was ended; return the title that it cannot have.

    A route that is led back tells its session about the chat, of which that may have known nothing.
    """
    if row["end_reason"] == "compression":
        row |= {name: past.row[name] for name in ("ended_at", "end_reason")}
    lost = None
    for name in ("title", "handoff_state"):
        if name in row and row[name] is None:
            row[name] = past.row[name]
    if row["title"] is not None:
        holder = db.get_session_by_title(row["title"])
        if holder is not None and holder["id"] != past.old_session_id:
            lost, row["title"] = row["title"], None
    now: dict[str, Any] = {**(db.get_session(past.old_session_id) or {})}
    db.put_session_fields(past.old_session_id, {k: v for k, v in row.items() if now.get(k) != v})
    return lost


def _get_row_key(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["scope"], row["session_key"]


_DROP_REASON = "it goes on from the compression that is taken back"


class CompressionUndo:
    """Takes compressions of one home back."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        routes: ChatRoutes,
        locks: CompressionLocks,
        *,
        client: str,
        clock: Callable[[], float],
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._routes = routes
        self._locks = locks
        self._client = client
        self._clock = clock

    def undo(self, batch: str) -> UndoResult | UndoPlan:
        """Take a compression back, or plan that where it would drop what was said since."""
        old = PastCompression.from_batch(self._ledger, batch).old_session_id
        return self._locks.run_locked([old], partial(self._undo_batch, batch), patient=True)

    def plan(self, batch: str) -> UndoPlan | None:
        """Plan to take a compression back where that would drop what was said since."""
        old = PastCompression.from_batch(self._ledger, batch).old_session_id
        return self._locks.run_locked([old], partial(self._plan_if_lossy, batch), patient=True)

    def apply(self, handle: str) -> UndoResult:
        """Take back what a plan says, with what was said since."""
        plan = self._get_plan(handle)
        if plan.state != "finished":
            old = plan.about["session_id"]
            return self._locks.run_locked([old], partial(self._apply_once, handle), patient=True)
        return UndoResult(**plan.result)

    def _undo_batch(self, batch: str) -> UndoResult | UndoPlan:
        # Who had the lock may have undone it, or have died over that.
        resume_steps(self._db, self._ledger, KINDS)
        past = PastCompression.from_batch(self._ledger, batch)
        self._db.check_rows_writable(WATCHED_TABLES)
        if past.compressed.shape == "in_place":
            return self._run_undo_step(
                past, partial(collect_in_place_trash, past), partial(revive_messages, past)
            )
        doomed = find_dropped_sessions(self._db, past)
        if doomed.is_lossless(past):
            return self._drop_continuation(past, doomed)
        return self._record_plan(past, doomed)

    def _plan_if_lossy(self, batch: str) -> UndoPlan | None:
        resume_steps(self._db, self._ledger, KINDS)
        past = PastCompression.from_batch(self._ledger, batch)
        self._db.check_rows_writable(WATCHED_TABLES)
        if past.compressed.shape == "in_place":
            return None
        doomed = find_dropped_sessions(self._db, past)
        return None if doomed.is_lossless(past) else self._record_plan(past, doomed)

    def _apply_once(self, handle: str) -> UndoResult:
        """Apply a plan unless somebody has while its lock was waited for."""
        plan = self._get_plan(handle)
        return UndoResult(**plan.result) if plan.state == "finished" else self._apply_plan(plan)

    def _get_plan(self, handle: str) -> StoredPlan:
        resume_steps(self._db, self._ledger, KINDS)
        plan = self._ledger.get_plan(handle)
        if plan.kind != UNDO:
            raise InvalidInput(f"plan {handle} is one to {plan.kind}; it is not applied here")
        return settle_plan(self._db, self._ledger, plan) if plan.state == "applying" else plan

    def _apply_plan(self, plan: StoredPlan) -> UndoResult:
        past = PastCompression.from_batch(self._ledger, plan.about["batch"])
        self._db.check_rows_writable(WATCHED_TABLES)
        doomed = find_dropped_sessions(self._db, past)
        planned = {member.id: member.revision for member in plan.members}
        if doomed != DroppedSessions(planned, tuple(plan.about["detached"])):
            self._ledger.close_plan(plan.handle)
            raise Changed("the conversation has gone on since; plan the undo again")
        done = self._drop_continuation(past, doomed, plan=plan.handle)
        finish_plan(self._ledger, plan.handle, asdict(done))
        return done

    def _record_plan(self, past: PastCompression, doomed: DroppedSessions) -> UndoPlan:
        members = [Member(each, state, _DROP_REASON) for each, state in doomed.sessions.items()]
        count = sum(self._db.message_count(each) for each in doomed.sessions)
        new, changed = max(count - len(past.done.made), 0), doomed.list_changes(past)
        about = {
            "batch": past.batch,
            "session_id": past.old_session_id,
            "detached": doomed.detached,
            "warnings": list(_list_warnings(new, changed, doomed.detached)),
        }
        plan = self._ledger.add_plan(UNDO, members, about)
        return UndoPlan(
            plan=plan.handle,
            session_id=past.old_session_id,
            expires_at=plan.expires_at,
            sessions=tuple(doomed.sessions),
            messages=new,
            changed=changed,
            detached=doomed.detached,
        )

    def _drop_continuation(
        self, past: PastCompression, doomed: DroppedSessions, plan: str | None = None
    ) -> UndoResult:
        def drop() -> UndoResult:
            led = self._routes.find_chats(doomed.sessions or [past.done.session_id])
            self._require_unused(doomed, led)
            return self._run_undo_step(
                past,
                partial(collect_dropped_rows, doomed, past),
                partial(drop_continuation, doomed, past, self._routes, led),
                within=partial(self._open_transaction, doomed, led),
                plan=plan,
                members=tuple(doomed.sessions),
            )

        return self._locks.run_locked(tuple(doomed.sessions), drop, patient=True)

    def _run_undo_step(
        self,
        past: PastCompression,
        before: Callable[[StateDatabase], Iterable[TrashItem]],
        change: Callable[[StateDatabase], dict[str, Any]],
        *,
        within: Callable[[], AbstractContextManager[object]] = nullcontext,
        plan: str | None = None,
        members: Sequence[str] = (),
    ) -> UndoResult:
        """Run the step that takes a compression back; what it deletes is in the trash."""
        batch = self._ledger.begin_plan(plan) if plan else self._ledger.add_batch(UNDO)
        result = run_step(
            self._db,
            self._ledger,
            batch.id,
            before=before,
            change=change,
            members=members if plan else (),
            undoes=past.step,
            within=within,
        )
        clear_marks(self._db, self._ledger)
        undone = UndoResult(**result)
        counts = {"restored": undone.restored, "dropped": undone.dropped}
        with suppress_note_errors(f"{UNDO} of {undone.session_id}"):
            self._ledger.add_audit_entry(
                self._client, f"{UNDO} of {undone.session_id}", plan, counts
            )
        delete_content(self._ledger)
        return undone

    def _open_transaction(
        self, doomed: DroppedSessions, led: RoutedChats
    ) -> AbstractContextManager[object]:
        # Looking takes too long for a transaction; who comes after it and writes is seen in it.
        self._require_unused(doomed, led)
        return self._routes.open_transaction(led)

    def _require_unused(self, doomed: DroppedSessions, led: RoutedChats) -> None:
        """Refuse to delete a session under somebody who may be at work in it."""
        for each in doomed.sessions:
            row = self._db.get_session(each)
            if row is None:
                continue
            last = self._db.read_window(each, limit=1).messages
            at = last[-1]["timestamp"] if last else row["started_at"]
            routed = bool(led.keys.get(each))
            at_work = ranges.find_activity(self._db, row, at, routed=routed, now=self._clock())
            if at_work is not None:
                raise NotCompressed("live", f"{at_work}; stop it, then undo again")


def _list_warnings(new: int, changed: Sequence[str], detached: Sequence[str]) -> Iterator[str]:
    """Say what a plan drops, which is why it is one."""
    if new:
        yield f"{new:,} messages that were said since go to the trash"
    others = [name for name in changed if name != "messages" or not new]
    if others:
        yield f"what was changed since goes to the trash: {', '.join(others)}"
    if detached:
        yield f"{len(detached):,} sessions lose their parent"
