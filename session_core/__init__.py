"""The session core: an agent's sessions, read and changed without losing any.

Settings, compression and maintenance are imported when they are first asked for, since who only
wants to read a session should not pay for them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from session_core.context import (
    child_env,
    current_session_id,
    get_session_env,
    session_context,
    set_current_session_id,
)
from session_core.driver import Driver
from session_core.driver import choose as choose_sqlite
from session_core.driver import describe as describe_sqlite
from session_core.errors import (
    Busy,
    Changed,
    Conflict,
    Corrupt,
    Denied,
    InvalidInput,
    NotFound,
    SessionError,
    StorageError,
    StorageFull,
    TitleTaken,
    Unsupported,
)
from session_core.home import Home, find_home, profiles
from session_core.hooks import Hooks, hookimpl
from session_core.keys import Platform, SessionSource, build_session_key
from session_core.lifecycle.agent_cache import AgentCache
from session_core.lifecycle.expiry import ExpiryWatcher
from session_core.lifecycle.replies import normalize_empty_agent_response
from session_core.lifecycle.run import Run
from session_core.lifecycle.runtime import Reply, SessionRuntime
from session_core.models import (
    Appended,
    AppendedMany,
    Changes,
    Event,
    Finding,
    Hit,
    Holder,
    MessageRow,
    Page,
    Revision,
    Rewound,
    SearchResult,
    SessionFilter,
    SessionRow,
    SessionSummary,
    Sizes,
    Window,
)
from session_core.presence import Gateway, Lease, gateway, holders, leases
from session_core.routing.async_store import AsyncSessionStore
from session_core.routing.entries import SessionEntry
from session_core.routing.store import SessionStore
from session_core.state.async_db import AsyncSessionDB
from session_core.state.contract import StateDatabase
from session_core.state.sqlite.db import SessionDB

if TYPE_CHECKING:
    from session_core.compression.async_compressor import AsyncCompressor
    from session_core.compression.boundaries import Limits
    from session_core.compression.compressor import Compressor
    from session_core.compression.records import (
        Brief,
        Compressed,
        NotCompressed,
        Planned,
        Request,
        Undone,
        UndoPlanned,
    )
    from session_core.compression.retention import Retention
    from session_core.ledger.folder import StateFolder
    from session_core.ledger.ledger import Ledger
    from session_core.ledger.records import Audited, Batch
    from session_core.maintenance.answers import Applied, Preview, Restored
    from session_core.maintenance.async_maintenance import AsyncMaintenance
    from session_core.maintenance.edits import Edited
    from session_core.maintenance.exporting import Exported
    from session_core.maintenance.imported import Imported
    from session_core.maintenance.maintenance import Maintenance
    from session_core.maintenance.records import WHY_PROTECTED, Health, Wanted
    from session_core.settings import GatewayConfig, SessionResetPolicy

__all__ = [
    "WHY_PROTECTED",
    "AgentCache",
    "Appended",
    "AppendedMany",
    "Applied",
    "AsyncCompressor",
    "AsyncMaintenance",
    "AsyncSessionDB",
    "AsyncSessionStore",
    "Audited",
    "Batch",
    "Brief",
    "Busy",
    "Changed",
    "Changes",
    "Compressed",
    "Compressor",
    "Conflict",
    "Corrupt",
    "Denied",
    "Driver",
    "Edited",
    "Event",
    "ExpiryWatcher",
    "Exported",
    "Finding",
    "Gateway",
    "GatewayConfig",
    "Health",
    "Hit",
    "Holder",
    "Home",
    "Hooks",
    "Imported",
    "InvalidInput",
    "Lease",
    "Ledger",
    "Limits",
    "Maintenance",
    "MessageRow",
    "NotCompressed",
    "NotFound",
    "Page",
    "Planned",
    "Platform",
    "Preview",
    "Reply",
    "Request",
    "Restored",
    "Retention",
    "Revision",
    "Rewound",
    "Run",
    "SearchResult",
    "SessionDB",
    "SessionEntry",
    "SessionError",
    "SessionFilter",
    "SessionResetPolicy",
    "SessionRow",
    "SessionRuntime",
    "SessionSource",
    "SessionStore",
    "SessionSummary",
    "Sizes",
    "StateDatabase",
    "StateFolder",
    "StorageError",
    "StorageFull",
    "TitleTaken",
    "UndoPlanned",
    "Undone",
    "Unsupported",
    "Wanted",
    "Window",
    "build_session_key",
    "child_env",
    "choose_sqlite",
    "current_session_id",
    "describe_sqlite",
    "find_home",
    "gateway",
    "get_session_env",
    "holders",
    "hookimpl",
    "leases",
    "normalize_empty_agent_response",
    "profiles",
    "session_context",
    "set_current_session_id",
]


_LATER = {
    **dict.fromkeys(("GatewayConfig", "SessionResetPolicy"), "settings"),
    **dict.fromkeys(("Brief", "Compressed", "NotCompressed", "Planned"), "compression.records"),
    **dict.fromkeys(("Request", "Undone", "UndoPlanned"), "compression.records"),
    **dict.fromkeys(("Applied", "Preview", "Restored"), "maintenance.answers"),
    **dict.fromkeys(("Audited", "Batch"), "ledger.records"),
    **dict.fromkeys(("Health", "WHY_PROTECTED", "Wanted"), "maintenance.records"),
    "AsyncCompressor": "compression.async_compressor",
    "AsyncMaintenance": "maintenance.async_maintenance",
    "Compressor": "compression.compressor",
    "Edited": "maintenance.edits",
    "Exported": "maintenance.exporting",
    "Imported": "maintenance.imported",
    "Ledger": "ledger.ledger",
    "Limits": "compression.boundaries",
    "Maintenance": "maintenance.maintenance",
    "Retention": "compression.retention",
    "StateFolder": "ledger.folder",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"session_core.{_LATER[name]}"), name)
