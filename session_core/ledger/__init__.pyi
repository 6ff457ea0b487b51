from session_core.ledger.types import AuditEntry as AuditEntry
from session_core.ledger.types import Batch as Batch
from session_core.ledger.types import StoredPlan as StoredPlan
