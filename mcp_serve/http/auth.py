"""The bearer token of a home: from the environment, else from its state folder, made there once.

The one guard over HTTP: Host, Origin and token, before everything else.

Every request passes it, whatever its path, so nothing depends on which transport of the SDK checks
what. The token is compared in constant time, and nothing of a refused request is answered.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import secrets
from collections.abc import Callable, Iterable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse

from mcp_serve.files import read_file, write_new
from mcp_serve.sdk.disconnect import LEFT
from session_core import Denied, InvalidInput, SessionError, StateFolder

VARIABLE = "MCP_SESSIONS_TOKEN"

_FILE = "token"
_BYTES = 32
_LEAST = 16
_PRIVATE = 0o600


def token_of(folder: StateFolder) -> str:
    """Return the token of a home, by its state folder.

    Raises:
        Denied: what is to be one is too short, or may not be read or made.
    """
    return found(folder) or _made(_folder_of(folder) / _FILE)


def found(folder: StateFolder) -> str | None:
    """Return the token of a home where there is one; none is made.

    Raises:
        Denied: as above.
    """
    given = os.environ.get(VARIABLE, "").strip()
    if given:
        return _checked(given, f"{VARIABLE} is no token", "set it anew, or not at all")
    place = folder.find()
    return _read(place / _FILE) if place else None


def _folder_of(folder: StateFolder) -> Path:
    try:
        return folder.make()
    except SessionError as error:
        raise type(error)(f"{error}; or set {VARIABLE}, which needs no file") from error


def _checked(given: str, wrong: str, following: str) -> str:
    if len(given) < _LEAST or not (given.isascii() and given.isprintable()):
        raise Denied(f"{wrong}: it has at least {_LEAST} ASCII characters; {following}")
    return given


def _read(path: Path) -> str | None:
    """Return the token of a file, None where there is none; what else is in it opens nothing."""
    try:
        text = read_file(path).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Denied(f"{path} may not be read: {error.strerror}; mend that or remove it") from error
    return _checked(text, f"{path} holds no token", "remove it, and a new one is made")


def _made(path: Path) -> str:
    """Make a token, unless another process was faster."""
    token = secrets.token_urlsafe(_BYTES)
    try:
        write_new(path, [f"{token}\n".encode()], prefix=f".{_FILE}_", mode=_PRIVATE)
    except FileExistsError:
        stored = _read(path)
        if stored is None:
            raise Denied(f"{path} is a link to nothing; remove it, then start again") from None
        return stored
    return token


Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Any]

MCP, HEALTH = "/mcp", "/health"

KNOWN = "mcp_sessions.known"
"""Where a connection keeps what is called when a request on it was let in."""

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_INSIDE = 512
"""So many requests are served at once; streams stay for as long as their clients do."""


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

    def lets_page(self, origin: str, host: str) -> bool:
        """Whether a page of this origin may call, which calls by this name.

        A page of this machine shows the token, which a stranger's does not know. Where none is
        wanted anything that some program serves on some port would do.
        """
        scheme, _, rest = origin.lower().partition("://")
        if origin.lower() in self.origins or scheme not in ("http", "https"):
            return origin.lower() in self.origins
        if self.token is None:
            return rest == host.lower()
        return _without_port(rest) in self.hosts & {*_LOOPBACK}

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
        self._inside: set[anyio.Event] = set()
        self._ended = False

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif (refusal := self._refusal(scope)) is not None:
            await refusal(scope, receive, send)
        elif self._is_open(scope):
            await self._app(scope, receive, send)
        elif len(self._inside) >= _INSIDE:
            await PlainTextResponse("too many requests at once\n", 503)(scope, receive, send)
        else:
            await self._let_in(scope, receive, send)

    def end(self) -> None:
        """Tell those inside that it ends, as if their clients had left."""
        self._ended = True
        for left in self._inside:
            left.set()

    async def _let_in(self, scope: Scope, receive: Any, send: Any) -> None:
        state = scope.setdefault("state", {})
        state.get(KNOWN, _nothing)()
        left = anyio.Event()
        if scope["path"] == MCP:  # a message to the other transport is answered on a stream
            state[LEFT] = left
        if self._ended:
            left.set()

        whole = scope["method"] != "POST"

        async def noticing() -> Any:
            nonlocal whole
            message = await receive()
            if message["type"] == "http.disconnect":
                left.set()
                if not whole:
                    raise ClientDisconnect
            whole = whole or not message.get("more_body", False)
            return message

        self._inside.add(left)
        try:
            with suppress(ClientDisconnect):  # in the middle of a request, which nobody has read
                await self._app(scope, noticing, send)
        finally:
            left.set()
            self._inside.discard(left)

    def _refusal(self, scope: Scope) -> App | None:
        named = {each: _headers(scope, each) for each in ("host", "origin", "authorization")}
        host = named["host"][0] if len(named["host"]) == 1 else ""
        if not self._door.knows(host):
            return PlainTextResponse("this server is not called so; see --allow-host\n", 421)
        if not all(self._door.lets_page(origin, host) for origin in named["origin"]):
            return PlainTextResponse("no page of this origin may call; see --allow-origin\n", 403)
        if self._is_open(scope):
            return None
        if not self._door.opens(next(iter(named["authorization"]), "")):
            challenge = {"WWW-Authenticate": 'Bearer realm="mcp-sessions"'}
            return PlainTextResponse("a bearer token is needed\n", 401, challenge)
        return None

    def _is_open(self, scope: Scope) -> bool:
        """Whether a request wants no token: `/health`, and what a browser asks beforehand.

        It asks so for a page that was named, and is answered by nothing but what a page may send.
        """
        if scope["path"] == HEALTH:
            return True
        asks = scope["method"] == "OPTIONS" and _headers(scope, "access-control-request-method")
        return bool(asks) and not self._door.origins.isdisjoint(_headers(scope, "origin"))


def _headers(scope: Scope, name: str) -> list[str]:
    return [value.decode("latin-1") for each, value in scope["headers"] if each == name.encode()]


def is_loopback(host: str) -> bool:
    """Whether only this machine gets there."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


def _nothing() -> None:
    """Stand where a server keeps nothing about its connections."""
