"""Clients that cancel, read late, send garbage or flood keep no other client waiting."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from session_core import SessionDB
from tests.thorough import mark_thorough
from tests.wire.conftest import (
    TOKEN,
    fork_command,
    make_environment,
    serve_command,
    serve_home,
    start_raw_process,
)

MANY = 100
HEADERS = {
    "Authorization": f"Bearer {TOKEN}",
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}
INFO = {"name": "raw", "version": "1"}
BEGIN = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO}


@pytest.fixture(scope="module", name="port")
def _port(served_home):
    with serve_home(served_home) as (_, port):
        yield port


def make_call(number, name, **arguments):
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def send_body(port, body, **headers):
    """Send a body and leave its answer unread."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", "/mcp", body, HEADERS | more)
    return connection


def read_answer(connection):
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def start_legacy_session(port):
    """Initialize like an older client, and return the session headers of its requests."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": BEGIN}
    answer, _ = read_answer(send_body(port, json.dumps(message)))
    return {"Mcp_Session_Id": answer.headers["Mcp-Session-Id"]}


@pytest.mark.requirement("wire:rough")
def test_cancelled_wait_receives_no_events(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    with SessionDB(home / "state.db") as db, start_raw_process(home) as process:
        db.create_session("s1", "cli")
        process.begin()
        start = process.ask("tools/call", name="events_wait", arguments={"timeout_s": 0})
        arguments = {"timeout_s": 50, "cursor": start["result"]["structuredContent"]["cursor"]}
        process.send(make_call(98, "events_wait", **arguments))
        cancel = {"requestId": 98, "reason": "enough"}
        process.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel})
        process.send(make_call(99, "events_wait", **arguments))
        process.ask("tools/call", name="sessions_list", arguments={})  # both are waiting by now
        db.append_message("s1", "user", "news")
        answers = [process.line()]
        while answers[-1].get("id") != 99:
            answers.append(process.line())
        process.send(make_call(100, "sessions_list"))
        while answers[-1].get("id") != 100:
            answers.append(process.line())
        text = [answer["id"] for answer in answers if "result" in answer]
        assert text == [99, 100]


@pytest.mark.requirement("wire:interrupted")
@pytest.mark.parametrize("requests", [[], [make_call(2, "events_wait", timeout_s=50)]])
def test_ctrl_c_ends_server(served_home, requests):
    with start_raw_process(served_home, serve=serve_command) as process:
        process.begin()
        process.ask("tools/call", name="sessions_list", arguments={})
        for message in requests:
            process.send(message)
        process.process.send_signal(signal.SIGINT)
        assert process.process.wait(30) == 130
        assert process.process.stderr.read() == ""


@pytest.mark.requirement("wire:rough")
def test_slow_stdio_reader_gets_every_answer(served_home):
    process = subprocess.Popen(
        fork_command(served_home),
        env=make_environment(served_home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        first = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": BEGIN}
        request = [first, {"jsonrpc": "2.0", "method": "notifications/initialized"}]
        request += [make_call(number, "sessions_search", query="the") for number in range(1, MANY)]
        process.stdin.write("".join(json.dumps(item) + "\n" for item in request))
        process.stdin.flush()
        lines = [json.loads(process.stdout.readline()) for _ in range(MANY)]
        assert sorted(line["id"] for line in lines) == list(range(MANY))
        assert sum(len(json.dumps(line)) for line in lines) > 200_000  # more than a pipe holds
        process.stdin.close()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.requirement("wire:rough")
def test_slow_http_reader_blocks_no_client(port):
    session = start_legacy_session(port)
    late = [
        send_body(port, json.dumps(make_call(number, "sessions_search", query="the")), **session)
        for number in range(2, 22)
    ]
    others = start_legacy_session(port)
    _, body = read_answer(send_body(port, json.dumps(make_call(2, "sessions_list")), **others))
    assert b'"sessions"' in body
    assert all(b'"hits"' in read_answer(item)[1] for item in late)


@pytest.mark.requirement("wire:rough")
@pytest.mark.parametrize(
    "body", [b"garbage", b"[]", b"{}", b'{"jsonrpc":"2.0"}', b"\x00", b"[" * 5000, b'"x"', b""]
)
def test_garbage_over_http_is_refused(port, body):
    session = start_legacy_session(port)
    answer, text = read_answer(send_body(port, body, **session))
    assert 400 <= answer.status < 500, text
    _, text = read_answer(send_body(port, json.dumps(make_call(2, "sessions_list")), **session))
    assert b'"sessions"' in text


@pytest.mark.requirement("wire:rough")
def test_http_request_before_handshake_is_refused(port):
    answer, text = read_answer(send_body(port, json.dumps(make_call(2, "sessions_list"))))
    assert answer.status == 400, text
    assert b'"sessions"' not in text


@pytest.mark.requirement("wire:rough")
@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("way", ["streamable", mark_thorough("sse")])
async def test_hundred_concurrent_http_calls_are_answered(port, mode, way):
    arguments = {"Authorization": f"Bearer {TOKEN}"}
    answers = []
    async with httpx2.AsyncClient(headers=arguments, timeout=60) as http_client:
        if way == "sse":
            transport = sse_client(f"http://127.0.0.1:{port}/sse", headers=arguments)
        else:
            address = f"http://127.0.0.1:{port}/mcp"
            transport = streamable_http_client(address, http_client=http_client)
        async with Client(transport, mode=mode, cache=None) as client:

            async def ask(number):
                answers.append(
                    await client.call_tool("sessions_search", {"query": f"deploy {number}"})
                )

            with anyio.fail_after(120):
                async with anyio.create_task_group() as tasks:
                    for number in range(MANY):
                        tasks.start_soon(ask, number)
    assert [answer.is_error for answer in answers] == [False] * MANY
