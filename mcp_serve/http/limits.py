"""Connections over HTTP: one on which too little is said is closed, and strangers keep nobody out.

A connection is a stranger's until a request on it was let in. There are only so many of these; the
next one takes the place of the oldest, so that who comes with a token always finds one.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from mcp_serve.http.auth import KNOWN_KEY

_MAX_CONNECTIONS = 256

_REQUEST_TIMEOUT_S = 10.0
"""So long may the head of a request take, and so long its body."""


class UnauthenticatedConnections:
    """Connections on which nothing was let in yet, the oldest first."""

    def __init__(self) -> None:
        self._here: dict[TimedConnection, None] = {}

    def add(self, connection: TimedConnection) -> None:
        """Take one more, in the place of the oldest where there are too many."""
        self._here[connection] = None
        if len(self._here) > _MAX_CONNECTIONS:
            oldest = next(iter(self._here))
            self.forget(oldest)
            oldest.transport.abort()

    def forget(self, connection: TimedConnection) -> None:
        """Count one no longer: it is known, or closed."""
        self._here.pop(connection, None)


class TimedConnection(H11Protocol):
    """A connection of uvicorn whose requests have to come to their end in time."""

    strangers: UnauthenticatedConnections

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        known = {KNOWN_KEY: lambda: self.strangers.forget(self)}
        super().__init__(config, server_state, app_state | known, _loop)
        self._part: Any = None
        self._closing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for its first request."""
        super().connection_made(transport)
        self.strangers.add(self)
        self._start_timeout()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self.strangers.forget(self)
        self._close_after_timeout(None)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Read what has come, and wait for the rest of a request that has begun."""
        super().handle_events()
        self._start_timeout()

    def _start_timeout(self) -> None:
        part = self.conn.their_state
        unfinished = part in (h11.IDLE, h11.SEND_BODY) and not self.transport.is_closing()
        self._close_after_timeout(part if unfinished else None)

    def _close_after_timeout(self, part: Any) -> None:
        """Close it unless a part of a request is there in time."""
        if part is self._part:
            return
        self._part = part
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        if part is not None:
            self._closing = self.loop.call_later(_REQUEST_TIMEOUT_S, self.transport.abort)


def make_protocol() -> type[TimedConnection]:
    """Return the connections of one server, which has strangers of its own."""
    return type("Served", (TimedConnection,), {"strangers": UnauthenticatedConnections()})
