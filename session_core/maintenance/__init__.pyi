from session_core.maintenance.edits import EditResult as EditResult
from session_core.maintenance.kinds import PLAN_KINDS as PLAN_KINDS
from session_core.maintenance.kinds import PlanKind as PlanKind
from session_core.maintenance.transfer.exporter import ExportResult as ExportResult
from session_core.maintenance.transfer.import_results import ImportPreview as ImportPreview
from session_core.maintenance.transfer.import_results import ImportResult as ImportResult
from session_core.maintenance.transfer.transcript_exporter import (
    export_transcripts as export_transcripts,
)
from session_core.maintenance.types import PROTECTION_REASONS as PROTECTION_REASONS
from session_core.maintenance.types import ApplyResult as ApplyResult
from session_core.maintenance.types import Bytes as Bytes
from session_core.maintenance.types import HealthReport as HealthReport
from session_core.maintenance.types import PlanPreview as PlanPreview
from session_core.maintenance.types import PlanRequest as PlanRequest
from session_core.maintenance.types import PlanTotals as PlanTotals
from session_core.maintenance.types import RestorePreview as RestorePreview
from session_core.maintenance.types import RestoreResult as RestoreResult
