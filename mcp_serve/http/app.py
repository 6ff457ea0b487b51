"""One app for Streamable HTTP, SSE and `/health` behind the guard, and serving it until its end."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse
from starlette.routing import Route

from mcp_serve.http import limits
from mcp_serve.http.auth import HEALTH, MCP, AccessRules, App, Guard, Scope
from mcp_serve.sdk.messages import CheckedBodies
from session_core import Denied

SSE, MESSAGES = "/sse", "/messages/"

_MAX_SESSIONS = 2_000
"""So many older clients may have shaken hands; one that says nothing more is forgotten in time."""

_GRACE_S = 1

_STREAM_END_DELAY_S = 0.05
"""So long have those who wait for their answers before every stream is closed."""


def create_app(server: MCPServer[Any], door: AccessRules) -> Guard:
    """Return the app of a server: all transports, behind the guard."""
    unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    made: Starlette = server.streamable_http_app(
        streamable_http_path=MCP, transport_security=unchecked, max_sessions=_MAX_SESSIONS
    )
    sse = server.sse_app(sse_path=SSE, message_path=MESSAGES, transport_security=unchecked)
    routes: list[Any] = sse.routes
    for route in routes:
        route.app = _drop_second_answer(route.app)
    made.router.routes.extend(routes)
    made.router.routes.append(Route(HEALTH, _answer_health, methods=["GET"]))
    made.add_middleware(CheckedBodies, paths=(MCP, MESSAGES))
    return Guard(_add_cors(made, door), door)


def open_listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes a free one.

    Raises:
        Denied: nobody can listen there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family)
    except (OSError, OverflowError) as error:
        raise Denied(f"nobody can listen on {host}:{port}: {error}") from error


def serve_app(
    guard: Guard, listening: socket.socket, host: str, close_streams: Callable[[], None]
) -> None:
    """Serve until the process is told to end."""
    port = listening.getsockname()[1]
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
    print(f"listening on http://{shown}:{port}{MCP}", file=sys.stderr, flush=True)  # noqa: T201 -- what a program that starts this waits for
    config = uvicorn.Config(
        guard,
        http=limits.make_protocol(),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
    )
    _StreamEndingServer(config, [close_streams, guard.end_requests]).run(sockets=[listening])


class _StreamEndingServer(uvicorn.Server):
    """Ends its streams when it is told to end: a client keeps one open for as long as it lives."""

    def __init__(self, config: uvicorn.Config, ends: list[Callable[[], None]]) -> None:
        super().__init__(config)
        self._ends = ends

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Begin to end, outside of the signal."""
        self._loop.call_soon_threadsafe(self._end_streams, partial(super().handle_exit, sig, frame))

    def _end_streams(self, exit_all: Callable[[], None]) -> None:
        for end in self._ends:
            end()
        self._loop.call_later(_STREAM_END_DELAY_S, exit_all)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take the signals and do not raise them again: what is served is closed behind this."""
        self._loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        before = {each: signal.signal(each, self.handle_exit) for each in signals}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def _add_cors(made: App, door: AccessRules) -> App:
    """Return an app whose answers a browser hands to the pages that were named."""
    if not door.origins:
        return made
    return CORSMiddleware(
        made,
        allow_origins=sorted(door.origins),
        allow_methods=("GET", "POST", "DELETE"),
        allow_headers=("*",),
        expose_headers=("Mcp-Session-Id",),
    )


def _drop_second_answer(inner: App) -> App:
    """Return an app without the answer that the SDK begins behind the end of a stream."""

    async def answer(scope: Scope, receive: Any, send: Any) -> None:
        begun = False

        async def send_on(message: Any) -> None:
            nonlocal begun
            again = begun and message["type"] == "http.response.start"
            begun = True
            if not again:
                await send(message)

        await inner(scope, receive, send_on)

    return answer


async def _answer_health(_: Any) -> JSONResponse:
    return JSONResponse({"status": "ok"})
