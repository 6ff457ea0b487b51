"""Invalid messages: each gets an error, over standard input and over HTTP."""

from __future__ import annotations

import http.client
import json

import pytest

from mcp_serve.sdk.wire_messages import MOST_BYTES
from tests.wire.conftest import MODERN, TOKEN, serve_home, start_raw_process

INVALID = {
    "garbage": (b"garbage", -32700, None),
    "not UTF-8": (b"\xff\xfe{}", -32700, None),
    "cut short": (b'{"jsonrpc":"2.0","id":1,"method":"ping"', -32700, None),
    "bytes in an id": (b'{"jsonrpc":"2.0","id":"\xff","method":"ping"}', -32700, None),
    "bytes in params": (
        b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":"\xff"}}',
        -32700,
        7,
    ),
    "too deep for a parser": (
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":'
        + b"[" * 100_000
        + b"]" * 100_000
        + b"}}",
        -32700,
        None,
    ),
    "an endless number": (b'{"jsonrpc":"2.0","id":' + b"9" * 5_000 + b"}", -32700, None),
    "null": (b"null", -32600, None),
    "a text": (b'"x"', -32600, None),
    "nothing": (b"{}", -32600, None),
    "a batch": (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600, None),
    "no batch": (b"[]", -32600, None),
    "params in a list": (b'{"jsonrpc":"2.0","id":2,"method":"ping","params":[]}', -32600, 2),
    "half a character": (
        b'{"jsonrpc":"2.0","id":"three","method":"ping","params":{"a":"\\ud800"}}',
        -32600,
        "three",
    ),
    "half a character in an id": (
        b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
        -32600,
        None,
    ),
    "deep": (
        b'{"jsonrpc":"2.0","id":4,"method":"ping","params":{"a":' + b"[" * 500 + b"]" * 500 + b"}}",
        -32600,
        4,
    ),
    "no method": (b'{"jsonrpc":"2.0","id":5}', -32600, 5),
    "a method that is a number": (b'{"jsonrpc":"2.0","id":6,"method":7}', -32600, 6),
    "another version": (b'{"jsonrpc":"1.0","id":8,"method":"ping"}', -32600, 8),
    "no version": (b'{"id":9,"method":"ping"}', -32600, 9),
    "an id that is null": (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
    "an id that is a fraction": (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, None),
    "an id that is true": (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600, None),
    "a notification with a list": (b'{"jsonrpc":"2.0","method":"x","params":[]}', -32600, None),
}


@pytest.fixture(name="process", scope="module")
def _process(served_home):
    """A process before any handshake. Errors need none."""
    with start_raw_process(served_home) as process:
        yield process


@pytest.fixture(name="port", scope="module")
def _port(served_home):
    with serve_home(served_home) as (_, port):
        yield port


def send_body(port, body, path="/mcp", **headers):
    """Send a body, and return status and answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    arguments = {
        "Authorization": f"Bearer {TOKEN}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    connection.request("POST", path, body, arguments)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, text


def write_line(process, line):
    process.process.stdin.buffer.write(line + b"\n")
    process.process.stdin.flush()


@pytest.mark.requirement("hostile:messages")
@pytest.mark.parametrize("name", INVALID)
def test_invalid_message_over_stdio_is_answered(process, name):
    line, code, request_id = INVALID[name]
    write_line(process, line)
    answer = process.line()
    assert (answer["error"]["code"], answer["id"]) == (code, request_id), answer
    assert process.ask("ping", meta=MODERN)["jsonrpc"] == "2.0"


@pytest.mark.requirement("hostile:messages")
@pytest.mark.parametrize("name", INVALID)
@pytest.mark.parametrize("headers", [{}, {"MCP_Protocol_Version": "2026-07-28"}])
def test_invalid_message_over_http_is_answered(port, name, headers):
    line, code, request_id = INVALID[name]
    status, text = send_body(port, line, **headers)
    answer = json.loads(text)
    assert (status, answer["error"]["code"], answer["id"]) == (400, code, request_id), answer


@pytest.mark.requirement("hostile:messages")
def test_long_line_is_answered_and_skipped(process):
    write_line(process, b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * 3 * MOST_BYTES + b'"}')
    answer = process.line()
    assert (answer["error"]["code"], answer["id"]) == (-32600, None)
    assert process.ask("ping", meta=MODERN)["jsonrpc"] == "2.0"


@pytest.mark.requirement("hostile:messages")
def test_blank_lines_are_ignored(process):
    for line in (b"", b"  ", b"\r"):
        write_line(process, line)
    assert process.ask("ping", meta=MODERN)["jsonrpc"] == "2.0"


@pytest.mark.requirement("hostile:messages")
def test_malformed_response_is_dropped(process):
    write_line(process, b'{"jsonrpc":"2.0","id":1,"result":[]}')
    assert process.ask("ping", meta=MODERN)["jsonrpc"] == "2.0"


@pytest.mark.requirement("hostile:messages")
def test_large_id_comes_back(process):
    number = 10**300
    write_line(process, b'{"jsonrpc":"2.0","id":%d,"method":"x"}' % number)
    assert process.line()["id"] == number


@pytest.mark.requirement("hostile:messages")
def test_refused_value_is_not_repeated(process, port):
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":["hunter2hunter2"]}'
    write_line(process, body)
    assert "hunter2" not in json.dumps(process.line())
    assert b"hunter2" not in send_body(port, body)[1]
