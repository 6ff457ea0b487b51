"""Report, plan, apply and restore: the health of a home, its cleanup, and the undo."""

from session_core._lazy import export_names

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "edits": ("EditPreview", "EditResult"),
        "kinds": ("PLAN_KINDS", "PlanKind", "Tool"),
        "transfer.copier": ("CopyPreview", "CopyResult", "copy_home", "preview_copy"),
        "transfer.exporter": ("ExportForm", "ExportResult"),
        "transfer.import_results": ("ImportPreview", "ImportResult", "ImportedSession"),
        "transfer.scan": ("BrokenLine",),
        "transfer.transcript_exporter": ("export_transcripts",),
        "types": (
            "PROTECTION_REASONS",
            "ApplyResult",
            "Bytes",
            "CountFn",
            "HealthFinding",
            "HealthReport",
            "PlanItem",
            "PlanPreview",
            "PlanRequest",
            "PlanTotals",
            "ProgressFn",
            "ProtectionReason",
            "RefusedItem",
            "RestorePreview",
            "RestoreProgressFn",
            "RestoreResult",
            "SessionCensus",
            "SkippedItem",
            "StopFn",
            "WeeklyGrowth",
        ),
    },
)
