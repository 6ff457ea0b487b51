"""Many waiting calls: one polls for all, and a wait ends when its client leaves."""

from __future__ import annotations

import json
import time
from functools import partial

import anyio
import pytest
from anyio import to_thread
from mcp.types import PromptReference

from mcp_serve import server
from mcp_serve.http import app as http_app
from mcp_serve.http import auth
from mcp_serve.http.auth import AccessRules
from mcp_serve.stores.home_feed import HomeFeed
from mcp_serve.stores.homes import ServedHome
from mcp_serve.stores.stores import ServedStores, ServerOptions
from session_core import SessionDB, SessionSource, SessionStore
from tests.homes import connect

pytestmark = pytest.mark.anyio

WAITERS = 50
MANY = 400


@pytest.fixture(name="counted_looks")
def _served_looks(monkeypatch):
    """The polls of waiting calls, in order."""
    looks = []
    plain = HomeFeed.read_events

    def counted(*arguments):
        looks.append(arguments)
        return plain(*arguments)

    monkeypatch.setattr(HomeFeed, "read_events", counted)
    return looks


@pytest.mark.requirement("serving:waiting")
async def test_waiters_share_single_look(db, call, monkeypatch):
    db.create_session("s1", "cli")
    looks = []
    plain = SessionDB.read_changes

    def counted(*arguments, **more):
        looks.append(arguments)
        return plain(*arguments, **more)

    monkeypatch.setattr(SessionDB, "read_changes", counted)
    cursor = (await call("events_wait", timeout_s=0))["cursor"]
    async with anyio.create_task_group() as tasks:
        for _ in range(WAITERS):
            tasks.start_soon(lambda: call("events_wait", cursor=cursor, timeout_s=2))
    # Each looks when it begins and when it ends, and once in between at most.
    assert len(looks) < 10 * WAITERS


@pytest.mark.requirement("serving:waiting")
async def test_waiters_look_only_after_commit(db, call, client, counted_looks):
    db.create_session("s1", "cli")
    await call("sessions_list")
    async with anyio.create_task_group() as tasks:
        for _ in range(MANY):
            tasks.start_soon(client.call_tool, "events_wait", {"timeout_s": 50})
        await wait_until(lambda: len(counted_looks) >= MANY)
        for _ in range(3):  # and no call is woken meanwhile
            await call("events_wait", timeout_s=0.2)
        tasks.cancel_scope.cancel()
    assert len(counted_looks) < 2 * MANY


@pytest.mark.requirement("serving:waiting")
async def test_commit_wakes_every_waiter(db, call):
    db.create_session("s1", "cli")
    cursor = (await call("events_wait", timeout_s=0))["cursor"]
    answer = []

    async def wait():
        answer.append(await call("events_wait", cursor=cursor, timeout_s=50))

    with anyio.fail_after(40):
        async with anyio.create_task_group() as tasks:
            for _ in range(WAITERS):
                tasks.start_soon(wait)
            await call("sessions_list")
            db.append_message("s1", "user", "news")
    assert [item["events"][0]["text"] for item in answer] == ["news"] * WAITERS


@pytest.mark.requirement("serving:waiting")
async def test_next_waiter_takes_over_looking(db, call):
    db.create_session("s1", "cli")
    cursor = (await call("events_wait", timeout_s=0))["cursor"]
    answer = []

    async def wait():
        answer.append(await call("events_wait", cursor=cursor, timeout_s=50))

    with anyio.fail_after(40):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            assert (await call("events_wait", cursor=cursor, timeout_s=0.2))["events"] == []
            tasks.start_soon(wait)
            db.append_message("s1", "user", "news")
    assert [item["events"][0]["text"] for item in answer] == ["news"] * 2


@pytest.mark.requirement("serving:waiting")
async def test_waits_leave_transport_threads_free(db, call, client):
    db.append_message("s1", "user", "hello", create={"source": "cli"})
    started = (await call("events_wait", timeout_s=0))["cursor"]
    threads = to_thread.current_default_thread_limiter()
    duration = [object() for _ in range(int(threads.available_tokens))]
    for item in duration:
        await threads.acquire_on_behalf_of(item)
    try:
        with anyio.fail_after(30):
            await call("sessions_list")
            await call("events_wait", timeout_s=0.1)
            assert (await call("events_wait", cursor=started, timeout_s=0))["cursor"]
            await client.list_resources()
            prompt = PromptReference(type="ref/prompt", name="catch_up")
            await client.complete(prompt, {"name": "session", "value": "s"})
            edited = await call("sessions_edit", sessions="s1", title="greeting")
            await call("sessions_restore", batch=edited["batch"])
    finally:
        for item in duration:
            threads.release_on_behalf_of(item)


@pytest.mark.requirement("serving:waiting")
async def test_locked_changes_do_not_block_reads(db, call, home_path):
    for number in range(12):
        db.create_session(f"s{number}", "cli")
    await call("sessions_list")
    with connect(home_path / "state.db") as other:
        async with anyio.create_task_group() as tasks:
            other.execute("BEGIN IMMEDIATE")
            for number in range(12):
                arguments = {"sessions": f"s{number}", "title": f"chat {number}"}
                tasks.start_soon(partial(call, "sessions_edit", **arguments))
            await anyio.sleep(0.2)  # all of them are on their way
            with anyio.fail_after(10):
                result = await call("sessions_list")
            assert [session["title"] for session in result["sessions"]] == [None] * 12
            other.rollback()
    assert all(session["title"] for session in (await call("sessions_list"))["sessions"])


class Visit:
    """A request over ASGI whose client reads until it decides to leave."""

    def __init__(self, app, body, **headers):
        sent = {
            "host": "127.0.0.1",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        } | {name.replace("_", "-"): value for name, value in headers.items()}
        self._scope = {
            "type": "http",
            "method": "POST",
            "path": http_app.MCP,
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
        }
        self._app = app
        self._body = [json.dumps({"jsonrpc": "2.0"} | body).encode()]
        self.left = anyio.Event()
        self.begun = anyio.Event()
        self.headers = {}
        self.status = None

    async def __call__(self):
        """Send the request."""
        await self._app(self._scope, self._receive, self._send)

    async def _receive(self):
        if self._body:
            return {"type": "http.request", "body": self._body.pop(), "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            self.begun.set()


@pytest.fixture(name="served")
def _served(db, home_path):
    db.create_session("s1", "cli")
    served = ServedStores(ServerOptions(home=str(home_path)))
    yield served
    served.close()


@pytest.fixture(name="app")
async def _app(served):
    """A running app over HTTP that needs no token."""
    app = http_app.create_app(
        server.create_server(served), AccessRules.from_address("127.0.0.1", [], [], None)
    )
    inner = app._app
    async with inner.router.lifespan_context(inner):
        yield app


async def wait_until(condition):
    """Return when a condition is true."""
    with anyio.fail_after(30):
        while not condition():  # noqa: ASYNC110 -- a limiter has no event for a free slot
            await anyio.sleep(0.01)


async def start_legacy_session(app):
    """Initialize like an older client, and return the headers of its next requests."""
    info = {"name": "raw", "version": "1"}
    arguments = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    visit = Visit(app, {"id": 1, "method": "initialize", "params": arguments})
    await visit()
    return {"mcp_session_id": visit.headers["mcp-session-id"]}


@pytest.mark.requirement("serving:crowd")
async def test_legacy_sessions_are_bounded(served, monkeypatch):
    monkeypatch.setattr(http_app, "_MAX_SESSIONS", 2)
    app = http_app.create_app(
        server.create_server(served), AccessRules.from_address("127.0.0.1", [], [], None)
    )
    async with app._app.router.lifespan_context(app._app):
        answers = [await start_legacy_session(app) for _ in range(2)]
        assert len({answer["mcp_session_id"] for answer in answers}) == 2
        with pytest.raises(KeyError):
            await start_legacy_session(app)


WAIT = {"name": "events_wait", "arguments": {"timeout_s": 50}}


@pytest.mark.requirement("serving:waiting")
@pytest.mark.parametrize("ending", ["client", "server"])
async def test_http_wait_ends_with_client_or_server(app, served, ending):
    headers = await start_legacy_session(app)
    visit = Visit(app, {"id": 2, "method": "tools/call", "params": WAIT}, **headers)
    feed = served.get_home().feed
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(visit)
        await wait_until(feed._turn.locked)
        visit.left.set() if ending == "client" else app.end_requests()
        await wait_until(lambda: not feed._turn.locked())


@pytest.mark.requirement("serving:crowd")
async def test_concurrent_http_requests_are_bounded(app, served, monkeypatch):
    monkeypatch.setattr(auth, "_MAX_REQUESTS", 2)
    headers = await start_legacy_session(app)
    inside = [
        Visit(app, {"id": number, "method": "tools/call", "params": WAIT}, **headers)
        for number in (2, 3)
    ]
    late = Visit(app, {"id": 4, "method": "tools/list", "params": {}}, **headers)
    async with anyio.create_task_group() as tasks:
        for visit in inside:
            tasks.start_soon(visit)
            await visit.begun.wait()
        await late()
        assert late.status == 503
        inside[0].left.set()
        await wait_until(lambda: len(app._running) < 2)
        again = Visit(app, {"id": 5, "method": "tools/list", "params": {}}, **headers)
        await again()
        assert again.status == 200
        inside[1].left.set()


async def test_route_changed_in_pause_is_reported(db, home_path):
    with SessionStore.open(home_path, db) as store:
        entry = store.get_or_create_session(SessionSource(platform="telegram", chat_id="42"))
        db.append_message(entry.session_id, "user", "hello", create={"source": "telegram"})
        home = ServedHome(home_path)
        feed = HomeFeed(home)
        position = feed.get_current_position(None)
        feed._routes_due = time.monotonic() + 3600
        following = store.reset_session(entry.session_key)
    # Cursors settle after a second look.
    for _ in range(3):
        position = feed.read_events(position, 100).place
        feed._check_for_commit()
    commits = feed.commits
    feed._routes_due = time.monotonic()
    feed._check_for_commit()
    assert feed.commits == commits + 1
    (event,) = feed.read_events(position, 100).events
    assert (event["type"], event["session_id"]) == ("route_changed", following.session_id)
    home.close()
