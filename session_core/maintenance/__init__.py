"""Report, plan, apply and restore: the health of a home, its cleanup, and the undo."""

from session_core._lazy import export_names

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "edits": ("EditResult",),
        "kinds": ("PLAN_KINDS", "PlanKind"),
        "transfer.exporter": ("ExportResult",),
        "transfer.transcript_exporter": ("export_transcripts",),
        "transfer.import_results": ("ImportPreview", "ImportResult"),
        "types": (
            "PROTECTION_REASONS",
            "ApplyResult",
            "Bytes",
            "HealthReport",
            "PlanPreview",
            "PlanRequest",
            "PlanTotals",
            "RestorePreview",
            "RestoreResult",
        ),
    },
)
