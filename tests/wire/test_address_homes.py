"""Servers over the address of a home in PostgreSQL, each a process with a client of its own."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from session_core import open_home
from tests import postgres_server
from tests.cli.fork_server import get_fork_server
from tests.postgres_home import get_home_address, make_postgres
from tests.wire.conftest import make_environment

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def connect(address: str, folder: Path, *more: str) -> AsyncIterator[Client]:
    """Start a server over an address, which its environment names, and connect to it."""
    env = make_environment(folder / "home") | {"MCP_SESSIONS_HOME": address}
    command = str(get_fork_server().command)
    started = StdioServerParameters(command=command, args=["serve", *more], env=env)
    async with Client(stdio_client(started), cache=None) as client:
        yield client


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool, and return its answer."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content[0].text
    content: dict[str, Any] = result.structured_content
    return content


@pytest.mark.requirement("wire:addresses")
async def test_servers_share_events_and_plans(tmp_path: Path) -> None:
    address = get_home_address(tmp_path)
    with make_postgres(tmp_path, clock=lambda: 1.6e9) as db:
        db.append_message("old", "user", "x", create={"source": "cli"})
        db.end_session("old", "user_exit")
    async with connect(address, tmp_path) as one, connect(address, tmp_path) as other:
        cursor = (await call(one, "events_wait", timeout_s=0))["cursor"]
        heard: list[dict[str, Any]] = []

        async def wait() -> None:
            heard.append(await call(one, "events_wait", cursor=cursor, timeout_s=30))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await call(one, "sessions_list")
            await call(other, "sessions_edit", sessions=["old"], title="Renamed elsewhere")
        assert [(event["type"], event["title"]) for event in heard[0]["events"]] == [
            ("title_changed", "Renamed elsewhere")
        ]
        assert (await call(one, "sessions_stats"))["home"] == address
        plan = (await call(one, "sessions_prune"))["plan"]
        answer = await call(other, "sessions_prune", plan=plan)
        assert (answer["outcome"], answer["removed"]) == ("applied", 1)
        assert (await call(one, "sessions_list"))["sessions"] == []
        assert (await call(one, "sessions_restore", batch=answer["batch"]))["restored"] == 1
        assert len((await call(other, "sessions_list"))["sessions"]) == 1


async def test_read_only_server_creates_no_home(tmp_path: Path) -> None:
    name = uuid.uuid4().hex
    address = f"{postgres_server.get_address()}&home={name}"
    async with connect(address, tmp_path, "--read-only") as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert not tools & {"sessions_edit", "sessions_prune"}
        assert (await call(client, "sessions_list"))["sessions"] == []
        report = await call(client, "sessions_stats")
        assert [(row["code"], name in row["what"]) for row in report["findings"]] == [
            ("no_database", True)
        ]
    with open_home(address) as home:
        assert home.db.admin.get_home_id() is None


@pytest.mark.requirement("wire:addresses-down")
async def test_server_reports_unreachable_database(tmp_path: Path) -> None:
    async with connect("postgresql://u:secret@127.0.0.1:1/d", tmp_path) as client:
        result = await client.call_tool("sessions_list", {})
        assert result.is_error
        assert "does not answer; check host, port" in result.content[0].text
        report = await call(client, "sessions_stats")
        assert report["home"] == "postgresql://u@127.0.0.1:1/d"
        assert [row["code"] for row in report["findings"]] == ["unreadable"]
        assert "secret" not in str(report) + result.content[0].text
