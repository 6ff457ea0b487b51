"""The trash of a ledger: how long it is kept, how it is read, and how it is emptied.

Trash is in the ledger's own file or in files on other disks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from session_core.errors import Conflict, Corrupt, InvalidInput, NotFound
from session_core.ledger.codec import DIGEST_BYTES, hash_piece, unpack_trash
from session_core.ledger.database import LedgerDatabase
from session_core.ledger.storage import (
    SQL,
    LedgerStorage,
    encode_json,
    parse_batch,
    parse_step,
    read_batch,
    read_step,
)
from session_core.ledger.types import Batch, EmptyResult, Step, TrashItem
from session_core.state.sqlite.database_file import get_file_bytes

TRASH_RETENTION_S = 30 * 86_400.0
"""How long a batch can be undone."""

_IS_APPLIED = SQL["is_applied"]
_HAS_TRASH = "emptied_at IS NULL AND undone_at IS NULL AND count > 0 AND bytes > 0"
_EMPTIABLE = f"{_HAS_TRASH} AND NOT underway AND NOT {_IS_APPLIED} AND {{when}}"
_EXPIRED = _EMPTIABLE.format(when="expires_at <= :now")
_OLDER_THAN = _EMPTIABLE.format(when="at <= :now - :older_than_s")
_WITH_IDS = _EMPTIABLE.format(when="id IN (SELECT value FROM json_each(:batches))")


class Trash(LedgerStorage):
    """The trash of the steps of a ledger."""

    def read_trash(self, step_id: str) -> Iterator[TrashItem]:
        """Yield the trash of a step in the order in which it was stored.

        Raises:
            NotFound: the step does not exist, or its disk is not mounted.
            Conflict: the trash was emptied, or the batch was undone.
            Corrupt: the trash is damaged.
        """
        step = self._file.read(lambda rows: read_step(rows, step_id))
        self._require_trash(step)
        return unpack_trash(self._read_pieces(step))

    def _require_trash(self, step: Step) -> None:
        """Raise Conflict if the trash of a step was deleted with its batch."""
        batch = self._file.read(lambda rows: read_batch(rows, step.batch))
        if batch.undone_at is not None:
            raise Conflict(f"batch {batch.id} was undone already")
        if batch.emptied_at is not None:
            raise Conflict(f"batch {batch.id} cannot be undone any more: its trash is gone")

    def count_trash_bytes(self) -> int:
        """Return the compressed size of all trash."""
        return int(self._file.read(lambda rows: rows.fetch_value(SQL["count_bytes"])))

    def count_disk_bytes(self) -> int:
        """Return the size of all files with trash, including the ledger's own."""
        rows = self._file.read(lambda rows: rows.fetch_tuples(SQL["list_locations"]))
        paths = [*filter(None, [self._find_path()]), *(Path(location) for (location,) in rows)]
        return sum(get_file_bytes(path) + get_file_bytes(Path(f"{path}-wal")) for path in paths)

    def list_expired_batches(
        self, older_than_s: float | None = None, *, batches: Iterable[str] | None = None
    ) -> list[Batch]:
        """Return the batches that `empty_trash` would empty, oldest first."""
        condition, values = self._build_condition(older_than_s, batches)
        return self._file.read(
            lambda rows: [
                parse_batch(row)
                for row in rows.fetch_rows(SQL["list_ripe"].format(ripe=condition), values)
            ]
        )

    def empty_trash(
        self, older_than_s: float | None = None, *, batches: Iterable[str] | None = None
    ) -> EmptyResult:
        """Delete expired trash for good, or the trash of batches older than `older_than_s`.

        With `batches`, delete the trash of these batches at any age. Trash on a disk that is not
        mounted is deleted by a later call.
        """
        condition, values = self._build_condition(older_than_s, batches)
        count = self._file.read(
            lambda rows: rows.fetch_value(SQL["count_ripe"].format(ripe=condition), values)
        )
        # A write would create the ledger of a home without a ledger.
        if count:
            count = self._file.write(
                lambda rows: rows.execute_update(SQL["mark_emptied"].format(ripe=condition), values)
            )
        return EmptyResult(count, self.delete_content())

    def delete_content(self) -> int:
        """Delete the trash of all emptied or undone batches and return its size in bytes.

        This also finishes a deletion that a crash interrupted. The rows of the batches stay.
        """
        steps = self._file.read(
            lambda rows: [parse_step(row) for row in rows.fetch_rows(SQL["list_emptied"])]
        )
        if steps:
            # This write is durable before the first piece is deleted, and so is the earlier,
            # unsynced note that the batch was undone.
            ids = encode_json([step.id for step in steps])
            self._file.write(lambda rows: rows.execute_update(SQL["forget_digests"], (ids,)))
        return self._empty_steps(steps)

    def _build_condition(
        self, older_than_s: float | None, batches: Iterable[str] | None
    ) -> tuple[str, dict[str, Any]]:
        """Return the SQL condition for batches to empty, with its values."""
        if older_than_s is not None and not (older_than_s >= 0 and math.isfinite(older_than_s)):
            raise InvalidInput(f"older_than_s must be a number >= 0, got {older_than_s}")
        values: dict[str, Any] = {"now": self._clock(), "older_than_s": older_than_s}
        if batches is not None:
            return _WITH_IDS, values | {"batches": encode_json(list(batches))}
        return _EXPIRED if older_than_s is None else _OLDER_THAN, values

    def _empty_steps(self, steps: list[Step]) -> int:
        emptied = 0
        for step in steps:
            try:
                self._delete_step_trash(step)
            except NotFound:  # its disk is not mounted
                continue
            emptied += step.bytes
        for location in {step.location for step in steps}:
            self._get_trash_file(location).reclaim_space()
        return emptied

    def _delete_step_trash(self, step: Step) -> None:
        """Delete the pieces of a step, then note that it has no trash."""
        # In this order: after a crash in between, the next call deletes the rest.
        delete_pieces(self._get_trash_file(step.location), step.id)
        self._file.write(lambda rows: rows.execute_update(SQL["note_emptied"], (step.id,)))

    def _read_pieces(self, step: Step) -> Iterator[bytes]:
        file = self._get_trash_file(step.location)
        digests = (
            self._file.read(lambda rows: rows.fetch_value(SQL["get_digests"], (step.id,))) or b""
        )
        # The digests are in the ledger's own file, because other users may reach a trash disk.
        for position in range(step.chunks):
            at = (step.id, position)
            piece = file.read(lambda rows, at=at: rows.fetch_value(SQL["get_piece"], at))  # type: ignore[misc]
            if piece is None:
                # Another process may have undone or emptied the batch since.
                self._require_trash(step)
                raise Corrupt(f"the trash of step {step.id} is incomplete; it cannot be restored")
            if not digests:
                self._require_trash(step)
            if hash_piece(piece) != digests[position * DIGEST_BYTES :][:DIGEST_BYTES]:
                raise Corrupt(
                    f"the trash of step {step.id} is damaged or was modified; it cannot be restored"
                )
            yield piece


def delete_pieces(file: LedgerDatabase, step_id: str) -> None:
    """Delete the trash of a step, a few pieces per transaction to keep each one short."""
    while file.write(lambda rows: rows.execute_update(SQL["delete_pieces"], (step_id,))):
        pass
