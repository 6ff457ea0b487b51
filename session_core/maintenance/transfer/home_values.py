"""Data of a home outside of its sessions that a copy brings: values of applications, and pins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from session_core.ledger.ledger import Ledger
from session_core.maintenance.types import SkippedItem
from session_core.state.protocol import StateDatabase
from session_core.state.sqlite.application_state import KEY_PREFIX
from session_core.types import RowImages

_META = "state_meta"
_TABLES = (_META, "ms_shared_state")
_BATCH_ROWS = 500
_PAGE = 1000

_VALUE_REASON = "value of an application: the target has another one"


def count_values(db: StateDatabase) -> int:
    """Return how many values applications have stored for themselves and for users."""
    return sum(len(image.rows) for image in _read_values(db))


def copy_values(source: StateDatabase, target: StateDatabase) -> tuple[int, list[SkippedItem]]:
    """Add missing values to a target; return their number, and the keys with another value."""
    added, differing = 0, []
    for image in _read_values(source):
        for start in range(0, len(image.rows), _BATCH_ROWS):
            rows = image.rows[start : start + _BATCH_ROWS]
            result = target.rows.put_images([replace(image, rows=rows)])
            added += result.inserted
            for mismatch in result.refused:
                key = " ".join(str(part).removeprefix(KEY_PREFIX) for part in mismatch.key)
                differing.append(SkippedItem(key, _VALUE_REASON))
    return added, differing


def count_pins(db: StateDatabase) -> int:
    """Return how many sessions are pinned in the ledger of a home."""
    with _open_ledger(db) as ledger:
        return len(ledger.pins.list_pinned())


def copy_pins(source: StateDatabase, target: StateDatabase) -> int:
    """Pin the sessions of a target that are pinned in the source; return how many were added."""
    with _open_ledger(source) as ledger:
        pinned = ledger.pins.list_pinned()
    if not pinned:
        return 0
    there = pinned & {session.id for session in target.admin.list_inventory()}
    with _open_ledger(target) as ledger:
        missing = there - ledger.pins.list_pinned()
        ledger.pins.set_pins(dict.fromkeys(missing, True))
    return len(missing)


def count_batches(db: StateDatabase) -> int:
    """Return how many batches of a home can be undone from its trash."""
    count, cursor = 0, None
    with _open_ledger(db) as ledger:
        while True:
            page = ledger.list_batches(_PAGE, cursor, undone=False)
            count += len(page.items)
            cursor = page.next_cursor
            if cursor is None:
                return count


def _open_ledger(db: StateDatabase) -> Ledger:
    return Ledger.open(db, reads_anywhere=True)


def _read_values(db: StateDatabase) -> Iterator[RowImages]:
    for table in _TABLES:
        image = db.rows.read_row_images(table, {})
        if table == _META:
            rows = [row for row in image.rows if _is_of_application(image, row)]
            image = replace(image, rows=tuple(rows))
        if image.rows:
            yield image


def _is_of_application(image: RowImages, row: tuple[object, ...]) -> bool:
    return str(row[image.columns.index("key")]).startswith(KEY_PREFIX)
