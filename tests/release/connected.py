"""An SDK client that connects to an installed command and lists the sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client


def list_session_ids(command: Sequence[object], env: Mapping[str, str]) -> list[str]:
    """Return the ids from `sessions_list`, oldest first."""
    first, *rest = map(str, command)
    server = StdioServerParameters(command=first, args=rest, env=dict(env))

    async def ask() -> list[str]:
        async with Client(stdio_client(server)) as client:
            answer = await client.call_tool("sessions_list", {})
            return [session["id"] for session in answer.structured_content["sessions"]]

    return sorted(anyio.run(ask))
