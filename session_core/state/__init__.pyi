from session_core.state.protocol import RouteStorage as RouteStorage
from session_core.state.protocol import RowStorage as RowStorage
from session_core.state.protocol import StateAdmin as StateAdmin
