"""Fixtures around calls: progress, logging, capabilities, headers, changed lists."""

from __future__ import annotations

from typing import Annotated, Any

import anyio
from mcp import MCPError
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    EmptyResult,
    SetLevelRequestParams,
)
from pydantic import Field

_BETWEEN_S = 0.05
"""The suite expects several notifications over time, not all at once."""


def register_context_tools(server: MCPServer[Any]) -> None:
    """Register them."""
    for tool in (
        test_tool_with_progress,
        test_tool_with_logging,
        test_missing_capability,
        test_custom_headers,
        test_trigger_tool_change,
        test_trigger_prompt_change,
    ):
        server.add_tool(tool, description="Of the suite.")
    server.add_tool(test_tool_with_logging, "test_logging_tool", description="Of the suite.")
    low = server._lowlevel_server
    low.add_request_handler("logging/setLevel", SetLevelRequestParams, _set_level)


async def test_tool_with_progress(context: Context) -> str:
    for done in (0, 50, 100):
        await context.report_progress(done, 100, f"{done} of 100")
        await anyio.sleep(_BETWEEN_S)
    return "done"


async def test_tool_with_logging(context: Context) -> str:
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await context.info(text)
        await anyio.sleep(_BETWEEN_S)
    return "done"


async def test_missing_capability(context: Context) -> str:
    capabilities = context.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        expected = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "sampling is needed", expected)
    return "there"


async def test_custom_headers(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
) -> str:
    return region


async def test_trigger_tool_change(context: Context) -> str:
    await context.notify_tools_changed()
    return "told"


async def test_trigger_prompt_change(context: Context) -> str:
    await context.notify_prompts_changed()
    return "told"


async def _set_level(_: Any, params: SetLevelRequestParams) -> EmptyResult:
    del params
    return EmptyResult()
