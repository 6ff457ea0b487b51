"""Compression of conversations: plan, summarize, commit and undo."""

from session_core._lazy import export_names

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "ranges": ("CompressionLimits",),
        "retention": ("RetentionReport",),
        "types": (
            "CompressionPlan",
            "CompressionResult",
            "NotCompressed",
            "SummaryBrief",
            "SummaryRequest",
            "UndoPlan",
            "UndoResult",
        ),
    },
)
