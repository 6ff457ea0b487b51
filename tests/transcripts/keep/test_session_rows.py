"""Kept rows: how much memory their tables take."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator

from session_core.transcripts.keep.session_rows import open_rows

ROWS, ROW_BYTES = 120, 1_000_000


def make_lines() -> Iterator[bytes]:
    """Yield the lines of a table with long rows."""
    yield json.dumps({"columns": ["id", "data"], "table": "part"}).encode()
    for number in range(ROWS):
        row = {"id": number, "data": "x" * ROW_BYTES}
        yield json.dumps({"row": row, "table": "part"}).encode()


def test_long_rows_take_bounded_memory():
    tracemalloc.start()
    try:
        with open_rows(make_lines()) as query:
            assert query("SELECT count(*), sum(length(data)) FROM part", ()) == [
                (ROWS, ROWS * ROW_BYTES)
            ]
        assert tracemalloc.get_traced_memory()[1] < ROWS * ROW_BYTES / 4
    finally:
        tracemalloc.stop()
