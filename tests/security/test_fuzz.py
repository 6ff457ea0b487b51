"""15,000 fuzzed requests on both versions and transports: each is answered and does no harm."""

from __future__ import annotations

import http.client
import json

import pytest

from tests.homes import fill_database, make_hermes_database
from tests.security.fuzz import draw_request
from tests.thorough import mark_thorough
from tests.wire.conftest import MODERN, TOKEN, serve_home, start_raw_process

OVER_STDIO, OVER_HTTP = 650, 100
"""Requests for each of ten parts and two protocol versions: 15,000 in all."""

TOGETHER = 25

PARTS = [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 10))]
ERAS = ["2025-11-25", "2026-07-28"]


@pytest.fixture(name="home")
def _home(tmp_path):
    home = tmp_path / "home"
    make_hermes_database(home / "state.db")
    fill_database(home / "state.db", 4, 6)
    return home


def draw_requests(era: str, way: str, part: int, count: int):
    """Return the requests of a part."""
    is_modern = era == ERAS[1]
    return [
        draw_request(f"{era} {way} {part} {number}", is_modern=is_modern) for number in range(count)
    ]


@pytest.mark.requirement("hostile:fuzz")
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("era", ERAS)
def test_fuzzed_lines_are_answered(home, era, part):
    requests = draw_requests(era, "stdio", part, OVER_STDIO)
    with start_raw_process(home) as process:
        if era == ERAS[0]:
            process.begin(era)
        else:  # an `initialize` that came first would choose the older era
            process.ask("tools/list", meta=MODERN)
        for start in range(0, len(requests), TOGETHER):
            some = requests[start : start + TOGETHER]
            process.process.stdin.buffer.write(b"".join(item.line + b"\n" for item in some))
            process.process.stdin.flush()
            remaining = sum(item.answers for item in some)
            while remaining:
                remaining -= "method" not in process.line()
        meta = MODERN if era == ERAS[1] else None
        answer = process.ask("tools/call", meta=meta, name="sessions_list", arguments={})
        assert answer["result"]["structuredContent"]["sessions"]
        assert process.end() == 0
        assert "Traceback" not in process.process.stderr.read()


@pytest.mark.requirement("hostile:fuzz")
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("era", [mark_thorough(ERAS[0]), ERAS[1]])
def test_fuzzed_bodies_are_answered(home, era, part):
    requests = draw_requests(era, "http", part, OVER_HTTP)
    with serve_home(home) as (process, port):
        headers = {
            "Authorization": f"Bearer {TOKEN}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": era,
        }
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        if era == ERAS[0]:
            arguments = {"protocolVersion": era, "capabilities": {}}
            arguments["clientInfo"] = {"name": "fuzz", "version": "1"}
            first = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": arguments}
            connection.request("POST", "/mcp", json.dumps(first), headers)
            answer = connection.getresponse()
            answer.read()
            headers["Mcp-Session-Id"] = answer.headers["Mcp-Session-Id"]
        for request in requests:
            connection.request("POST", "/mcp", request.line, headers | make_headers(request.line))
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status in (200, 202, 400, 404), (answer.status, text[:300])
            assert (b'"jsonrpc"' in text) == (answer.status != 202), (answer.status, text[:300])
        connection.close()
        process.terminate()
        assert "Traceback" not in process.stderr.read()


def make_headers(body: bytes) -> dict[str, str]:
    """Return the headers of the newer version that describe a body."""
    try:
        message = json.loads(body)
        method, params = message["method"], message.get("params") or {}
        named = params.get("name", params.get("uri")) if isinstance(params, dict) else None
        arguments = {"Mcp-Method": method, "Mcp-Name": named}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}
    plain = {name: value for name, value in arguments.items() if isinstance(value, str)}
    return {name: value for name, value in plain.items() if value.isascii() and value.isprintable()}
