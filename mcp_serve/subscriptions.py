"""Who wants to be told of changes, in both eras, and telling them.

The newer era listens on a stream of the SDK's; older clients subscribe to addresses and are told on
their connection. One that does not read is told later and keeps nobody waiting; one that is gone is
forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
)
from mcp.types import (
    INVALID_PARAMS,
    EmptyResult,
    SubscribeRequestParams,
    UnsubscribeRequestParams,
)

from mcp_serve.sdk import private

_MAX_ADDRESSES = 1_000
"""So many addresses a connection may follow."""

_SEND_TIMEOUT_S = 0.05
"""So long is waited for those who do not read, each time that anybody is told."""

_LIST_CHANGED = ""
"""Stands among addresses for the lists."""


class CountingBus(InMemorySubscriptionBus):
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


@dataclass(slots=True)
class _OlderConnection:
    """A connection of the older era: what it follows, and what it was not told yet."""

    session: ServerSession
    addresses: set[str] = field(default_factory=set)
    untold: dict[str, None] = field(default_factory=dict)

    async def send_pending(self) -> None:
        """Tell what was not told yet."""
        while self.untold:
            address = next(iter(self.untold))
            if address == _LIST_CHANGED:
                await self.session.send_resource_list_changed()
            else:
                await self.session.send_resource_updated(address)
            self.untold.pop(address, None)


class Subscriptions:
    """Those who want to be told."""

    def __init__(self) -> None:
        self.bus = CountingBus()
        self.listen = ListenHandler(self.bus)
        self._older: dict[int, _OlderConnection] = {}

    @property
    def has_listeners(self) -> bool:
        """Whether anybody wants to be told."""
        return bool(self.bus.listening or self._older)

    def add_connection(self, context: ServerRequestContext[Any, Any]) -> None:
        """Remember a connection of the older era, which is told when lists change."""
        self._get_connection(context)

    def _get_connection(self, context: ServerRequestContext[Any, Any]) -> _OlderConnection:
        connection = _identify_connection(context)
        older = self._older.get(connection)
        if older is None:
            older = self._older[connection] = _OlderConnection(context.session)
            private.call_on_close(context.session, lambda: self._forget_connection(connection))
        older.session = context.session
        return older

    def _forget_connection(self, connection: int) -> None:
        self._older.pop(connection, None)

    async def subscribe(
        self, context: ServerRequestContext[Any, Any], params: SubscribeRequestParams
    ) -> EmptyResult:
        """Follow an address.

        Raises:
            MCPError: there are too many.
        """
        addresses = self._get_connection(context).addresses
        addresses.add(str(params.uri))
        if len(addresses) > _MAX_ADDRESSES:
            addresses.discard(str(params.uri))
            most = f"a connection follows {_MAX_ADDRESSES:,} addresses at most"
            raise MCPError(INVALID_PARAMS, f"{most}; unsubscribe from others first")
        return EmptyResult()

    async def unsubscribe(
        self, context: ServerRequestContext[Any, Any], params: UnsubscribeRequestParams
    ) -> EmptyResult:
        """Follow an address no longer."""
        self._get_connection(context).addresses.discard(str(params.uri))
        return EmptyResult()

    async def publish_changes(self, addresses: Iterable[str], *, list_changed: bool) -> None:
        """Tell everybody of what has changed, and of what they were not told before."""
        changed = dict.fromkeys(addresses)
        for address in changed:
            await self.bus.publish(ResourceUpdated(uri=address))
        if list_changed:
            await self.bus.publish(ResourcesListChanged())
            changed[_LIST_CHANGED] = None
        async with anyio.create_task_group() as tasks:
            for connection, older in list(self._older.items()):
                followed = older.addresses | {_LIST_CHANGED}
                older.untold |= {each: None for each in changed if each in followed}
                if older.untold:
                    tasks.start_soon(self._send_to_older, connection, older)

    async def _send_to_older(self, connection: int, older: _OlderConnection) -> None:
        try:
            with anyio.move_on_after(_SEND_TIMEOUT_S):
                await older.send_pending()
        except Exception:  # noqa: BLE001 -- whatever a closed connection raises
            self._forget_connection(connection)


def _identify_connection(context: ServerRequestContext[Any, Any]) -> int:
    """Return what tells a connection from others: what its client has said of itself."""
    return id(context.session.client_params)
