"""Authenticate HTTP requests: the bearer token of a home and the checks of Host and Origin.

The guard checks each request on each path before any transport of the SDK sees it.
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
from typing import Any, Protocol

import anyio
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse

from mcp_serve.atomic_files import read_file, write_new_file
from mcp_serve.sdk.disconnect import LEFT_KEY
from session_core import Denied, InvalidInput, SessionError

TOKEN_VARIABLE = "MCP_SESSIONS_TOKEN"  # noqa: S105 -- a name, not a token

_TOKEN_FILE = "token"  # noqa: S105 -- a name, not a token
_TOKEN_BYTES = 32
_MIN_TOKEN_CHARS = 16
_FILE_MODE = 0o600


class TokenFolder(Protocol):
    """A folder that may have a token."""

    def find(self) -> Path | None:
        """Return the folder, or None if there is none."""

    def make(self) -> Path:
        """Create the folder, private to its owner, and return it."""
        ...


def load_or_create_token(folder: TokenFolder) -> str:
    """Return the token of a home, creating its file if there is none.

    Raises:
        Denied: the token is too short, or its file cannot be read or created.
    """
    return find_token(folder) or _create_token(_make_token_folder(folder) / _TOKEN_FILE)


def find_token(folder: TokenFolder) -> str | None:
    """Return the token of a home, or None, and create nothing.

    Raises:
        Denied: the token is too short, or its file cannot be read.
    """
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if token:
        return _check_token(token, TOKEN_VARIABLE, "set a longer one or unset it")
    path = folder.find()
    return _read_token(path / _TOKEN_FILE) if path else None


def _make_token_folder(folder: TokenFolder) -> Path:
    try:
        return folder.make()
    except SessionError as error:
        raise type(error)(f"{error}; or set {TOKEN_VARIABLE} instead of using a file") from error


def _check_token(token: str, origin: str, advice: str) -> str:
    if len(token) < _MIN_TOKEN_CHARS or not (token.isascii() and token.isprintable()):
        raise Denied(
            f"{origin} is not a valid token: it must have at least {_MIN_TOKEN_CHARS} "
            f"ASCII characters; {advice}"
        )
    return token


def _read_token(path: Path) -> str | None:
    """Return the token in a file, or None if there is no file."""
    try:
        text = read_file(path).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Denied(
            f"cannot read {path}: {error.strerror}; fix its permissions or remove it"
        ) from error
    return _check_token(text, f"the content of {path}", "remove the file to create a new one")


def _create_token(path: Path) -> str:
    """Create the token file and return its token, or the token of a faster process."""
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    try:
        write_new_file(path, [f"{token}\n".encode()], prefix=f".{_TOKEN_FILE}_", mode=_FILE_MODE)
    except FileExistsError:
        stored = _read_token(path)
        if stored is None:
            raise Denied(f"{path} is a broken link; remove it and start again") from None
        return stored
    return token


Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Any]

MCP, HEALTH = "/mcp", "/health"

# Key in the state of a connection: a callback for its first authenticated request.
KNOWN_KEY = "mcp_sessions.known"

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
# Requests served at once; a stream counts until its client leaves.
_MAX_REQUESTS = 512


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The host names, origins and token that a request must match."""

    hosts: frozenset[str]
    origins: frozenset[str]
    token: str | None

    @classmethod
    def from_address(
        cls, host: str, hosts: Iterable[str], origins: Iterable[str], token: str | None
    ) -> AccessRules:
        """Return the rules for a listening address.

        Raises:
            InvalidInput: the address is not loopback and has no token or no host names.
        """
        names = {name.lower() for name in hosts}
        if not is_loopback(host):
            if token is None:
                raise InvalidInput("--no-token is allowed on loopback addresses only; leave it out")
            if not names:
                raise InvalidInput(
                    f"{host} is reachable from other machines; name its hosts with --allow-host"
                )
        names |= set(_LOOPBACK) if is_loopback(host) else set()
        pages = {origin.lower().rstrip("/") for origin in origins}
        return cls(frozenset(names), frozenset(pages), token)

    def is_known_host(self, host: str) -> bool:
        """Return True if the Host header is an allowed name, with or without a port."""
        return host.lower() in self.hosts or _strip_port(host.lower()) in self.hosts

    def is_allowed_page(self, origin: str, host: str) -> bool:
        """Return True if a page of this origin may send requests to this host."""
        scheme, _, rest = origin.lower().partition("://")
        if origin.lower() in self.origins or scheme not in ("http", "https"):
            return origin.lower() in self.origins
        # Without a token any page of another local program could call, so only the same origin may.
        if self.token is None:
            return rest == host.lower()
        return _strip_port(rest) in self.hosts & {*_LOOPBACK}

    def is_valid_token(self, authorization: str) -> bool:
        """Return True if the Authorization header holds the token, compared in constant time."""
        scheme, _, token = authorization.partition(" ")
        if self.token is None:
            return True
        is_equal = hmac.compare_digest(token.strip().encode(), self.token.encode())
        return is_equal and scheme.lower() == "bearer"


class Guard:
    """Forwards requests that match the access rules.

    `/health` needs no token.
    """

    def __init__(self, app: App, rules: AccessRules) -> None:
        self._app = app
        self._rules = rules
        self._running: set[anyio.Event] = set()
        self._ended = False

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Forward a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif (refusal := self._get_refusal(scope)) is not None:
            await refusal(scope, receive, send)
        elif self._is_public(scope):
            await self._app(scope, receive, send)
        elif len(self._running) >= _MAX_REQUESTS:
            await PlainTextResponse("too many requests at once\n", 503)(scope, receive, send)
        else:
            await self._run_request(scope, receive, send)

    def end_requests(self) -> None:
        """Notify running requests of the shutdown, as if their clients had left."""
        self._ended = True
        for has_left in self._running:
            has_left.set()

    async def _run_request(self, scope: Scope, receive: Any, send: Any) -> None:
        state = scope.setdefault("state", {})
        state.get(KNOWN_KEY, _ignore_connection)()
        has_left = anyio.Event()
        if scope["path"] == MCP:  # the SSE transport answers a message on its stream
            state[LEFT_KEY] = has_left
        if self._ended:
            has_left.set()

        is_complete = scope["method"] != "POST"

        async def receive_part() -> Any:
            nonlocal is_complete
            message = await receive()
            if message["type"] == "http.disconnect":
                has_left.set()
                if not is_complete:
                    raise ClientDisconnect
            is_complete = is_complete or not message.get("more_body", False)
            return message

        self._running.add(has_left)
        try:
            with suppress(ClientDisconnect):  # the client left before sending all of its request
                await self._app(scope, receive_part, send)
        finally:
            has_left.set()
            self._running.discard(has_left)

    def _get_refusal(self, scope: Scope) -> App | None:
        headers = {name: _get_headers(scope, name) for name in ("host", "origin", "authorization")}
        host = headers["host"][0] if len(headers["host"]) == 1 else ""
        if not self._rules.is_known_host(host):
            return PlainTextResponse("unknown host name; see --allow-host\n", 421)
        if not all(self._rules.is_allowed_page(origin, host) for origin in headers["origin"]):
            return PlainTextResponse("origin not allowed; see --allow-origin\n", 403)
        if self._is_public(scope):
            return None
        if not self._rules.is_valid_token(next(iter(headers["authorization"]), "")):
            challenge = {"WWW-Authenticate": 'Bearer realm="mcp-sessions"'}
            return PlainTextResponse("a bearer token is required\n", 401, challenge)
        return None

    def _is_public(self, scope: Scope) -> bool:
        """Return True for requests that need no token: `/health` and allowed CORS preflights."""
        if scope["path"] == HEALTH:
            return True
        is_preflight = scope["method"] == "OPTIONS" and _get_headers(
            scope, "access-control-request-method"
        )
        return bool(is_preflight) and not self._rules.origins.isdisjoint(
            _get_headers(scope, "origin")
        )


def _get_headers(scope: Scope, name: str) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name.encode()]


def is_loopback(host: str) -> bool:
    """Return True if a host is a loopback address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _strip_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


def _ignore_connection() -> None:
    """Do nothing, as the callback of a server that does not count its connections."""
