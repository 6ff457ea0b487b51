"""Who wants to be told of changes, in both eras, and telling them.

The newer era listens on a stream of the SDK's; older clients subscribe to addresses and are told on
their connection. A connection that cannot be told any more is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
)
from mcp.types import EmptyResult, SubscribeRequestParams, UnsubscribeRequestParams

_MOST_ADDRESSES = 1_000
"""So many addresses a connection may follow."""


class Bus(InMemorySubscriptionBus):
    """The bus of the SDK, which also says whether anybody listens."""

    def __init__(self) -> None:
        super().__init__()
        self.listening = 0

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Register a listener and return what ends that."""
        unsubscribe = super().subscribe(listener)
        self.listening += 1
        ended = False

        def end() -> None:
            nonlocal ended
            if not ended:
                ended = True
                self.listening -= 1
            unsubscribe()

        return end


class Subscriptions:
    """Those who want to be told."""

    def __init__(self) -> None:
        self.bus = Bus()
        self.listen = ListenHandler(self.bus)
        self._older: dict[int, ServerSession] = {}
        self._addresses: dict[int, set[str]] = {}

    @property
    def wanted(self) -> bool:
        """Whether anybody wants to be told."""
        return bool(self.bus.listening or self._older)

    def note(self, context: ServerRequestContext[Any, Any]) -> None:
        """Remember a connection of the older era, which is told when lists change."""
        self._older[_connection(context)] = context.session

    async def subscribe(
        self, context: ServerRequestContext[Any, Any], params: SubscribeRequestParams
    ) -> EmptyResult:
        """Follow an address."""
        self.note(context)
        addresses = self._addresses.setdefault(_connection(context), set())
        if len(addresses) < _MOST_ADDRESSES:
            addresses.add(str(params.uri))
        return EmptyResult()

    async def unsubscribe(
        self, context: ServerRequestContext[Any, Any], params: UnsubscribeRequestParams
    ) -> EmptyResult:
        """Follow an address no longer."""
        self._addresses.get(_connection(context), set()).discard(str(params.uri))
        return EmptyResult()

    async def tell(self, addresses: Iterable[str], *, list_changed: bool) -> None:
        """Tell everybody of what has changed."""
        changed = list(dict.fromkeys(addresses))
        for address in changed:
            await self.bus.publish(ResourceUpdated(uri=address))
        if list_changed:
            await self.bus.publish(ResourcesListChanged())
        for connection, session in list(self._older.items()):
            followed = self._addresses.get(connection, set())
            try:
                for address in changed:
                    if address in followed:
                        await session.send_resource_updated(address)
                if list_changed:
                    await session.send_resource_list_changed()
            except Exception:  # noqa: BLE001 -- whatever a closed connection raises
                self._older.pop(connection, None)
                self._addresses.pop(connection, None)


def _connection(context: ServerRequestContext[Any, Any]) -> int:
    """Return what tells a connection from others: what its client has said of itself."""
    return id(context.session.client_params)
