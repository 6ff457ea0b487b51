"""A transport over standard input and output that answers every request."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import anyio
from anyio import to_thread
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from mcp_serve.sdk import private
from mcp_serve.sdk.wire_messages import MOST_BYTES, InvalidMessage, make_length_error, parse_message

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

_LOG = logging.getLogger(__name__)


def serve_stdio(server: MCPServer[Any]) -> None:
    """Serve standard input and output until the input ends."""
    anyio.run(partial(_serve_async, server))


async def _serve_async(server: MCPServer[Any]) -> None:
    # The SDK writes, and keeps stray output off the wire; it gets an empty input.
    empty = cast("anyio.AsyncFile[str]", _EmptyFile())
    with private.claim_stdin() as stdin:
        async with stdio_server(stdin=empty) as (unused, answers):
            await unused.aclose()
            async with _read_messages(stdin, answers) as messages:
                await private.serve_connection(server, messages, answers)


@asynccontextmanager
async def _read_messages(stdin: BinaryIO, answers: Any) -> AsyncIterator[Any]:
    """Yield a stream of valid messages, and answer refused messages."""
    sending, receiving = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        async with sending:
            try:
                while line := await to_thread.run_sync(stdin.readline, MOST_BYTES + 1):
                    await _forward_line(line, stdin, sending, answers)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                await anyio.lowlevel.checkpoint()  # the server has stopped

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        yield receiving


async def _forward_line(line: bytes, stdin: BinaryIO, sending: Any, answers: Any) -> None:
    if len(line) > MOST_BYTES and not line.endswith(b"\n"):
        while line and not line.endswith(b"\n"):
            line = await to_thread.run_sync(stdin.readline, MOST_BYTES)
        await answers.send(SessionMessage(make_length_error()))
    elif line.strip():
        try:
            await sending.send(SessionMessage(parse_message(line)))
        except InvalidMessage as error:
            if error.answer is None:
                _LOG.warning("dropped a malformed response of the client")
            else:
                await answers.send(SessionMessage(error.answer))


class _EmptyFile:
    """A file without lines."""

    def __aiter__(self) -> _EmptyFile:
        return self

    async def __anext__(self) -> str:
        raise StopAsyncIteration
