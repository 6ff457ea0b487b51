"""Changes are told: on a stream in the newer era, to those who subscribed in the older one."""

from __future__ import annotations

import anyio
import pytest
from mcp import Client
from mcp.types import ResourceListChangedNotification, ResourceUpdatedNotification

from mcp_serve import server
from mcp_serve.served import Options, Served

pytestmark = pytest.mark.anyio


@pytest.fixture(name="served")
def _served(db, home_path):
    db.append_message("s1", "user", "hello", create={"source": "cli"})
    served = Served(Options(home=str(home_path)))
    yield served
    served.close()


@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
async def test_an_older_client_is_told_of_what_it_subscribed_to(db, served):
    told = []
    heard = anyio.Event()

    async def handle(message):
        told.append(message)
        kinds = {type(each) for each in told}
        if kinds >= {ResourceUpdatedNotification, ResourceListChangedNotification}:
            heard.set()

    created = server.create(served)
    async with Client(created, mode="legacy", message_handler=handle, cache=None) as client:
        capabilities = client.server_capabilities.resources
        assert (capabilities.subscribe, capabilities.list_changed) == (True, True)
        await client.list_tools()
        await client.subscribe_resource("session://s1")
        with anyio.fail_after(20):
            while not heard.is_set():
                db.append_message("s1", "user", "more")
                db.append_message(f"n{len(told)}", "user", "new", create={"source": "cli"})
                await anyio.sleep(0.2)
    updated = {m.params.uri for m in told if isinstance(m, ResourceUpdatedNotification)}
    assert {str(uri) for uri in updated} == {"session://s1"}


async def test_a_newer_client_is_told_of_what_comes_right_behind_the_answer(db, served):
    created = server.create(served)
    async with Client(created, mode="auto", cache=None) as client:
        await client.list_tools()
        async with client.listen(resource_subscriptions=["session://s1"]) as events:
            db.append_message("s1", "user", "more")  # right behind the answer
            with anyio.fail_after(20):
                async for event in events:
                    assert event.uri == "session://s1"
                    break
