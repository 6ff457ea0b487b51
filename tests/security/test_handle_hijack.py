"""Hijacked handles: a plan, batch, cursor or session of one home opens no other."""

from __future__ import annotations

import base64
import json
import time
import zlib

import pytest
from mcp import Client
from mcp.types import ElicitResult

from mcp_serve import query_cursors, server
from mcp_serve.stores.stores import ServedStores, ServerOptions
from session_core import SessionDB
from tests.security.corpus import OLD
from tests.security.raw_requests import HANDSHAKE, JSON, RIGHT, send_request

pytestmark = pytest.mark.anyio

DAY_S = 86_400


def add_old_session(db, key):
    db.append_message(key, "user", "x", timestamp=OLD, create={"source": "cli", "started_at": OLD})
    db.end_session(key, "done")


@pytest.fixture(autouse=True)
def _old_ones(db):
    add_old_session(db, "old")
    db.append_message("new", "user", "hello", create={"source": "cli"})


@pytest.mark.requirement("security:handles")
async def test_handles_are_random_and_unique(call):
    handles = {(await call("sessions_prune"))["plan"] for _ in range(20)}
    assert len(handles) == 20
    bodies = [handle.split("-")[1] for handle in handles]
    assert min(len(set(column)) for column in zip(*bodies, strict=True)) > 5


@pytest.mark.requirement("security:handles")
@pytest.mark.parametrize("change", ["last", "case", "longer", "shorter", "like"])
async def test_similar_handle_is_refused(call, refused, change):
    plan = (await call("sessions_prune"))["plan"]
    forged = {
        "last": plan[:-1] + ("2" if plan[-1] != "2" else "3"),
        "case": plan.upper(),
        "longer": plan + "2",
        "shorter": plan[:-1],
        "like": "%",
    }[change]
    assert "there is no plan" in await refused("sessions_prune", plan=forged)
    assert (await call("sessions_prune", plan=plan))["removed"] == 1


@pytest.mark.requirement("security:handles")
async def test_plan_of_other_home_is_refused(call, refused, tmp_path):
    path = tmp_path / "other"
    path.mkdir()
    with SessionDB(path / "state.db") as db:
        add_old_session(db, "old")
    served = ServedStores(ServerOptions(home=str(path)))
    async with Client(server.create_server(served), cache=None) as client:
        plan = (await client.call_tool("sessions_prune", {})).structured_content["plan"]
        edited = await client.call_tool("sessions_edit", {"sessions": "old", "title": "t"})
        batch = edited.structured_content["batch"]
    served.close()
    assert "there is no plan" in await refused("sessions_prune", plan=plan)
    assert "there is no" in await refused("sessions_restore", batch=batch)


@pytest.mark.requirement("security:handles")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_plan_of_other_store_is_refused(home_path, mode):
    (home_path / "profiles" / "work").mkdir(parents=True)
    with SessionDB(home_path / "profiles" / "work" / "state.db") as db:
        add_old_session(db, "old")
    served = ServedStores(ServerOptions(home=str(home_path), stores=["hermes", "hermes:work"]))
    async with Client(server.create_server(served), mode=mode, cache=None) as client:
        planned = (
            await client.call_tool("sessions_prune", {"store": "hermes:work"})
        ).structured_content
        arguments = {"plan": planned["plan"], "store": "hermes"}
        refused = await client.call_tool("sessions_prune", arguments)
        assert "there is no plan" in refused.content[0].text
        answer = await client.call_tool(
            "sessions_prune", {"plan": planned["plan"], "store": "hermes:work"}
        )
        assert answer.structured_content["removed"] == 1
    served.close()


@pytest.mark.requirement("security:handles")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_expired_plan_asks_no_consent(home_path, mode):
    served, request = ServedStores(ServerOptions(home=str(home_path))), []

    async def human(_, params):
        request.append(params.message)
        return ElicitResult(action="accept", content={"agree": True})

    created = server.create_server(served)
    async with Client(created, mode=mode, elicitation_callback=human, cache=None) as client:
        plan = (await client.call_tool("sessions_prune", {})).structured_content["plan"]
        ledger = served.get_home().ledger
        vars(ledger)["_clock"] = lambda: time.time() + DAY_S + 1
        late = await client.call_tool("sessions_prune", {"plan": plan})
        assert "has expired" in late.content[0].text
        assert request == []
    served.close()


@pytest.mark.requirement("security:handles")
async def test_applied_plan_does_nothing_again(db, call):
    plan = (await call("sessions_prune"))["plan"]
    answer = await call("sessions_prune", plan=plan)
    add_old_session(db, "old")
    add_old_session(db, "older")
    assert await call("sessions_prune", plan=plan) == answer
    assert db.get_session("old") is not None


def repack_cursor(cursor, change):
    """Return a cursor that was decoded, changed and encoded again with its old digest."""
    raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    unpacker = zlib.decompressobj(wbits=-15, zdict=query_cursors._COMMON_TEXT)
    packed = query_cursors._unpack_text(unpacker.decompress(raw[DIGEST_BYTES:]))
    parts = [raw[:DIGEST_BYTES], *json.loads(packed)]
    change(parts)
    digest, content = (parts[0], parts[1:]) if parts else (b"", [])
    packer = zlib.compressobj(9, wbits=-15, zdict=query_cursors._COMMON_TEXT)
    text = query_cursors._pack_text(json.dumps(content, separators=(",", ":")).encode())
    packed = packer.compress(text) + packer.flush()
    return base64.urlsafe_b64encode(digest + packed).decode().rstrip("=")


DIGEST_BYTES = query_cursors._DIGEST_BYTES

# The parts are digest, tool, query, time and position.
CHANGES = {
    "query": lambda parts: parts[2].update(status="all"),
    "store": lambda parts: parts[2].update(store="hermes:work"),
    "unknown": lambda parts: parts[2].update(nope=1),
    "place": lambda parts: parts.__setitem__(4, "x"),
    "no place": lambda parts: parts.__setitem__(4, None),
    "number": lambda parts: parts.__setitem__(4, 7),
    "nothing": lambda parts: parts.clear(),
    "digest": lambda parts: parts.__setitem__(0, bytes(DIGEST_BYTES)),
    "now": lambda parts: parts.__setitem__(3, 1e300),
}


@pytest.mark.requirement("security:handles")
@pytest.mark.parametrize("tool", ["sessions_list", "sessions_search", "events_wait"])
async def test_repacked_cursor_without_change_is_accepted(db, call, tool):
    """So the refusals below are due to the changes, not to the encoding."""
    cursor = await fetch_cursor(db, call, tool)
    assert repack_cursor(cursor, lambda _: None) == cursor
    waiting = {"timeout_s": 0} if tool == "events_wait" else {}
    await call(tool, cursor=repack_cursor(cursor, lambda _: None), **waiting)


async def fetch_cursor(db, call, tool):
    """Return the cursor of a first page."""
    for number in range(3):
        db.append_message(f"s{number}", "user", "hello", create={"source": "cli"})
    arguments = {"sessions_list": {"limit": 1}, "sessions_search": {"query": "hello", "limit": 1}}
    page = await call(tool, **arguments.get(tool, {"timeout_s": 0}))
    return page.get("next_cursor") or page["cursor"]


@pytest.mark.requirement("security:handles")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("tool", ["sessions_list", "sessions_search", "events_wait"])
async def test_tampered_cursor_is_refused(db, call, refused, tool, change):
    cursor = await fetch_cursor(db, call, tool)
    text = await refused(tool, cursor=repack_cursor(cursor, CHANGES[change]))
    assert "malformed cursor" in text
    assert "pass" in text


@pytest.mark.requirement("security:handles")
async def test_cursor_of_other_tool_is_refused(call, refused):
    cursor = (await call("events_wait", timeout_s=0))["cursor"]
    assert "the cursor belongs to 'events_wait'" in await refused("sessions_list", cursor=cursor)


@pytest.mark.requirement("security:handles")
def test_legacy_session_requires_token(port):
    host = f"Host: 127.0.0.1:{port}"
    begun = send_request(port, "POST /mcp HTTP/1.1", host, RIGHT, *JSON, body=HANDSHAKE)
    heads = [line.split(": ", 1) for line in begun.text.split("\r\n") if ": " in line]
    named = {name.lower(): value for name, value in heads}
    body = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}})
    headers = (host, *JSON, f"Mcp-Session-Id: {named['mcp-session-id']}")
    for line in ("POST /mcp HTTP/1.1", "GET /mcp HTTP/1.1", "DELETE /mcp HTTP/1.1"):
        assert send_request(port, line, *headers, body=body).status == 401
    foreign = (host, RIGHT, *JSON, "Mcp-Session-Id: 0123456789abcdef")
    assert send_request(port, "POST /mcp HTTP/1.1", *foreign, body=body).status in (400, 404)
