"""A home with planted conversations, and a client for it in both protocol versions, in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from mcp_serve import server
from mcp_serve.stores import ServedStores, ServerOptions
from session_core import SessionDB

Call = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture(name="db")
def _db(home_path: Path):
    """The database of the home, as an agent next to the server opens it."""
    with SessionDB(home_path / "state.db") as db:
        yield db


@pytest.fixture(name="options")
def _options() -> dict[str, Any]:
    """The options of the server; a test may override them with a mark `options`."""
    return {}


@pytest.fixture(name="client", params=["auto", "legacy"])
async def _client(request, home_path: Path) -> AsyncIterator[Client]:
    mark = request.node.get_closest_marker("options")
    served = ServedStores(ServerOptions(home=str(home_path), **(mark.kwargs if mark else {})))
    async with Client(server.create_server(served), mode=request.param, cache=None) as client:
        yield client
    served.close()


@pytest.fixture(name="call")
def _call(client: Client) -> Call:
    """Call a tool and return its answer; text and structured content must be equal."""

    async def call(tool: str, **arguments: Any) -> dict[str, Any]:
        result = await client.call_tool(tool, arguments)
        assert not result.is_error, result.content[0].text
        assert json.loads(result.content[0].text) == result.structured_content
        return result.structured_content

    return call


@pytest.fixture(name="refused")
def _refused(client: Client) -> Callable[..., Awaitable[str]]:
    """Call a tool that refuses, and return its error message."""

    async def refused(tool: str, **arguments: Any) -> str:
        result = await client.call_tool(tool, arguments)
        assert result.is_error, result.content[0].text
        return result.content[0].text

    return refused
