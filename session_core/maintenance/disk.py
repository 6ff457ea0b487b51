"""Measure disk space before and after a change, and decide if a rewrite is worth it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from session_core.errors import SessionError
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import StoredPlan
from session_core.maintenance.types import Bytes
from session_core.state.protocol import StateDatabase
from session_core.types import Sizes

BEFORE_KEY = "before"
"""The key in a plan's record with the sizes of the files when the plan was begun."""

_MIN_FREED_SHARE = 0.1
_MIN_FREED_BYTES = 100_000_000
# A rewrite copies all remaining data, and later messages would use the free pages anyway.
# So it has to free a tenth of the file, or an amount that is noticeable on a disk.

_MARKER_SHARE = 0.5
"""The measured size of delete markers in a search index, relative to the entries that they
cancel."""


def is_worth_freeing(freed: int, sizes: Sizes) -> bool:
    """Return True if this many bytes justify merging the index and rewriting the file."""
    return freed > 0 and freed >= min(sizes.db * _MIN_FREED_SHARE, _MIN_FREED_BYTES)


def estimate_freeable_bytes(sizes: Sizes, *, shrinks: bool = True) -> int:
    """Return the bytes that a merge frees, plus the free bytes of the file if it `shrinks`."""
    return sizes.index_dead + (sizes.free if shrinks else 0)


def estimate_used_bytes(sizes: Sizes) -> int:
    """Return the bytes of messages and their indexes, without free and dead space."""
    return max(sizes.db - sizes.free - sizes.index_dead, 0)


def estimate_freed_bytes(sizes: Sizes, rows: int, total: int) -> int:
    """Estimate how many bytes become free in the file if this many messages are deleted.

    Their entries in a search index stay until it is merged, and delete markers come on top.
    """
    # Copies of the text in the index are freed with their messages.
    entries = sizes.index - sizes.index_copies
    share = rows / total if total else 0.0
    unindexed = sizes.db - sizes.free - entries
    return max(round(share * (unindexed - _MARKER_SHARE * (entries - sizes.index_dead))), 0)


def measure_files(db: StateDatabase) -> dict[str, int]:
    """Return the bytes of the database with its log, and how many of them are free."""
    # The figures are for information: a failure must not stop the change.
    with suppress(SessionError):
        sizes = db.admin.measure_sizes(tables=False)
        return {"taken": sizes.db + sizes.wal, "free": sizes.free}
    return {}


def begin_plan(
    ledger: Ledger, plan: StoredPlan, measure: Callable[[], Mapping[str, int]]
) -> StoredPlan:
    """Begin or continue to apply a plan, and return the stored plan.

    Record the return value of `measure` with a plan that is begun for the first time: a later call
    would count space that the plan itself has freed.

    Raises:
        Conflict: the plan has ended or expired.
    """
    return ledger.begin_plan(
        plan.handle, {BEFORE_KEY: measure()} if plan.state == "planned" else None
    )


def measure_size_change(before: Mapping[str, Any], sizes: Sizes) -> Bytes:
    """Return the bytes freed since files were measured, or an estimate of their growth.

    A page that is only in the log so far is counted for the file too, since it will go there.
    """
    if not before:
        return Bytes()
    grown = sizes.db + sizes.wal - before["taken"]
    return Bytes(
        needed_now=max(grown, 0),
        free_in_file=max(sizes.free - before["free"], 0),
        returned_to_disk=max(-grown, 0),
    )
