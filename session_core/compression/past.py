"""A compression that was done, as the ledger has it, and how one in place is taken back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from session_core.compression.records import Compressed, Undone
from session_core.compression.work import Done
from session_core.errors import Conflict, InvalidInput
from session_core.ledger.ledger import Ledger
from session_core.ledger.records import Kept
from session_core.models import Images, MessageRow
from session_core.state.contract import StateDatabase


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
