"""The card of a plan and of the report, for hosts that show MCP Apps.

One document for each tool, with its script and style inline. Its policy allows exactly these two
by their hashes, and no connection. It is built when a host reads it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from functools import cache, partial
from importlib import resources
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.resources import FunctionResource

MIME_TYPE = "text/html;profile=mcp-app"

# The tools whose answers a host shows as a card.
CARD_TOOLS = ("sessions_prune", "sessions_finalize", "sessions_stats")

_SCRIPTS = ("bridge.js", "elements.js", "plan.js", "stats.js", "main.js")

# The page needs nothing of the network, so a host allows it nothing.
_HOST_SETTINGS = {"ui": {"csp": {}, "prefersBorder": True}}


def make_card_address(tool: str) -> str:
    """Return the address of the card of a tool."""
    return f"ui://mcp-sessions/{tool}.html"


def make_tool_meta(tool: str) -> dict[str, Any] | None:
    """Return the metadata that link a tool with its card, or None."""
    return {"ui": {"resourceUri": make_card_address(tool)}} if tool in CARD_TOOLS else None


def register_cards(server: MCPServer[Any], tools: Iterable[str]) -> None:
    """Register the cards of these tools."""
    for tool in tools:
        if tool in CARD_TOOLS:
            server.add_resource(
                FunctionResource(
                    uri=make_card_address(tool),
                    name=f"{tool} card",
                    mime_type=MIME_TYPE,
                    meta=_HOST_SETTINGS,
                    fn=partial(build_page, tool),
                )
            )


@cache
def build_page(tool: str) -> str:
    """Return the document of a tool's card."""
    script = "\n".join(map(_read_card_file, _SCRIPTS))
    style = _read_card_file("card.css")
    policy = (
        f"default-src 'none'; script-src '{_hash_text(script)}'; style-src '{_hash_text(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {"tool": tool, "policy": policy, "style": style, "script": script}
    page = _read_card_file("page.html")
    for name, text in parts.items():
        page = page.replace(f"{{{name}}}", text, 1)
    return page


def _read_card_file(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text("utf-8")


def _hash_text(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
