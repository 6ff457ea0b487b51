"""A server of the SDK with a tool that does nothing, to measure start, memory and a bare call."""

from __future__ import annotations

import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("bare")


@server.tool()
async def do_nothing() -> str:
    """Do nothing."""
    return ""


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
