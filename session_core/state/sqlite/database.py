"""`SessionDB`, the state database on SQLite."""

from __future__ import annotations

from session_core.state.sqlite.admin import HealthFactsReader, SqliteInventory, SqliteUpkeep
from session_core.state.sqlite.compaction import SqliteCompaction
from session_core.state.sqlite.feed import SqliteFeed
from session_core.state.sqlite.lineage import SqliteLineage
from session_core.state.sqlite.listing import SqliteLists
from session_core.state.sqlite.messages import SqliteMessages
from session_core.state.sqlite.pages import SqliteWindows
from session_core.state.sqlite.routes import SqliteRoutes
from session_core.state.sqlite.rows.delete import RowDeleter
from session_core.state.sqlite.rows.read import RowReader, SessionCopier
from session_core.state.sqlite.rows.write import RowWriter
from session_core.state.sqlite.search.search import Search
from session_core.state.sqlite.sessions import SqliteSessions, SqliteTitles
from session_core.state.sqlite.usage import SqliteUsage
from session_core.state.sqlite.vacuum import SqliteVacuum


class SessionDB(
    SqliteSessions,
    SqliteTitles,
    SqliteUsage,
    SqliteMessages,
    SqliteCompaction,
    SessionCopier,
    RowReader,
    RowDeleter,
    RowWriter,
    SqliteVacuum,
    SqliteWindows,
    SqliteLineage,
    SqliteLists,
    Search,
    SqliteRoutes,
    SqliteUpkeep,
    SqliteInventory,
    HealthFactsReader,
    SqliteFeed,
):
    """Every conversation of a home in one SQLite file, which other processes may have open.

    A Hermes database is read and written in its own format. A missing file is created at the first
    write, as a home of our own. Instances are thread-safe and must not be used across a fork.
    """
