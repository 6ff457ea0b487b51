"""`SessionDB`: the state database on SQLite."""

from __future__ import annotations

from session_core.state.sqlite.compaction import Compaction
from session_core.state.sqlite.facts import FactFinding
from session_core.state.sqlite.feed import Feed
from session_core.state.sqlite.images import Imaging
from session_core.state.sqlite.inventory import Inventory
from session_core.state.sqlite.lineage import Lineage
from session_core.state.sqlite.lists import Lists
from session_core.state.sqlite.messages import Messages
from session_core.state.sqlite.putting import Putting
from session_core.state.sqlite.reclaim import Reclaim
from session_core.state.sqlite.removal import Removal
from session_core.state.sqlite.routes import Routes
from session_core.state.sqlite.rows import Rows
from session_core.state.sqlite.search import Search
from session_core.state.sqlite.sessions import Sessions
from session_core.state.sqlite.titles import Titles
from session_core.state.sqlite.upkeep import Upkeep
from session_core.state.sqlite.usage import Usage
from session_core.state.sqlite.windows import Windows


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
