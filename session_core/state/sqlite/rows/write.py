"""Rows of one table that are put back: inserted, perhaps without a value, refused, or present.

Images put back: what is there is never overwritten, and what does not fit is said.

Rows go in by the names of their columns, those that others refer to first. A key that somebody else
has is refused; a value that cannot stand here any more is left out of its row. Triggers do their
work, as those that feed a search index do, and what they make otherwise in the rows is set right.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from session_core import _sqlite3
from session_core.state.sqlite import fts, routes, sql_blocks
from session_core.state.sqlite.connection import Connection, quote_name
from session_core.state.sqlite.connections import SqliteStore
from session_core.state.sqlite.rows import raw, read
from session_core.state.sqlite.rows.raw import ForeignKey, Row, TableShape
from session_core.state.sqlite.rows.read import MESSAGES, SESSIONS, check_images
from session_core.types import PutResult, RawText, RowImages, RowMismatch

SQL = sql_blocks.load_blocks("rows")

_INDEXED_COLUMNS = ("content", "tool_name", "tool_calls")

_TAKEN_REASON = "somebody else has it by now"
_GONE_REASON = "what it refers to is gone"
_NEEDED_REASON = "this home takes no row without it"
_FORBIDDEN_REASON = "a rule of this home does not take it"


@dataclass(slots=True)
class PutReport:
    """What became of the rows so far."""

    inserted: int = 0
    present: int = 0
    refused: list[RowMismatch] = field(default_factory=list)
    emptied: list[RowMismatch] = field(default_factory=list)
    dropped: dict[str, dict[str, None]] = field(default_factory=dict)
    sessions: set[Any] = field(default_factory=set)
    """Those that were inserted."""

    def to_result(self) -> PutResult:
        """Return it as it is told."""
        dropped = {table: tuple(names) for table, names in self.dropped.items()}
        refused, emptied = tuple(self.refused), tuple(self.emptied)
        return PutResult(self.inserted, self.present, refused, emptied, dropped)


class TableWriter:
    """Rows of one table that are put back."""

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
        # A column that came into the key since has the default of the table in such a row.
        self._grown = {
            name: handle.fetch_value(f"SELECT {shape.defaults[name]}")
            for name in shape.key
            if name not in names and name in shape.defaults
        }
        self._known: set[Row] = set()
        """The keys of rows that are present or new."""
        self._counted: Counter[Row] = Counter()
        self._new: dict[Row, dict[str, Any]] = {}
        """What was inserted, by its key: the values as they are to stand here."""

    def insert_missing(self) -> None:
        """Insert what is not there."""
        if self._shape.table != MESSAGES:
            self._insert_rows()
            return
        sessions = dict.fromkeys(row[self._names.index("session_id")] for row in self._rows)
        with read.preserve_session_rows(self._handle, sessions), fts.merge_less_often(self._handle):
            if not self._insert_all():
                self._insert_rows()
        for session_id in sessions if self._new else ():
            self._handle.forget_session_counts(session_id)
            if session_id not in self._report.sessions:
                # Lists that know it look again at what was stored last.
                self._handle.run_change(SQL["move_last"], raw.bind_values([session_id]))

    def repair_links(self) -> None:
        """Leave out what refers to something that is gone, else take the row out again."""
        for link in self._shape.links:
            wanted: dict[Row, list[Row]] = {}
            for key, values in self._new.items():
                named = tuple(values.get(name) for name in link.columns)
                if None not in named:
                    wanted.setdefault(named, []).append(key)
            for named, keys in wanted.items():
                if not self._is_present(link, named):
                    for key in keys:
                        self._omit_columns(link, key)

    def finish(self) -> None:
        """Set right what triggers have made otherwise, and tell the search index."""
        for key in self._list_conflicting_keys():
            self._correct_row(key, self._new[key])
        for values in self._new.values():
            if self._shape.table == SESSIONS:
                self._handle.forget_session_counts(values["id"])
        if self._shape.table == MESSAGES and self._new:
            ids = [key[0] for key in self._new]
            odd = [key[0] for key, values in self._new.items() if _has_nul(values)]
            fts.repair_entries(self._handle, odd)
            fts.restore_messages(self._handle, ids, self._change_number)
            fts.note_appended(self._handle, max(ids))

    def _insert_all(self) -> bool:
        """Insert messages of which none is there yet, unless something about one is unusual."""
        if not self._rows:
            return False
        place = self._names.index("id")
        new = {(row[place],): dict(zip(self._names, row, strict=True)) for row in self._rows}
        ids = json.dumps([row_id for (row_id,) in new])
        if len(new) < len(self._rows) or self._handle.fetch_value(SQL["is_any_there"], (ids,)):
            return False
        self._handle.run_change("SAVEPOINT at_once")
        try:
            raw.insert_rows(self._handle, self._shape.table, self._names, self._rows)
        except _sqlite3.load_library().IntegrityError:
            if not self._handle.connection.in_transaction:
                raise
            self._handle.run_change("ROLLBACK TO at_once")
            return False
        finally:
            if self._handle.connection.in_transaction:
                self._handle.run_change("RELEASE at_once")
        self._new, self._known = new, set(new)
        self._report.inserted += len(new)
        return True

    def _list_conflicting_keys(self) -> list[Row]:
        """Return the keys of new rows that may not stand as they were given."""
        keys = [key for key in self._new if None not in key]
        if self._shape.table != MESSAGES or tuple(self._names) != self._shape.columns:
            return keys
        place = self._names.index("id")
        found = read.read_messages(self._handle, self._shape, [key[0] for key in keys])
        there = {(row[place],): row for row in found}
        return [
            key
            for key in keys
            if not raw.is_same(there.get(key, ()), tuple(self._new[key].values()))
        ]

    def _insert_rows(self) -> None:
        for row in self._rows:
            key = self._get_key(row)
            there = self._read_by_key(key)
            equal = sum(raw.is_same(found, row) for found in there)
            # A key with NULL in it is of any number of rows, equal ones too.
            if equal > (self._counted[tuple(row)] if None in key else 0):
                self._report.present += 1
                self._known.add(key)
                self._counted[tuple(row)] += 1
            elif not there or None in key:
                self._insert_row(key, dict(zip(self._names, row, strict=True)))
                self._counted[tuple(row)] += 1
            elif self._shape.keyed:
                self._refuse(key, _TAKEN_REASON)
            else:
                self._insert_with_new_rowid(row)

    def _get_key(self, row: Sequence[Any]) -> Row:
        given = {**self._grown, **dict(zip(self._names, row, strict=True))}
        return tuple(given.get(name) for name in self._shape.key)

    def _read_by_key(self, key: Row) -> list[Row]:
        """Return what has a key, by the columns that the image has."""
        given = dict(zip(self._shape.key, key, strict=True))
        names, table = raw.join_columns(self._names), quote_name(self._shape.table)
        sql = f"SELECT {names} FROM {table} WHERE {raw.build_condition(given)}"  # noqa: S608 -- from the schema, quoted
        return raw.read_rows(self._handle, sql, raw.bind_values(key))

    def _insert_with_new_rowid(self, row: Sequence[Any]) -> None:
        """Put back a row that is known by its row id alone, which somebody else has got."""
        values = dict(zip(self._names, row, strict=True))
        (place,) = self._shape.key
        del values[place]
        for found in raw.find_rows(self._handle, self._shape, values):
            here = dict(zip(self._shape.columns, found, strict=True))
            equal = raw.is_same([here[name] for name in values], list(values.values()))
            if equal and (here[place],) not in self._known:
                self._known.add((here[place],))
                self._report.present += 1
                return
        self._insert_row(None, values)

    def _insert_row(self, key: Row | None, values: dict[str, Any]) -> None:
        """Insert a row, without the values that this home does not take."""
        while True:
            try:
                row_id = raw.insert_row(self._handle, self._shape.table, values)
            except _sqlite3.load_library().IntegrityError as error:
                if not self._handle.connection.in_transaction:
                    raise
                name, why = self._find_refused_column(error), _find_refusal_reason(error)
                if name is None or not self._can_omit(name, values):
                    self._refuse(key or (), why)
                    return
                self._report.emptied.append(RowMismatch(self._shape.table, key or (), why, name))
                del values[name]
            else:
                key = (row_id,) if key is None else key
                self._new[key] = values
                self._known.add(key)
                self._report.inserted += 1
                if self._shape.table == SESSIONS:
                    self._report.sessions.add(values["id"])
                return

    def _find_refused_column(self, error: Exception) -> str | None:
        """Return the one column that an error is about."""
        _, _, named = str(error).partition(" constraint failed: ")
        name = named.removeprefix(f"{self._shape.table}.")
        return name if name in self._shape.columns else None

    def _can_omit(self, name: str, values: Mapping[str, Any]) -> bool:
        if name in self._shape.key or name not in values:
            return False
        return values[name] is not None or name in self._shape.defaults

    def _is_present(self, link: ForeignKey, named: Row) -> bool:
        if raw.get_shape(self._handle, link.table) is None or not link.named:
            return True  # a link that leads nowhere by its schema is none of ours
        found = dict(zip(link.named, named, strict=True))
        sql = f"SELECT 1 FROM {quote_name(link.table)} WHERE {raw.build_condition(found)}"  # noqa: S608 -- from the schema, quoted
        return bool(self._handle.fetch_tuples(sql, raw.bind_values(found.values())))

    def _omit_columns(self, link: ForeignKey, key: Row) -> None:
        given = dict(zip(self._shape.key, key, strict=True))
        empty = dict.fromkeys(link.columns)
        try:
            raw.update_rows(self._handle, self._shape.table, given, empty)
        except _sqlite3.load_library().IntegrityError:
            raw.delete_rows(self._handle, self._shape.table, given)
            del self._new[key]
            self._report.inserted -= 1
            self._refuse(key, _GONE_REASON)
            return
        self._new[key].update(empty)
        emptied = [RowMismatch(self._shape.table, key, _GONE_REASON, name) for name in link.columns]
        self._report.emptied += emptied

    def _correct_row(self, key: Row, values: Mapping[str, Any]) -> None:
        given = dict(zip(self._shape.key, key, strict=True))
        for found in raw.find_rows(self._handle, self._shape, given):
            here = dict(zip(self._shape.columns, found, strict=True))
            other = {
                name: value
                for name, value in values.items()
                if not raw.is_same([here[name]], [value])
            }
            if other:
                raw.update_rows(self._handle, self._shape.table, given, other)

    def _refuse(self, key: Row, why: str) -> None:
        self._report.refused.append(RowMismatch(self._shape.table, key, why))


def _find_refusal_reason(error: Exception) -> str:
    """Return why a row is not taken; the text of the error may hold what it says."""
    text = str(error)
    if text.startswith("UNIQUE constraint"):
        return _TAKEN_REASON
    return _NEEDED_REASON if text.startswith("NOT NULL constraint") else _FORBIDDEN_REASON


def _has_nul(values: Mapping[str, Any]) -> bool:
    """Whether what an index has of a message has a NUL in it."""
    texts = [values.get(name) for name in _INDEXED_COLUMNS]
    return any(fts.has_nul(text.stored if isinstance(text, RawText) else text) for text in texts)


_TABLE_ORDER = {SESSIONS: 1, MESSAGES: 3}

_NO_TABLE_REASON = "this home has no such table"


class RowWriter(SqliteStore):
    """Puts rows back."""

    def put_images(
        self, images: Iterable[RowImages], *, of: Collection[str] | None = None
    ) -> PutResult:
        """Put rows back where they are not, in any order; say what was there and what did not fit.

        A row that is there and equal is present. One whose key somebody else has is refused, as is
        one that needs what is gone. A title that was taken, and a parent that is gone, are left out
        of their row, and so is what this home has no column for. In a transaction that is not
        linked nothing needs what is gone. With `of` rows that are of none of these sessions are
        refused: that is for what somebody else has written.
        """
        given = check_images(images)
        return self._write(lambda handle: write_images(handle, given, of))


def write_images(
    handle: Connection, given: Sequence[RowImages], of: Collection[str] | None = None
) -> PutResult:
    """Put rows back, in the open transaction."""
    report = PutReport()
    routes.forget_routed_sessions(handle)
    if of is not None:
        given, report.refused = read.split_owned_rows(handle, given, of)
    whole = _order_messages(given)
    ordered = sorted(whole, key=lambda image: (not image.shared, _TABLE_ORDER.get(image.table, 2)))
    with _defer_foreign_keys(handle):
        tables = [
            table for image in ordered for table in _iter_table_writers(handle, image, report)
        ]
        for table in tables:
            table.insert_missing()
        for table in tables if handle.linked else ():
            table.repair_links()
        for table in tables:
            table.finish()
    return report.to_result()


def _order_messages(given: Sequence[RowImages]) -> list[RowImages]:
    """Have messages come by their ids: an index of Hermes writes all it has at each lower one."""
    found = [image for image in given if image.table != MESSAGES]
    several: dict[tuple[str, ...], list[Row]] = {}
    for image in given:
        if image.table == MESSAGES:
            several.setdefault(tuple(image.columns), []).extend(image.rows)
    for columns, rows in several.items():
        by_id = sorted(rows, key=itemgetter(columns.index("id")))
        found.append(RowImages(MESSAGES, columns, tuple(by_id)))
    return found


@contextmanager
def _defer_foreign_keys(handle: Connection) -> Iterator[None]:
    """Rows that refer to each other come in any order; at the end each has to have its own."""
    handle.run_change("PRAGMA defer_foreign_keys=ON")
    try:
        yield
    finally:
        handle.run_change("PRAGMA defer_foreign_keys=OFF")


def _iter_table_writers(
    handle: Connection, image: RowImages, report: PutReport
) -> Iterator[TableWriter]:
    """Yield what puts an image back, if there is where to put it."""
    shape = raw.get_shape(handle, image.table)
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
