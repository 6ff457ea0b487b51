"""Bytes on the disk, measured before and after a change, and whether a rewrite is worth it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from session_core.errors import SessionError
from session_core.maintenance.types import Bytes
from session_core.state.protocol import StateDatabase
from session_core.types import Sizes

BEFORE_KEY = "before"
"""In what is recorded of a plan: how large the files were when it was begun."""

_MIN_FREED_SHARE = 0.1
_MIN_FREED_BYTES = 100_000_000
# A rewrite copies all that stays, and what it frees is used again by the next messages anyway.
# So it has to free a tenth of the file, or as much as anyone would notice on a disk.

_MARKER_SHARE = 0.5
"""What the delete markers of a search index take, by the entries that they cancel; measured."""


def is_worth_freeing(freed: int, sizes: Sizes) -> bool:
    """Return True if so many bytes are worth a merge of the index and a rewrite of the file."""
    return freed > 0 and freed >= min(sizes.db * _MIN_FREED_SHARE, _MIN_FREED_BYTES)


def estimate_freeable(sizes: Sizes, *, shrinks: bool = True) -> int:
    """Return what a merge frees, and with it what the file has free if that `shrinks`."""
    return sizes.index_dead + (sizes.free if shrinks else 0)


def estimate_used(sizes: Sizes) -> int:
    """Return what messages and all that is kept of them take, without what is free or dead."""
    return max(sizes.db - sizes.free - sizes.index_dead, 0)


def estimate_freed(sizes: Sizes, rows: int, total: int) -> int:
    """Return about what becomes free in the file if so many of its messages are deleted.

    Their entries in a search index stay until that is merged, and delete markers come on top.
    """
    entries = sizes.index - sizes.index_copies
    share = rows / total if total else 0.0
    outside = sizes.db - sizes.free - entries
    return max(round(share * (outside - _MARKER_SHARE * (entries - sizes.index_dead))), 0)


def measure_files(db: StateDatabase) -> dict[str, int]:
    """Return the bytes of the database and its log, and how many of them are free."""
    with suppress(SessionError):
        sizes = db.measure_sizes()
        return {"taken": sizes.db + sizes.wal, "free": sizes.free}
    return {}


def measure_change(before: Mapping[str, Any], sizes: Sizes) -> Bytes:
    """Return what has become free since files were measured, or about by how much they grew.

    A page that is in the log alone so far counts in the file too, which it will take.
    """
    if not before:
        return Bytes()
    grown = sizes.db + sizes.wal - before["taken"]
    return Bytes(
        needed_now=max(grown, 0),
        free_in_file=max(sizes.free - before["free"], 0),
        returned_to_disk=max(-grown, 0),
    )
