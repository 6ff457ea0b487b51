"""Notify clients of changes in both protocol versions.

Newer clients listen on a stream of the SDK. Older clients subscribe to addresses and are notified
on their connection. A slow client is notified later without delaying others; a closed connection is
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

# Addresses that one connection may follow.
_MAX_ADDRESSES = 1_000

# Time that one round of notifications waits for clients that do not read.
_SEND_TIMEOUT_S = 0.05

# Stands for a changed list among the addresses.
_LIST_CHANGED = ""


class CountingBus(InMemorySubscriptionBus):
    """The event bus of the SDK with a count of its listeners."""

    def __init__(self) -> None:
        super().__init__()
        self.listening = 0

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Register a listener and return a function that removes it."""
        unsubscribe = super().subscribe(listener)
        self.listening += 1
        is_ended = False

        def end() -> None:
            nonlocal is_ended
            if not is_ended:
                is_ended = True
                self.listening -= 1
            unsubscribe()

        return end


@dataclass(slots=True)
class _OlderConnection:
    """A connection of an older client, its addresses and its pending notifications."""

    session: ServerSession
    addresses: set[str] = field(default_factory=set)
    pending: dict[str, None] = field(default_factory=dict)

    async def send_pending(self) -> None:
        """Send the pending notifications."""
        while self.pending:
            address = next(iter(self.pending))
            if address == _LIST_CHANGED:
                await self.session.send_resource_list_changed()
            else:
                await self.session.send_resource_updated(address)
            self.pending.pop(address, None)


class Subscriptions:
    """The clients to notify of changes."""

    def __init__(self) -> None:
        self.bus = CountingBus()
        self.listen = ListenHandler(self.bus)
        self._older: dict[int, _OlderConnection] = {}

    @property
    def has_listeners(self) -> bool:
        """Return True if a client is connected or listening."""
        return bool(self.bus.listening or self._older)

    def add_connection(self, context: ServerRequestContext[Any, Any]) -> None:
        """Add the connection of an older client, which is notified of changed lists."""
        self._get_connection(context)

    def _get_connection(self, context: ServerRequestContext[Any, Any]) -> _OlderConnection:
        connection_id = _identify_connection(context)
        older = self._older.get(connection_id)
        if older is None:
            older = self._older[connection_id] = _OlderConnection(context.session)
            private.call_on_close(context.session, lambda: self._forget_connection(connection_id))
        older.session = context.session
        return older

    def _forget_connection(self, connection_id: int) -> None:
        self._older.pop(connection_id, None)

    async def subscribe(
        self, context: ServerRequestContext[Any, Any], params: SubscribeRequestParams
    ) -> EmptyResult:
        """Follow an address.

        Raises:
            MCPError: the connection follows too many addresses.
        """
        addresses = self._get_connection(context).addresses
        addresses.add(str(params.uri))
        if len(addresses) > _MAX_ADDRESSES:
            addresses.discard(str(params.uri))
            raise MCPError(
                INVALID_PARAMS,
                f"a connection may follow at most {_MAX_ADDRESSES:,} addresses; "
                "unsubscribe from others first",
            )
        return EmptyResult()

    async def unsubscribe(
        self, context: ServerRequestContext[Any, Any], params: UnsubscribeRequestParams
    ) -> EmptyResult:
        """Unsubscribe a connection from an address."""
        self._get_connection(context).addresses.discard(str(params.uri))
        return EmptyResult()

    async def publish_changes(self, addresses: Iterable[str], *, list_changed: bool) -> None:
        """Notify all clients of changes, and of earlier changes that they have not received."""
        changed = dict.fromkeys(addresses)
        for address in changed:
            await self.bus.publish(ResourceUpdated(uri=address))
        if list_changed:
            await self.bus.publish(ResourcesListChanged())
            changed[_LIST_CHANGED] = None
        async with anyio.create_task_group() as tasks:
            for connection_id, older in list(self._older.items()):
                followed = older.addresses | {_LIST_CHANGED}
                older.pending |= {address: None for address in changed if address in followed}
                if older.pending:
                    tasks.start_soon(self._send_to_older, connection_id, older)

    async def _send_to_older(self, connection_id: int, older: _OlderConnection) -> None:
        try:
            with anyio.move_on_after(_SEND_TIMEOUT_S):
                await older.send_pending()
        except Exception:  # noqa: BLE001 -- a closed connection may raise anything
            self._forget_connection(connection_id)


def _identify_connection(context: ServerRequestContext[Any, Any]) -> int:
    """Return the identity of a connection, which its client parameters have."""
    return id(context.session.client_params)
