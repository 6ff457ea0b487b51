"""Restoring of row images: each row is inserted, refused, or present already.

Present rows are never overwritten. Rows are inserted by column name, after the rows to which they
refer. A row is refused if another row has its key. A value that cannot be restored is left out of
its row. Triggers run, which a search index needs, and their changes of the rows are undone. The
report lists everything that did not fit.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from session_core.state import sql_blocks
from session_core.state.sqlite import fts, routes
from session_core.state.sqlite.connection import Connection, quote_name
from session_core.state.sqlite.rows import raw_rows, row_images
from session_core.state.sqlite.rows.raw_rows import ForeignKey, Row, TableShape
from session_core.state.sqlite.rows.row_images import MESSAGES, SESSIONS, check_images
from session_core.state.sqlite.store import SqliteOperations
from session_core.types import PutResult, RawText, RowImages, RowMismatch

SQL = sql_blocks.load_blocks("rows")

_INDEXED_COLUMNS = ("content", "tool_name", "tool_calls")

_TAKEN_REASON = "another row has it now"
_GONE_REASON = "the row that it refers to is gone"
_NEEDED_REASON = "this home requires a value"
_FORBIDDEN_REASON = "a rule of this home refuses it"


@dataclass(slots=True)
class PutReport:
    """The result of the rows that were written so far."""

    inserted: int = 0
    present: int = 0
    refused: list[RowMismatch] = field(default_factory=list)
    emptied: list[RowMismatch] = field(default_factory=list)
    dropped: dict[str, dict[str, None]] = field(default_factory=dict)
    sessions: set[Any] = field(default_factory=set)
    """The ids of inserted sessions."""

    def to_result(self) -> PutResult:
        """Return the report as a `PutResult`."""
        dropped = {table: tuple(names) for table, names in self.dropped.items()}
        refused, emptied = tuple(self.refused), tuple(self.emptied)
        return PutResult(self.inserted, self.present, refused, emptied, dropped)


class TableWriter:
    """Restores the rows of one table."""

    def __init__(
        self,
        handle: Connection,
        shape: TableShape,
        names: Sequence[str],
        rows: Sequence[Sequence[Any]],
        report: PutReport,
    ) -> None:
        self._handle = handle
        self._shape = shape
        self._names = names
        self._rows = rows
        self._report = report
        self._change_number = fts.get_change_number(handle)
        # A key column that is newer than the image has its default in these rows.
        self._grown = {
            name: handle.fetch_value(f"SELECT {shape.defaults[name]}")
            for name in shape.key
            if name not in names and name in shape.defaults
        }
        self._known: set[Row] = set()
        """The keys of rows that are present or new."""
        self._counted: Counter[Row] = Counter()
        self._new: dict[Row, dict[str, Any]] = {}
        """The inserted rows by key, with the values that they must have."""

    def insert_missing_rows(self) -> None:
        """Insert the rows that are missing."""
        if self._shape.table != MESSAGES:
            self._insert_rows()
            return
        sessions = dict.fromkeys(row[self._names.index("session_id")] for row in self._rows)
        with (
            row_images.restore_session_rows_after(self._handle, sessions),
            fts.merge_less_often(self._handle),
        ):
            # One statement for all rows takes half the processor time.
            if not self._insert_all_at_once():
                self._insert_rows()
        for session_id in sessions if self._new else ():
            self._handle.forget_session_counts(session_id)
            if self._handle.has_row_ids and session_id not in self._report.sessions:
                # Lists that have cached the session read its last message again.
                self._handle.execute_update(SQL["move_last"], raw_rows.bind_values([session_id]))

    def repair_links(self) -> None:
        """Clear references to missing rows, or delete the row if its columns cannot be NULL."""
        for link in self._shape.links:
            keys_by_reference: dict[Row, list[Row]] = {}
            for key, values in self._new.items():
                reference = tuple(values.get(name) for name in link.columns)
                if None not in reference:
                    keys_by_reference.setdefault(reference, []).append(key)
            for reference, keys in keys_by_reference.items():
                if not self._is_present(link, reference):
                    for key in keys:
                        self._clear_reference(link, key)

    def correct_and_index_rows(self) -> None:
        """Undo the changes of triggers, and update the search index."""
        for key in self._list_conflicting_keys():
            self._correct_row(key, self._new[key])
        for values in self._new.values():
            if self._shape.table == SESSIONS:
                self._handle.forget_session_counts(values["id"])
        # After the corrections, so that the index gets the text that the rows have in the end.
        if self._shape.table == MESSAGES and self._new:
            ids = [key[0] for key in self._new]
            nul_ids = [key[0] for key, values in self._new.items() if _has_nul(values)]
            fts.repair_entries(self._handle, nul_ids)
            fts.reindex_messages(self._handle, ids, self._change_number)
            fts.schedule_indexing(self._handle, max(ids))

    def _insert_all_at_once(self) -> bool:
        """Insert messages in one statement.

        Return False without a change if a message exists already or a row is unusual.
        """
        if not self._rows:
            return False
        index = self._names.index("id")
        new = {(row[index],): dict(zip(self._names, row, strict=True)) for row in self._rows}
        ids = json.dumps([row_id for (row_id,) in new])
        if len(new) < len(self._rows) or self._handle.fetch_value(SQL["is_any_there"], (ids,)):
            return False
        # If one statement for all rows fails, the rows are inserted one by one.
        self._handle.execute_update("SAVEPOINT at_once")
        try:
            raw_rows.insert_rows(self._handle, self._shape.table, self._names, self._rows)
        except self._handle.integrity_error:
            # A trigger with RAISE(ROLLBACK) has ended the transaction. Later rows would commit one
            # by one.
            if not self._handle.in_transaction:
                raise
            self._handle.execute_update("ROLLBACK TO at_once")
            return False
        finally:
            if self._handle.in_transaction:
                self._handle.execute_update("RELEASE at_once")
        self._new, self._known = new, set(new)
        self._report.inserted += len(new)
        return True

    def _list_conflicting_keys(self) -> list[Row]:
        """Return the keys of new rows that may differ from their images."""
        keys = [key for key in self._new if None not in key]
        if self._shape.table != MESSAGES:
            return keys
        # Another home may have other columns, or the same ones in another order.
        places = [self._shape.columns.index(name) for name in self._names]
        index = self._shape.columns.index("id")
        rows = row_images.read_messages(self._handle, self._shape, [key[0] for key in keys])
        stored = {(row[index],): tuple(row[place] for place in places) for row in rows}
        return [
            key
            for key in keys
            if not raw_rows.is_same(stored.get(key, ()), tuple(self._new[key].values()))
        ]

    def _insert_rows(self) -> None:
        for row in self._rows:
            key = self._get_key(row)
            present_rows = self._read_by_key(key)
            equal_rows = sum(raw_rows.is_same(present_row, row) for present_row in present_rows)
            # Any number of rows can have a key with a NULL, equal rows included.
            if equal_rows > (self._counted[tuple(row)] if None in key else 0):
                self._report.present += 1
                self._known.add(key)
                self._counted[tuple(row)] += 1
            elif not present_rows or None in key:
                self._insert_row(key, dict(zip(self._names, row, strict=True)))
                self._counted[tuple(row)] += 1
            elif self._shape.keyed:
                self._refuse_row(key, _TAKEN_REASON)
            else:
                self._insert_with_new_rowid(row)

    def _get_key(self, row: Sequence[Any]) -> Row:
        values = {**self._grown, **dict(zip(self._names, row, strict=True))}
        return tuple(values.get(name) for name in self._shape.key)

    def _read_by_key(self, key: Row) -> list[Row]:
        """Return the rows with a key, with the columns of the image."""
        key_values = dict(zip(self._shape.key, key, strict=True))
        names, table = raw_rows.join_columns(self._names), quote_name(self._shape.table)
        sql = f"SELECT {names} FROM {table} WHERE {raw_rows.build_condition(key_values)}"  # noqa: S608 -- quoted names of the schema
        return raw_rows.read_rows(self._handle, sql, raw_rows.bind_values(key))

    def _insert_with_new_rowid(self, row: Sequence[Any]) -> None:
        """Restore a row with a new row id, since another row has its row id, its only key."""
        values = dict(zip(self._names, row, strict=True))
        (index,) = self._shape.key
        del values[index]
        for row_here in raw_rows.find_rows(self._handle, self._shape, values):
            present_values = dict(zip(self._shape.columns, row_here, strict=True))
            is_equal = raw_rows.is_same(
                [present_values[name] for name in values], list(values.values())
            )
            if is_equal and (present_values[index],) not in self._known:
                self._known.add((present_values[index],))
                self._report.present += 1
                return
        self._insert_row(None, values)

    def _insert_row(self, key: Row | None, values: dict[str, Any]) -> None:
        """Insert a row, without the values that this home refuses."""
        while True:
            try:
                with self._handle.isolate_failure():
                    row_id = raw_rows.insert_row(self._handle, self._shape.table, values)
            except self._handle.integrity_error as error:
                # A trigger ended the transaction. Later statements would commit on their own.
                if not self._handle.in_transaction:
                    raise
                text = self._handle.describe_refusal(error)
                name, reason = self._find_refused_column(text), _find_refusal_reason(text)
                if name is None or not self._can_omit(name, values):
                    self._refuse_row(key or (), reason)
                    return
                self._report.emptied.append(RowMismatch(self._shape.table, key or (), reason, name))
                del values[name]
            else:
                key = (row_id,) if key is None else key
                self._new[key] = values
                self._known.add(key)
                self._report.inserted += 1
                if self._shape.table == SESSIONS:
                    self._report.sessions.add(values["id"])
                return

    def _find_refused_column(self, text: str) -> str | None:
        """Return the column that the message of an error names, or None."""
        _, _, columns = text.partition(" constraint failed: ")
        name = columns.removeprefix(f"{self._shape.table}.")
        return name if name in self._shape.columns else None

    def _can_omit(self, name: str, values: Mapping[str, Any]) -> bool:
        if name in self._shape.key or name not in values:
            return False
        return values[name] is not None or name in self._shape.defaults

    def _is_present(self, link: ForeignKey, reference: Row) -> bool:
        if raw_rows.get_shape(self._handle, link.table) is None or not link.named:
            return True  # the schema itself has no such table or column
        values = dict(zip(link.named, reference, strict=True))
        sql = f"SELECT 1 FROM {quote_name(link.table)} WHERE {raw_rows.build_condition(values)}"  # noqa: S608 -- quoted names of the schema
        return bool(self._handle.fetch_tuples(sql, raw_rows.bind_values(values.values())))

    def _clear_reference(self, link: ForeignKey, key: Row) -> None:
        key_values = dict(zip(self._shape.key, key, strict=True))
        empty = dict.fromkeys(link.columns)
        try:
            with self._handle.isolate_failure():
                raw_rows.update_rows(self._handle, self._shape.table, key_values, empty)
        except self._handle.integrity_error:
            raw_rows.delete_rows(self._handle, self._shape.table, key_values)
            del self._new[key]
            self._report.inserted -= 1
            self._refuse_row(key, _GONE_REASON)
            return
        self._new[key].update(empty)
        emptied = [RowMismatch(self._shape.table, key, _GONE_REASON, name) for name in link.columns]
        self._report.emptied += emptied

    def _correct_row(self, key: Row, values: Mapping[str, Any]) -> None:
        key_values = dict(zip(self._shape.key, key, strict=True))
        for row in raw_rows.find_rows(self._handle, self._shape, key_values):
            present_values = dict(zip(self._shape.columns, row, strict=True))
            changed = {
                name: value
                for name, value in values.items()
                if not raw_rows.is_same([present_values[name]], [value])
            }
            if changed:
                raw_rows.update_rows(self._handle, self._shape.table, key_values, changed)

    def _refuse_row(self, key: Row, reason: str) -> None:
        self._report.refused.append(RowMismatch(self._shape.table, key, reason))


def _find_refusal_reason(text: str) -> str:
    """Return the reason of a refusal, without the error text, which may hold data."""
    if text.startswith("UNIQUE constraint"):
        return _TAKEN_REASON
    return _NEEDED_REASON if text.startswith("NOT NULL constraint") else _FORBIDDEN_REASON


def _has_nul(values: Mapping[str, Any]) -> bool:
    """Return True if an indexed column of a message has a NUL."""
    texts = [values.get(name) for name in _INDEXED_COLUMNS]
    return any(fts.has_nul(text.stored if isinstance(text, RawText) else text) for text in texts)


_TABLE_ORDER = {SESSIONS: 1, MESSAGES: 3}

_NO_TABLE_REASON = "this home has no such table"


class RowWriter(SqliteOperations):
    """Restores rows from their images."""

    def put_images(
        self, images: Iterable[RowImages], *, of: Collection[str] | None = None
    ) -> PutResult:
        """Insert missing rows in any order, and report rows that exist and rows that do not fit.

        An equal row counts as present. A row is refused if another row has its key, or if it refers
        to a missing row (except in a transaction with `linked=False`). A taken title, a missing
        parent and unknown columns are left out. With `of`, rows of other sessions are refused,
        which untrusted imports need.
        """
        checked = check_images(images)
        return self._write(lambda handle: write_images(handle, checked, of))


def write_images(
    handle: Connection, images: Sequence[RowImages], of: Collection[str] | None = None
) -> PutResult:
    """Restore rows in the open transaction."""
    report = PutReport()
    routes.forget_routed_sessions(handle)
    if of is not None:
        images, report.refused = row_images.split_owned_rows(handle, images, of)
    # Shared rows and sessions come before the rows that refer to them.
    ordered = sorted(
        _order_messages(images),
        key=lambda image: (not image.shared, _TABLE_ORDER.get(image.table, 2)),
    )
    with _defer_foreign_keys(handle):
        tables = [
            table for image in ordered for table in _iter_table_writers(handle, image, report)
        ]
        for table in tables:
            table.insert_missing_rows()
        # Without foreign keys, rows may refer to missing ones, as restored orphans do.
        for table in tables if handle.linked else ():
            table.repair_links()
        for table in tables:
            table.correct_and_index_rows()
    return report.to_result()


def _order_messages(images: Sequence[RowImages]) -> list[RowImages]:
    """Return the images with all messages sorted by id."""
    # A Hermes index flushes its pending entries at each lower id.
    ordered = [image for image in images if image.table != MESSAGES]
    rows_by_columns: dict[tuple[str, ...], list[Row]] = {}
    for image in images:
        if image.table == MESSAGES:
            rows_by_columns.setdefault(tuple(image.columns), []).extend(image.rows)
    for columns, rows in rows_by_columns.items():
        by_id = sorted(rows, key=itemgetter(columns.index("id")))
        ordered.append(RowImages(MESSAGES, columns, tuple(by_id)))
    return ordered


@contextmanager
def _defer_foreign_keys(handle: Connection) -> Iterator[None]:
    """Defer foreign keys to the end, since rows may refer to each other in any order."""
    if not handle.has_foreign_keys:
        yield
        return
    handle.execute_update("PRAGMA defer_foreign_keys=ON")
    try:
        yield
    finally:
        # It would last until the commit, and later changes of the transaction are checked at once.
        handle.execute_update("PRAGMA defer_foreign_keys=OFF")


def _iter_table_writers(
    handle: Connection, image: RowImages, report: PutReport
) -> Iterator[TableWriter]:
    """Yield the writer of an image, if the home has its table."""
    shape = raw_rows.get_shape(handle, image.table)
    if shape is None:
        report.refused += [RowMismatch(image.table, (), _NO_TABLE_REASON) for _ in image.rows]
        return
    dropped = [name for name in image.columns if name not in shape.columns]
    if dropped:
        report.dropped.setdefault(image.table, {}).update(dict.fromkeys(dropped))
    places = [place for place, name in enumerate(image.columns) if name not in dropped]
    names = [image.columns[place] for place in places]
    yield TableWriter(
        handle, shape, names, [[row[at] for at in places] for row in image.rows], report
    )
