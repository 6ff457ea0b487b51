"""Standard input and output in a separate process, as every client starts it."""

from __future__ import annotations

import json
import time

import anyio
import pytest

from session_core import SessionDB
from tests.wire.conftest import MODERN, serve_command, start_raw_process

pytestmark = pytest.mark.anyio

READING = [
    "sessions_list",
    "sessions_read",
    "sessions_search",
    "sessions_stats",
    "routes_list",
    "events_wait",
]


@pytest.mark.requirement("wire:stdio")
async def test_tool_list_starts_with_reading_tools(client):
    tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools][:6] == READING


@pytest.mark.requirement("wire:stdio")
async def test_stdio_searches_and_reads(client):
    result = await client.call_tool("sessions_search", {"query": "deploy script", "limit": 1})
    (hit,) = result.structured_content["hits"]
    arguments = {"session": hit["session_id"], "around": hit["message_id"], "limit": 3}
    page = (await client.call_tool("sessions_read", arguments)).structured_content
    assert hit["message_id"] in [message["id"] for message in page["messages"]]


@pytest.mark.requirement("wire:stdio")
async def test_stdio_wait_sees_foreign_commit(client, served_home):
    start = (await client.call_tool("events_wait", {"timeout_s": 0})).structured_content
    answer = {}

    async def wait():
        arguments = {"cursor": start["cursor"], "timeout_s": 30}
        answer.update((await client.call_tool("events_wait", arguments)).structured_content)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        with SessionDB(served_home / "state.db") as db:
            create = {"source": "cli"}
            await anyio.to_thread.run_sync(
                lambda: db.append_message("live", "user", "news", create=create)
            )
    assert "news" in [event.get("text") for event in answer["events"]]


@pytest.mark.requirement("wire:many")
async def test_hundred_concurrent_stdio_calls_are_answered(client):
    answers = []

    async def ask(number):
        arguments = {"query": "deploy"} if number % 2 else {"query": "数据"}
        answers.append(await client.call_tool("sessions_search", arguments))

    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(ask, number)
    assert [answer.is_error for answer in answers] == [False] * 100


@pytest.mark.requirement("wire:many")
async def test_stdio_wait_does_not_block_calls(client):
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(client.call_tool, "events_wait", {"timeout_s": 50})
        with anyio.fail_after(20):
            assert not (await client.call_tool("sessions_list", {})).is_error
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("wire:stdio")
def test_server_info_is_sent_in_both_eras(served_home):
    with start_raw_process(served_home) as process:
        modern = process.ask("server/discover", meta=MODERN)["result"]
        assert "sessions_search" in modern["instructions"]
    with start_raw_process(served_home) as process:
        legacy = process.begin()["result"]
        assert legacy["serverInfo"]["name"] == "mcp-sessions"
        assert legacy["serverInfo"]["version"]
        assert "sessions_search" in legacy["instructions"]


@pytest.mark.requirement("wire:end")
def test_end_of_input_ends_server(served_home):
    with start_raw_process(served_home, serve=serve_command) as process:
        process.begin()
        process.ask("tools/call", name="sessions_list", arguments={})
        assert process.end() == 0
        assert process.process.stderr.read() == ""


@pytest.mark.requirement("wire:end")
def test_end_of_input_ends_pending_wait(served_home):
    with start_raw_process(served_home, serve=serve_command) as process:
        process.begin()
        process.ask("tools/call", name="sessions_list", arguments={})
        arguments = {"name": "events_wait", "arguments": {"timeout_s": 50}}
        process.send({"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": arguments})
        began = time.monotonic()
        process.end()
        assert time.monotonic() - began < 25


@pytest.mark.requirement("wire:garbage")
def test_garbage_over_stdio_is_harmless(served_home):
    with start_raw_process(served_home) as process:
        process.begin()
        for line in ("garbage", "[]", "{}", '{"jsonrpc":"2.0"}', "\x00", "[" * 5000, '"x"'):
            process.send(line)
        answer = process.ask("tools/call", name="sessions_list", arguments={})
        assert answer["result"]["structuredContent"]["sessions"]


@pytest.mark.requirement("wire:garbage")
def test_stdio_request_before_handshake_is_refused(served_home):
    with start_raw_process(served_home) as process:
        assert process.ask("tools/list")["error"]["code"] == -32602
        assert process.begin()["result"]


@pytest.mark.requirement("server:told")
def test_initial_subscription_receives_changes(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    with SessionDB(home / "state.db") as db:
        db.append_message("s1", "user", "hello", create={"source": "cli"})
        expected = {"resourceSubscriptions": ["session://s1"]}
        arguments = {"_meta": MODERN, "notifications": expected}
        with start_raw_process(home) as process:
            process.send(
                {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": arguments}
            )
            assert process.line()["method"] == "notifications/subscriptions/acknowledged"
            db.append_message("s1", "user", "more")
            assert process.line()["params"]["uri"] == "session://s1"


@pytest.mark.requirement("wire:garbage")
def test_unknown_tool_is_protocol_error(served_home):
    with start_raw_process(served_home) as process:
        process.begin()
        error = process.ask("tools/call", name="sessions_delete", arguments={})["error"]
        assert error["code"] == -32602
        assert "sessions_list" in error["message"]


@pytest.mark.requirement("wire:nothing")
def test_missing_home_is_reported(tmp_path):
    missing = tmp_path / "nowhere" / "home"
    with start_raw_process(missing) as process:
        process.begin()
        listed = process.ask("tools/call", name="sessions_list", arguments={})["result"]
        note = "There are no conversations yet."
        assert listed["structuredContent"] == {"sessions": [], "next_cursor": None, "note": note}
        report = process.ask("tools/call", name="sessions_stats", arguments={})["result"]
        findings = report["structuredContent"]["findings"]
        assert findings[-1]["code"] == "no_database"
        assert str(missing) in findings[-1]["what"]
        process.end()
    assert not missing.exists()


@pytest.mark.requirement("wire:stores")
def test_missing_store_stops_start(served_home):
    with start_raw_process(served_home, "--store", "work") as process:
        assert process.process.wait(30) == 3
        assert "no store 'work'" in process.process.stderr.read()


@pytest.mark.requirement("wire:stores")
def test_stdio_serves_stores_separately(tmp_path):
    root = tmp_path / "root"
    for name, folder in (("hermes", root), ("hermes:work", root / "profiles" / "work")):
        folder.mkdir(parents=True, exist_ok=True)
        with SessionDB(folder / "state.db") as db:
            db.append_message("s1", "user", f"of {name}", create={"source": "cli"})
    with start_raw_process(root, "--all-profiles") as process:
        process.begin()
        for name in ("hermes", "hermes:work"):
            arguments = {"store": name}
            answer = process.ask("tools/call", name="sessions_list", arguments=arguments)
            (row,) = answer["result"]["structuredContent"]["sessions"]
            assert (row["store"], row["preview"]) == (name, f"of {name}")


@pytest.mark.requirement("wire:nothing")
def test_read_only_server_writes_nothing(tmp_path):
    home, state = tmp_path / "home", tmp_path / "state"
    home.mkdir()
    with SessionDB(home / "state.db") as db:
        db.append_message("s1", "user", "hello", create={"source": "cli"})
    with start_raw_process(home, "--read-only") as process:
        process.begin()
        names = [tool["name"] for tool in process.ask("tools/list")["result"]["tools"]]
        assert names == READING
        for name in ("sessions_list", "sessions_stats", "routes_list"):
            answer = process.ask("tools/call", name=name, arguments={})
            assert answer["result"].get("isError", False) is False, json.dumps(answer)
        process.end()
    assert {path.name for path in home.iterdir()} <= {"state.db", "state.db-shm", "state.db-wal"}
    assert not state.exists()
