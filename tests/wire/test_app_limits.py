"""Unauthenticated connections block no client and are closed in time."""

from __future__ import annotations

import json
import select
import signal
import socket
import time

import pytest

from tests.wire.conftest import TOKEN, make_environment, serve_command, serve_home, start_listening

QUICK = "from mcp_serve.http import app as connections; connections._REQUEST_TIMEOUT_S = 0.5; "
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    },
}
BODY = json.dumps(INITIALIZE)
HEAD = (
    "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    "Accept: application/json, text/event-stream\r\n"
)
HEALTH = "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"
KNOWN = f"Authorization: Bearer {TOKEN}\r\n"


@pytest.fixture(scope="module", name="port")
def _port(served_home):
    """A server with a short timeout and otherwise unchanged."""
    line = serve_command(served_home)
    at = line.index("-m")
    run = f"{QUICK}from mcp_serve.cli.main import main; raise SystemExit(main())"
    line[at : at + 2] = ["-c", run]
    env = make_environment(served_home) | {"MCP_SESSIONS_TOKEN": TOKEN}
    with start_listening([*line, "--http", "--port", "0"], env) as (process, port):
        yield port
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stderr.read() == "", "somebody who left is no defect"


def send_text(port, text):
    """Send bytes and nothing more."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.sendall(text.encode())
    return connection


def request_with_token(port):
    """Send a request with the token and return the beginning of its answer."""
    text = f"{HEAD}{KNOWN}Content-Length: {len(BODY)}\r\n\r\n{BODY}"
    with send_text(port, text) as connection:
        return connection.recv(4096)[:15]


def read_until_closed(connection):
    """Return all bytes received on a connection until it is closed."""
    result = b""
    try:
        while chunk := connection.recv(65_536):
            result += chunk
    except ConnectionResetError:
        pass
    return result


SLOW = {
    "nothing": "",
    "half a head": "GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
    "no body": f"{HEAD}Content-Length: 1000\r\n\r\n",
    "half a body": f"{HEAD}Content-Length: 1000\r\n\r\n{{",
    "half a body with the token": f"{HEAD}{KNOWN}Content-Length: 1000\r\n\r\n{{",
    "half a second request": f"{HEALTH}\r\n{HEALTH}",
}


@pytest.mark.requirement("wire:strangers")
@pytest.mark.parametrize("text", SLOW)
def test_stalled_connection_is_closed(port, text):
    with send_text(port, SLOW[text]) as connection:
        answered = read_until_closed(connection)
    with_token, whole = "with the token" in text, "second" in text
    assert answered[9:12] == (b"401" if "body" in text and not with_token else b"200" * whole)
    assert request_with_token(port) == b"HTTP/1.1 200 OK"


@pytest.mark.requirement("wire:strangers")
def test_trickling_connection_is_closed(port):
    with send_text(port, "GET /mcp HTTP/1.1\r\n") as connection:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            readable, _, _ = select.select([connection], [], [], 0.05)
            if readable:
                break
            connection.sendall(b"X")
        assert read_until_closed(connection) == b""


@pytest.mark.requirement("wire:strangers")
def test_slow_answer_keeps_connection_open(port):
    arguments = {"name": "events_wait", "arguments": {"timeout_s": 1.5}}
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    call = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": arguments | {"_meta": meta},
    }
    more = (
        "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: events_wait\r\n"
        "Connection: close\r\n"
    )
    body = json.dumps(call)
    text = f"{HEAD}{KNOWN}{more}Content-Length: {len(body)}\r\n\r\n{body}"
    with send_text(port, text) as connection:
        answered = read_until_closed(connection)
    assert answered[9:12] == b"200"
    assert b'"cursor"' in answered


@pytest.mark.requirement("wire:strangers")
def test_silent_connections_do_not_exhaust_server(served_home):
    with serve_home(served_home) as (process, port):
        silent = [
            send_text(port, "GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ") for _ in range(600)
        ]
        assert request_with_token(port) == b"HTTP/1.1 200 OK"
        assert read_until_closed(silent[0]) == b""
        for connection in silent:
            connection.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""


@pytest.mark.requirement("wire:strangers")
def test_authenticated_connections_are_not_evicted(served_home):
    asks = f"GET /sse HTTP/1.1\r\nHost: 127.0.0.1\r\n{KNOWN}\r\n"
    with serve_home(served_home) as (_, port), send_text(port, asks) as stream:
        begun = b""
        while b"session_id" not in begun:
            begun += stream.recv(4096) or pytest.fail(f"closed after {begun!r}")
        silent = [send_text(port, "") for _ in range(600)]
        assert read_until_closed(silent[0]) == b""
        assert select.select([stream], [], [], 0)[0] == []
        for connection in silent:
            connection.close()
