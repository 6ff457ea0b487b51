"""`db.rows`: rows as they are stored, for copies, undo, the trash and imports."""

from __future__ import annotations

from collections.abc import Collection

from session_core.state import validation
from session_core.state.sqlite import opening
from session_core.state.sqlite.compaction import MessageCompactor
from session_core.state.sqlite.rows.delete import RowDeleter
from session_core.state.sqlite.rows.read import RowReader, SessionCopier
from session_core.state.sqlite.rows.write import RowWriter


class SqliteRows(RowReader, RowWriter, RowDeleter, SessionCopier, MessageCompactor):
    """Rows of sessions, messages and all that belongs to them."""

    def list_columns(self, table: str) -> tuple[str, ...]:
        """Return the stored columns of a table; empty if the home lacks the table."""
        validation.check_text("table", table, needed=True)
        return self._read(lambda handle: handle.list_columns(table))

    def check_rows_writable(self, tables: Collection[str]) -> None:
        """Refuse a change of rows in these tables that would fail at a blocked search index."""
        for index in self._read(opening.list_blocked_indexes):
            if not set(tables).isdisjoint(index.tables):
                raise opening.make_blocked_error(
                    self._store.path, index, requested=self._store.loads_extension
                )
