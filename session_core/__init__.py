"""The session core: an agent's sessions, read and changed without losing any.

The settings come from `session_core.settings` when they are first asked for, since reading them
needs a validator that nothing else here does.
"""

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
    from session_core.settings import GatewayConfig, SessionResetPolicy

__all__ = [
    "AgentCache",
    "Appended",
    "AppendedMany",
    "AsyncSessionDB",
    "AsyncSessionStore",
    "Busy",
    "Changes",
    "Conflict",
    "Corrupt",
    "Denied",
    "Driver",
    "Event",
    "ExpiryWatcher",
    "Finding",
    "Gateway",
    "GatewayConfig",
    "Hit",
    "Holder",
    "Home",
    "Hooks",
    "InvalidInput",
    "Lease",
    "MessageRow",
    "NotFound",
    "Page",
    "Platform",
    "Reply",
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
    "StorageError",
    "StorageFull",
    "TitleTaken",
    "Unsupported",
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


def __getattr__(name: str) -> Any:
    if name in {"GatewayConfig", "SessionResetPolicy"}:
        from session_core import settings  # noqa: PLC0415 -- see above

        return getattr(settings, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
