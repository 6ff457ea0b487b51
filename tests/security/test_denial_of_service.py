"""Denial of service: large, deep or slow input costs little and delays no other client."""

from __future__ import annotations

import base64
import json
import zlib

import anyio
import pytest

from mcp_serve import answer_size
from mcp_serve.tool_list import load_specs
from tests.security.corpus import make_tool_call
from tests.security.raw_requests import HANDSHAKE, JSON, RIGHT, send_request
from tests.wire.conftest import start_raw_process

pytestmark = pytest.mark.anyio

MEGABYTE = 1_000_000


def is_alive(port):
    headers = (f"Host: 127.0.0.1:{port}", RIGHT, *JSON)
    return send_request(port, "POST /mcp HTTP/1.1", *headers, body=HANDSHAKE).status == 200


@pytest.mark.requirement("security:load")
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("x" * (5 * MEGABYTE), (0, 413)),
        ("[" * 100_000, (400,)),
        ('{"a":' * 100_000, (400,)),
        ('{"jsonrpc":"2.0","id":1,"method":"tools/list","params":' + "[" * 100_000, (400,)),
        ("9" * 100_000, (400,)),
        ('"\\ud800"', (400,)),
        ("{" + ",".join(f'"{number}":1' for number in range(100_000)) + "}", (400,)),
    ],
    ids=["large", "deep list", "deep mapping", "deep call", "number", "surrogate", "wide"],
)
def test_large_or_deep_body_is_refused(port, body, status):
    headers = (f"Host: 127.0.0.1:{port}", RIGHT, *JSON)
    assert send_request(port, "POST /mcp HTTP/1.1", *headers, body=body).status in status
    assert is_alive(port)


def test_oversized_header_is_refused(port):
    headers = (f"Host: 127.0.0.1:{port}", f"X-Long: {'a' * 200_000}", RIGHT, *JSON)
    assert send_request(port, "POST /mcp HTTP/1.1", *headers, body=HANDSHAKE).status in (
        0,
        400,
        431,
    )
    assert is_alive(port)


LINES = (
    "[" * 200_000,
    '{"a":' * 200_000,
    '{"jsonrpc":"2.0","id":900,"method":"tools/call","params":{"name":"sessions_list","arguments":'
    + '{"query":' * 50_000
    + "1"
    + "}" * 50_000
    + "}}",
    (
        '{"jsonrpc":"2.0","id":900,"method":"tools/call","params":{"name":"sessions_search",'
        '"arguments":{"query":"\\ud800"}}}'
    ),
    (
        '{"jsonrpc":"2.0","id":900,"method":"tools/call","params":{"name":"events_wait",'
        '"arguments":{"timeout_s":NaN}}}'
    ),
    (
        '{"jsonrpc":"2.0","id":900,"method":"tools/call","params":{"name":"sessions_prune",'
        '"arguments":{"older_than_days":1e999}}}'
    ),
    '{"jsonrpc":"2.0","id":900,"method":"tools/call","params":{"name":"sessions_read",'
    '"arguments":{"session":"x","before":' + "9" * 5_000 + "}}}",
    json.dumps({"jsonrpc": "2.0", "id": 900, "method": "x" * MEGABYTE}),
    json.dumps({"jsonrpc": "2.0", "id": "x" * MEGABYTE, "method": "ping"}),
    "x" * (5 * MEGABYTE),
)


@pytest.mark.requirement("security:load")
def test_large_or_deep_line_is_harmless(home_path):
    with start_raw_process(home_path) as process:
        process.begin()
        for line in LINES:
            process.send(line)
            answer = process.ask("tools/call", name="sessions_list", arguments={})
            assert answer["result"]["structuredContent"]["sessions"] == [], line[:80]


async def test_limits_and_answers_are_bounded(client):
    tools = {
        tool.name: tool.input_schema["properties"] for tool in (await client.list_tools()).tools
    }
    for spec in load_specs():
        limit = tools[spec.name].get("limit")
        assert limit is None or limit["maximum"] <= 500
        for name in tools[spec.name]:
            field = spec.arguments.model_fields[name]
            kind = str(field.annotation)
            bounded = "max_length" in f"{field.metadata}{kind}" or "Literal" in kind
            assert bounded or not ("str" in kind or "list" in kind), (spec.name, name)


def make_cursor_bomb(size):
    """Return a small cursor that expands into a large one."""
    text = json.dumps(["sessions_list", {"query": "a" * size}, 0.0, None])
    packer = zlib.compressobj(9, wbits=-15)
    packed = b"digest" + packer.compress(text.encode()) + packer.flush()
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


@pytest.mark.requirement("security:load")
@pytest.mark.parametrize("size", [40_000, 20 * MEGABYTE])
async def test_cursor_bomb_is_refused_unexpanded(refused, size):
    packed = make_cursor_bomb(size)
    assert len(packed) < 32_768
    assert "malformed cursor" in await refused("sessions_list", cursor=packed)


@pytest.mark.parametrize("depth", [1_000, 100_000])
async def test_deep_cursor_is_refused(refused, depth):
    packed = base64.urlsafe_b64encode(zlib.compress(b"[" * depth + b"]" * depth)).decode()
    assert "malformed cursor" in await refused("sessions_list", cursor=packed.rstrip("="))


LARGE = {
    "long line": "x" * (3 * MEGABYTE),
    "lines": "line\n" * 300_000,
    "quotes": '"\\' * MEGABYTE,
    "marks": "\u0301" * 300_000,
    "nearly keys": "sk-" * 30_000,
    "nearly names": "secret:" * 20_000,
    "nearly blocks": "-----BEGIN " * 20_000,
    "parts": [{"type": "text", "text": "part"}] * 30_000,
}


@pytest.mark.requirement("security:load")
@pytest.mark.parametrize("kind", LARGE)
async def test_large_message_is_served_within_budget(client, db, kind):
    db.append_message("s1", "user", "walrus", create={"source": "cli"})
    db.append_message("s1", "assistant", LARGE[kind], tool_calls=make_tool_call("y" * 500_000))
    db.append_message("s1", "tool", LARGE[kind], tool_name="run" * 50_000)
    db.set_session_title("s1", "title")
    for tool, arguments in (
        ("sessions_list", {"detail": "detailed"}),
        ("sessions_read", {"session": "s1"}),
        ("sessions_read", {"session": "s1", "detail": "detailed", "max_chars": 1_000}),
        ("sessions_search", {"query": "walrus OR part OR line", "detail": "detailed"}),
        ("sessions_search", {"query": "xxx", "mode": "substring", "per": "message"}),
        ("events_wait", {"timeout_s": 0}),
    ):
        result = await client.call_tool(tool, arguments)
        assert not result.is_error, result.content[0].text
        assert len(result.content[0].text) <= arguments.get("max_chars", answer_size.DEFAULT_CHARS)


async def test_deeply_nested_calls_are_read(client, db):
    deep = "[" * 20_000 + "]" * 20_000
    called = {"name": "run", "arguments": deep}
    calls = [{"id": "c", "type": "function", "function": called}]
    db.append_message("s1", "assistant", "walrus", tool_calls=calls, create={"source": "cli"})
    for tool, arguments in (
        ("sessions_read", {"session": "s1", "detail": "detailed"}),
        ("sessions_search", {"query": "walrus"}),
    ):
        result = await client.call_tool(tool, arguments)
        assert not result.is_error, result.content[0].text


QUERIES = (
    " OR ".join(f"{letter}*" for letter in "abcdefghijklmnopqrstuvwxyz" * 15),
    "(" * 900 + "a" + ")" * 900,
    '"' * 1_999,
    "a " * 999,
    "NOT " * 400 + "a",
    "NEAR(" * 300,
    "a*" * 900,
    "数" * 2_000,
)


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
async def test_expensive_query_is_answered(db, client, query):
    with db.transaction():
        for number in range(300):
            text = f"words and a number {number} 数据库 " * 5
            db.append_message(f"s{number % 9}", "user", text, create={"source": "cli"})
    for mode in ("words", "substring"):
        result = await client.call_tool("sessions_search", {"query": query, "mode": mode})
        assert "defect" not in result.content[0].text


async def test_hundred_waits_do_not_block_calls(client, db):
    db.append_message("s1", "user", "hello", create={"source": "cli"})
    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(client.call_tool, "events_wait", {"timeout_s": 50})
        with anyio.fail_after(30):
            for _ in range(10):
                assert not (await client.call_tool("sessions_list", {})).is_error
        tasks.cancel_scope.cancel()


async def test_invalid_wait_timeout_is_refused(client):
    for timeout in (1e308, 50.001, "1e9", "50", -1, True):
        result = await client.call_tool("events_wait", {"timeout_s": timeout})
        assert result.is_error, timeout
