from session_core.routing.entries import RouteState as RouteState
from session_core.routing.leases import DeliveryMarks as DeliveryMarks
from session_core.routing.leases import MarkChange as MarkChange
from session_core.routing.settings import HasActiveProcesses as HasActiveProcesses
