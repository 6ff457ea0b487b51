"""The session store: which session each chat is in."""

from session_core._lazy import export_names

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "entries": ("RouteState",),
        "leases": ("DeliveryMarks", "MarkChange"),
        "settings": ("HasActiveProcesses",),
    },
)
