"""Agent cache, agent turns and the handling of session starts and ends."""

from session_core._lazy import export_names

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "agent_cache": ("CleanUpFunction",),
        "agent_turn": ("Agent", "AgentFactory"),
        "cache_table": ("CachedTurn", "ReuseReason"),
        "replies": ("AgentResult",),
    },
)
