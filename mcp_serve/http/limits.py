"""Limit HTTP connections: bounded time for a request, bounded unauthenticated connections."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from mcp_serve.http.auth import KNOWN_KEY

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
