from session_core.ledger.home_tables import find_database_location as find_database_location
from session_core.ledger.labels import LabelChange as LabelChange
from session_core.ledger.labels import LabelRestore as LabelRestore
from session_core.ledger.labels import Labels as Labels
from session_core.ledger.machine_folder import MachineFolder as MachineFolder
from session_core.ledger.types import AuditEntry as AuditEntry
from session_core.ledger.types import Batch as Batch
from session_core.ledger.types import StoredPlan as StoredPlan
