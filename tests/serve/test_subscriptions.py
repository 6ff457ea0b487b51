"""Notifications of changes: on a stream for newer clients, by subscription for older ones."""

from __future__ import annotations

from contextlib import AsyncExitStack
from types import SimpleNamespace

import anyio
import pytest
from mcp import Client, MCPError
from mcp.types import (
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    SubscribeRequestParams,
)

from mcp_serve import server
from mcp_serve.features import subscriptions
from mcp_serve.sdk import factory
from mcp_serve.stores.stores import ServedStores, ServerOptions
from session_core import Ledger, StateFolder
from tests.homes import add_session, connect, fill_database, make_hermes_database

pytestmark = pytest.mark.anyio


@pytest.fixture(name="served")
def _served(db, home_path):
    db.append_message("s1", "user", "hello", create={"source": "cli"})
    served = ServedStores(ServerOptions(home=str(home_path)))
    yield served
    served.close()


@pytest.mark.requirement("serving:subscriptions")
@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
async def test_legacy_client_is_notified_of_subscriptions(db, served):
    text = []
    answer = anyio.Event()

    async def handle(message):
        text.append(message)
        kinds = {type(item) for item in text}
        if kinds >= {ResourceUpdatedNotification, ResourceListChangedNotification}:
            answer.set()

    created = server.create_server(served)
    async with Client(created, mode="legacy", message_handler=handle, cache=None) as client:
        capabilities = client.server_capabilities.resources
        assert (capabilities.subscribe, capabilities.list_changed) == (True, True)
        await client.list_tools()
        await client.subscribe_resource("session://s1")
        with anyio.fail_after(20):
            while not answer.is_set():
                db.append_message("s1", "user", "more")
                db.append_message(f"n{len(text)}", "user", "new", create={"source": "cli"})
                await anyio.sleep(0.2)
    updated = {m.params.uri for m in text if isinstance(m, ResourceUpdatedNotification)}
    assert {str(uri) for uri in updated} == {"session://s1"}


@pytest.mark.requirement("serving:subscriptions")
async def test_modern_client_is_notified_after_answer(db, served):
    created = server.create_server(served)
    async with Client(created, mode="auto", cache=None) as client:
        await client.list_tools()
        async with client.listen(resource_subscriptions=["session://s1"]) as events:
            db.append_message("s1", "user", "more")  # right after the answer
            with anyio.fail_after(20):
                async for event in events:
                    assert event.uri == "session://s1"
                    break


class Line:
    """A connection of an older client that reads only on request."""

    def __init__(self):
        self.client_params = object()
        self._connection = SimpleNamespace(exit_stack=AsyncExitStack())
        self.read = anyio.Event()
        self.told = []

    async def follow(self, wanting, *addresses):
        """Subscribe to addresses."""
        for address in addresses:
            params = SubscribeRequestParams(uri=address)
            await wanting.subscribe(SimpleNamespace(session=self), params)

    async def send_resource_updated(self, address):
        """Receive a notification once the client reads."""
        await self.read.wait()
        self.told.append(address)

    async def send_resource_list_changed(self):
        """Receive a notification once the client reads."""
        await self.read.wait()
        self.told.append("lists")


@pytest.mark.requirement("serving:subscriptions")
async def test_slow_subscriber_is_notified_later():
    wanting, asleep, awake = subscriptions.Subscriptions(), Line(), Line()
    for line in (asleep, awake):
        await line.follow(wanting, "a://1", "a://2")
    awake.read.set()
    with anyio.fail_after(20):
        for _ in range(3):
            await wanting.publish_changes(["a://1", "a://3"], list_changed=True)
    assert awake.told == ["a://1", "lists"] * 3
    assert asleep.told == []
    asleep.read.set()
    await wanting.publish_changes([], list_changed=False)
    assert asleep.told == ["a://1", "lists"]


@pytest.mark.requirement("serving:subscriptions")
@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_disconnected_subscriber_is_forgotten(mode, served, monkeypatch):
    wanting = subscriptions.Subscriptions()
    monkeypatch.setattr(factory, "Subscriptions", lambda: wanting)
    created = server.create_server(served)
    for _ in range(3):
        async with Client(created, mode=mode, cache=None) as client:
            await client.list_tools()
            if mode == "legacy":
                await client.subscribe_resource("session://s1")
            assert wanting.has_listeners == (mode == "legacy")
        assert not wanting.has_listeners


@pytest.mark.requirement("serving:subscriptions")
async def test_excess_subscriptions_are_refused(monkeypatch):
    monkeypatch.setattr(subscriptions, "_MAX_ADDRESSES", 2)
    wanting, line = subscriptions.Subscriptions(), Line()
    line.read.set()
    await line.follow(wanting, "a://1", "a://2", "a://2")
    with pytest.raises(MCPError, match="unsubscribe"):
        await line.follow(wanting, "a://3")
    await wanting.publish_changes(["a://1", "a://3"], list_changed=False)
    assert line.told == ["a://1"]


OLD = "fill_0_00003"
CHANGES = {
    "archived": lambda _: {"archived": True},
    "a new title": lambda session: {"title": f"The ferry of {session}"},
}


@pytest.mark.requirement("serving:subscriptions")
@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_edit_of_old_session_is_notified(mode, change, db, served, home_path):
    fill_database(home_path / "state.db", 60, 2)
    newest = db.list_sessions(limit=1).items[0].id
    text = []

    async def handle(message):
        if isinstance(message, ResourceUpdatedNotification):
            text.append(str(message.params.uri))
        elif isinstance(message, ResourceListChangedNotification):
            text.append("lists")

    async def edit(client, session, expected):
        text.clear()
        arguments = {"sessions": session} | CHANGES[change](session)
        assert not (await client.call_tool("sessions_edit", arguments)).is_error
        with anyio.fail_after(20):
            while set(text) != expected:  # noqa: ASYNC110 -- the notifications are a plain list
                await anyio.sleep(0.05)

    addresses = [f"session://{OLD}", f"session://{newest}/messages"]
    created = server.create_server(served)
    async with Client(created, mode=mode, message_handler=handle, cache=None) as client:
        await client.list_tools()
        if mode == "legacy":
            for address in addresses:
                await client.subscribe_resource(address)
            await edit(client, OLD, {addresses[0]})
            await edit(client, newest, {addresses[1], "lists"})
            return
        async with (
            client.listen(resource_subscriptions=addresses, resources_list_changed=True) as events,
            anyio.create_task_group() as tasks,
        ):

            async def listen():
                async for event in events:
                    text.extend([getattr(event, "uri", "lists")])

            tasks.start_soon(listen)
            await edit(client, OLD, {addresses[0]})
            await edit(client, newest, {addresses[1], "lists"})
            tasks.cancel_scope.cancel()


@pytest.mark.requirement("serving:subscriptions")
@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
async def test_own_pin_is_notified(tmp_path):
    home = tmp_path / "hermes"
    make_hermes_database(home / "state.db")
    with connect(home / "state.db") as connection:
        add_session(connection, "s1")
        add_session(connection, "s2")
    answer = anyio.Event()
    text = []

    async def handle(message):
        if isinstance(message, ResourceUpdatedNotification):
            text.append(str(message.params.uri))
            answer.set()

    served = ServedStores(ServerOptions(home=str(home)))
    async with Client(
        server.create_server(served), mode="legacy", message_handler=handle
    ) as client:
        for session in ("s1", "s2"):
            await client.subscribe_resource(f"session://{session}")
        with Ledger(StateFolder(home / "state.db")) as ledger, anyio.fail_after(20):
            ledger.pins.set_pins({"s1": True})
            await answer.wait()
    served.close()
    assert set(text) == {"session://s1"}
