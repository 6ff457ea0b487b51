"""The specifications of all tools, imported; a server imports a tool when it is called."""

from __future__ import annotations

from mcp_serve.tool_list import TOOL_MODULES, load_spec
from mcp_serve.tools.spec import ToolSpec

# The tools in the order of the tool list.
SPECS: tuple[ToolSpec, ...] = tuple(load_spec(name) for name in TOOL_MODULES)
