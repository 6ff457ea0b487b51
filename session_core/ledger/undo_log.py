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
from session_core.ledger.batches import Batches, as_step, batch_of, delete_pieces, encode, step_of
from session_core.ledger.codec import digest, pack
from session_core.ledger.database import PACKAGE
from session_core.ledger.plans import claim_members, release_members
from session_core.ledger.types import Kept, Step
from session_core.state.sqlite import sql_blocks
from session_core.state.sqlite.connection import Handle

SQL = sql_blocks.load("undo_log", PACKAGE)

_GIVEN_UP_S = 86_400.0
"""How long a home remembers a step that was given up: a process that slept may wake and try it."""


class Journal(Batches):
    """Steps, from the first piece of trash to the last trace."""

    def prepare(
        self,
        step_id: str,
        batch_id: str,
        kept: Iterable[Kept],
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
        pieces = pack(kept)
        ahead = [piece for piece in (next(pieces, None), next(pieces, None)) if piece]
        location = self._location()
        here = ahead[:1] if location is None else []
        whole = ahead == here
        pid, started_at = _owner(os.getpid())
        row = {
            "id": step_id,
            "batch": batch_id,
            "state": "prepared" if whole else "writing",
            "at": self._clock(),
            "members": encode(members),
            "count": len(members),
            "undoes": undoes,
            "location": location,
            "chunks": len(here),
            "bytes": sum(map(len, here)),
            "digests": b"".join(map(digest, here)),
            "pid": pid,
            "started_at": started_at,
        }

        def step(rows: Handle) -> list[str]:
            _begin(rows, row, tuple(members), here)
            return self._marked(rows)

        marked = self._file.write(step)
        if not whole:
            self._write_rest(step_id, location, chain(ahead, pieces), written=len(here))
        return marked

    def _write_rest(
        self, step_id: str, location: str | None, pieces: Iterator[bytes], *, written: int
    ) -> None:
        file, count, size, digests = self._trash_file(location), 0, 0, bytearray()
        try:
            for count, piece in enumerate(pieces, 1):
                size += len(piece)
                digests += digest(piece)
                at = (step_id, count - 1, piece)
                if count > written:
                    file.write(lambda rows, at=at: rows.run(SQL["add_piece"], at))  # type: ignore[misc]
            self._file.write(lambda rows: _prepared(rows, step_id, count, size, bytes(digests)))
        except BaseException:
            with suppress(SessionError):
                self.give_up(step_id)
                # Another process may have given it up before, without the pieces that came since.
                delete_pieces(file, step_id)
            raise

    def done(self, step_id: str, result: Any, *, cleared: Sequence[str] = ()) -> None:
        """Note that a step has changed the home, and that the marks of others are deleted.

        Its own mark says so until the next change of the ledger has made it durable.
        """
        values = {"id": step_id, "result": encode(result), "now": self._clock()}

        def step(rows: Handle) -> None:
            if rows.run(SQL["finish_step"], values):
                for block in ("undo_step", "undo_batch"):
                    rows.run(SQL[block], values)
            _clear(rows, cleared)

        self._file.write(step, durable=False)

    def note_undone(self, batch_id: str, step_ids: Sequence[str]) -> None:
        """Note steps whose changes are gone, without a step that undoes each of them."""
        values = {"batch": batch_id, "steps": encode(step_ids), "now": self._clock()}

        def step(rows: Handle) -> None:
            for block in ("note_steps_undone", "note_batch_undone"):
                rows.run(SQL[block], values)

        self._file.write(step)

    def give_up(self, step_id: str, *, marked: bool = False, skipped: str | None = None) -> None:
        """Throw a step away that has changed nothing, with its trash.

        `marked` says that its home forbids it from now on; `skipped` is why its members are left.
        """
        values = {"id": step_id, "marked": marked, "now": self._clock()}

        def step(rows: Handle) -> Step | None:
            if not rows.run(SQL["give_up_step"], values):
                return None
            release_members(rows, step_id, skipped)
            return step_of(rows, step_id)

        found = self._file.write(step)
        if found is not None:
            # What is on a disk that is not mounted is thrown away by a later `resume`.
            with suppress(NotFound):
                self._purge(found)
                self._file.write(lambda rows: rows.run(SQL["delete_step"], (step_id,)))

    def unsettled(self) -> list[Step]:
        """Return the steps that are under way, or were when their process died."""
        return self._file.read(
            lambda rows: [as_step(row) for row in rows.rows(SQL["list_unsettled"])]
        )

    def marks(self) -> list[str]:
        """Return the steps whose mark in the home is not needed any more, as `prepare` does."""

        def step(rows: Handle) -> list[str]:
            rows.run(SQL["settle_marks"])  # what is written is synced, with all before it
            return self._marked(rows)

        return self._file.write(step) if self._file.read(self._marked) else []

    def _marked(self, rows: Handle) -> list[str]:
        before = self._clock() - _GIVEN_UP_S
        return [str(step) for (step,) in rows.values(SQL["list_marked"], (before,))]

    def unmarked(self, steps: Sequence[str]) -> None:
        """Note that the marks of these steps are deleted."""
        self._file.write(lambda rows: _clear(rows, steps), durable=False)


def _begin(
    rows: Handle, row: dict[str, Any], members: tuple[str, ...], pieces: list[bytes]
) -> None:
    found = rows.row(SQL["get_plan_of_open_batch"], (row["batch"],))
    if found is None:
        batch = batch_of(rows, row["batch"])
        raise Conflict(f"batch {batch.id} was undone or emptied; begin another")
    if row["undoes"] is not None:
        undone = step_of(rows, row["undoes"])
        if undone.state != "done" or rows.value(SQL["is_being_undone"], (undone.id,)):
            raise Conflict(f"batch {undone.batch} was undone, or is being undone by somebody else")
    if found["plan"] is None:
        row = {**row, "count": max(len(members), 1)}
    rows.run(SQL["begin_step"], row)
    if found["plan"] is not None:
        claim_members(rows, found["plan"], members, row["id"])
    for piece in pieces:
        rows.run(SQL["add_piece"], (row["id"], 0, piece))


def _prepared(rows: Handle, step_id: str, chunks: int, size: int, digests: bytes) -> None:
    if not rows.run(SQL["prepare_step"], (chunks, size, digests, step_id)):
        raise Conflict(f"step {step_id} was given up by another process; plan it again")


def _clear(rows: Handle, steps: Sequence[str]) -> None:
    for block in ("clear_mark", "delete_step"):
        rows.connection.executemany(SQL[block], [(step,) for step in steps])


@cache
def _owner(pid: int) -> tuple[int, float | None]:
    return pid, processes.started_at(pid)
