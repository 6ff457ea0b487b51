"""What is private to the SDK and needed all the same: touched here alone.

The low-level server has public hooks for these, and no resolvers; `MCPServer` has resolvers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

from mcp.server import stdio
from mcp.server.lowlevel.server import NotificationOptions

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.tools import Tool
    from mcp.server.session import ServerSession


def add_tools(server: MCPServer[Any], tools: Iterable[Tool]) -> None:
    """Add tools that were not made of a function's signature."""
    server._tool_manager._tools.update({tool.name: tool for tool in tools})


def list_tool_names(server: MCPServer[Any]) -> list[str]:
    """Return the names of the tools, in their order."""
    return [tool.name for tool in server._tool_manager.list_tools()]


def list_prompt_names(server: MCPServer[Any]) -> list[str]:
    """Return the names of the prompts, in their order."""
    return [prompt.name for prompt in server._prompt_manager.list_prompts()]


def set_handler(server: MCPServer[Any], method: str, params: type[Any], run: Any) -> None:
    """Let requests of a method be answered by `run`, whoever has answered them before."""
    server._lowlevel_server.add_request_handler(method, params, run)


def get_handler(server: MCPServer[Any], method: str) -> Any:
    """Return what answers requests of a method, None where nothing does."""
    entry = server._lowlevel_server.get_request_handler(method)
    return None if entry is None else entry.handler


def advertise_changes(server: MCPServer[Any]) -> None:
    """Say in the older handshake too that lists change: the SDK says so in the newer one alone."""
    low = server._lowlevel_server
    plain = low.create_initialization_options
    every = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)

    def options(notifications: NotificationOptions | None = None, *given: Any, **more: Any) -> Any:
        return plain(notifications or every, *given, **more)

    vars(low)["create_initialization_options"] = options


def call_on_close(session: ServerSession, call: Callable[[], None]) -> None:
    """Call something when the connection of a session has ended."""
    session._connection.exit_stack.callback(call)


@contextmanager
def claim_stdin() -> Iterator[BinaryIO]:
    """Yield the standard input of the process; what else reads it meanwhile finds its end."""
    file, release = stdio._claim_fd(0, sys.stdin, "rb", stdio._open_stdin_diversion)
    try:
        yield file
    finally:
        if release is not None:
            release()


async def serve_connection(server: MCPServer[Any], messages: Any, answers: Any) -> None:
    """Serve one connection until its messages end."""
    low = server._lowlevel_server
    await low.run(messages, answers, low.create_initialization_options())
