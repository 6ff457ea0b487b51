"""A client of a server process that is started and ended here, through the MCP SDK."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client

from mcp_serve.plain_text import to_plain_line
from session_core import SessionError

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

_GRACE_S = 2.0
"""Time for a valid message after the first line that is not MCP."""
_MAX_SHOWN_CHARS = 200
_CHUNK_BYTES = 1 << 16
_REPLACEMENT = "\ufffd"
"""What decoding puts in place of bytes that are not text."""
_CLOSED_MESSAGE = "Connection closed"
"""The message of the SDK for a closed connection."""


_EXPECTED_ERRORS = (
    SessionError,
    MCPError,
    OSError,
    ValueError,
    RuntimeError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
)
"""Errors of the SDK and the system caused by the server; any other error is a bug of ours."""


class ServerUnreachable(SessionError):
    """The server cannot be started or does not answer with MCP."""


class _ServerOutput:
    """Other output of a server: the first line that is not MCP, and the end of stderr."""

    def __init__(self) -> None:
        self.noise: str | None = None
        reading, writing = os.pipe()
        self.errors = os.fdopen(writing, "w", encoding="utf-8")
        self._end = b""
        # The output may be larger than the disk; only its end is kept.
        self._reader = threading.Thread(target=self._read_stderr, args=(reading,), daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.errors.close()

    def read_last_line(self) -> str:
        """Return the last line of standard error, after the server has ended."""
        self.errors.close()
        self._reader.join(_GRACE_S)
        lines = [
            line
            for line in map(to_plain_line, self._end.decode(errors="replace").splitlines())
            if line
        ]
        return lines[-1][:_MAX_SHOWN_CHARS] if lines else ""

    def _read_stderr(self, reading: int) -> None:
        with open(reading, "rb", buffering=0) as stream:
            while read := stream.read(_CHUNK_BYTES):
                self._end = (self._end + read)[-_CHUNK_BYTES:]


async def run_with_server(
    started: StdioServerParameters,
    use: Callable[[Client], Awaitable[T]],
    *,
    mode: Any = "auto",
    timeout_s: float = math.inf,
) -> T:
    """Start a server, call `use` with a connected client, and end the server.

    Raises:
        ServerUnreachable: It cannot be started, does not answer in time, or its output is not MCP.
    """
    # The error raised here repeats what the SDK logs about a server.
    logging.getLogger("mcp").addHandler(logging.NullHandler())
    with _ServerOutput() as heard:
        try:
            with anyio.fail_after(timeout_s) as limit:
                return await _connect_client(started, use, mode, heard, limit)
        except Exception as error:
            only = _unwrap_group(error)
            if isinstance(only, _EXPECTED_ERRORS):
                raise _build_error(only, heard, timeout_s) from error
            raise


async def _connect_client(
    started: StdioServerParameters,
    use: Callable[[Client], Awaitable[T]],
    mode: Any,
    heard: _ServerOutput,
    limit: anyio.CancelScope,
) -> T:
    until = limit.deadline

    async def listen(message: object) -> None:
        if isinstance(message, ValueError) and heard.noise is None:
            heard.noise = _extract_invalid_line(message)
            limit.deadline = min(limit.deadline, anyio.current_time() + _GRACE_S)

    # With strict decoding the SDK waits for the end of a server whose output is not text.
    lenient = started.model_copy(update={"encoding_error_handler": "replace"})
    connected = stdio_client(lenient, heard.errors)
    async with Client(connected, mode=mode, cache=None, message_handler=listen) as client:
        limit.deadline = until
        return await use(client)


def _extract_invalid_line(error: ValueError) -> str:
    """Return the line that is not a message of the protocol."""
    from pydantic import ValidationError  # noqa: PLC0415 -- needed only after an error

    value = error.errors()[0].get("input") if isinstance(error, ValidationError) else ""
    return to_plain_line(value)[:_MAX_SHOWN_CHARS]


def _unwrap_group(error: BaseException) -> BaseException:
    """Return the first error inside nested exception groups."""
    inner = getattr(error, "exceptions", None)
    return _unwrap_group(inner[0]) if inner else error


def _build_error(error: BaseException, heard: _ServerOutput, timeout_s: float) -> SessionError:
    if isinstance(error, SessionError):
        return error
    if isinstance(error, OSError) and not isinstance(error, TimeoutError):
        return ServerUnreachable(f"cannot be started: {error.strerror or error}")
    words = heard.read_last_line()
    suffix = f"; last line of its output: {words}" if words else ""
    if heard.noise is not None and _REPLACEMENT in heard.noise:
        return ServerUnreachable(f"its output is not MCP and not text{suffix}")
    if heard.noise is not None:
        return ServerUnreachable(f"its output is not MCP: {heard.noise}{suffix}")
    if isinstance(error, TimeoutError):
        return ServerUnreachable(f"no answer within {timeout_s:g} s{suffix}")
    message = to_plain_line(error)[:_MAX_SHOWN_CHARS]
    return ServerUnreachable(
        f"{'it exited without an answer' if message == _CLOSED_MESSAGE else message}{suffix}"
    )
