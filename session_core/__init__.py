"""The session core: read and change an agent's sessions without losing any.

Each name is imported on first use, so that reading a session does not load the rest: a server
answers its first request before it opens a database.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from session_core._sqlite3 import Driver, choose_sqlite, describe_sqlite
    from session_core.chats import Platform, SessionSource, build_session_key
    from session_core.compression.async_compressor import AsyncCompressor
    from session_core.compression.compressor import Compressor
    from session_core.compression.ranges import CompressionLimits
    from session_core.compression.retention import RetentionReport
    from session_core.compression.types import (
        CompressionPlan,
        CompressionResult,
        NotCompressed,
        SummaryBrief,
        SummaryRequest,
        UndoPlan,
        UndoResult,
    )
    from session_core.config import GatewayConfig, SessionResetPolicy
    from session_core.context import (
        build_child_env,
        get_current_session_id,
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
    from session_core.home import Home, find_active_profile, find_home, list_profiles
    from session_core.hooks import Hooks, hookimpl
    from session_core.ledger.ledger import Ledger
    from session_core.ledger.state_folder import StateFolder
    from session_core.ledger.types import AuditEntry, Batch
    from session_core.lifecycle.agent_cache import AgentCache
    from session_core.lifecycle.agent_turn import AgentTurn
    from session_core.lifecycle.expiry import ExpiryWatcher
    from session_core.lifecycle.replies import normalize_empty_agent_response
    from session_core.lifecycle.runtime import Reply, SessionRuntime
    from session_core.maintenance.async_maintenance import AsyncMaintenance
    from session_core.maintenance.edits import EditResult
    from session_core.maintenance.maintenance import Maintenance
    from session_core.maintenance.transfer.export import ExportResult
    from session_core.maintenance.transfer.types import ImportPreview, ImportResult
    from session_core.maintenance.types import (
        PROTECTION_REASONS,
        ApplyResult,
        Bytes,
        HealthReport,
        PlanPreview,
        PlanRequest,
        RestorePreview,
        RestoreResult,
    )
    from session_core.presence import Gateway, Lease, find_gateway, list_holders, list_leases
    from session_core.routing.async_store import AsyncSessionStore
    from session_core.routing.entries import SessionEntry
    from session_core.routing.store import SessionStore
    from session_core.state.async_db import AsyncSessionDB
    from session_core.state.content import extract_plain_text
    from session_core.state.protocol import StateDatabase
    from session_core.state.sqlite.database import SessionDB
    from session_core.types import (
        AppendManyResult,
        AppendResult,
        EventPage,
        Finding,
        Holder,
        MessageRow,
        MessageWindow,
        Page,
        Revision,
        RewindResult,
        SearchHit,
        SearchResult,
        SessionEvent,
        SessionFilter,
        SessionRow,
        SessionSummary,
        Sizes,
    )

__all__ = [
    "PROTECTION_REASONS",
    "AgentCache",
    "AgentTurn",
    "AppendManyResult",
    "AppendResult",
    "ApplyResult",
    "AsyncCompressor",
    "AsyncMaintenance",
    "AsyncSessionDB",
    "AsyncSessionStore",
    "AuditEntry",
    "Batch",
    "BlockingCallWarning",
    "Busy",
    "Bytes",
    "Changed",
    "CompressionLimits",
    "CompressionPlan",
    "CompressionResult",
    "Compressor",
    "Conflict",
    "Corrupt",
    "Denied",
    "Driver",
    "EditResult",
    "EventPage",
    "ExpiryWatcher",
    "ExportResult",
    "Finding",
    "Gateway",
    "GatewayConfig",
    "HealthReport",
    "Holder",
    "Home",
    "Hooks",
    "ImportPreview",
    "ImportResult",
    "InvalidInput",
    "Lease",
    "Ledger",
    "Maintenance",
    "MessageRow",
    "MessageWindow",
    "NotCompressed",
    "NotFound",
    "Page",
    "PlanPreview",
    "PlanRequest",
    "Platform",
    "Reply",
    "RestorePreview",
    "RestoreResult",
    "RetentionReport",
    "Revision",
    "RewindResult",
    "SearchHit",
    "SearchResult",
    "SessionDB",
    "SessionEntry",
    "SessionError",
    "SessionEvent",
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
    "SummaryBrief",
    "SummaryRequest",
    "TitleTaken",
    "UndoPlan",
    "UndoResult",
    "Unsupported",
    "build_child_env",
    "build_session_key",
    "choose_sqlite",
    "describe_sqlite",
    "extract_plain_text",
    "find_active_profile",
    "find_gateway",
    "find_home",
    "get_current_session_id",
    "get_session_env",
    "hookimpl",
    "list_holders",
    "list_leases",
    "list_profiles",
    "normalize_empty_agent_response",
    "session_context",
    "set_current_session_id",
]

_MODULES: dict[str, tuple[str, ...]] = {
    "_sqlite3": ("Driver", "choose_sqlite", "describe_sqlite"),
    "chats": ("Platform", "SessionSource", "build_session_key"),
    "compression.async_compressor": ("AsyncCompressor",),
    "compression.compressor": ("Compressor",),
    "compression.ranges": ("CompressionLimits",),
    "compression.retention": ("RetentionReport",),
    "compression.types": (
        "SummaryBrief",
        "CompressionResult",
        "NotCompressed",
        "CompressionPlan",
        "SummaryRequest",
        "UndoPlan",
        "UndoResult",
    ),
    "config": ("GatewayConfig", "SessionResetPolicy"),
    "context": (
        "build_child_env",
        "get_current_session_id",
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
    "home": ("Home", "find_active_profile", "find_home", "list_profiles"),
    "hooks": ("Hooks", "hookimpl"),
    "ledger.ledger": ("Ledger",),
    "ledger.state_folder": ("StateFolder",),
    "ledger.types": ("AuditEntry", "Batch"),
    "lifecycle.agent_cache": ("AgentCache",),
    "lifecycle.agent_turn": ("AgentTurn",),
    "lifecycle.expiry": ("ExpiryWatcher",),
    "lifecycle.replies": ("normalize_empty_agent_response",),
    "lifecycle.runtime": ("Reply", "SessionRuntime"),
    "maintenance.async_maintenance": ("AsyncMaintenance",),
    "maintenance.edits": ("EditResult",),
    "maintenance.maintenance": ("Maintenance",),
    "maintenance.transfer.export": ("ExportResult",),
    "maintenance.transfer.types": ("ImportPreview", "ImportResult"),
    "maintenance.types": (
        "ApplyResult",
        "Bytes",
        "RestorePreview",
        "HealthReport",
        "PlanPreview",
        "RestoreResult",
        "PROTECTION_REASONS",
        "PlanRequest",
    ),
    "presence": ("Gateway", "Lease", "find_gateway", "list_holders", "list_leases"),
    "routing.async_store": ("AsyncSessionStore",),
    "routing.entries": ("SessionEntry",),
    "routing.store": ("SessionStore",),
    "state.async_db": ("AsyncSessionDB",),
    "state.content": ("extract_plain_text",),
    "state.protocol": ("StateDatabase",),
    "state.sqlite.database": ("SessionDB",),
    "types": (
        "AppendResult",
        "AppendManyResult",
        "EventPage",
        "SessionEvent",
        "Finding",
        "SearchHit",
        "Holder",
        "MessageRow",
        "Page",
        "Revision",
        "RewindResult",
        "SearchResult",
        "SessionFilter",
        "SessionRow",
        "SessionSummary",
        "Sizes",
        "MessageWindow",
    ),
}
_LATER = {name: (module, name) for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LATER[name]
    value = globals()[name] = getattr(import_module(f"session_core.{module}"), attribute)
    return value
