"""The tool list is data that equals the specifications. A tool is imported by its first call."""

from __future__ import annotations

import subprocess
import sys

import pytest
from mcp import Client

from mcp_serve import server
from mcp_serve.sdk.tool_schemas import describe_tool
from mcp_serve.stores.stores import ServedStores, ServerOptions
from mcp_serve.tool_list import load_specs, read_descriptions

pytestmark = pytest.mark.anyio

LIST_TOOLS = """
import sys, anyio
from mcp import Client
from mcp_serve import server
from mcp_serve.stores.stores import ServedStores, ServerOptions
async def list_tools():
    made = server.create_server(ServedStores(ServerOptions(home=sys.argv[1])))
    async with Client(made, cache=None) as client:
        assert len((await client.list_tools()).tools) == 11
        assert not [name for name in sys.modules if name.startswith("mcp_serve.tools.")]
anyio.run(list_tools)
"""


@pytest.mark.requirement("serving:surface")
async def test_listed_tools_equal_specifications(client: Client):
    listed = (await client.list_tools()).tools
    shown = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed]
    assert shown == [describe_tool(spec) for spec in load_specs()]


def test_read_only_list_omits_changes():
    names = [tool["name"] for tool in read_descriptions(read_only=True)]
    assert names == [spec.name for spec in load_specs() if not spec.changes]


@pytest.mark.requirement("wire:start")
def test_tool_list_imports_no_tool(tmp_path):
    subprocess.run([sys.executable, "-c", LIST_TOOLS, str(tmp_path)], check=True)


async def test_preparation_runs_before_stores_open(home_path):
    prepared = []
    options = ServerOptions(home=str(home_path), before=lambda: prepared.append("driver"))
    served = ServedStores(options)
    async with Client(server.create_server(served), cache=None) as client:
        await client.call_tool("sessions_list", {})
        await client.call_tool("sessions_stats", {})
        await client.list_resources()
    served.close()
    assert prepared == ["driver"]
