"""`PostgresDB`, the state database over PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from session_core._typing import Self
from session_core.state import validation
from session_core.state.postgres.admin import PostgresAdmin
from session_core.state.postgres.feed import PostgresFeed
from session_core.state.postgres.store import PostgresStore
from session_core.state.postgres.transaction import ReadSnapshot
from session_core.state.sqlite.application_state import SqliteMeta, SqliteState
from session_core.state.sqlite.compaction import MessageCompactor, SqliteCompaction
from session_core.state.sqlite.deletion import SqliteDeletion
from session_core.state.sqlite.lineage import SqliteLineage
from session_core.state.sqlite.messages import SqliteMessages
from session_core.state.sqlite.pages import SqliteWindows
from session_core.state.sqlite.routes import SqliteRoutes
from session_core.state.sqlite.rows.row_deleter import RowDeleter
from session_core.state.sqlite.rows.row_images import RowReader, SessionCopier, check_images
from session_core.state.sqlite.rows.row_writer import RowWriter, write_images
from session_core.state.sqlite.sdk import SqliteSdk
from session_core.state.sqlite.search.search_api import Search
from session_core.state.sqlite.session_lists import SqliteLists
from session_core.state.sqlite.sessions import SqliteSessions, SqliteTitles
from session_core.state.sqlite.usage import SqliteUsage

if TYPE_CHECKING:
    from pathlib import Path

    from session_core.state.postgres.connection import PostgresConnection
    from session_core.types import HomeKind, PutResult, RowImages


class PostgresRows(RowReader, RowWriter, RowDeleter, SessionCopier, MessageCompactor):
    """Stored rows of sessions, messages and all that belongs to them."""

    def list_columns(self, table: str) -> tuple[str, ...]:
        """Return the stored columns of a table, or none if the home lacks the table."""
        validation.check_text("table", table, needed=True)
        return self._read(lambda handle: handle.list_columns(table))

    def check_rows_writable(self, tables: Collection[str]) -> None:
        """Accept any table, since no table feeds an index of another program."""

    def put_images(
        self, images: Iterable[RowImages], *, of: Collection[str] | None = None
    ) -> PutResult:
        """Insert missing rows like `RowWriter.put_images`.

        The change feed does not report them.
        """
        checked = check_images(images)
        return self._write(partial(_restore_images, images=checked, of=of))


def _restore_images(
    handle: PostgresConnection, images: list[RowImages], of: Collection[str] | None
) -> PutResult:
    restoring = "SELECT set_config('mcp_sessions.restoring', ?, true)"
    handle.fetch_value(restoring, ("on",))
    try:
        return write_images(handle, images, of)
    finally:
        if handle.in_transaction:
            handle.fetch_value(restoring, ("off",))


class PostgresDB(
    SqliteSessions,
    SqliteTitles,
    SqliteUsage,
    SqliteMessages,
    SqliteCompaction,
    SqliteWindows,
    SqliteLineage,
    SqliteLists,
    Search,
    SqliteDeletion,
    PostgresFeed,
):
    """Every conversation of a home in a PostgreSQL database that many machines share.

    `address` is `postgresql://user@host/database?home=NAME`; passwords come from the usual places
    of PostgreSQL. The schema must be migrated. Instances are thread-safe and must not be used
    across a fork. Its parts use the same connections.
    """

    folder: Path | None = None
    path: Path | None = None

    def __init__(
        self,
        address: str,
        *,
        read_only: bool = False,
        patience_s: float = 20.0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        store = PostgresStore(address, read_only=read_only, patience_s=patience_s, clock=clock)
        shared = cast("Any", store)
        SqliteSessions.__init__(self, shared)
        PostgresFeed.__init__(self, store)
        self.rows = PostgresRows(shared)
        self.routes = SqliteRoutes(shared)
        self.admin = PostgresAdmin(shared)
        self.meta = SqliteMeta(shared)
        self.state = SqliteState(shared)
        self.sdk = SqliteSdk(shared)

    @property
    def kind(self) -> HomeKind:
        """The kind of this home, which is always a home of our own."""
        self._store.check_open()
        return "own"

    @property
    def read_only(self) -> bool:
        """True if the database was opened for reading only."""
        return self._store.read_only

    def transaction(self, *, linked: bool = True) -> AbstractContextManager[None]:
        """Run the changes of this task in the block as one transaction.

        The transaction belongs to one task and one thread, and holds the lock of the home. A change
        by another task of the thread is refused at once, a change by another thread or process
        waits, and both read the committed state. Without `linked`, rows may refer to missing rows.
        """
        return self._store.transaction(linked=linked)

    def snapshot(self) -> AbstractContextManager[None]:
        """Let all reads of this task in the block see one moment of the database."""
        self._store.check_open()
        return ReadSnapshot(cast("PostgresStore", self._store))

    @property
    def in_transaction(self) -> bool:
        """True if this task has a transaction open in this thread."""
        return self._store.in_transaction

    def close(self) -> None:
        """Close every connection.

        Every change that has returned is durable.
        """
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
