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

from mcp_serve.files import read_file, write_new_file
from mcp_serve.sdk.disconnect import LEFT_KEY
from session_core import Denied, InvalidInput, SessionError, StateFolder

TOKEN_VARIABLE = "MCP_SESSIONS_TOKEN"  # noqa: S105 -- its name

_TOKEN_FILE = "token"  # noqa: S105 -- its name
_TOKEN_BYTES = 32
_MIN_TOKEN_CHARS = 16
_FILE_MODE = 0o600


def load_token(folder: StateFolder) -> str:
    """Return the token of a home, by its state folder.

    Raises:
        Denied: what is to be one is too short, or may not be read or made.
    """
    return find_token(folder) or _create_token(_get_folder(folder) / _TOKEN_FILE)


def find_token(folder: StateFolder) -> str | None:
    """Return the token of a home where there is one; none is made.

    Raises:
        Denied: as above.
    """
    given = os.environ.get(TOKEN_VARIABLE, "").strip()
    if given:
        return _check_token(given, f"{TOKEN_VARIABLE} is no token", "set it anew, or not at all")
    place = folder.find()
    return _read_token(place / _TOKEN_FILE) if place else None


def _get_folder(folder: StateFolder) -> Path:
    try:
        return folder.make()
    except SessionError as error:
        raise type(error)(f"{error}; or set {TOKEN_VARIABLE}, which needs no file") from error


def _check_token(given: str, wrong: str, following: str) -> str:
    if len(given) < _MIN_TOKEN_CHARS or not (given.isascii() and given.isprintable()):
        raise Denied(f"{wrong}: it has at least {_MIN_TOKEN_CHARS} ASCII characters; {following}")
    return given


def _read_token(path: Path) -> str | None:
    """Return the token of a file, None where there is none; what else is in it opens nothing."""
    try:
        text = read_file(path).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Denied(f"{path} may not be read: {error.strerror}; mend that or remove it") from error
    return _check_token(text, f"{path} holds no token", "remove it, and a new one is made")


def _create_token(path: Path) -> str:
    """Make a token, unless another process was faster."""
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    try:
        write_new_file(path, [f"{token}\n".encode()], prefix=f".{_TOKEN_FILE}_", mode=_FILE_MODE)
    except FileExistsError:
        stored = _read_token(path)
        if stored is None:
            raise Denied(f"{path} is a link to nothing; remove it, then start again") from None
        return stored
    return token


Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Any]

MCP, HEALTH = "/mcp", "/health"

KNOWN_KEY = "mcp_sessions.known"
"""Where a connection keeps what is called when a request on it was let in."""

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_MAX_REQUESTS = 512
"""So many requests are served at once; streams stay for as long as their clients do."""


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Who is let in: by which names, from which pages, with which token."""

    hosts: frozenset[str]
    origins: frozenset[str]
    token: str | None

    @classmethod
    def from_address(
        cls, host: str, hosts: Iterable[str], origins: Iterable[str], token: str | None
    ) -> AccessRules:
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

    def is_known_host(self, host: str) -> bool:
        """Whether it is called by a name of its own, with or without a port."""
        return host.lower() in self.hosts or _strip_port(host.lower()) in self.hosts

    def is_allowed_page(self, origin: str, host: str) -> bool:
        """Whether a page of this origin may call, which calls by this name.

        A page of this machine shows the token, which a stranger's does not know. Where none is
        wanted anything that some program serves on some port would do.
        """
        scheme, _, rest = origin.lower().partition("://")
        if origin.lower() in self.origins or scheme not in ("http", "https"):
            return origin.lower() in self.origins
        if self.token is None:
            return rest == host.lower()
        return _strip_port(rest) in self.hosts & {*_LOOPBACK}

    def is_valid_token(self, authorization: str) -> bool:
        """Whether a token is the right one."""
        scheme, _, given = authorization.partition(" ")
        if self.token is None:
            return True
        same = hmac.compare_digest(given.strip().encode(), self.token.encode())
        return same and scheme.lower() == "bearer"


class Guard:
    """Lets in who knows the door; `/health` wants no token."""

    def __init__(self, app: App, door: AccessRules) -> None:
        self._app = app
        self._door = door
        self._inside: set[anyio.Event] = set()
        self._ended = False

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif (refusal := self._get_refusal(scope)) is not None:
            await refusal(scope, receive, send)
        elif self._is_public(scope):
            await self._app(scope, receive, send)
        elif len(self._inside) >= _MAX_REQUESTS:
            await PlainTextResponse("too many requests at once\n", 503)(scope, receive, send)
        else:
            await self._run_request(scope, receive, send)

    def end_requests(self) -> None:
        """Tell those inside that it ends, as if their clients had left."""
        self._ended = True
        for left in self._inside:
            left.set()

    async def _run_request(self, scope: Scope, receive: Any, send: Any) -> None:
        state = scope.setdefault("state", {})
        state.get(KNOWN_KEY, _ignore_connection)()
        left = anyio.Event()
        if scope["path"] == MCP:  # a message to the other transport is answered on a stream
            state[LEFT_KEY] = left
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

    def _get_refusal(self, scope: Scope) -> App | None:
        named = {each: _get_headers(scope, each) for each in ("host", "origin", "authorization")}
        host = named["host"][0] if len(named["host"]) == 1 else ""
        if not self._door.is_known_host(host):
            return PlainTextResponse("this server is not called so; see --allow-host\n", 421)
        if not all(self._door.is_allowed_page(origin, host) for origin in named["origin"]):
            return PlainTextResponse("no page of this origin may call; see --allow-origin\n", 403)
        if self._is_public(scope):
            return None
        if not self._door.is_valid_token(next(iter(named["authorization"]), "")):
            challenge = {"WWW-Authenticate": 'Bearer realm="mcp-sessions"'}
            return PlainTextResponse("a bearer token is needed\n", 401, challenge)
        return None

    def _is_public(self, scope: Scope) -> bool:
        """Whether a request wants no token: `/health`, and what a browser asks beforehand.

        It asks so for a page that was named, and is answered by nothing but what a page may send.
        """
        if scope["path"] == HEALTH:
            return True
        asks = scope["method"] == "OPTIONS" and _get_headers(scope, "access-control-request-method")
        return bool(asks) and not self._door.origins.isdisjoint(_get_headers(scope, "origin"))


def _get_headers(scope: Scope, name: str) -> list[str]:
    return [value.decode("latin-1") for each, value in scope["headers"] if each == name.encode()]


def is_loopback(host: str) -> bool:
    """Whether only this machine gets there."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _strip_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


def _ignore_connection() -> None:
    """Stand where a server keeps nothing about its connections."""
