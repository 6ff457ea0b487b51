"""The session core: an agent's sessions, read and changed without losing any.

Each name is imported when it is first asked for, since who only wants to read a session should not
pay for the rest: a server answers its first request before it has opened anything.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from session_core._sqlite3 import Driver
    from session_core._sqlite3 import choose as choose_sqlite
    from session_core._sqlite3 import describe as describe_sqlite
    from session_core.chats import Platform, SessionSource, build_session_key
    from session_core.compression.async_compressor import AsyncCompressor
    from session_core.compression.compressor import Compressor
    from session_core.compression.ranges import Limits
    from session_core.compression.retention import Retention
    from session_core.compression.types import (
        Brief,
        Compressed,
        NotCompressed,
        Planned,
        Request,
        Undone,
        UndoPlanned,
    )
    from session_core.config import GatewayConfig, SessionResetPolicy
    from session_core.context import (
        child_env,
        current_session_id,
        get_session_env,
        session_context,
        set_current_session_id,
    )
    from session_core.errors import (
        BlockingCallWarning,
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
    from session_core.home import Home, active_profile, find_home, profiles
    from session_core.hooks import Hooks, hookimpl
    from session_core.ledger.ledger import Ledger
    from session_core.ledger.state_folder import StateFolder
    from session_core.ledger.types import Audited, Batch
    from session_core.lifecycle.agent_cache import AgentCache
    from session_core.lifecycle.agent_turn import Run
    from session_core.lifecycle.expiry import ExpiryWatcher
    from session_core.lifecycle.replies import normalize_empty_agent_response
    from session_core.lifecycle.runtime import Reply, SessionRuntime
    from session_core.maintenance.async_maintenance import AsyncMaintenance
    from session_core.maintenance.edits import Edited
    from session_core.maintenance.maintenance import Maintenance
    from session_core.maintenance.transfer.export import Exported
    from session_core.maintenance.transfer.types import Arrivals, Imported
    from session_core.maintenance.types import (
        WHY_PROTECTED,
        Applied,
        Bytes,
        Coming,
        Health,
        Preview,
        Restored,
        Wanted,
    )
    from session_core.presence import Gateway, Lease, gateway, holders, leases
    from session_core.routing.async_store import AsyncSessionStore
    from session_core.routing.entries import SessionEntry
    from session_core.routing.store import SessionStore
    from session_core.state.async_db import AsyncSessionDB
    from session_core.state.content import plain_text
    from session_core.state.protocol import StateDatabase
    from session_core.state.sqlite.database import SessionDB
    from session_core.types import (
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

__all__ = [
    "WHY_PROTECTED",
    "AgentCache",
    "Appended",
    "AppendedMany",
    "Applied",
    "Arrivals",
    "AsyncCompressor",
    "AsyncMaintenance",
    "AsyncSessionDB",
    "AsyncSessionStore",
    "Audited",
    "Batch",
    "BlockingCallWarning",
    "Brief",
    "Busy",
    "Bytes",
    "Changed",
    "Changes",
    "Coming",
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
    "active_profile",
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
    "plain_text",
    "profiles",
    "session_context",
    "set_current_session_id",
]

_MODULES: dict[str, tuple[str, ...]] = {
    "_sqlite3": ("Driver",),
    "chats": ("Platform", "SessionSource", "build_session_key"),
    "compression.async_compressor": ("AsyncCompressor",),
    "compression.compressor": ("Compressor",),
    "compression.ranges": ("Limits",),
    "compression.retention": ("Retention",),
    "compression.types": (
        "Brief",
        "Compressed",
        "NotCompressed",
        "Planned",
        "Request",
        "UndoPlanned",
        "Undone",
    ),
    "config": ("GatewayConfig", "SessionResetPolicy"),
    "context": (
        "child_env",
        "current_session_id",
        "get_session_env",
        "session_context",
        "set_current_session_id",
    ),
    "errors": (
        "BlockingCallWarning",
        "Busy",
        "Changed",
        "Conflict",
        "Corrupt",
        "Denied",
        "InvalidInput",
        "NotFound",
        "SessionError",
        "StorageError",
        "StorageFull",
        "TitleTaken",
        "Unsupported",
    ),
    "home": ("Home", "active_profile", "find_home", "profiles"),
    "hooks": ("Hooks", "hookimpl"),
    "ledger.ledger": ("Ledger",),
    "ledger.state_folder": ("StateFolder",),
    "ledger.types": ("Audited", "Batch"),
    "lifecycle.agent_cache": ("AgentCache",),
    "lifecycle.agent_turn": ("Run",),
    "lifecycle.expiry": ("ExpiryWatcher",),
    "lifecycle.replies": ("normalize_empty_agent_response",),
    "lifecycle.runtime": ("Reply", "SessionRuntime"),
    "maintenance.async_maintenance": ("AsyncMaintenance",),
    "maintenance.edits": ("Edited",),
    "maintenance.maintenance": ("Maintenance",),
    "maintenance.transfer.export": ("Exported",),
    "maintenance.transfer.types": ("Arrivals", "Imported"),
    "maintenance.types": (
        "Applied",
        "Bytes",
        "Coming",
        "Health",
        "Preview",
        "Restored",
        "WHY_PROTECTED",
        "Wanted",
    ),
    "presence": ("Gateway", "Lease", "gateway", "holders", "leases"),
    "routing.async_store": ("AsyncSessionStore",),
    "routing.entries": ("SessionEntry",),
    "routing.store": ("SessionStore",),
    "state.async_db": ("AsyncSessionDB",),
    "state.content": ("plain_text",),
    "state.protocol": ("StateDatabase",),
    "state.sqlite.database": ("SessionDB",),
    "types": (
        "Appended",
        "AppendedMany",
        "Changes",
        "Event",
        "Finding",
        "Hit",
        "Holder",
        "MessageRow",
        "Page",
        "Revision",
        "Rewound",
        "SearchResult",
        "SessionFilter",
        "SessionRow",
        "SessionSummary",
        "Sizes",
        "Window",
    ),
}
_OTHERWISE_NAMED = {
    "choose_sqlite": ("_sqlite3", "choose"),
    "describe_sqlite": ("_sqlite3", "describe"),
}
_LATER = {
    name: (module, name) for module, names in _MODULES.items() for name in names
} | _OTHERWISE_NAMED


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, there = _LATER[name]
    found = globals()[name] = getattr(import_module(f"session_core.{module}"), there)
    return found
