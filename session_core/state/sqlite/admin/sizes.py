"""Bytes by table: a quick estimate, or an exact count by a child process.

The estimate reads short runs of rows, evenly spaced over the row ids of each table, and derives the
number of rows, their size and the size of their index entries. A search index is measured by the
first and last block of each segment. The parts are scaled to the known total. The work depends on
the number of tables, not on the size of the file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from session_core import _sqlite3
from session_core.processes import get_sidecar_path
from session_core.state import sql_blocks
from session_core.state.protocol import StepCallback
from session_core.state.sqlite.connection import Connection, quote_name
from session_core.state.sqlite.extension import list_usable_indexes
from session_core.state.sqlite.fts import count_blocks, estimate_dead_blocks
from session_core.types import Sizes

SQL = sql_blocks.load_blocks("integrity")

_SAMPLE_POINTS = 24
_POINT_ROWS = 8
_SMALL_TABLE_ROWS = _SAMPLE_POINTS * _POINT_ROWS
_SHADOW_SUFFIXES = ("data", "idx", "content", "docsize", "config")
_CHILD_MODULE = "session_core.state.sqlite.admin.sizes_child"
_CHILD_TIMEOUT_S = 900.0
_CHILD_WAIT_S = 0.2

# Bytes of a value in a row, -1 if it is NULL.
_STORED_BYTES = (
    "CASE typeof({0}) WHEN 'null' THEN -1 WHEN 'real' THEN 8"
    " WHEN 'integer' THEN length({0}) * 2 / 5 ELSE {1} END"
)
_CELL_BYTES = 6
_ENTRY_BYTES = 8
_ENTRY_FILL = 0.75


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The owning table of each table and index of a file, and the search indexes."""

    owners: Mapping[str, str]
    indexes: frozenset[str]

    def fill_sizes(self, sizes: Sizes, parts: Mapping[str, float], *, exact: bool) -> Sizes:
        """Return `sizes` with the parts summed by table."""
        tables: dict[str, int] = {}
        for part, size in parts.items():
            owner = self.owners.get(part, part)
            tables[owner] = tables.get(owner, 0) + round(size)
        index = sum(size for table, size in tables.items() if table in self.indexes)
        copies = sum(round(parts.get(f"{name}_content", 0)) for name in self.indexes)
        return replace(sizes, tables=tables, index=index, index_copies=copies, exact=exact)


def read_layout(handle: Connection) -> TableLayout:
    """Read the tables and indexes.

    The shadow tables of a search index belong to the index.
    """
    indexes = frozenset(row[0] for row in handle.fetch_tuples(SQL["list_index_tables"]))
    shadows = {f"{index}_{shadow}": index for index in indexes for shadow in _SHADOW_SUFFIXES}
    trees = handle.fetch_tuples(SQL["list_trees"])
    return TableLayout({tree: shadows.get(table, table) for tree, table in trees}, indexes)


def estimate_sizes(handle: Connection, path: Path, *, tables: bool = True) -> Sizes:
    """Estimate the size of the file. With `tables`, also estimate its parts."""
    if handle.is_placeholder:
        return Sizes(db=0, wal=0, free=0, index=0)
    page, pages, free = (
        int(handle.fetch_value(f"PRAGMA {name}"))
        for name in ("page_size", "page_count", "freelist_count")
    )
    dead = page * sum(
        estimate_dead_blocks(handle, f"{name}_data") for name in list_usable_indexes(handle)
    )
    sizes = Sizes(
        db=pages * page,
        wal=_get_file_bytes(get_sidecar_path(path, "-wal")),
        free=free * page,
        index=0,
        index_dead=round(dead),
    )
    if not tables:
        return sizes
    layout = read_layout(handle)
    shadows = {f"{index}_data" for index in layout.indexes}
    parts = {
        table: count_blocks(handle, table) * page
        if table in shadows
        else _estimate_table_bytes(handle, table, page)
        for table in _list_tables(handle)
    }
    parts["sqlite_schema"] = max(int(handle.fetch_value(SQL["get_schema_bytes"]) or 0), page)
    scale = (pages - free) * page / (sum(parts.values()) or 1)
    scaled = {table: size * scale for table, size in parts.items()}
    return layout.fill_sizes(sizes, scaled, exact=False)


def count_pages(handle: Connection) -> dict[str, int] | None:
    """Count the bytes of every table and index by name, or return None without `dbstat`."""
    try:
        return dict(handle.fetch_tuples(SQL["list_bytes"]))
    except _sqlite3.load_library().OperationalError:
        return None


def count_sizes(
    estimated: Sizes, layout: TableLayout, path: Path, step: StepCallback | None = None
) -> Sizes:
    """Count exact sizes in a child process, or return the estimate if that fails."""
    counted = _count_in_child(path, step)
    return layout.fill_sizes(estimated, counted, exact=True) if counted else estimated


def _count_in_child(path: Path, step: StepCallback | None) -> dict[str, int] | None:
    # The child imports this package first, for any import path of this process.
    root = Path(_sqlite3.__file__).parent.parent
    read_end, write_end = os.pipe()
    with open(write_end, "wb"):  # noqa: PTH123 -- a descriptor: the child ends when it is closed
        try:
            child = subprocess.Popen(  # noqa: S603 -- our own module, and a path that is an argument
                [sys.executable, "-m", _CHILD_MODULE, str(path)],
                stdin=read_end,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=root,
            )
        except OSError:
            return None
        finally:
            os.close(read_end)
        with child:
            try:
                counted = _parse_output(_read_output(child, step))
            finally:
                # Also if `step` raises: the count of a large home would go on for minutes.
                child.kill()
    return counted if isinstance(counted, dict) else None


def _read_output(child: subprocess.Popen[bytes], step: StepCallback | None) -> bytes:
    """Return the output of a child, or nothing after the timeout.

    The child is polled in short intervals, between which `step` is called.
    """
    until = time.monotonic() + _CHILD_TIMEOUT_S
    while time.monotonic() < until:
        try:
            return child.communicate(timeout=_CHILD_WAIT_S)[0]
        except subprocess.TimeoutExpired:
            if step is not None:
                step()
    return b""


def _parse_output(printed: bytes) -> Any:
    try:
        return json.loads(printed)
    except ValueError:
        return None


def _get_file_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _list_tables(handle: Connection) -> list[str]:
    return [row[0] for row in handle.fetch_tuples(SQL["list_tables"])]


def _estimate_table_bytes(handle: Connection, table: str, page: int) -> float:
    sample = _sample_table(handle, table)
    rows = sum(weight * _estimate_row_bytes(sizes, page) for weight, sizes in sample.rows)
    indexes = handle.fetch_tuples(SQL["list_indexes"], (table,))
    entries = (_estimate_index_bytes(handle, sample, *index) for index in indexes)
    return max(rows, page) + sum(max(size, page) for size in entries)


def _estimate_row_bytes(sizes: Sequence[int], page: int) -> float:
    """Return the bytes of a row, including overflow pages."""
    payload = sum(max(size, 0) for size in sizes) + len(sizes) + _CELL_BYTES
    # Limits of the SQLite file format for the part of a row in a table leaf page.
    max_local = page - 35
    if payload <= max_local:
        return payload
    min_local = (page - 12) * 32 // 255 - 23
    return min_local + -(-(payload - min_local) // (page - 4)) * page


@dataclass(frozen=True, slots=True)
class _TableSample:
    """Sampled rows as sizes of their columns, each with the number of rows it represents."""

    columns: Sequence[str]
    rows: Sequence[tuple[float, Sequence[int]]]


def _sample_table(handle: Connection, table: str) -> _TableSample:
    columns = handle.list_columns(table)
    length = "octet_length({0})" if _has_octet_length() else "length(CAST({0} AS BLOB))"
    sizes = ", ".join(
        _STORED_BYTES.format(quote_name(name), length.format(quote_name(name))) for name in columns
    )
    name = quote_name(table)
    try:
        low = handle.fetch_value(f"SELECT min(rowid) FROM {name}")  # noqa: S608 -- quoted names of the schema
        high = handle.fetch_value(f"SELECT max(rowid) FROM {name}")  # noqa: S608 -- quoted names of the schema
    except _sqlite3.load_library().OperationalError:
        # A table WITHOUT ROWID has no places to sample, so its first rows stand for it.
        rows = handle.fetch_tuples(f"SELECT {sizes} FROM {name} LIMIT {_SMALL_TABLE_ROWS}")  # noqa: S608 -- quoted names of the schema
        return _TableSample(columns, [(1.0, row) for row in rows])
    if low is None:
        return _TableSample(columns, [])
    run = f"SELECT rowid, {sizes} FROM {name} WHERE rowid >= ? ORDER BY rowid LIMIT ?"  # noqa: S608 -- quoted names of the schema
    if high - low < _SMALL_TABLE_ROWS:
        return _TableSample(
            columns, [(1.0, row[1:]) for row in handle.fetch_tuples(run, (low, _SMALL_TABLE_ROWS))]
        )
    step = (high - low + 1) / _SAMPLE_POINTS
    samples: list[tuple[float, Sequence[int]]] = []
    for point in range(_SAMPLE_POINTS):
        start = low + int(point * step)
        rows = handle.fetch_tuples(run, (start, _POINT_ROWS))
        if rows:
            span = rows[-1][0] - start + 1
            samples += [(step / max(span, len(rows)), row[1:]) for row in rows]
    return _TableSample(columns, samples)


def _has_octet_length() -> bool:
    return tuple(_sqlite3.load_library().sqlite_version_info) >= (3, 43)


def _estimate_index_bytes(
    handle: Connection, sample: _TableSample, index: str, partial: int
) -> float:
    """Estimate the bytes of the entries of an index.

    A partial index skips rows without a key.
    """
    names = [row[0] for row in handle.fetch_tuples(SQL["list_index_columns"], (index,))]
    places = [sample.columns.index(name) for name in names if name in sample.columns]
    total = 0.0
    for weight, sizes in sample.rows:
        keys = [sizes[place] for place in places]
        if not (partial and -1 in keys):
            total += weight * (_ENTRY_BYTES + len(keys) + sum(max(key, 0) for key in keys))
    return total / _ENTRY_FILL
