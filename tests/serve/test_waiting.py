"""Many who wait: one of them looks for all, and a wait whose client has left ends."""

from __future__ import annotations

import json

import anyio
import pytest

from mcp_serve import http, server
from mcp_serve.door import Door
from mcp_serve.served import Options, Served
from session_core import SessionDB

pytestmark = pytest.mark.anyio

WAITERS = 50


async def test_one_looks_for_all(db, call, monkeypatch):
    db.create_session("s1", "cli")
    looks = []
    plain = SessionDB.changes

    def counted(*given, **more):
        looks.append(given)
        return plain(*given, **more)

    monkeypatch.setattr(SessionDB, "changes", counted)
    cursor = (await call("events_wait", timeout_s=0))["cursor"]
    async with anyio.create_task_group() as tasks:
        for _ in range(WAITERS):
            tasks.start_soon(lambda: call("events_wait", cursor=cursor, timeout_s=2))
    # Each looks when it begins and when it ends, and once in between at most.
    assert len(looks) < 10 * WAITERS


async def test_all_of_them_hear_of_a_commit(db, call):
    db.create_session("s1", "cli")
    cursor = (await call("events_wait", timeout_s=0))["cursor"]
    heard = []

    async def wait():
        heard.append(await call("events_wait", cursor=cursor, timeout_s=50))

    with anyio.fail_after(40):
        async with anyio.create_task_group() as tasks:
            for _ in range(WAITERS):
                tasks.start_soon(wait)
            await call("sessions_list")
            db.append_message("s1", "user", "news")
    assert [each["events"][0]["text"] for each in heard] == ["news"] * WAITERS


async def test_when_the_one_who_looks_is_done_another_looks(db, call):
    db.create_session("s1", "cli")
    cursor = (await call("events_wait", timeout_s=0))["cursor"]
    heard = []

    async def wait():
        heard.append(await call("events_wait", cursor=cursor, timeout_s=50))

    with anyio.fail_after(40):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            assert (await call("events_wait", cursor=cursor, timeout_s=0.2))["events"] == []
            tasks.start_soon(wait)
            db.append_message("s1", "user", "news")
    assert [each["events"][0]["text"] for each in heard] == ["news"] * 2


class Visit:
    """A request over ASGI, whose client reads for as long as it likes."""

    def __init__(self, app, body, **headers):
        sent = {
            "host": "127.0.0.1",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        } | {name.replace("_", "-"): value for name, value in headers.items()}
        self._scope = {
            "type": "http",
            "method": "POST",
            "path": http.MCP,
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
        }
        self._app = app
        self._body = [json.dumps({"jsonrpc": "2.0"} | body).encode()]
        self.left = anyio.Event()
        self.begun = anyio.Event()
        self.headers = {}

    async def __call__(self):
        """Make it."""
        await self._app(self._scope, self._receive, self._send)

    async def _receive(self):
        if self._body:
            return {"type": "http.request", "body": self._body.pop(), "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        if message["type"] == "http.response.start":
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            self.begun.set()


@pytest.fixture(name="served")
def _served(db, home_path):
    db.create_session("s1", "cli")
    served = Served(Options(home=str(home_path)))
    yield served
    served.close()


@pytest.fixture(name="app")
async def _app(served):
    """The app over HTTP, alive; it wants no token."""
    app = http.app(server.create(served), Door.of("127.0.0.1", [], [], None))
    inner = app._app
    async with inner.router.lifespan_context(inner):
        yield app


async def until(condition):
    """Return when something is so."""
    with anyio.fail_after(30):
        while not condition():  # noqa: ASYNC110 -- what somebody holds says nothing when it is free
            await anyio.sleep(0.01)


async def begin(app):
    """Shake hands as an older client does, and return the headers of what follows."""
    info = {"name": "raw", "version": "1"}
    given = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    visit = Visit(app, {"id": 1, "method": "initialize", "params": given})
    await visit()
    return {"mcp_session_id": visit.headers["mcp-session-id"]}


async def test_only_so_many_older_clients_are_kept(served, monkeypatch):
    monkeypatch.setattr(http, "_SESSIONS", 2)
    app = http.app(server.create(served), Door.of("127.0.0.1", [], [], None))
    async with app._app.router.lifespan_context(app._app):
        answers = [await begin(app) for _ in range(2)]
        assert len({each["mcp_session_id"] for each in answers}) == 2
        with pytest.raises(KeyError):
            await begin(app)


WAIT = {"name": "events_wait", "arguments": {"timeout_s": 50}}


@pytest.mark.parametrize("ending", ["client", "server"])
async def test_a_wait_over_http_ends_with_its_client_or_its_server(app, served, ending):
    headers = await begin(app)
    visit = Visit(app, {"id": 2, "method": "tools/call", "params": WAIT}, **headers)
    feed = served.home().feed
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(visit)
        await until(feed._turn.locked)
        visit.left.set() if ending == "client" else app.end()
        await until(lambda: not feed._turn.locked())
