"""`SessionDB`, the state database on SQLite, and its raw rows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from types import TracebackType

from session_core._typing import Self
from session_core.state import validation
from session_core.state.sqlite import extension
from session_core.state.sqlite.admin.admin import SqliteAdmin
from session_core.state.sqlite.application_state import SqliteMeta, SqliteState
from session_core.state.sqlite.compaction import MessageCompactor, SqliteCompaction
from session_core.state.sqlite.deletion import SqliteDeletion
from session_core.state.sqlite.feed import SqliteFeed
from session_core.state.sqlite.lineage import SqliteLineage
from session_core.state.sqlite.memory_database import open_store
from session_core.state.sqlite.messages import SqliteMessages
from session_core.state.sqlite.pages import SqliteWindows
from session_core.state.sqlite.routes import SqliteRoutes
from session_core.state.sqlite.rows.row_deleter import RowDeleter
from session_core.state.sqlite.rows.row_images import RowReader, SessionCopier
from session_core.state.sqlite.rows.row_writer import RowWriter
from session_core.state.sqlite.sdk import SqliteSdk
from session_core.state.sqlite.search.search_api import Search
from session_core.state.sqlite.session_lists import SqliteLists
from session_core.state.sqlite.sessions import SqliteSessions, SqliteTitles
from session_core.state.sqlite.transaction import ReadSnapshot
from session_core.state.sqlite.usage import SqliteUsage
from session_core.types import HomeKind


class SqliteRows(RowReader, RowWriter, RowDeleter, SessionCopier, MessageCompactor):
    """Stored rows of sessions, messages and all that belongs to them."""

    def list_columns(self, table: str) -> tuple[str, ...]:
        """Return the stored columns of a table, or none if the home lacks the table."""
        validation.check_text("table", table, needed=True)
        return self._read(lambda handle: handle.list_columns(table))

    def check_rows_writable(self, tables: Collection[str]) -> None:
        """Refuse a change of rows in these tables if it would fail at a blocked search index."""
        for index in self._read(extension.list_blocked_indexes):
            if not set(tables).isdisjoint(index.tables):
                raise extension.make_blocked_error(
                    self._store.path, index, requested=self._store.loads_extension
                )


class SessionDB(
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
    SqliteFeed,
):
    """The database of a home in one SQLite file, which other processes may have open.

    It has the sessions and their messages. A Hermes database is read and written in its own format.
    A missing file is created at the first write, as a home of our own. Instances are thread-safe
    and must not be used across a fork.

    `rows` has the rows as they are stored, `routes` the sessions of chats, `admin` upkeep and
    reports, `meta` and `state` values of applications, and `sdk` changes and look-ups for agent
    SDKs. All of them use the same connections.

    Args:
        db_path: the database file. `:memory:` is a database in memory, which ends with its
            instance. `:memory:NAME` is a database that the instances of that name share in this
            process until the last instance is closed. By default, the database of the Hermes home.
        read_only: open the file read-only and refuse every change.
        in_hermes_home: True if the folder was detected as a Hermes home. If it has the marks of one
            and no database, no database is created in it.
        patience_s: the number of seconds to wait for another process before `Busy` is raised.
        clock: a function that returns the current time in seconds.
        load_extension: load the extension that the CJK index of a Hermes home needs, if no other
            user can write that file.

    Example:
        >>> from session_core import SessionDB
        >>> with SessionDB(":memory:") as db:
        ...     _ = db.append_message("s1", "user", "where is it?", create={"source": "cli"})
        ...     _ = db.append_message("s1", "assistant", "in ledger.py")
        ...     [message["content"] for message in db.get_messages("s1")]
        ['where is it?', 'in ledger.py']
    """

    def __init__(
        self,
        db_path: str | os.PathLike[str] | None = None,
        *,
        read_only: bool = False,
        in_hermes_home: bool = False,
        patience_s: float = 20.0,
        clock: Callable[[], float] = time.time,
        load_extension: bool = False,
    ) -> None:
        store = open_store(
            db_path,
            read_only=read_only,
            in_hermes_home=in_hermes_home,
            patience_s=patience_s,
            clock=clock,
            load_extension=load_extension,
        )
        super().__init__(store)
        self.path = None if store.is_in_memory else store.path
        self.folder = None if self.path is None else self.path.parent
        self.read_only = store.read_only
        self.rows = SqliteRows(store)
        self.routes = SqliteRoutes(store)
        self.admin = SqliteAdmin(store)
        self.meta = SqliteMeta(store)
        self.state = SqliteState(store)
        self.sdk = SqliteSdk(store)

    @property
    def kind(self) -> HomeKind:
        """The kind of this home.

        A missing file becomes a home of our own at the first write.
        """
        return self._store.kind

    def transaction(self, *, linked: bool = True) -> AbstractContextManager[None]:
        """Run the changes of this task in the block as one transaction.

        The transaction belongs to one task and one thread. A change by another task of the thread
        is refused at once, a change by another thread waits, and both read the committed state. A
        coroutine passes a function to `AsyncSessionDB.run` instead, which does not block the event
        loop. Keep the block short: run no hook, model call or file operation in it. On a path
        without a file, the transaction begins with its first change.

        Args:
            linked: False to allow rows that refer to missing rows, as restored orphans do.

        Example:
            >>> from session_core import SessionDB
            >>> with SessionDB(":memory:") as db, db.transaction():
            ...     _ = db.append_message("s1", "user", "hello", create={"source": "cli"})
            ...     db.set_session_title("s1", "Greeting")
            True
        """
        return self._store.transaction(linked=linked)

    def snapshot(self) -> AbstractContextManager[None]:
        """Let all reads of this task in the block see the same state of the database.

        They share one connection. Other tasks and threads are not affected. Inside another snapshot
        or a transaction, it joins the outer block. A change in the block is refused. The log of the
        database cannot start again before the end, so keep the block short.

        Example:
            >>> from session_core import SessionDB
            >>> with SessionDB(":memory:") as db, db.snapshot():
            ...     len(db.list_sessions().items), db.message_count()
            (0, 0)
        """
        return ReadSnapshot(self._store)

    @property
    def in_transaction(self) -> bool:
        """True if this task has a transaction open in this thread."""
        return self._store.in_transaction

    def close(self) -> None:
        """Close every connection.

        Every change that has returned is durable.
        """
        self._store.close()
        self._watch.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
