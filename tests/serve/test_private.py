"""Private names of the SDK that the server uses: each test fails if the SDK changes one."""

from __future__ import annotations

import pytest
from mcp import Client
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.tools import Tool, ToolManager
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from mcp.server.subscriptions import ListenHandler
from mcp.types import ListResourcesResult, PaginatedRequestParams

from mcp_serve import server
from mcp_serve.sdk import private
from mcp_serve.sdk.factory import make_stream_closer
from mcp_serve.stores.stores import ServedStores, ServerOptions
from session_core import SessionDB

pytestmark = pytest.mark.anyio


@pytest.fixture(name="full_server")
def _made(home_path):
    return server.create_server(ServedStores(ServerOptions(home=str(home_path))))


@pytest.fixture(name="plain_server")
def _bare():
    """A server of the SDK without our changes."""
    return MCPServer("plain_server")


@pytest.mark.requirement("faces:sdk")
async def test_handmade_tool_can_be_added(plain_server):
    assert isinstance(plain_server._tool_manager, ToolManager)
    assert private.list_tool_names(plain_server) == []
    tool = Tool.from_function(lambda: "said", name="said_tool")
    private.add_tools(plain_server, [tool])
    assert private.list_tool_names(plain_server) == ["said_tool"]
    async with Client(plain_server, cache=None) as client:
        answer = await client.call_tool("said_tool", {})
    assert answer.content[0].text == "said"


@pytest.mark.requirement("faces:sdk")
def test_prompt_names_are_listed(plain_server):
    assert private.list_prompt_names(plain_server) == []

    @plain_server.prompt()
    def asked() -> str:
        return ""

    assert private.list_prompt_names(plain_server) == ["asked"]


@pytest.mark.requirement("faces:sdk")
async def test_request_handler_can_be_replaced(plain_server):
    async def listed(_, params):
        return ListResourcesResult(resources=[], next_cursor="ours")

    assert private.get_handler(plain_server, "resources/list") is not None
    private.set_handler(plain_server, "resources/list", PaginatedRequestParams, listed)
    assert private.get_handler(plain_server, "resources/list") is listed
    async with Client(plain_server, cache=None) as client:
        assert (await client.list_resources()).next_cursor == "ours"


@pytest.mark.requirement("faces:sdk")
def test_open_streams_can_be_ended(full_server):
    assert private.get_handler(full_server, "resources/subscribe") is not None
    assert isinstance(private.get_handler(full_server, "subscriptions/listen"), ListenHandler)
    assert make_stream_closer(full_server)() is None


@pytest.mark.requirement("faces:sdk")
def test_legacy_handshake_advertises_list_changes(full_server):
    capabilities = full_server._lowlevel_server.create_initialization_options().capabilities
    assert capabilities.resources.list_changed
    assert capabilities.resources.subscribe
    assert capabilities.tools.list_changed
    assert capabilities.prompts.list_changed


@pytest.mark.requirement("faces:sdk")
def test_sdk_validates_arguments_by_override():
    assert {"validate_arguments", "convert_result"} <= set(vars(FuncMetadata))
    assert "arg_model" in FuncMetadata.model_fields
    assert {"fn", "parameters", "fn_metadata", "resolved_params", "resolver_plans"} <= set(
        Tool.model_fields
    )


@pytest.mark.requirement("faces:sdk")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_added_tools_stay_registered(full_server, mode):
    @full_server.tool()
    def fixture_tool(text: str) -> str:
        """Return the argument."""
        return text

    @full_server.resource("test://static")
    def fixture_resource() -> str:
        return "static"

    async with Client(full_server, mode=mode, cache=None) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert {"fixture_tool", "sessions_list"} <= set(names)
        answer = await client.call_tool("fixture_tool", {"text": "hello"})
        assert answer.content[0].text == "hello"
        assert (await client.read_resource("test://static")).contents[0].text == "static"


@pytest.mark.requirement("faces:crash")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_crash_details_stay_on_server(full_server, mode, monkeypatch, caplog):
    def crash(*_, **__):
        raise RuntimeError("SELECT secret FROM /home/me")

    monkeypatch.setattr(SessionDB, "list_sessions", crash)
    async with Client(full_server, mode=mode, cache=None) as client:
        answer = await client.call_tool("sessions_list", {})
        assert not (await client.call_tool("routes_list", {})).is_error
    assert answer.is_error
    assert answer.content[0].text == (
        "sessions_list failed because of a defect of this server; see its log on stderr"
    )
    assert answer.structured_content is None
    assert "SELECT secret" in caplog.text
