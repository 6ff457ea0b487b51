"""A home with planted conversations, and a client for it in both protocol versions, in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from mcp_serve import server
from mcp_serve.stores.stores import ServedStores, ServerOptions
from session_core import SessionDB, SessionSource, SessionStore
from tests.homes import make_own_database
from tests.thorough import is_in_share, mark_thorough

OLD = 1_600_000_000

Call = Callable[..., Awaitable[dict[str, Any]]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test in both versions. The fast tests run about an eighth in the older one."""
    named = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "client" in metafunc.fixturenames and "client" not in named:
        is_shared = is_in_share((metafunc.function.__name__, "legacy"), 8)
        older = "legacy" if is_shared else mark_thorough("legacy")
        metafunc.parametrize("client", ["auto", older], indirect=True)


@pytest.fixture(name="db")
def _db(home_path: Path):
    """The database of the home, as an agent next to the server opens it."""
    make_own_database(home_path / "state.db")
    with SessionDB(home_path / "state.db") as db:
        yield db


@pytest.fixture(name="options")
def _options() -> dict[str, Any]:
    """The options of the server. A test may override them with a mark `options`."""
    return {}


@pytest.fixture(name="client")
async def _client(request, home_path: Path) -> AsyncIterator[Client]:
    mark = request.node.get_closest_marker("options")
    served = ServedStores(ServerOptions(home=str(home_path), **(mark.kwargs if mark else {})))
    async with Client(server.create_server(served), mode=request.param, cache=None) as client:
        yield client
    served.close()


@pytest.fixture(name="call")
def _call(client: Client) -> Call:
    """Call a tool and return its answer. Text and structured content must be equal."""

    async def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
        result = await client.call_tool(tool, arguments)
        assert not result.is_error, result.content[0].text
        assert json.loads(result.content[0].text) == result.structured_content
        return result.structured_content

    return call


@pytest.fixture(name="refused")
def _refused(client: Client) -> Callable[..., Awaitable[str]]:
    """Call a tool that refuses, and return its error message."""

    async def refused(tool: str, **arguments: Any) -> str:
        result = await client.call_tool(tool, arguments)
        assert result.is_error, result.content[0].text
        return result.content[0].text

    return refused


@pytest.fixture(name="old_sessions")
def _old_sessions(db):
    """Three sessions that a prune takes, and a new one."""
    for number in range(3):
        create = {"source": "cli", "started_at": OLD}
        db.append_message(f"old{number}", "user", "x" * 50, timestamp=OLD, create=create)
        db.end_session(f"old{number}", "user_exit")
    db.append_message("new", "user", "hello", create={"source": "cli"})


@pytest.fixture(name="key")
def _key(db, home_path: Path) -> str:
    """The session key of a chat with a message. Another chat is suspended."""
    chat = SessionSource(platform="telegram", chat_id="42", chat_name="Lisbon \u202etrip")
    with SessionStore.open(home_path, db) as store:
        entry = store.get_or_create_session(chat)
        db.append_message(entry.session_id, "user", "hello", create={"source": "telegram"})
        other = store.get_or_create_session(SessionSource(platform="discord", chat_id="7"))
        store.suspend_session(other.session_key)
        return entry.session_key


@pytest.fixture(name="many_sessions")
def _many_sessions(db):
    """Sixty sessions, one of them with a title."""
    for number in range(60):
        db.append_message(f"s/{number:02}", "user", f"hello {number}", create={"source": "cli"})
    db.set_session_title("s/07", "The plan")


@pytest.fixture(name="routed_home")
def _routed(db, home_path):
    """Chats in sessions of a project."""
    create = {"source": "telegram", "cwd": "/srv/ferry"}
    with SessionStore.open(home_path, db) as store:
        chat = SessionSource(platform="telegram", chat_id="4/2", chat_name="Ferries")
        entry = store.get_or_create_session(chat)
        db.append_message(entry.session_id, "user", "hello", create=create)
    return entry


@pytest.fixture(name="tools")
async def _tools(client):
    return {tool.name: tool for tool in (await client.list_tools()).tools}
