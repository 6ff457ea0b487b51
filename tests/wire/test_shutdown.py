"""Shutdown over HTTP: waiting clients get an answer, and it is quick."""

from __future__ import annotations

import http.client
import json
import signal

import pytest

from tests.wire.conftest import TOKEN, serve_command, serve_home

WAITERS = 10
HEADERS = {
    "Authorization": f"Bearer {TOKEN}",
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}


def send_message(port, message, **headers):
    """Send a message and leave its answer unread."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = json.dumps({"jsonrpc": "2.0"} | message)
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", "/mcp", body, HEADERS | more)
    return connection


def read_answer(connection):
    """Read an answer to its end and return its headers."""
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.headers


def start_legacy_session(port):
    """Initialize like an older client, and return the session headers of its requests."""
    info = {"name": "raw", "version": "1"}
    arguments = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    headers = read_answer(
        send_message(port, {"id": 1, "method": "initialize", "params": arguments})
    )
    return {"Mcp_Session_Id": headers["Mcp-Session-Id"]}


def make_call(number, name, **arguments):
    params = {"name": name, "arguments": arguments}
    return {"id": number, "method": "tools/call", "params": params}


@pytest.mark.requirement("wire:last-words")
def test_shutdown_answers_waiting_calls(served_home):
    with serve_home(served_home, serve=serve_command) as (process, port):
        session = start_legacy_session(port)
        read_answer(send_message(port, make_call(2, "sessions_list"), **session))
        waiting = [
            send_message(port, make_call(10 + number, "events_wait", timeout_s=50), **session)
            for number in range(WAITERS)
        ]
        answers = [connection.getresponse() for connection in waiting]
        read_answer(send_message(port, make_call(3, "sessions_list"), **session))
        process.send_signal(signal.SIGTERM)
        text = [answer.read() for answer in answers]
        assert process.wait(20) == 0
        assert process.stderr.read() == ""
        for connection in waiting:
            connection.close()
    assert ["try the same call again" in item.decode() for item in text] == [True] * WAITERS


@pytest.mark.requirement("wire:last-words")
def test_shutdown_ignores_disconnected_waiters(served_home):
    with serve_home(served_home, serve=serve_command) as (process, port):
        session = start_legacy_session(port)
        read_answer(send_message(port, make_call(2, "sessions_list"), **session))
        for number in range(WAITERS):
            gone = send_message(
                port, make_call(10 + number, "events_wait", timeout_s=50), **session
            )
            gone.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""


@pytest.mark.requirement("wire:last-words")
def test_shutdown_ends_sse_stream_cleanly(served_home):
    with serve_home(served_home, serve=serve_command) as (process, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/sse", headers=HEADERS)
        answer = connection.getresponse()
        begun = b""
        while b"session_id" not in begun:
            begun += answer.read1(1000)
        process.send_signal(signal.SIGTERM)
        assert b"event: message" not in answer.read()
        assert process.wait(20) == 0
        assert process.stderr.read() == ""
        connection.close()
