"""A result has two halves with the same data: hosts show their model one or the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp.types import CallToolResult, TextContent

from mcp_serve import budget


def both(data: Mapping[str, Any]) -> CallToolResult:
    """Return the result of a tool."""
    return CallToolResult(
        content=[TextContent(type="text", text=budget.render(data))],
        structured_content=dict(data),
    )


def said(**fields: Any) -> dict[str, Any]:
    """Return a mapping without what says nothing."""
    return {name: value for name, value in fields.items() if value not in (None, False)}
