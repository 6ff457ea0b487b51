"""Plans, undo batches, trash and the audit log of a home, stored outside its database."""

from session_core._lazy import export_names

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "labels": ("LabelChange", "LabelRestore", "Labels"),
        "types": ("AuditEntry", "Batch", "StoredPlan"),
    },
)
