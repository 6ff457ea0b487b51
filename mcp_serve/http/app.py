"""Build one app for Streamable HTTP, SSE and `/health` with access checks, and serve it.

The time for a request and the number of unauthenticated connections are bounded.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import h11
import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse
from starlette.routing import Route
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from mcp_serve.http.auth import HEALTH, KNOWN_KEY, MCP, AccessRules, App, Guard, Scope
from mcp_serve.sdk.wire_messages import CheckedBodies
from session_core import Denied

# A new connection replaces the oldest unauthenticated one, so that a client with a token always
# gets a connection.
_MAX_CONNECTIONS = 256

# Time for the head of a request, and again for its body.
_REQUEST_TIMEOUT_S = 10.0


class UnauthenticatedConnections:
    """Connections without an authenticated request, oldest first."""

    def __init__(self) -> None:
        self._connections: dict[TimedConnection, None] = {}

    def add(self, connection: TimedConnection) -> None:
        """Add a connection and abort the oldest if there are too many."""
        self._connections[connection] = None
        if len(self._connections) > _MAX_CONNECTIONS:
            oldest = next(iter(self._connections))
            self.forget(oldest)
            oldest.transport.abort()

    def forget(self, connection: TimedConnection) -> None:
        """Remove a connection that is authenticated or closed."""
        self._connections.pop(connection, None)


class TimedConnection(H11Protocol):
    """A uvicorn connection with a time limit for each part of a request."""

    unauthenticated: UnauthenticatedConnections

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        connection_state = {KNOWN_KEY: lambda: self.unauthenticated.forget(self)}
        super().__init__(config, server_state, app_state | connection_state, _loop)
        self._part: Any = None
        self._closing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for the first request."""
        super().connection_made(transport)
        self.unauthenticated.add(self)
        self._start_timeout()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self.unauthenticated.forget(self)
        self._close_after_timeout(None)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Process received data and wait for the rest of the request."""
        super().handle_events()
        self._start_timeout()

    def _start_timeout(self) -> None:
        part = self.conn.their_state
        unfinished = part in (h11.IDLE, h11.SEND_BODY) and not self.transport.is_closing()
        self._close_after_timeout(part if unfinished else None)

    def _close_after_timeout(self, part: Any) -> None:
        """Abort the connection unless this part of a request completes in time."""
        if part is self._part:
            return
        self._part = part
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        if part is not None:
            self._closing = self.loop.call_later(_REQUEST_TIMEOUT_S, self.transport.abort)


def make_protocol() -> type[TimedConnection]:
    """Return the connection class of one server, with its own unauthenticated connections."""
    return type("Served", (TimedConnection,), {"unauthenticated": UnauthenticatedConnections()})


SSE, MESSAGES = "/sse", "/messages/"

# Sessions of older clients. The SDK forgets idle sessions after a while.
_MAX_SESSIONS = 2_000

_GRACE_S = 1

# On shutdown, pending requests get this long to answer before all streams are closed.
_STREAM_END_DELAY_S = 0.05


def create_app(server: MCPServer[Any], rules: AccessRules) -> Guard:
    """Return the app of a server with all transports, checked by the guard."""
    # The guard checks Host and Origin before everything, unknown paths included.
    unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app: Starlette = server.streamable_http_app(
        streamable_http_path=MCP, transport_security=unchecked, max_sessions=_MAX_SESSIONS
    )
    sse = server.sse_app(sse_path=SSE, message_path=MESSAGES, transport_security=unchecked)
    routes: list[Any] = sse.routes
    for route in routes:
        route.app = _drop_second_answer(route.app)
    app.router.routes.extend(routes)
    app.router.routes.append(Route(HEALTH, _answer_health, methods=["GET"]))
    app.add_middleware(CheckedBodies, paths=(MCP, MESSAGES))
    return Guard(_add_cors(app, rules), rules)


def open_listener(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Port 0 takes a free port.

    Raises:
        Denied: the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family)
    except (OSError, OverflowError) as error:
        raise Denied(f"cannot listen on {host}:{port}: {error}") from error


def serve_app(
    guard: Guard, listening: socket.socket, host: str, close_streams: Callable[[], None]
) -> None:
    """Serve until the process receives SIGINT or SIGTERM."""
    port = listening.getsockname()[1]
    shown_host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    print(f"listening on http://{shown_host}:{port}{MCP}", file=sys.stderr, flush=True)  # noqa: T201 -- programs that start the server wait for this line
    config = uvicorn.Config(
        guard,
        http=make_protocol(),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
    )
    _StreamEndingServer(config, [close_streams, guard.end_requests]).run(sockets=[listening])


class _StreamEndingServer(uvicorn.Server):
    """A uvicorn server that closes its streams on shutdown.

    Clients would keep them open.
    """

    def __init__(self, config: uvicorn.Config, ends: list[Callable[[], None]]) -> None:
        super().__init__(config)
        self._ends = ends

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Start the shutdown in the event loop, outside the signal handler."""
        self._loop.call_soon_threadsafe(self._end_streams, partial(super().handle_exit, sig, frame))

    def _end_streams(self, exit_all: Callable[[], None]) -> None:
        for end in self._ends:
            end()
        self._loop.call_later(_STREAM_END_DELAY_S, exit_all)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle the signals without raising them again.

        The caller closes the homes.
        """
        self._loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _add_cors(app: App, rules: AccessRules) -> App:
    """Return an app that lets browsers pass its answers to the allowed origins."""
    if not rules.origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=sorted(rules.origins),
        allow_methods=("GET", "POST", "DELETE"),
        allow_headers=("*",),
        expose_headers=("Mcp-Session-Id",),
    )


def _drop_second_answer(app: App) -> App:
    """Return an app without the second response that the SDK starts after a stream has ended."""

    async def answer(scope: Scope, receive: Any, send: Any) -> None:
        is_started = False

        async def send_on(message: Any) -> None:
            nonlocal is_started
            is_repeated = is_started and message["type"] == "http.response.start"
            is_started = True
            if not is_repeated:
                await send(message)

        await app(scope, receive, send_on)

    return answer


async def _answer_health(_: Any) -> JSONResponse:
    return JSONResponse({"status": "ok"})
