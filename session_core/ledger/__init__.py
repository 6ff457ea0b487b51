"""Plans, undo batches, trash and the audit log of a home, stored outside its database."""

from session_core._lazy import export_names

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "database_location": ("find_database_location",),
        "labels": ("Label", "LabelChange", "LabelRestore", "Labels"),
        "state_folder": ("MachineFolder",),
        "types": (
            "AuditEntry",
            "Batch",
            "EmptyResult",
            "Member",
            "PartialMember",
            "PlanState",
            "Step",
            "StepState",
            "StoredPlan",
            "TrashItem",
        ),
    },
)
