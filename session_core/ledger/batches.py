"""Undo batches and their steps."""

from __future__ import annotations

import json
from typing import Any

from session_core.errors import Conflict, InvalidInput
from session_core.ledger.storage import (
    SQL,
    make_handle,
    parse_batch,
    parse_step,
    read_batch,
    read_step,
)
from session_core.ledger.trash import TRASH_RETENTION_S, Trash
from session_core.ledger.types import Batch, Step
from session_core.state import cursors
from session_core.state.sqlite.connection import Connection
from session_core.types import Page

_MAX_ROWID = 1 << 62


class Batches(Trash):
    """Batches and their steps."""

    def add_batch(self, what: str) -> Batch:
        """Begin a batch for a change without a plan."""
        now = self._clock()
        return self._file.write(lambda rows: insert_batch(rows, what, None, now))

    def get_batch(self, batch_id: str) -> Batch:
        """Return a batch, even if it can no longer be undone.

        Raises:
            NotFound: the batch does not exist; `nearest` lists similar ids.
        """
        return self._file.read(lambda rows: read_batch(rows, batch_id))

    def get_undoable_batch(self, batch_id: str) -> Batch:
        """Return a batch whose trash still exists.

        Raises:
            NotFound: the batch does not exist.
            Conflict: the batch was undone, or its trash has expired or was emptied.
        """
        batch = self.get_batch(batch_id)
        if batch.undone_at is not None:
            raise Conflict(f"batch {batch_id} was undone already")
        if batch.emptied_at is not None or batch.expires_at <= self._clock():
            raise Conflict(f"batch {batch_id} cannot be undone any more: its trash is gone")
        return batch

    def list_batches(
        self, limit: int = 20, cursor: str | None = None, *, undone: bool = True
    ) -> Page[Batch]:
        """List batches that still have their trash, newest first.

        Batches that were undone are included unless `undone` is False. Batches that undid another
        batch are left out.
        """
        scope = self._folder.scope
        before = _MAX_ROWID if cursor is None else cursors.decode_cursor("batches", scope, cursor)
        if limit < 1:
            raise InvalidInput(f"limit must be an integer >= 1, got {limit}")
        values = {
            "before": before,
            "now": self._clock(),
            "limit": limit + 1,
            "undone": undone,
        }
        batch_rows = self._file.read(lambda rows: rows.fetch_rows(SQL["list_batches"], values))
        has_more = len(batch_rows) > limit
        page = batch_rows[:limit]
        next_cursor = (
            cursors.encode_cursor("batches", scope, page[-1]["number"]) if has_more else None
        )
        return Page([parse_batch(row) for row in page], next_cursor)

    def list_steps(self, batch_id: str) -> list[Step]:
        """Return the finished steps of a batch in order."""
        return self._file.read(
            lambda rows: [
                parse_step(row) for row in rows.fetch_rows(SQL["list_steps"], (batch_id,))
            ]
        )

    def get_step(self, step_id: str) -> Step:
        """Return a step.

        Raises:
            NotFound: the step does not exist.
        """
        return self._file.read(lambda rows: read_step(rows, step_id))

    def get_last_attempt(self, step_id: str) -> Any:
        """Return the result of the last undo of a step, or None."""
        stored = self._file.read(lambda rows: rows.fetch_value(SQL["get_tried"], (step_id,)))
        return json.loads(stored or "null")

    def find_batch_of_session(self, session_id: str) -> str | None:
        """Return the newest batch that removed a session and can restore it."""
        values = {"session": session_id, "now": self._clock()}
        batch_id = self._file.read(lambda rows: rows.fetch_value(SQL["get_holder"], values))
        return None if batch_id is None else str(batch_id)


def insert_batch(rows: Connection, what: str, plan: str | None, now: float) -> Batch:
    """Insert a batch and return it."""
    batch_id = make_handle("b")
    rows.execute_update(SQL["add_batch"], (batch_id, what, plan, now, now + TRASH_RETENTION_S))
    return read_batch(rows, batch_id)
