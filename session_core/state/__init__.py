"""The state database: the conversations of a home."""

from session_core._lazy import export_names

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "engines": ("DatabaseAddress", "inspect_server", "migrate_home", "open_postgres"),
        "merged_search": ("MergedHit", "MergedPosition", "MergedSearch"),
        "protocol": (
            "MetaStorage",
            "RouteStorage",
            "RowStorage",
            "StateAdmin",
            "StateStorage",
        ),
        "sdk_storage": ("SdkStorage",),
        "server_report": ("ServerReport",),
        "store_search": ("StoreSearch",),
    },
)
