"""Load the tools and the late features of a server after its first answer."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import anyio
from anyio import CapacityLimiter, to_thread
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.types import INVALID_PARAMS, Completion, ListResourcesResult

from mcp_serve.features.subscriptions import Subscriptions
from mcp_serve.sdk import private
from mcp_serve.sdk.extensions import SkillSource

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.tools import Tool

T = TypeVar("T")

Next = Callable[[ServerRequestContext[Any, Any]], Awaitable[Any]]

_HANDSHAKE_METHODS = frozenset({"initialize", "server/discover", "ping"})
_TOOL_METHODS = frozenset({"tools/list", "tools/call"})
_FOLLOW_METHODS = frozenset({"subscriptions/listen", "resources/subscribe"})

_LOG = logging.getLogger(__name__)

# Interval between checks for changes while a client listens.
_CHECK_INTERVAL_S = 0.1

# Most clients list the tools at once. Imports would delay that answer, so they wait for it.
_TOOL_LIST_TIMEOUT_S = 0.1
_ANSWER_DELAY_S = 0.005

# A call that came before the preparation would be slowed by it. A call may also wait for events.
_FIRST_CALL_S = 2.0


class LateFeatures(Protocol):
    """The features of a server that are loaded late: resources, prompts and completions."""

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
        """Return the addresses changed since the last call, and True if lists have changed."""


class LazyFeatures:
    """Tools and features that are loaded after the first answer, or when a request needs them."""

    def __init__(
        self,
        list_tools: Callable[[], Sequence[Tool]],
        load: Callable[[], LateFeatures],
        prepare: Callable[[], None],
        subscriptions: Subscriptions,
    ) -> None:
        self._list_tools = list_tools
        self._load = load
        self._prepare = prepare
        self.subscriptions = subscriptions
        self._running = anyio.Lock()
        self._publishing = anyio.Lock()
        self.features: LateFeatures | None = None
        self._started = anyio.Event()
        self._listed = anyio.Event()
        self._lock = anyio.Lock()
        self._has_tools = False
        self._running_call: anyio.Event | None = None
        self._last_error: str | None = None
        self.server: MCPServer[Any] | None = None

    def _ensure_tools(self, server: MCPServer[Any]) -> None:
        if not self._has_tools:
            private.add_tools(server, self._list_tools())
            self._has_tools = True

    async def ensure_loaded(self) -> None:
        """Wait until the features are loaded."""
        if self.features is not None:
            return
        async with self._lock:
            if self.features is None and self.server is not None:
                features = await load_in_thread(self._load)
                features.register(self.server)
                self.features = features

    def get_skills(self) -> SkillSource:
        """Return the skills, for requests that are delayed until the features are loaded."""
        if self.features is None:
            raise RuntimeError("the features are not loaded")
        return self.features.skills

    async def prepare_and_publish_changes(self) -> None:
        """Prepare a first call, then notify listening clients of changes until cancelled."""
        async with self._running:
            await self._started.wait()
            with anyio.move_on_after(_TOOL_LIST_TIMEOUT_S):
                await self._listed.wait()
            await anyio.sleep(_ANSWER_DELAY_S)
            if self._running_call is not None:
                with anyio.move_on_after(_FIRST_CALL_S):
                    await self._running_call.wait()
            with suppress(Exception):  # a failing task would end the server; a call reports it
                await load_in_thread(self._prepare)
            await self.ensure_loaded()
            while True:
                await anyio.sleep(_CHECK_INTERVAL_S)
                if self.features is not None and self.subscriptions.has_listeners:
                    await self._publish_once(self.features)

    async def _publish_once(self, features: LateFeatures, follow: Sequence[str] = ()) -> None:
        """Publish changes once.

        An error is logged and does not end the task.
        """
        try:
            async with self._publishing:
                if follow:
                    await features.follow_addresses(follow)
                addresses, list_changed = await features.collect_changes()
                await self.subscriptions.publish_changes(addresses, list_changed=list_changed)
        except Exception:  # noqa: BLE001 -- a failing task would end the server
            previous, self._last_error = self._last_error, traceback.format_exc()
            if previous != self._last_error:
                _LOG.exception("cannot publish changes")

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: Next) -> Any:
        """Delay a request until its modules are loaded, and refuse unknown tools and prompts."""
        context = ctx
        self._started.set()  # a newer client may begin with any request
        if context.method in _HANDSHAKE_METHODS:
            return await call_next(context)
        if context.request_id is None:
            if context.method == "notifications/initialized":
                self.subscriptions.add_connection(context)
            return await call_next(context)
        if self.server is not None:
            self._ensure_tools(self.server)
        if context.method not in _TOOL_METHODS:
            await self.ensure_loaded()
        refusal = self._find_request_error(context.method, context.params or {})
        if refusal is not None:
            raise MCPError(INVALID_PARAMS, refusal)
        if context.method in _FOLLOW_METHODS and self.features is not None:
            # Start watching before the answer, so that each later change is published.
            await self._publish_once(self.features, _list_addresses(context.params or {}))
        called = anyio.Event()
        if context.method == "tools/call":
            self._running_call = called
        try:
            return await call_next(context)
        finally:
            called.set()
            self._listed.set()

    def _find_request_error(self, method: str, params: Mapping[str, Any]) -> str | None:
        """Return the error of a request with an unknown tool, prompt or argument, or None."""
        name = params.get("name")
        if self.server is None or not isinstance(name, str):
            return None
        if method == "tools/call":
            names = private.list_tool_names(self.server)
            return None if name in names else f"no such tool; valid: {', '.join(names)}"
        if method == "prompts/get" and self.features is not None:
            names = private.list_prompt_names(self.server)
            if name not in names:
                return f"no such prompt; valid: {', '.join(names)}"
            arguments = params.get("arguments")
            return self.features.check_prompt(
                name, arguments if isinstance(arguments, Mapping) else {}
            )
        return None


async def load_in_thread(load: Callable[[], T]) -> T:
    """Return the result of a function that imports, from a thread of its own.

    The default pool, in which the SDK reads and writes, may be full.
    """
    return await to_thread.run_sync(load, limiter=CapacityLimiter(1))


def _list_addresses(params: Mapping[str, Any]) -> list[str]:
    """Return the addresses that a request subscribes to, in either protocol version."""
    notifications = params.get("notifications")
    subscriptions = (
        notifications.get("resourceSubscriptions") if isinstance(notifications, Mapping) else None
    )
    addresses = subscriptions if isinstance(subscriptions, list) else [params.get("uri")]
    return [address for address in addresses if isinstance(address, str)]
