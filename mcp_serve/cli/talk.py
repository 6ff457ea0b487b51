"""A server started as a client starts it, and asked through the SDK; it is ended in any case."""

from __future__ import annotations

import logging
import math
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TextIO, TypeVar

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from mcp_serve.quoting import plain
from session_core import SessionError

T = TypeVar("T")

_PATIENCE_S = 2.0
"""How long a server that has said something else may yet say what it should."""
_SHOWN = 200
_CLOSED = "Connection closed"
"""How the SDK says it."""


class NoServer(SessionError):
    """What was started cannot be talked to; the message says why."""


@dataclass(slots=True)
class _Heard:
    """What came beside the answers."""

    errors: TextIO
    noise: str | None = None

    def last_words(self) -> str:
        """Return the last line that it has said of itself."""
        self.errors.seek(0)
        lines = [line for line in map(plain, self.errors.read().splitlines()) if line]
        return lines[-1][:_SHOWN] if lines else ""


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
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        heard = _Heard(errors)
        try:
            with anyio.fail_after(timeout_s) as limit:
                return await _use(started, use, mode, heard, limit)
        except Exception as error:
            raise _reason(_only(error), heard, timeout_s) from error


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
    if heard.noise is not None:
        return NoServer(f"it says what is no MCP: {heard.noise}{behind}")
    if isinstance(error, TimeoutError):
        return NoServer(f"it did not answer within {timeout_s:g} s{behind}")
    said = "it ended without an answer" if str(error) == _CLOSED else str(error)
    return NoServer(f"{said}{behind}")
