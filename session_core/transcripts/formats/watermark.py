"""The place in a table up to which a reader has read it.

Row ids are the only index on age that the tables of other agents have. SQLite uses the ids of
deleted rows again, so a row id alone does not tell whether newer rows have been read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

_MARKS_KEPT = 32


def find_mark(marks: list[list[Any]], read_id: Callable[[int], str | None]) -> int:
    """Return the newest row id that still has the row that was read, and drop the others."""
    while marks:
        rowid, row_id = marks[-1]
        if read_id(rowid) == row_id:
            return int(rowid)
        marks.pop()
    return 0


def add_marks(marks: list[list[Any]], rows: Sequence[tuple[int, str]]) -> None:
    """Keep the row ids and the ids of the newest rows that were read."""
    marks += [list(row) for row in rows[-_MARKS_KEPT:]]
    del marks[:-_MARKS_KEPT]
