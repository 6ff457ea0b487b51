"""Sessions of other agents, read in place.

Their files are never changed.
"""

from session_core._lazy import export_names

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "keep.transcript_copies": ("TranscriptCopies",),
        "keep.types": ("ForgetPlan", "ForgottenSession", "KeepStatus", "KeptCounts"),
        "places": ("list_transcript_stores",),
        "store": ("TranscriptStore",),
        "types": ("StoreCoverage", "TranscriptSummary"),
    },
)
