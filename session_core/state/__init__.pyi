from session_core.state.protocol import MetaStorage as MetaStorage
from session_core.state.protocol import RouteStorage as RouteStorage
from session_core.state.protocol import RowStorage as RowStorage
from session_core.state.protocol import SdkStorage as SdkStorage
from session_core.state.protocol import StateAdmin as StateAdmin
from session_core.state.protocol import StateStorage as StateStorage
