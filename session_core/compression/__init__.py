"""Compression of conversations: plan, summarize, commit and undo."""

from session_core._lazy import export_names

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "chat_messages": ("TokenEstimator",),
        "extractive.written_form": ("StatementKind",),
        "ranges": ("CompressionLimits", "RequestedShape", "Shape"),
        "retention": ("RetentionReport",),
        "summarizers": ("Summarizer",),
        "types": (
            "Clean",
            "CompressionPlan",
            "CompressionResult",
            "Method",
            "NotCompressed",
            "SummaryBrief",
            "SummaryRequest",
            "UndoPlan",
            "UndoResult",
        ),
    },
)
