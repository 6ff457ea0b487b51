"""What is private to the SDK and touched here: each test fails when the SDK changes it."""

from __future__ import annotations

import pytest
from mcp import Client
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.tools import Tool, ToolManager
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from mcp.server.subscriptions import ListenHandler

from mcp_serve import sdk, server
from mcp_serve.served import Options, Served

pytestmark = pytest.mark.anyio


@pytest.fixture(name="made")
def _made(home_path):
    return server.create(Served(Options(home=str(home_path))))


def test_the_tool_manager_keeps_tools_by_name():
    bare = MCPServer("bare")
    assert isinstance(bare._tool_manager, ToolManager)
    assert bare._tool_manager._tools == {}
    assert bare._tool_manager.get_tool("x") is None
    assert bare._prompt_manager.list_prompts() == []


def test_handlers_of_the_low_level_server_can_be_replaced(made):
    low = made._lowlevel_server
    for method in ("resources/list", "resources/subscribe", "resources/unsubscribe"):
        assert low.get_request_handler(method) is not None
    assert isinstance(low.get_request_handler("subscriptions/listen").handler, ListenHandler)
    assert sdk.closing_streams(made)() is None


def test_the_older_handshake_says_that_lists_change(made):
    capabilities = made._lowlevel_server.create_initialization_options().capabilities
    assert capabilities.resources.list_changed
    assert capabilities.resources.subscribe
    assert capabilities.tools.list_changed
    assert capabilities.prompts.list_changed


def test_arguments_are_validated_by_one_method():
    assert issubclass(sdk.Arguments, ArgModelBase)
    assert "validate_arguments" in vars(FuncMetadata)
    assert "model_dump_one_level" in vars(ArgModelBase)
    assert {"fn", "parameters", "fn_metadata", "resolved_params", "resolver_plans"} <= set(
        Tool.model_fields
    )


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_what_a_test_registers_stays_beside_our_tools(made, mode):
    @made.tool()
    def fixture_tool(text: str) -> str:
        """Echo."""
        return text

    @made.resource("test://static")
    def fixture_resource() -> str:
        return "static"

    async with Client(made, mode=mode, cache=None) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert {"fixture_tool", "sessions_list"} <= set(names)
        answer = await client.call_tool("fixture_tool", {"text": "hello"})
        assert answer.content[0].text == "hello"
        assert (await client.read_resource("test://static")).contents[0].text == "static"


async def test_a_crash_says_nothing_of_itself_to_the_client(made, home_path, caplog):
    (home_path / "state.db").mkdir()
    async with Client(made, cache=None) as client:
        answer = await client.call_tool("sessions_list", {})
    assert answer.is_error
    assert "directory" in answer.content[0].text
