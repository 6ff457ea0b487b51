"""The state database: the conversations of a home."""

from session_core._lazy import export_names

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "columns": (
            "MessageColumnUpdates",
            "NewMessageColumns",
            "NewSessionColumns",
            "SessionColumnUpdates",
            "TokenColumns",
            "UsageColumns",
        ),
        "engines": (
            "DatabaseAddress",
            "Pooling",
            "ServerReport",
            "inspect_server",
            "migrate_home",
            "open_postgres",
        ),
        "merged_search": ("MergedHit", "MergedPosition", "MergedResult", "MergedSearch"),
        "protocol": (
            "MetaStorage",
            "RouteStorage",
            "RowStorage",
            "StateAdmin",
            "StateStorage",
            "StepCallback",
            "StopSignal",
        ),
        "sdk_storage": ("SdkStorage",),
        "store_search": ("RankedMatch", "StoreBlock", "StoreSearch"),
    },
)
