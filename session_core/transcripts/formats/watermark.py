"""Watermarks: the row up to which a reader has read a table.

Row ids are the only index by age that the tables of other agents have. SQLite reuses the ids of
deleted rows, so a row id alone does not show whether newer rows were read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

_MARKS_KEPT = 32


def find_mark(marks: list[list[Any]], read_id: Callable[[int], str | None]) -> int:
    """Return the newest row id whose row is still the row that was read.

    Drop later marks.
    """
    while marks:
        rowid, row_id = marks[-1]
        if read_id(rowid) == row_id:
            return int(rowid)
        marks.pop()
    return 0


def add_marks(marks: list[list[Any]], rows: Sequence[tuple[int, str]]) -> None:
    """Add the row ids and ids of the newest rows that were read."""
    marks += [list(row) for row in rows[-_MARKS_KEPT:]]
    del marks[:-_MARKS_KEPT]
