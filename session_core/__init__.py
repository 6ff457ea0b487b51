"""The session core: read and change an agent's sessions without losing any.

The root has the names that applications call, build, pass and catch. The values that they read are
in `session_core.types`, and the values of plans, compression, trash and log in
`session_core.maintenance`, `session_core.compression` and `session_core.ledger`.
"""

from session_core._lazy import export_names

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "_version": ("__version__",),
        "_sqlite3": ("choose_sqlite", "describe_sqlite"),
        "chats": ("Platform", "SessionSource", "build_session_key"),
        "compression.compressor": ("AsyncCompressor", "Compressor"),
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
        "home": (
            "Home",
            "find_active_profile",
            "find_home",
            "list_homes",
        ),
        "hooks": ("Hooks", "hookimpl"),
        "ledger.ledger": ("Ledger",),
        "ledger.state_folder": ("StateFolder",),
        "lifecycle.agent_cache": ("AgentCache",),
        "lifecycle.agent_turn": ("AgentTurn",),
        "lifecycle.expiry": ("ExpiryWatcher",),
        "lifecycle.replies": ("normalize_empty_agent_response",),
        "lifecycle.runtime": ("Reply", "SessionRuntime"),
        "maintenance.maintenance": ("AsyncMaintenance", "Maintenance"),
        "opened_home": ("AsyncOpenedHome", "OpenedHome", "aopen_home", "open_home"),
        "processes": ("find_gateway", "list_holders", "list_leases"),
        "routing.async_store": ("AsyncSessionStore",),
        "routing.entries": ("SessionEntry",),
        "routing.session_store": ("SessionStore",),
        "state.async_db": ("AsyncSessionDB",),
        "state.content": ("extract_plain_text",),
        "state.protocol": ("StateDatabase",),
        "state.sqlite.session_db": ("SessionDB",),
        "types": ("Revision", "SessionFilter"),
    },
)
