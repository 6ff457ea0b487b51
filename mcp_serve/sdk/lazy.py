"""What a client sees of a server, loaded behind the first answer."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import anyio
from anyio import to_thread
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.types import INVALID_PARAMS, Completion, ListResourcesResult

from mcp_serve.sdk import private
from mcp_serve.subscriptions import Subscriptions

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.tools import Tool

Next = Callable[[ServerRequestContext[Any, Any]], Awaitable[Any]]

_HANDSHAKE_METHODS = frozenset({"initialize", "server/discover", "ping"})
_FOLLOW_METHODS = frozenset({"subscriptions/listen", "resources/subscribe"})

_LOG = logging.getLogger(__name__)

_LOOK_INTERVAL_S = 0.1
"""How often changes are looked for, where anybody wants to be told."""

_FIRST_ANSWER_DELAY_S = 0.02
"""So long the loop has to itself for writing its first answer, before imports take their turns."""


class Surface(Protocol):
    """What a client sees of a server."""

    tools: Sequence[Tool]

    def register(self, server: MCPServer[Any]) -> None:
        """Add resources and prompts."""

    def check_prompt(self, name: str, given: Mapping[str, Any]) -> str | None:
        """Return what is wrong with a request for a prompt."""

    async def list_resources(self, cursor: str | None) -> ListResourcesResult:
        """Return a page of the resources."""

    async def complete_argument(self, argument: str, typed: str) -> Completion:
        """Return what somebody may be typing."""

    async def follow_addresses(self, addresses: Sequence[str]) -> None:
        """Look from now on also at what somebody wants to be told of."""

    async def collect_changes(self) -> tuple[list[str], bool]:
        """Return the addresses of what has changed since it was asked, and whether lists have."""


class LazySurface:
    """The surface of a server: loaded in a thread behind the first answer, or when it is needed."""

    def __init__(self, load: Callable[[], Surface], subscriptions: Subscriptions) -> None:
        self._load = load
        self.subscriptions = subscriptions
        self._publishing = anyio.Lock()
        self._looking = anyio.Lock()
        self.surface: Surface | None = None
        self._begun = anyio.Event()
        self._lock = anyio.Lock()
        self._loaded = False
        self._wrong: str | None = None
        self.server: MCPServer[Any] | None = None

    async def ensure_loaded(self) -> None:
        """Return when it is there."""
        if self._loaded:
            return
        async with self._lock:
            if not self._loaded and self.server is not None:
                surface = await to_thread.run_sync(self._load)
                private.add_tools(self.server, surface.tools)
                surface.register(self.server)
                self.surface, self._loaded = surface, True

    async def load_after_answer(self) -> None:
        """Load it once the first answer is out."""
        await self._begun.wait()
        await anyio.sleep(_FIRST_ANSWER_DELAY_S)
        await self.ensure_loaded()

    async def publish_changes(self) -> None:
        """Tell those who want to be told of what changes; one task of the process does."""
        async with self._publishing:
            await self._begun.wait()
            await self.ensure_loaded()
            while True:
                await anyio.sleep(_LOOK_INTERVAL_S)
                if self.surface is not None and self.subscriptions.has_listeners:
                    await self._publish_once(self.surface)

    async def _publish_once(self, surface: Surface, follow: Sequence[str] = ()) -> None:
        """Tell of what has changed; what goes wrong here ends nobody else's calls."""
        try:
            async with self._looking:
                if follow:
                    await surface.follow_addresses(follow)
                addresses, list_changed = await surface.collect_changes()
                await self.subscriptions.publish_changes(addresses, list_changed=list_changed)
        except Exception:  # noqa: BLE001 -- the edge: a task that fails would end the server
            before, self._wrong = self._wrong, traceback.format_exc()
            if before != self._wrong:
                _LOG.exception("changes could not be told")

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: Next) -> Any:
        """Let nothing but the handshake pass before it is there, and no unknown tool at all."""
        context = ctx
        self._begun.set()  # a client of the newer era may begin with any request
        if context.method in _HANDSHAKE_METHODS:
            return await call_next(context)
        if context.request_id is None:
            if context.method == "notifications/initialized":
                self.subscriptions.add_connection(context)
            return await call_next(context)
        await self.ensure_loaded()
        wrong = self._get_refusal(context.method, context.params or {})
        if wrong is not None:
            raise MCPError(INVALID_PARAMS, wrong)
        if context.method in _FOLLOW_METHODS and self.surface is not None:
            # What comes behind the answer is a change.
            await self._publish_once(self.surface, _list_addresses(context.params or {}))
        return await call_next(context)

    def _get_refusal(self, method: str, params: Mapping[str, Any]) -> str | None:
        """Return what is wrong with a request that the SDK would answer otherwise."""
        name = params.get("name")
        if self.server is None or self.surface is None or not isinstance(name, str):
            return None
        if method == "tools/call":
            known = private.list_tool_names(self.server)
            return None if name in known else f"no such tool; there are {', '.join(known)}"
        if method == "prompts/get":
            known = private.list_prompt_names(self.server)
            if name not in known:
                return f"no such prompt; there are {', '.join(known)}"
            given = params.get("arguments")
            return self.surface.check_prompt(name, given if isinstance(given, Mapping) else {})
        return None


def _list_addresses(params: Mapping[str, Any]) -> list[str]:
    """Return what somebody wants to be told of, in either era."""
    wanted = params.get("notifications")
    listed = wanted.get("resourceSubscriptions") if isinstance(wanted, Mapping) else None
    several = listed if isinstance(listed, list) else [params.get("uri")]
    return [each for each in several if isinstance(each, str)]
