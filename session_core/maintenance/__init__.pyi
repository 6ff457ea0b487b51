from session_core.maintenance.edits import EditPreview as EditPreview
from session_core.maintenance.edits import EditResult as EditResult
from session_core.maintenance.kinds import PLAN_KINDS as PLAN_KINDS
from session_core.maintenance.kinds import PlanKind as PlanKind
from session_core.maintenance.kinds import Tool as Tool
from session_core.maintenance.transfer.copier import CopyPreview as CopyPreview
from session_core.maintenance.transfer.copier import CopyResult as CopyResult
from session_core.maintenance.transfer.copier import copy_home as copy_home
from session_core.maintenance.transfer.copier import preview_copy as preview_copy
from session_core.maintenance.transfer.exporter import ExportForm as ExportForm
from session_core.maintenance.transfer.exporter import ExportResult as ExportResult
from session_core.maintenance.transfer.import_results import ImportedSession as ImportedSession
from session_core.maintenance.transfer.import_results import ImportPreview as ImportPreview
from session_core.maintenance.transfer.import_results import ImportResult as ImportResult
from session_core.maintenance.transfer.scan import BrokenLine as BrokenLine
from session_core.maintenance.transfer.transcript_exporter import (
    export_transcripts as export_transcripts,
)
from session_core.maintenance.types import PROTECTION_REASONS as PROTECTION_REASONS
from session_core.maintenance.types import ApplyResult as ApplyResult
from session_core.maintenance.types import Bytes as Bytes
from session_core.maintenance.types import CountFn as CountFn
from session_core.maintenance.types import HealthFinding as HealthFinding
from session_core.maintenance.types import HealthReport as HealthReport
from session_core.maintenance.types import PlanItem as PlanItem
from session_core.maintenance.types import PlanPreview as PlanPreview
from session_core.maintenance.types import PlanRequest as PlanRequest
from session_core.maintenance.types import PlanTotals as PlanTotals
from session_core.maintenance.types import ProgressFn as ProgressFn
from session_core.maintenance.types import ProtectionReason as ProtectionReason
from session_core.maintenance.types import RefusedItem as RefusedItem
from session_core.maintenance.types import RestorePreview as RestorePreview
from session_core.maintenance.types import RestoreProgressFn as RestoreProgressFn
from session_core.maintenance.types import RestoreResult as RestoreResult
from session_core.maintenance.types import SessionCensus as SessionCensus
from session_core.maintenance.types import SkippedItem as SkippedItem
from session_core.maintenance.types import StopFn as StopFn
from session_core.maintenance.types import WeeklyGrowth as WeeklyGrowth
