"""How far each step is: its trash is written, durable, then done, or given up.

`steps` runs them; a step that a crash has left is decided there as well, by the mark in its home.
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
from session_core.ledger.batches import (
    Batches,
    delete_pieces,
    encode_json,
    parse_step,
    read_batch,
    read_step,
)
from session_core.ledger.codec import hash_piece, pack_trash
from session_core.ledger.database import PACKAGE
from session_core.ledger.plans import claim_members, release_members
from session_core.ledger.types import Step, TrashItem
from session_core.state.sqlite import sql_blocks
from session_core.state.sqlite.connection import Connection

SQL = sql_blocks.load_blocks("undo_log", PACKAGE)

_ABORTED_RETENTION_S = 86_400.0
"""How long a home remembers a step that was given up: a process that slept may wake and try it."""


class UndoLog(Batches):
    """Steps, from the first piece of trash to the last trace."""

    def prepare_step(
        self,
        step_id: str,
        batch_id: str,
        kept: Iterable[TrashItem],
        *,
        members: Sequence[str] = (),
        undoes: str | None = None,
    ) -> list[str]:
        """Store what would undo a step; it is durable when this returns.

        Return the steps whose mark in the home is not needed any more: what became of them is as
        durable by then.

        Raises:
            Conflict: somebody else has one of its members, or undoes the same step.
        """
        pieces = pack_trash(kept)
        ahead = [piece for piece in (next(pieces, None), next(pieces, None)) if piece]
        location = self._get_trash_location()
        here = ahead[:1] if location is None else []
        whole = ahead == here
        pid, started_at = _identify_process(os.getpid())
        row = {
            "id": step_id,
            "batch": batch_id,
            "state": "prepared" if whole else "writing",
            "at": self._clock(),
            "members": encode_json(members),
            "count": len(members),
            "undoes": undoes,
            "location": location,
            "chunks": len(here),
            "bytes": sum(map(len, here)),
            "digests": b"".join(map(hash_piece, here)),
            "pid": pid,
            "started_at": started_at,
        }

        def step(rows: Connection) -> list[str]:
            _insert_step(rows, row, tuple(members), here)
            return self._select_marked_steps(rows)

        marked = self._file.write(step)
        if not whole:
            self._write_remaining_pieces(step_id, location, chain(ahead, pieces), written=len(here))
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
                    file.write(lambda rows, at=at: rows.run_change(SQL["add_piece"], at))  # type: ignore[misc]
            self._file.write(
                lambda rows: _finish_preparation(rows, step_id, count, size, bytes(digests))
            )
        except BaseException:
            with suppress(SessionError):
                self.abort_step(step_id)
                # Another process may have given it up before, without the pieces that came since.
                delete_pieces(file, step_id)
            raise

    def finish_step(self, step_id: str, result: Any, *, cleared: Sequence[str] = ()) -> None:
        """Note that a step has changed the home, and that the marks of others are deleted.

        Its own mark says so until the next change of the ledger has made it durable.
        """
        values = {"id": step_id, "result": encode_json(result), "now": self._clock()}

        def step(rows: Connection) -> None:
            if rows.run_change(SQL["finish_step"], values):
                for block in ("undo_step", "undo_batch"):
                    rows.run_change(SQL[block], values)
            _clear_marks(rows, cleared)

        self._file.write(step, durable=False)

    def mark_steps_undone(self, batch_id: str, step_ids: Sequence[str]) -> None:
        """Note steps whose changes are gone, without a step that undoes each of them."""
        values = {"batch": batch_id, "steps": encode_json(step_ids), "now": self._clock()}

        def step(rows: Connection) -> None:
            for block in ("note_steps_undone", "note_batch_undone"):
                rows.run_change(SQL[block], values)

        self._file.write(step)

    def abort_step(self, step_id: str, *, marked: bool = False, skipped: str | None = None) -> None:
        """Throw a step away that has changed nothing, with its trash.

        `marked` says that its home forbids it from now on; `skipped` is why its members are left.
        """
        values = {"id": step_id, "marked": marked, "now": self._clock()}

        def step(rows: Connection) -> Step | None:
            if not rows.run_change(SQL["give_up_step"], values):
                return None
            release_members(rows, step_id, skipped)
            return read_step(rows, step_id)

        found = self._file.write(step)
        if found is not None:
            # What is on a disk that is not mounted is thrown away by a later `resume`.
            with suppress(NotFound):
                self._delete_step_trash(found)
                self._file.write(lambda rows: rows.run_change(SQL["delete_step"], (step_id,)))

    def list_unsettled_steps(self) -> list[Step]:
        """Return the steps that are under way, or were when their process died."""
        return self._file.read(
            lambda rows: [parse_step(row) for row in rows.fetch_rows(SQL["list_unsettled"])]
        )

    def list_stale_marks(self) -> list[str]:
        """Return the steps whose mark in the home is not needed any more, as `prepare` does."""

        def step(rows: Connection) -> list[str]:
            rows.run_change(SQL["settle_marks"])  # what is written is synced, with all before it
            return self._select_marked_steps(rows)

        return self._file.write(step) if self._file.read(self._select_marked_steps) else []

    def _select_marked_steps(self, rows: Connection) -> list[str]:
        before = self._clock() - _ABORTED_RETENTION_S
        return [str(step) for (step,) in rows.fetch_tuples(SQL["list_marked"], (before,))]

    def forget_marks(self, steps: Sequence[str]) -> None:
        """Note that the marks of these steps are deleted."""
        self._file.write(lambda rows: _clear_marks(rows, steps), durable=False)


def _insert_step(
    rows: Connection, row: dict[str, Any], members: tuple[str, ...], pieces: list[bytes]
) -> None:
    found = rows.fetch_row(SQL["get_plan_of_open_batch"], (row["batch"],))
    if found is None:
        batch = read_batch(rows, row["batch"])
        raise Conflict(f"batch {batch.id} was undone or emptied; begin another")
    if row["undoes"] is not None:
        undone = read_step(rows, row["undoes"])
        if undone.state != "done" or rows.fetch_value(SQL["is_being_undone"], (undone.id,)):
            raise Conflict(f"batch {undone.batch} was undone, or is being undone by somebody else")
    if found["plan"] is None:
        row = {**row, "count": max(len(members), 1)}
    rows.run_change(SQL["begin_step"], row)
    if found["plan"] is not None:
        claim_members(rows, found["plan"], members, row["id"])
    for piece in pieces:
        rows.run_change(SQL["add_piece"], (row["id"], 0, piece))


def _finish_preparation(
    rows: Connection, step_id: str, chunks: int, size: int, digests: bytes
) -> None:
    if not rows.run_change(SQL["prepare_step"], (chunks, size, digests, step_id)):
        raise Conflict(f"step {step_id} was given up by another process; plan it again")


def _clear_marks(rows: Connection, steps: Sequence[str]) -> None:
    for block in ("clear_mark", "delete_step"):
        rows.connection.executemany(SQL[block], [(step,) for step in steps])


@cache
def _identify_process(pid: int) -> tuple[int, float | None]:
    return pid, processes.get_start_time(pid)
