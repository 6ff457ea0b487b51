"""Watermarks: the place in a table of another program whose rows may vanish."""

from __future__ import annotations

from typing import Any

from session_core.transcripts.formats.watermark import add_marks, find_mark


def mark_rows(count: int) -> tuple[list[list[Any]], dict[int, str]]:
    """Return the marks after rows were read one by one, and the table."""
    marks: list[list[Any]] = []
    table = {number: f"row {number}" for number in range(1, count + 1)}
    for row in table.items():
        add_marks(marks, [row])
    return marks, table


def test_newest_row_is_mark():
    marks, table = mark_rows(3)
    assert find_mark(marks, table.get) == 3
    assert marks == [[1, "row 1"], [2, "row 2"], [3, "row 3"]]


def test_deleted_rows_are_skipped():
    marks, table = mark_rows(5)
    del table[4], table[5]
    assert find_mark(marks, table.get) == 3
    assert [rowid for rowid, _ in marks] == [1, 2, 3]


def test_reused_row_id_is_other_row():
    marks, table = mark_rows(3)
    table[3] = "another row"
    assert find_mark(marks, table.get) == 2


def test_rewritten_table_is_read_from_start():
    marks, table = mark_rows(3)
    assert find_mark(marks, dict.fromkeys(table, "another row").get) == 0
    assert marks == []


def test_marks_are_bounded():
    marks, table = mark_rows(100)
    add_marks(marks, [(101, "row 101")])
    assert [marks[0], marks[-1], len(marks)] == [[70, "row 70"], [101, "row 101"], 32]
    add_marks(marks, [(number, "x") for number in range(200, 300)])
    assert [marks[0], marks[-1], len(marks)] == [[268, "x"], [299, "x"], 32]
    assert find_mark(marks, table.get) == 0
