"""A server started as a client starts it, and asked through the SDK; it is ended in any case."""

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

from mcp_serve.render import plain
from session_core import SessionError

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

_PATIENCE_S = 2.0
"""How long a server that has said something else may yet say what it should."""
_SHOWN = 200
_CHUNK = 1 << 16
_CLOSED = "Connection closed"
"""How the SDK says it."""


_EXPECTED = (
    SessionError,
    MCPError,
    OSError,
    ValueError,
    RuntimeError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
)
"""How the SDK and the system say that a server is none; everything else is a fault of ours."""


class NoServer(SessionError):
    """What was started cannot be talked to; the message says why."""


class _Heard:
    """What came beside the answers: the first that is no MCP, the last that it said of itself."""

    def __init__(self) -> None:
        self.noise: str | None = None
        reading, writing = os.pipe()
        self.errors = os.fdopen(writing, "w", encoding="utf-8")
        self._end = b""
        # It may say more than a disk holds, so that the end alone is kept.
        self._reader = threading.Thread(target=self._read, args=(reading,), daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.errors.close()

    def last_words(self) -> str:
        """Return the last line that it has said of itself, once it has ended."""
        self.errors.close()
        self._reader.join(_PATIENCE_S)
        lines = [
            line for line in map(plain, self._end.decode(errors="replace").splitlines()) if line
        ]
        return lines[-1][:_SHOWN] if lines else ""

    def _read(self, reading: int) -> None:
        with open(reading, "rb", buffering=0) as stream:
            while read := stream.read(_CHUNK):
                self._end = (self._end + read)[-_CHUNK:]


async def talk(
    started: StdioServerParameters,
    use: Callable[[Client], Awaitable[T]],
    *,
    mode: Any = "auto",
    timeout_s: float = math.inf,
) -> T:
    """Start a server, and let somebody use it.

    Raises:
        NoServer: it cannot be started, says nothing in time, or something else than MCP.
    """
    # What the SDK logs of a server is said by the error that is raised here.
    logging.getLogger("mcp").addHandler(logging.NullHandler())
    with _Heard() as heard:
        try:
            with anyio.fail_after(timeout_s) as limit:
                return await _use(started, use, mode, heard, limit)
        except Exception as error:
            only = _only(error)
            if isinstance(only, _EXPECTED):
                raise _reason(only, heard, timeout_s) from error
            raise


async def _use(
    started: StdioServerParameters,
    use: Callable[[Client], Awaitable[T]],
    mode: Any,
    heard: _Heard,
    limit: anyio.CancelScope,
) -> T:
    until = limit.deadline

    async def listen(message: object) -> None:
        if isinstance(message, ValueError) and heard.noise is None:
            heard.noise = _said(message)
            limit.deadline = min(limit.deadline, anyio.current_time() + _PATIENCE_S)

    connected = stdio_client(started, heard.errors)
    async with Client(connected, mode=mode, cache=None, message_handler=listen) as client:
        limit.deadline = until
        return await use(client)


def _said(error: ValueError) -> str:
    """Return the line that is no message of the protocol."""
    from pydantic import ValidationError  # noqa: PLC0415 -- where something goes wrong

    given = error.errors()[0].get("input") if isinstance(error, ValidationError) else ""
    return plain(given)[:_SHOWN]


def _only(error: BaseException) -> BaseException:
    """Return what went wrong, without the groups of tasks in which it did."""
    inner = getattr(error, "exceptions", None)
    return _only(inner[0]) if inner else error


def _reason(error: BaseException, heard: _Heard, timeout_s: float) -> SessionError:
    if isinstance(error, SessionError):
        return error
    if isinstance(error, OSError) and not isinstance(error, TimeoutError):
        return NoServer(f"it cannot be started: {error.strerror or error}")
    words = heard.last_words()
    behind = f"; its last words: {words}" if words else ""
    if isinstance(error, UnicodeDecodeError):
        return NoServer(f"it says what is no MCP, and no text{behind}")
    if heard.noise is not None:
        return NoServer(f"it says what is no MCP: {heard.noise}{behind}")
    if isinstance(error, TimeoutError):
        return NoServer(f"it did not answer within {timeout_s:g} s{behind}")
    said = plain(error)[:_SHOWN]
    return NoServer(f"{'it ended without an answer' if said == _CLOSED else said}{behind}")
