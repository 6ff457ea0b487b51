"""Sessions of other agents, read in place.

Their files are never changed.
"""

from session_core._lazy import export_names

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "format": ("TranscriptLink",),
        "keep.transcript_copies": ("TranscriptCopies",),
        "keep.types": ("ForgetPlan", "ForgottenSession", "KeepMode", "KeepStatus", "KeptCounts"),
        "places": ("list_transcript_stores",),
        "raw_source": ("RawSource",),
        "transcript_store": ("TranscriptStore",),
        "types": ("StoreCoverage", "TranscriptSummary"),
    },
)
