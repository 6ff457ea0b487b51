"""Stalled HTTP connections do not delay a new client."""

from __future__ import annotations

import json
import signal
import socket

import pytest

from tests.homes import fill_database, make_hermes_database
from tests.wire.conftest import MODERN, TOKEN, serve_home

HEAD = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
STALLS = {
    "silent": "",
    "half a line": "POST /m",
    "half a head": "GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
    "a body of a stranger": "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{",
    "a body with the token": f"{HEAD}Content-Length: 1000\r\n\r\n{{",
    "an endless chunk": f"{HEAD}Transfer-Encoding: chunked\r\n\r\nffff\r\n{{",
    "a stream": HEAD.replace("POST", "GET") + "Accept: text/event-stream\r\n\r\n",
}
"""Ways to stall a connection: 100 of each."""


@pytest.fixture(name="home")
def _home(tmp_path):
    home = tmp_path / "home"
    make_hermes_database(home / "state.db")
    fill_database(home / "state.db", 2, 4)
    return home


def request_session_list(port: int) -> bytes:
    """Return the answer to a new client."""
    call = {"name": "sessions_list", "arguments": {}, "_meta": MODERN}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
    headers = (
        "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
        "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: sessions_list\r\n"
    )
    text = f"{HEAD}{headers}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as fresh:
        fresh.sendall(text.encode())
        while part := fresh.recv(65_536):
            answer += part
    return answer


@pytest.mark.requirement("hostile:stalled")
def test_stalled_connections_block_no_client(home):
    with serve_home(home) as (process, port):
        stalled = []
        for number in range(100):
            for text in STALLS.values():
                connection = socket.create_connection(("127.0.0.1", port), timeout=30)
                stalled.append(connection)
                connection.sendall(text.encode())
            if number % 25 == 0:
                assert b'"sessions"' in request_session_list(port)
        assert len(stalled) == 700
        for _ in range(5):
            assert b'"sessions"' in request_session_list(port)
        for connection in stalled:
            connection.close()
        assert b'"sessions"' in request_session_list(port)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert "Traceback" not in process.stderr.read()
