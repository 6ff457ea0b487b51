"""The descriptions of the tools as the server lists them, made from their specifications."""

from __future__ import annotations

import json

from mcp_serve.sdk.tool_schemas import describe_tool
from mcp_serve.tool_list import FILE_NAME, load_specs
from tests.readme.parts import ROOT

TOOL_LIST_PATH = ROOT / "mcp_serve" / FILE_NAME


def render_tool_list() -> str:
    """Return the content of the file, one line for each tool."""
    lines = (json.dumps(describe_tool(spec), ensure_ascii=False) for spec in load_specs())
    return "[\n" + ",\n".join(lines) + "\n]\n"
