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
from session_core.compression.locks import Locks
from session_core.compression.plan import TABLES
from session_core.compression.routes import Led, Routes
from session_core.compression.types import (
    KINDS,
    UNDO,
    Compressed,
    Done,
    NotCompressed,
    Undone,
    UndoPlanned,
    fingerprint,
    finish,
    goal_key,
    taken_up,
)
from session_core.errors import Changed, Conflict, InvalidInput
from session_core.ledger.execute import clear_marks, delete_content, noting, resume, run_step
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import Kept, Member, Plan
from session_core.state.protocol import StateDatabase
from session_core.types import Images, MessageRow


@dataclass(frozen=True, slots=True)
class Past:
    """A compression that was done, and what it kept."""

    batch: str
    step: str
    compressed: Compressed
    done: Done
    row: Mapping[str, Any]
    """The session's row before it."""

    @classmethod
    def of(cls, ledger: Ledger, batch: str) -> Past:
        """Return the compression of a batch.

        Raises:
            NotFound: there is no such batch.
            Conflict: it was undone, or its trash is gone.
            InvalidInput: it is one of something else.
        """
        ledger.undoable(batch)
        steps = ledger.steps(batch)
        if len(steps) != 1 or "compressed" not in (steps[0].result or {}):
            raise InvalidInput(f"batch {batch} is no compression; restore it elsewhere")
        step, result = steps[0], steps[0].result
        (kept,) = ledger.trash(step.id)
        done = Done(**result["done"])
        return cls(batch, step.id, Compressed.of(result["compressed"]), done, kept.value)

    @property
    def old(self) -> str:
        """The session that was compressed."""
        return self.compressed.old_session_id

    def require_old(self, db: StateDatabase) -> None:
        """Make sure that the session that was compressed is there.

        Raises:
            Conflict: it is not, or another has its id by now.
        """
        row = db.get_session(self.old)
        if row is None or row["started_at"] != self.row["started_at"]:
            raise Conflict(f"session {self.old} was deleted since; there is nothing to go back to")

    @property
    def summaries(self) -> list[int]:
        """The rows of the summary."""
        return list(self.done.made[: len(self.done.made) - len(self.done.carried)])

    @property
    def copies(self) -> dict[int, int]:
        """What was carried on in place, and its copies."""
        copies = self.done.made[len(self.summaries) :]
        return dict(zip(self.done.carried, copies, strict=True))


def kept_in_place(past: Past, db: StateDatabase) -> Iterator[Kept]:
    """Yield what taking back a compression in place deletes, and the row that it changes."""
    yield Kept("session", db.get_session(past.old))
    for each in past.done.made:
        yield Kept("message", db.get_message(each))
    known = tuple((each, past.old) for each in past.done.made)
    yield from beside(db, [Images("messages", ("id", "session_id"), known)])


def beside(db: StateDatabase, images: Iterable[Images]) -> Iterator[Kept]:
    """Yield the rows of other tables that go with these, or are emptied, as some tables have it."""
    for image in db.referring_images(each for each in images if not each.shared):
        yield Kept("beside", image.pack())


def revive(past: Past, db: StateDatabase) -> dict[str, Any]:
    """Let the rows of before be live again in place of the summary and of the copies.

    What became of a copy becomes of its original, and what of the summary of the whole range.
    """
    put = _put(past, db)
    counted = db.get_session(past.old) or {}
    stands = any(_is_live(put[each]) for each in past.summaries)
    flags = {each: pair for each, *pair in past.done.flags}
    for original, copy in past.copies.items():
        if not _is_live(put[copy]):
            flags.pop(original, None)
    if not stands:
        flags |= {each: [0, 0] for each in past.done.replaced}
    db.restore_compacted(
        past.old,
        [*past.done.replaced, *past.done.carried],
        copies=past.copies,
        flags=flags,
        drop=past.done.made,
    )
    counters = {
        name: _counter(before, after, counted.get(name))
        for name, (before, after) in past.done.counted.items()
    }
    db.put_session_fields(past.old, counters)
    restored = len(past.done.replaced) + len(past.done.carried)
    return asdict(Undone(past.old, restored, len(past.done.made)))


def _put(past: Past, db: StateDatabase) -> dict[int, MessageRow]:
    """Return what the compression has put there, which must be there and not compacted again."""
    rows = [db.get_message(each) for each in past.done.made]
    found = {row["id"]: row for row in rows if row and row["session_id"] == past.old}
    past.require_old(db)
    if len(found) < len(rows):
        raise Conflict(
            f"messages that compression {past.batch} put into session {past.old} were deleted "
            "since, so it cannot be undone; restore what has deleted them first"
        )
    if any(row.get("compacted") and not _is_live(row) for row in found.values()):
        raise Conflict(f"session {past.old} was compressed again since; undo that first")
    return found


def _is_live(row: MessageRow) -> bool:
    return row.get("active") in (1, None)


def _counter(before: Any, after: Any, now: Any) -> int | None:
    """Return a counter as it was stored, with what came since."""
    since = (now or 0) - (after or 0)
    return (before or 0) + since if since else before


_ALL = 1 << 62


@dataclass(frozen=True, slots=True)
class Doomed:
    """The sessions that go, the continuation first, each with what it is now."""

    sessions: dict[str, dict[str, str]]
    detached: tuple[str, ...]
    """Sessions that lose their parent."""

    def changed(self, past: Past) -> tuple[str, ...]:
        """Return by name what of the continuation is not what the compression has left."""
        now, then = self.sessions.get(past.done.session_id), past.done.left
        if now is None:
            return ()
        return tuple(sorted(n for n in now.keys() | then.keys() if now.get(n) != then.get(n)))

    def drops_nothing(self, past: Past) -> bool:
        """Whether all that goes is what the compression has made, if it is not gone already."""
        return self.sessions.keys() <= {past.done.session_id} and not self.changed(past)


def look(db: StateDatabase, past: Past) -> Doomed:
    """Return a continuation, what continues it, and the delegates of both.

    Raises:
        Conflict: the session that it came from is not there any more.
    """
    past.require_old(db)
    sessions, detached = _descent(db, past.done.session_id)
    return Doomed({each: fingerprint(db, each) for each in sessions}, tuple(detached))


def kept(doomed: Doomed, past: Past, db: StateDatabase) -> Iterator[Kept]:
    """Yield all rows that will be deleted or changed, with columns that we know nothing of."""
    yield Kept("parent", db.get_session(past.old))
    for each in doomed.sessions:
        yield Kept("session", db.get_session(each))
        for message in db.get_messages(each, include_inactive=True):
            yield Kept("message", message)
        for table, rows in db.belongings(each).items():
            for row in rows:
                yield Kept(table, row)
        yield from beside(db, [*db.session_images(each), db.message_images(each, None, _ALL)[0]])
        for row in db.routing_rows(each):
            yield Kept("gateway_routing", row)
        goal = db.get_meta(goal_key(each))
        if goal is not None:
            yield Kept("state_meta", {"key": goal_key(each), "value": goal})
    for each in doomed.detached:
        yield Kept("detached", db.get_session(each))


def drop_continuation(
    doomed: Doomed, past: Past, routes: Routes, led: Led, db: StateDatabase
) -> dict[str, Any]:
    """Delete what has gone on, and go on with what it came from.

    Raises:
        Changed: it is not what was looked at.
    """
    if look(db, past) != doomed:
        raise Changed("the conversation has gone on meanwhile; undo again")
    row = dict(db.get_session(past.old) or {})
    texts = {_named(found): found["entry_json"] for found in routes.rows(past.done.session_id)}
    routes.lead(led, past.old)
    for route in past.done.routes:
        if texts.get(_named(route["row"])) == route["left"]:
            db.put_routing_row(route["row"])
    dropped = sum(db.message_count(each) for each in doomed.sessions)
    for each in doomed.sessions:
        db.delete_meta(goal_key(each))
    db.delete_sessions(list(reversed(doomed.sessions)))
    if past.done.goal is not None and db.get_meta(goal_key(past.old)) is None:
        db.set_meta(goal_key(past.old), past.done.goal)
    lost_title = _put_back(db, past, row)
    restored = db.revision(past.old).live
    return asdict(Undone(past.old, restored, dropped, lost_title))


def _descent(db: StateDatabase, child: str) -> tuple[list[str], list[str]]:
    """Return the sessions that go with a continuation, and those that lose their parent."""
    if db.get_session(child) is None:
        return [], []
    chain = db.get_compression_lineage(child)
    found, detached = chain[chain.index(child) :], list[str]()
    for each in found:
        for row in db.children(each):
            if row["id"] in found:
                continue
            delegate = db.link_kind(row["id"]) == "delegate"
            (found if delegate else detached).append(row["id"])
    return found, detached


def _put_back(db: StateDatabase, past: Past, row: dict[str, Any]) -> str | None:
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
        if holder is not None and holder["id"] != past.old:
            lost, row["title"] = row["title"], None
    now: dict[str, Any] = {**(db.get_session(past.old) or {})}
    db.put_session_fields(past.old, {k: v for k, v in row.items() if now.get(k) != v})
    return lost


def _named(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["scope"], row["session_key"]


_GOES = "it goes on from the compression that is taken back"


class Undo:
    """Takes compressions of one home back."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        routes: Routes,
        locks: Locks,
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

    def undo(self, batch: str) -> Undone | UndoPlanned:
        """Take a compression back, or plan that where it would drop what was said since."""
        old = Past.of(self._ledger, batch).old
        return self._locks.holding([old], partial(self._undo, batch), patient=True)

    def plan(self, batch: str) -> UndoPlanned | None:
        """Plan to take a compression back where that would drop what was said since."""
        old = Past.of(self._ledger, batch).old
        return self._locks.holding([old], partial(self._look, batch), patient=True)

    def apply(self, handle: str) -> Undone:
        """Take back what a plan says, with what was said since."""
        plan = self._plan(handle)
        if plan.state != "finished":
            old = plan.about["session_id"]
            return self._locks.holding([old], partial(self._once, handle), patient=True)
        return Undone(**plan.result)

    def _undo(self, batch: str) -> Undone | UndoPlanned:
        # Who had the lock may have undone it, or have died over that.
        resume(self._db, self._ledger, KINDS)
        past = Past.of(self._ledger, batch)
        self._db.check_rows_writable(TABLES)
        if past.compressed.shape == "in_place":
            return self._run(past, partial(kept_in_place, past), partial(revive, past))
        doomed = look(self._db, past)
        if doomed.drops_nothing(past):
            return self._drop(past, doomed)
        return self._planned(past, doomed)

    def _look(self, batch: str) -> UndoPlanned | None:
        resume(self._db, self._ledger, KINDS)
        past = Past.of(self._ledger, batch)
        self._db.check_rows_writable(TABLES)
        if past.compressed.shape == "in_place":
            return None
        doomed = look(self._db, past)
        return None if doomed.drops_nothing(past) else self._planned(past, doomed)

    def _once(self, handle: str) -> Undone:
        """Apply a plan unless somebody has while its lock was waited for."""
        plan = self._plan(handle)
        return Undone(**plan.result) if plan.state == "finished" else self._apply(plan)

    def _plan(self, handle: str) -> Plan:
        resume(self._db, self._ledger, KINDS)
        plan = self._ledger.plan(handle)
        if plan.kind != UNDO:
            raise InvalidInput(f"plan {handle} is one to {plan.kind}; it is not applied here")
        return taken_up(self._db, self._ledger, plan) if plan.state == "applying" else plan

    def _apply(self, plan: Plan) -> Undone:
        past = Past.of(self._ledger, plan.about["batch"])
        self._db.check_rows_writable(TABLES)
        doomed = look(self._db, past)
        planned = {member.id: member.revision for member in plan.members}
        if doomed != Doomed(planned, tuple(plan.about["detached"])):
            self._ledger.close_plan(plan.handle)
            raise Changed("the conversation has gone on since; plan the undo again")
        done = self._drop(past, doomed, plan=plan.handle)
        finish(self._ledger, plan.handle, asdict(done))
        return done

    def _planned(self, past: Past, doomed: Doomed) -> UndoPlanned:
        members = [Member(each, state, _GOES) for each, state in doomed.sessions.items()]
        count = sum(self._db.message_count(each) for each in doomed.sessions)
        new, changed = max(count - len(past.done.made), 0), doomed.changed(past)
        about = {
            "batch": past.batch,
            "session_id": past.old,
            "detached": doomed.detached,
            "warnings": list(_warnings(new, changed, doomed.detached)),
        }
        plan = self._ledger.add_plan(UNDO, members, about)
        return UndoPlanned(
            plan=plan.handle,
            session_id=past.old,
            expires_at=plan.expires_at,
            sessions=tuple(doomed.sessions),
            messages=new,
            changed=changed,
            detached=doomed.detached,
        )

    def _drop(self, past: Past, doomed: Doomed, plan: str | None = None) -> Undone:
        def drop() -> Undone:
            led = self._routes.of(doomed.sessions or [past.done.session_id])
            self._require_alone(doomed, led)
            return self._run(
                past,
                partial(kept, doomed, past),
                partial(drop_continuation, doomed, past, self._routes, led),
                within=partial(self._within, doomed, led),
                plan=plan,
                members=tuple(doomed.sessions),
            )

        return self._locks.holding(tuple(doomed.sessions), drop, patient=True)

    def _run(
        self,
        past: Past,
        before: Callable[[StateDatabase], Iterable[Kept]],
        change: Callable[[StateDatabase], dict[str, Any]],
        *,
        within: Callable[[], AbstractContextManager[object]] = nullcontext,
        plan: str | None = None,
        members: Sequence[str] = (),
    ) -> Undone:
        """Run the step that takes a compression back; what it deletes is in the trash."""
        batch = self._ledger.begin(plan) if plan else self._ledger.add_batch(UNDO)
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
        undone = Undone(**result)
        counts = {"restored": undone.restored, "dropped": undone.dropped}
        with noting(f"{UNDO} of {undone.session_id}"):
            self._ledger.audit(self._client, f"{UNDO} of {undone.session_id}", plan, counts)
        delete_content(self._ledger)
        return undone

    def _within(self, doomed: Doomed, led: Led) -> AbstractContextManager[object]:
        # Looking takes too long for a transaction; who comes after it and writes is seen in it.
        self._require_alone(doomed, led)
        return self._routes.together(led)

    def _require_alone(self, doomed: Doomed, led: Led) -> None:
        """Refuse to delete a session under somebody who may be at work in it."""
        for each in doomed.sessions:
            row = self._db.get_session(each)
            if row is None:
                continue
            last = self._db.read_window(each, limit=1).messages
            at = last[-1]["timestamp"] if last else row["started_at"]
            routed = bool(led.keys.get(each))
            at_work = ranges.beside(self._db, row, at, routed=routed, now=self._clock())
            if at_work is not None:
                raise NotCompressed("live", f"{at_work}; stop it, then undo again")


def _warnings(new: int, changed: Sequence[str], detached: Sequence[str]) -> Iterator[str]:
    """Say what a plan drops, which is why it is one."""
    if new:
        yield f"{new:,} messages that were said since go to the trash"
    others = [name for name in changed if name != "messages" or not new]
    if others:
        yield f"what was changed since goes to the trash: {', '.join(others)}"
    if detached:
        yield f"{len(detached):,} sessions lose their parent"
