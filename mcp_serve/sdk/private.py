"""Access to private names of the SDK, in this module only.

The low-level server has public hooks for this but no resolvers; `MCPServer` has resolvers.
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
    """Add tools that were not created from the signature of a function."""
    server._tool_manager._tools.update({tool.name: tool for tool in tools})


def list_tool_names(server: MCPServer[Any]) -> list[str]:
    """Return the names of the tools in order."""
    return [tool.name for tool in server._tool_manager.list_tools()]


def list_prompt_names(server: MCPServer[Any]) -> list[str]:
    """Return the names of the prompts in order."""
    return [prompt.name for prompt in server._prompt_manager.list_prompts()]


def set_handler(server: MCPServer[Any], method: str, params: type[Any], run: Any) -> None:
    """Set the handler of a method, replacing any other."""
    server._lowlevel_server.add_request_handler(method, params, run)


def get_handler(server: MCPServer[Any], method: str) -> Any:
    """Return the handler of a method, or None."""
    entry = server._lowlevel_server.get_request_handler(method)
    return None if entry is None else entry.handler


def advertise_changes(server: MCPServer[Any]) -> None:
    """Announce changing lists in the older handshake too, which the SDK omits there."""
    lowlevel = server._lowlevel_server
    create = lowlevel.create_initialization_options
    all_changes = NotificationOptions(
        prompts_changed=True, resources_changed=True, tools_changed=True
    )

    def create_options(
        notifications: NotificationOptions | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        return create(notifications or all_changes, *args, **kwargs)

    vars(lowlevel)["create_initialization_options"] = create_options


def call_on_close(session: ServerSession, call: Callable[[], None]) -> None:
    """Call a function when the connection of a session has ended."""
    session._connection.exit_stack.callback(call)


@contextmanager
def claim_stdin() -> Iterator[BinaryIO]:
    """Yield the standard input of the process, while other readers see end of file."""
    file, release = stdio._claim_fd(0, sys.stdin, "rb", stdio._open_stdin_diversion)
    try:
        yield file
    finally:
        if release is not None:
            release()


async def serve_connection(server: MCPServer[Any], messages: Any, answers: Any) -> None:
    """Serve one connection until its messages end."""
    lowlevel = server._lowlevel_server
    await lowlevel.run(messages, answers, lowlevel.create_initialization_options())
