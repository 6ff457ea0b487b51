"""One app for Streamable HTTP, SSE and `/health`, behind one guard: Host, Origin, token.

Every request passes the guard, whatever its path, so nothing depends on which transport of the SDK
checks what. The token is compared in constant time, and nothing of a refused request is answered.
"""

from __future__ import annotations

import hmac
import ipaddress
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from session_core import InvalidInput

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Any]

MCP, SSE, MESSAGES, HEALTH = "/mcp", "/sse", "/messages/", "/health"

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_CONNECTIONS = 512
_GRACE_S = 1


@dataclass(frozen=True, slots=True)
class Door:
    """Who is let in: by which names, from which pages, with which token."""

    hosts: frozenset[str]
    origins: frozenset[str]
    token: str | None

    @classmethod
    def of(cls, host: str, hosts: Iterable[str], origins: Iterable[str], token: str | None) -> Door:
        """Return the door of an address.

        Raises:
            InvalidInput: it is open to others, and has no token or no names.
        """
        names = {name.lower() for name in hosts}
        if not is_loopback(host):
            if token is None:
                raise InvalidInput("--no-token is for loopback alone; leave it out")
            if not names:
                raise InvalidInput(
                    f"{host} is open to others; say with --allow-host by which names it is called"
                )
        names |= set(_LOOPBACK) if is_loopback(host) else set()
        pages = {origin.lower().rstrip("/") for origin in origins}
        return cls(frozenset(names), frozenset(pages), token)

    def knows(self, host: str) -> bool:
        """Whether it is called by a name of its own, with or without a port."""
        return host.lower() in self.hosts or _without_port(host.lower()) in self.hosts

    def lets_page(self, origin: str) -> bool:
        """Whether a page of this origin may call."""
        scheme, _, rest = origin.lower().partition("://")
        own = scheme in ("http", "https") and _without_port(rest) in self.hosts & {*_LOOPBACK}
        return own or origin.lower() in self.origins

    def opens(self, authorization: str) -> bool:
        """Whether a token is the right one."""
        scheme, _, given = authorization.partition(" ")
        if self.token is None:
            return True
        same = hmac.compare_digest(given.strip().encode(), self.token.encode())
        return same and scheme.lower() == "bearer"


class Guard:
    """Lets in who knows the door; `/health` wants no token."""

    def __init__(self, app: App, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> App | None:
        headers = [(name.decode("latin-1"), value) for name, value in scope["headers"]]
        named = {
            wanted: [value.decode("latin-1") for name, value in headers if name == wanted]
            for wanted in ("host", "origin", "authorization")
        }
        if len(named["host"]) != 1 or not self._door.knows(named["host"][0]):
            return PlainTextResponse("this server is not called so; see --allow-host\n", 421)
        if not all(self._door.lets_page(origin) for origin in named["origin"]):
            return PlainTextResponse("no page of this origin may call; see --allow-origin\n", 403)
        if scope["path"] == HEALTH:
            return None
        if not self._door.opens(next(iter(named["authorization"]), "")):
            challenge = {"WWW-Authenticate": 'Bearer realm="mcp-sessions"'}
            return PlainTextResponse("a bearer token is needed\n", 401, challenge)
        return None


def app(server: MCPServer[Any], door: Door) -> App:
    """Return the app of a server: all transports, behind the guard."""
    unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    made: Starlette = server.streamable_http_app(
        streamable_http_path=MCP, transport_security=unchecked
    )
    sse = server.sse_app(sse_path=SSE, message_path=MESSAGES, transport_security=unchecked)
    made.router.routes.extend(sse.routes)
    made.router.routes.append(Route(HEALTH, _health, methods=["GET"]))
    return Guard(made, door)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes a free one.

    Raises:
        InvalidInput: nobody can listen there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family)
    except (OSError, OverflowError) as error:
        raise InvalidInput(f"nobody can listen on {host}:{port}: {error}") from error


def serve(
    made: App, listening: socket.socket, host: str, close_streams: Callable[[], None]
) -> None:
    """Serve until the process is told to end."""
    port = listening.getsockname()[1]
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
    print(f"listening on http://{shown}:{port}{MCP}", file=sys.stderr, flush=True)  # noqa: T201 -- what a program that starts this waits for
    config = uvicorn.Config(
        made,
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=_GRACE_S,
    )
    _Server(config, close_streams).run(sockets=[listening])


def is_loopback(host: str) -> bool:
    """Whether only this machine gets there."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class _Server(uvicorn.Server):
    """Ends its streams when it is told to end: a client keeps one open for as long as it lives."""

    def __init__(self, config: uvicorn.Config, close_streams: Callable[[], None]) -> None:
        super().__init__(config)
        self._close_streams = close_streams

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Begin to end."""
        self._close_streams()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take the signals and do not raise them again: what is served is closed behind this."""
        signals = (signal.SIGINT, signal.SIGTERM)
        before = {each: signal.signal(each, self.handle_exit) for each in signals}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


async def _health(_: Any) -> JSONResponse:
    return JSONResponse({"status": "ok"})


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host
