"""The modules of the tools of the server, and their descriptions for clients.

The descriptions are data that `python -m tests.docs` writes, so that a server makes no schema at
its start and imports a tool when it is called.
"""

from __future__ import annotations

import json
from importlib import import_module, resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp_serve.tools.spec import ToolSpec

FILE_NAME = "tool_list.json"

# In the order of the tool list, by name.
TOOL_MODULES = {
    "sessions_list": "list",
    "sessions_read": "read",
    "sessions_search": "search",
    "sessions_stats": "stats",
    "routes_list": "routes",
    "events_wait": "events",
    "sessions_edit": "edit",
    "sessions_finalize": "finalize",
    "sessions_compress": "compress",
    "sessions_prune": "prune",
    "sessions_restore": "restore",
}


def load_spec(name: str) -> ToolSpec:
    """Return the specification of a tool."""
    spec: ToolSpec = import_module(f"mcp_serve.tools.{TOOL_MODULES[name]}").SPEC
    return spec


def load_specs() -> tuple[ToolSpec, ...]:
    """Return the specifications of all tools, in the order of the tool list."""
    return tuple(map(load_spec, TOOL_MODULES))


def read_descriptions(*, read_only: bool) -> list[dict[str, Any]]:
    """Return the descriptions of all tools, or of the tools that change nothing."""
    text = resources.files("mcp_serve").joinpath(FILE_NAME).read_text("utf-8")
    described: list[dict[str, Any]] = json.loads(text)
    return [tool for tool in described if not read_only or tool["annotations"]["readOnlyHint"]]
