"""`SessionDB`: the state database on SQLite."""

from __future__ import annotations

from session_core.state.sqlite.admin import FactFinding, Inventory, Upkeep
from session_core.state.sqlite.compaction import Compaction
from session_core.state.sqlite.feed import Feed
from session_core.state.sqlite.lineage import Lineage
from session_core.state.sqlite.listing import Lists
from session_core.state.sqlite.messages import Messages
from session_core.state.sqlite.pages import Windows
from session_core.state.sqlite.routes import Routes
from session_core.state.sqlite.rows.delete import Removal
from session_core.state.sqlite.rows.read import Imaging, Rows
from session_core.state.sqlite.rows.write import Putting
from session_core.state.sqlite.search.search import Search
from session_core.state.sqlite.sessions import Sessions, Titles
from session_core.state.sqlite.usage import Usage
from session_core.state.sqlite.vacuum import Reclaim


class SessionDB(
    Sessions,
    Titles,
    Usage,
    Messages,
    Compaction,
    Rows,
    Imaging,
    Removal,
    Putting,
    Reclaim,
    Windows,
    Lineage,
    Lists,
    Search,
    Routes,
    Upkeep,
    Inventory,
    FactFinding,
    Feed,
):
    """Every conversation of a home, in one SQLite file, beside whoever else has it open.

    A Hermes database is read and written as it is. A file that is not there yet is made at the
    first write, as a home of our own. Instances are safe to share between threads, and not to be
    used across a fork.
    """
