"""State of each step: writing its trash, prepared, and then done or aborted.

`execute` runs the steps. After a crash it also decides them, by the mark in the home.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from typing import Any

from session_core import processes
from session_core.errors import Conflict, NotFound, SessionError
from session_core.ledger.batches import Batches
from session_core.ledger.codec import hash_piece, pack_trash
from session_core.ledger.database import PACKAGE
from session_core.ledger.plans import claim_members, release_members
from session_core.ledger.storage import encode_json, parse_step, read_batch, read_step
from session_core.ledger.trash import delete_pieces
from session_core.ledger.types import Step, TrashItem
from session_core.state import sql_blocks
from session_core.state.sqlite.connection import Connection

SQL = sql_blocks.load_blocks("undo_log", PACKAGE)

# A suspended process may wake up and try an aborted step, so its mark is kept for a day.
_ABORTED_RETENTION_S = 86_400.0


class UndoLog(Batches):
    """The steps of a ledger with their trash and their marks."""

    def prepare_step(
        self,
        step_id: str,
        batch_id: str,
        trash_items: Iterable[TrashItem],
        *,
        members: Sequence[str] = (),
        undoes: str | None = None,
    ) -> list[str]:
        """Store the trash of a step durably.

        Return the ids of steps whose marks in the home are no longer needed, because their outcome
        is already durable.

        Raises:
            Conflict: another process has one of the members, or undoes the same step.
        """
        pieces = pack_trash(trash_items)
        # Trash of one piece, the usual case, is stored with its step in one transaction.
        ahead = [piece for piece in (next(pieces, None), next(pieces, None)) if piece]
        location = self._get_trash_path()
        stored_here = ahead[:1] if location is None else []
        is_complete = ahead == stored_here
        pid, started_at = _identify_process(os.getpid())
        row = {
            "id": step_id,
            "batch": batch_id,
            "state": "prepared" if is_complete else "writing",
            "at": self._clock(),
            "members": encode_json(members),
            "count": len(members),
            "undoes": undoes,
            "location": location,
            "chunks": len(stored_here),
            "bytes": sum(map(len, stored_here)),
            "digests": b"".join(map(hash_piece, stored_here)),
            "pid": pid,
            "started_at": started_at,
        }

        def store_step(rows: Connection) -> list[str]:
            _insert_step(rows, row, tuple(members), stored_here)
            return self._select_obsolete_marks(rows)

        marked = self._file.write(store_step)
        if not is_complete:
            self._write_remaining_pieces(
                step_id, location, chain(ahead, pieces), written=len(stored_here)
            )
        return marked

    def _write_remaining_pieces(
        self, step_id: str, location: str | None, pieces: Iterator[bytes], *, written: int
    ) -> None:
        file, count, size, digests = self._get_trash_file(location), 0, 0, bytearray()
        try:
            for count, piece in enumerate(pieces, 1):
                size += len(piece)
                digests += hash_piece(piece)
                at = (step_id, count - 1, piece)
                if count > written:
                    file.write(lambda rows, at=at: rows.execute_update(SQL["add_piece"], at))  # type: ignore[misc]
            # Only now is the step prepared: every piece is durable.
            self._file.write(
                lambda rows: _finish_preparation(rows, step_id, count, size, bytes(digests))
            )
        except BaseException:
            with suppress(SessionError):
                self.abort_step(step_id)
                # If another process aborted the step earlier, pieces written since remain.
                delete_pieces(file, step_id)
            raise

    def finish_step(self, step_id: str, result: Any, *, cleared: Sequence[str] = ()) -> None:
        """Record that a step has changed the home, and that marks of other steps were deleted.

        This write is not synced; until the next durable one, the step's own mark in the home proves
        it.
        """
        values = {"id": step_id, "result": encode_json(result), "now": self._clock()}

        def record_done(rows: Connection) -> None:
            if rows.execute_update(SQL["finish_step"], values):
                for block in ("undo_step", "undo_batch"):
                    rows.execute_update(SQL[block], values)
            _forget_marks(rows, cleared)

        # Not synced: the mark in the home proves the step until the next durable write.
        self._file.write(record_done, durable=False)

    def mark_steps_undone(self, batch_id: str, step_ids: Sequence[str]) -> None:
        """Record steps as undone without a separate undo step for each."""
        values = {"batch": batch_id, "steps": encode_json(step_ids), "now": self._clock()}

        def record_undone(rows: Connection) -> None:
            for block in ("note_steps_undone", "note_batch_undone"):
                rows.execute_update(SQL[block], values)

        self._file.write(record_undone)

    def abort_step(self, step_id: str, *, marked: bool = False, skipped: str | None = None) -> None:
        """Delete a step that has changed nothing, and its trash.

        `marked` is True if its home has a mark that forbids it. `skipped` is the reason for which
        its members are skipped.
        """
        values = {"id": step_id, "marked": marked, "now": self._clock()}

        def abort_open_step(rows: Connection) -> Step | None:
            if not rows.execute_update(SQL["give_up_step"], values):
                return None
            release_members(rows, step_id, skipped)
            return read_step(rows, step_id)

        # Durable before the first piece is deleted: a step without its trash must never run.
        aborted = self._file.write(abort_open_step)
        if aborted is not None:
            # Trash on a disk that is not mounted is deleted by a later `resume_steps`.
            with suppress(NotFound):
                self._delete_step_trash(aborted)
                self._file.write(lambda rows: rows.execute_update(SQL["delete_step"], (step_id,)))

    def list_unsettled_steps(self) -> list[Step]:
        """Return the steps that are running, or were running when their process died."""
        return self._file.read(
            lambda rows: [parse_step(row) for row in rows.fetch_rows(SQL["list_unsettled"])]
        )

    def list_obsolete_step_marks(self) -> list[str]:
        """Return the steps whose marks in the home are no longer needed."""

        def settle_marks(rows: Connection) -> list[str]:
            rows.execute_update(SQL["settle_marks"])  # a durable write also syncs earlier writes
            return self._select_obsolete_marks(rows)

        # Without marks nothing is written, as a write would sync.
        return (
            self._file.write(settle_marks) if self._file.read(self._select_obsolete_marks) else []
        )

    def _select_obsolete_marks(self, rows: Connection) -> list[str]:
        before = self._clock() - _ABORTED_RETENTION_S
        return [str(step) for (step,) in rows.fetch_tuples(SQL["list_marked"], (before,))]

    def forget_step_marks(self, steps: Sequence[str]) -> None:
        """Record that the marks of these steps in the home were deleted."""
        self._file.write(lambda rows: _forget_marks(rows, steps), durable=False)


def _insert_step(
    rows: Connection, row: dict[str, Any], members: tuple[str, ...], pieces: list[bytes]
) -> None:
    plan_row = rows.fetch_row(SQL["get_plan_of_open_batch"], (row["batch"],))
    if plan_row is None:
        batch = read_batch(rows, row["batch"])
        raise Conflict(f"batch {batch.id} was undone or emptied; begin a new one")
    # In the transaction that stores the step, so that only one process undoes the other.
    if row["undoes"] is not None:
        undone_step = read_step(rows, row["undoes"])
        if undone_step.state != "done" or rows.fetch_value(
            SQL["is_being_undone"], (undone_step.id,)
        ):
            raise Conflict(
                f"batch {undone_step.batch} was undone, or is being undone by another process"
            )
    if plan_row["plan"] is None:
        row = {**row, "count": max(len(members), 1)}
    rows.execute_update(SQL["begin_step"], row)
    if plan_row["plan"] is not None:
        claim_members(rows, plan_row["plan"], members, row["id"])
    for piece in pieces:
        rows.execute_update(SQL["add_piece"], (row["id"], 0, piece))


def _finish_preparation(
    rows: Connection, step_id: str, chunks: int, size: int, digests: bytes
) -> None:
    if not rows.execute_update(SQL["prepare_step"], (chunks, size, digests, step_id)):
        raise Conflict(f"step {step_id} was aborted by another process; plan it again")


def _forget_marks(rows: Connection, steps: Sequence[str]) -> None:
    for block in ("clear_mark", "delete_step"):
        rows.execute_updates(SQL[block], [(step,) for step in steps])


@cache
def _identify_process(pid: int) -> tuple[int, float | None]:
    return pid, processes.get_start_time(pid)
