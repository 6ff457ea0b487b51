"""Load the surface of a server after its first answer."""

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
from mcp_serve.sdk.extensions import SkillSource
from mcp_serve.subscriptions import Subscriptions

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.tools import Tool

Next = Callable[[ServerRequestContext[Any, Any]], Awaitable[Any]]

_HANDSHAKE_METHODS = frozenset({"initialize", "server/discover", "ping"})
_FOLLOW_METHODS = frozenset({"subscriptions/listen", "resources/subscribe"})

_LOG = logging.getLogger(__name__)

# Interval between checks for changes while a client listens.
_LOOK_INTERVAL_S = 0.1

# The loop writes its first answer in this time; imports would delay it.
_FIRST_ANSWER_DELAY_S = 0.02


class Surface(Protocol):
    """The tools, resources, prompts and completions of a server."""

    tools: Sequence[Tool]

    @property
    def skills(self) -> SkillSource:
        """The skills that the server offers."""

    def register(self, server: MCPServer[Any]) -> None:
        """Register resources and prompts."""

    def check_prompt(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        """Return the error of a request for a prompt, or None."""

    async def list_resources(self, cursor: str | None) -> ListResourcesResult:
        """Return a page of the resources."""

    async def complete_argument(self, argument: str, typed: str) -> Completion:
        """Return completions of a typed value."""

    async def follow_addresses(self, addresses: Sequence[str]) -> None:
        """Watch these addresses, however old their sessions are."""

    async def collect_changes(self) -> tuple[list[str], bool]:
        """Return the addresses changed since the last call, and whether lists have changed."""


class LazySurface:
    """A surface that a thread loads after the first answer, or when a request needs it."""

    def __init__(self, load: Callable[[], Surface], subscriptions: Subscriptions) -> None:
        self._load = load
        self.subscriptions = subscriptions
        self._publishing = anyio.Lock()
        self._looking = anyio.Lock()
        self.surface: Surface | None = None
        self._started = anyio.Event()
        self._lock = anyio.Lock()
        self._loaded = False
        self._last_error: str | None = None
        self.server: MCPServer[Any] | None = None

    async def ensure_loaded(self) -> None:
        """Return when the surface is loaded."""
        if self._loaded:
            return
        async with self._lock:
            if not self._loaded and self.server is not None:
                surface = await to_thread.run_sync(self._load)
                private.add_tools(self.server, surface.tools)
                surface.register(self.server)
                self.surface, self._loaded = surface, True

    def get_skills(self) -> SkillSource:
        """Return the skills; a request is delayed until they are loaded."""
        if self.surface is None:
            raise RuntimeError("the surface is not loaded")
        return self.surface.skills

    async def load_after_answer(self) -> None:
        """Load the surface after the first answer was sent."""
        await self._started.wait()
        await anyio.sleep(_FIRST_ANSWER_DELAY_S)
        await self.ensure_loaded()

    async def publish_changes(self) -> None:
        """Notify listening clients of changes; one task of the process does so."""
        async with self._publishing:
            await self._started.wait()
            await self.ensure_loaded()
            while True:
                await anyio.sleep(_LOOK_INTERVAL_S)
                if self.surface is not None and self.subscriptions.has_listeners:
                    await self._publish_once(self.surface)

    async def _publish_once(self, surface: Surface, follow: Sequence[str] = ()) -> None:
        """Publish changes once; an error is logged and does not end the task."""
        try:
            async with self._looking:
                if follow:
                    await surface.follow_addresses(follow)
                addresses, list_changed = await surface.collect_changes()
                await self.subscriptions.publish_changes(addresses, list_changed=list_changed)
        except Exception:  # noqa: BLE001 -- a failing task would end the server
            previous, self._last_error = self._last_error, traceback.format_exc()
            if previous != self._last_error:
                _LOG.exception("cannot publish changes")

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: Next) -> Any:
        """Delay requests until the surface is loaded, and refuse unknown tools and prompts."""
        context = ctx
        self._started.set()  # a newer client may begin with any request
        if context.method in _HANDSHAKE_METHODS:
            return await call_next(context)
        if context.request_id is None:
            if context.method == "notifications/initialized":
                self.subscriptions.add_connection(context)
            return await call_next(context)
        await self.ensure_loaded()
        refusal = self._get_refusal(context.method, context.params or {})
        if refusal is not None:
            raise MCPError(INVALID_PARAMS, refusal)
        if context.method in _FOLLOW_METHODS and self.surface is not None:
            # Start watching before the answer, so that each later change is published.
            await self._publish_once(self.surface, _list_addresses(context.params or {}))
        return await call_next(context)

    def _get_refusal(self, method: str, params: Mapping[str, Any]) -> str | None:
        """Return the error of a request that the SDK would answer differently, or None."""
        name = params.get("name")
        if self.server is None or self.surface is None or not isinstance(name, str):
            return None
        if method == "tools/call":
            names = private.list_tool_names(self.server)
            return None if name in names else f"no such tool; valid: {', '.join(names)}"
        if method == "prompts/get":
            names = private.list_prompt_names(self.server)
            if name not in names:
                return f"no such prompt; valid: {', '.join(names)}"
            arguments = params.get("arguments")
            return self.surface.check_prompt(
                name, arguments if isinstance(arguments, Mapping) else {}
            )
        return None


def _list_addresses(params: Mapping[str, Any]) -> list[str]:
    """Return the addresses that a request subscribes to, in either protocol version."""
    notifications = params.get("notifications")
    subscriptions = (
        notifications.get("resourceSubscriptions") if isinstance(notifications, Mapping) else None
    )
    addresses = subscriptions if isinstance(subscriptions, list) else [params.get("uri")]
    return [address for address in addresses if isinstance(address, str)]
