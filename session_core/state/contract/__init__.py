"""What every engine of the state database promises.

`tests/contract/` proves it for each engine, and nothing above `state/` knows which one it has.
Content is decoded, cursors are opaque and made by the engine, times are UTC epoch seconds, the
order of messages is the order of their ids whatever their times say. An argument that makes no
sense is `InvalidInput` and changes nothing.

An id that is not there is answered in one of four ways. A look-up returns None, nothing or zero; a
change of a session says no, or that it changed none. `NotFound` is what changes messages or copies,
accounts to or recounts a session, names it as a parent, and asks what it is: `revision`,
`summarize`, `read_window`, and a search in it. The walks `get_compression_tip`,
`get_conversation_root` and `get_compression_lineage` return it itself, as one that is alone. And
`update_token_counts` makes it, as an append with `create` does; a lock and a cursor need none.
"""

from __future__ import annotations

from typing import Protocol

from session_core.state.contract.compaction import Compaction
from session_core.state.contract.database import Database
from session_core.state.contract.feed import Feed, Stop
from session_core.state.contract.lineage import Lineage
from session_core.state.contract.lists import Lists
from session_core.state.contract.messages import Messages
from session_core.state.contract.routes import Routes
from session_core.state.contract.rows import Rows
from session_core.state.contract.search import Search
from session_core.state.contract.sessions import Sessions
from session_core.state.contract.titles import Titles
from session_core.state.contract.upkeep import Step, Upkeep
from session_core.state.contract.usage import Usage
from session_core.state.contract.windows import Windows

__all__ = ["StateDatabase", "Step", "Stop"]


class StateDatabase(
    Database,
    Sessions,
    Usage,
    Titles,
    Messages,
    Windows,
    Compaction,
    Rows,
    Lineage,
    Lists,
    Search,
    Routes,
    Upkeep,
    Feed,
    Protocol,
):
    """Sessions, messages, lineage, lists, search, upkeep and the change feed of one home."""
