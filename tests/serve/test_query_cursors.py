"""Forged cursors get an error that names the next call, never a defect of the server."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp import Client, MCPError

from mcp_serve import server
from mcp_serve.query_cursors import PagedQuery, parse_cursor
from mcp_serve.stores.stores import ServedStores, ServerOptions
from session_core import SessionSource, SessionStore
from session_core.state import cursors

pytestmark = pytest.mark.anyio

ID = "0190a3f2-1111-4222-8333-444455556666"

QUERIES = {
    "sessions_list": {},
    "sessions_read": {"session": "s1"},
    "sessions_search": {"query": "hi"},
    "routes_list": {},
    "events_wait": {},
    "sessions_restore": {},
}
PLACES = (
    "x",
    1,
    [],
    {},
    [1, 2],
    ["x", 1],
    [None, None],
    [5, 5, 5, 5],
    [None, "x", "r", -1],
    ["s1", ["s1", "back", None, -1]],
    ["s1", ["s1", "back", "zz", 0]],
    ["s1", ["s1", "sideways", 1, 0]],
    ["s1", ["s1", "on", 2**70, 0]],
    [None, [None, None, None, None]],
)
MALFORMED = "malformed cursor; "


@pytest.fixture(autouse=True)
def _sessions(db):
    for name in ("s1", "s2"):
        db.append_message(name, "user", "hi", create={"source": "cli"})


def forge_cursor(tool, place, now=1e9, **query):
    return PagedQuery(tool, {"store": "own"} | QUERIES.get(tool, {}) | query, now).make_cursor(
        place
    )


@pytest.mark.requirement("serving:forged")
@pytest.mark.parametrize("tool", QUERIES)
async def test_cursor_with_wrong_position_is_malformed(refused, tool):
    for place in PLACES:
        assert MALFORMED in await refused(tool, cursor=forge_cursor(tool, place)), place


@pytest.mark.requirement("serving:forged")
@pytest.mark.parametrize("now", [float("nan"), float("inf"), -1.0, 1e300])
async def test_cursor_with_impossible_time_is_malformed(refused, now):
    cursor = forge_cursor("sessions_list", "x", now, since="7d")
    assert MALFORMED in await refused("sessions_list", cursor=cursor)


@pytest.mark.requirement("serving:forged")
@pytest.mark.parametrize("query", [{"store": 5}, {"nope": 1}, {"session": [1]}])
async def test_cursor_with_invalid_query_is_malformed(refused, query):
    place = ["s1", ["s1", "back", None, 0]]
    cursor = forge_cursor("sessions_read", place, **query)
    assert MALFORMED in await refused("sessions_read", cursor=cursor)


@pytest.mark.requirement("serving:forged")
@pytest.mark.parametrize("place", ["x", [1], [-5, None], ["a", "b"], [0, "zz"], [1, ["x", "", ""]]])
async def test_malformed_resource_cursor_is_protocol_error(client, place):
    with pytest.raises(MCPError) as caught:
        await client.list_resources(cursor=PagedQuery("resources/list", {}, 0.0).make_cursor(place))
    assert caught.value.error.code == -32602
    assert "malformed cursor" in caught.value.error.message


@pytest.mark.requirement("serving:forged")
@pytest.mark.parametrize("position", [2**70, [], {}, "x", "\ud800"], ids=ascii)
async def test_malformed_library_cursor_is_refused(call, home_path, client, position):
    await call("sessions_edit", sessions="s1", title="T")
    inner = cursors.encode_cursor("batches", str(home_path / "state.db"), position)
    answer = await client.call_tool(
        "sessions_restore", {"cursor": forge_cursor("sessions_restore", inner)}
    )
    assert "defect" not in answer.content[0].text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@pytest.mark.requirement("serving:forged")
@settings(suppress_health_check=list(HealthCheck), max_examples=60)
@given(tool=st.sampled_from(sorted(QUERIES)), place=JSON)
async def test_forged_position_causes_no_defect(home_path, tool, place):
    served = ServedStores(ServerOptions(home=str(home_path)))
    async with Client(server.create_server(served), cache=None) as client:
        given_ = {"cursor": forge_cursor(tool, place) or "x"}
        answer = await client.call_tool(tool, given_ | ({"timeout_s": 0} if "wait" in tool else {}))
    served.close()
    assert "defect" not in answer.content[0].text


@pytest.mark.requirement("serving:cursors")
async def test_cursor_keeps_page_limit(call, db):
    for number in range(8):
        db.append_message("s1", "user", "x" * 600, create={"source": "cli"})
        db.append_message(f"n{number}", "user", "hello", create={"source": "cli"})
    page = await call("sessions_list", limit=2)
    page = await call("sessions_list", cursor=page["next_cursor"])
    assert len(page["sessions"]) == 2
    page = await call("sessions_list", cursor=page["next_cursor"], limit=3)
    assert len(page["sessions"]) == 3
    page = await call("sessions_read", session="s1", max_chars=2000)
    fewer = await call("sessions_read", cursor=page["next_cursor"])
    assert 0 < len(fewer["messages"]) <= len(page["messages"]) < 8


@pytest.fixture(name="paged_home")
def _paged(db, home_path):
    """A home with two rows for each list."""
    with SessionStore.open(home_path, db) as store:
        for chat in ("1", "2"):
            store.get_or_create_session(SessionSource(platform="telegram", chat_id=chat))
    for name in ("s1", "s2"):
        db.append_message(name, "user", "hi", timestamp=1.7e9, create={"source": "cli"})


BESIDE = {
    "sessions_list": ({"source": "cli"}, {"source": "x"}, {"limit": 5, "detail": "detailed"}),
    "sessions_search": ({"query": "hi"}, {"query": "ho"}, {"limit": 5, "detail": "detailed"}),
    "sessions_read": (
        {"session": "s1", "roles": ["user"]},
        {"roles": ["tool"]},
        {"limit": 5, "detail": "detailed", "max_chars": 2000},
    ),
    "routes_list": ({"platform": "telegram"}, {"platform": "x"}, {"limit": 5}),
    "sessions_restore": ({}, {"batch": "b-x"}, {"limit": 5}),
    "events_wait": ({"session": "s1", "timeout_s": 0}, {"session": "s2"}, {"limit": 5}),
}


@pytest.mark.requirement("serving:cursors")
@pytest.mark.parametrize("tool", BESIDE)
async def test_cursor_accepts_same_or_free_arguments(call, refused, paged_home, tool):
    for name in ("s1", "s2"):
        await call("sessions_edit", sessions=name, pinned=True)
    given, other, free = BESIDE[tool]
    small = {} if tool == "events_wait" else {"limit": 1}
    page = await call(tool, **given, **small)
    following = {"cursor": page.get("next_cursor") or page["cursor"]}
    waiting = {"timeout_s": 0} if tool == "events_wait" else {}
    alone = await call(tool, **following, **waiting)
    assert await call(tool, **following, **given, **small) == alone
    await call(tool, **following, **free, **waiting)
    (name,) = other
    text = await refused(tool, **following, **other, **waiting)
    assert text.startswith(f"{name} differs from the query of the cursor; pass the cursor alone")


@pytest.mark.requirement("serving:cursors")
@pytest.mark.parametrize(
    ("tool", "query", "place"),
    [
        ("sessions_list", {"source": "claude-code", "since": "30d"}, (-1.7e9 - 0.123456, "s", ID)),
        ("sessions_read", {"session": ID, "limit": 5}, (ID, (ID, "back", 123_456, 0))),
        ("sessions_read", {"session": ID, "around": 99}, (ID, (ID, "on", 2**40, 2**20))),
        ("routes_list", {"state": "active"}, (-1.7e9 - 0.5, "hermes", "agent:main:telegram:dm:42")),
        ("sessions_prune", {"plan": "p-23456789"}, 20),
    ],
)
def test_cursor_is_short_and_returns_place(tool, query, place):
    cursor = PagedQuery(tool, query, 1.8e9).make_cursor(place)
    assert len(cursor) <= 120
    parsed = parse_cursor(tool, cursor, Any)
    assert (parsed.query, parsed.now) == (query, 1.8e9)
    assert json.dumps(parsed.place) == json.dumps(place)


@given(st.binary(min_size=16, max_size=64))
def test_cursor_keeps_ids_of_any_bytes(data):
    ids = [str(UUID(bytes=data[at : at + 16])) for at in range(0, len(data) - 15, 16)]
    cursor = PagedQuery("sessions_list", {"query": "\x01" + ids[0]}, 0.0).make_cursor(ids)
    parsed = parse_cursor("sessions_list", cursor, Any)
    assert (parsed.query, parsed.place) == ({"query": "\x01" + ids[0]}, ids)


@given(st.recursive(st.none() | st.integers() | st.text(max_size=20), st.lists, max_leaves=8))
def test_cursor_keeps_inner_positions(position):
    inner = cursors.encode_cursor("changes", None, {"after": position})
    outer = PagedQuery("events_wait", {"session": inner[:40]}, 0.0)
    places = {"own": [None, inner, "", 0], "x": [None, cursors.encode_cursor("a", 1, position)]}
    assert parse_cursor("events_wait", outer.make_cursor(places), Any).place == places


def test_cursor_begins_with_a_letter():
    # The command takes a value that begins with a dash for an option.
    made = [
        PagedQuery("sessions_list", {}, 1e9, [float(number), "s"]).make_cursor([float(number), "s"])
        for number in range(300)
    ]
    assert {cursor[0].isalpha() for cursor in made if cursor} == {True}


@pytest.mark.requirement("serving:cursors")
@pytest.mark.parametrize(
    "text", ["abcdefghWyJ4Il0", "abcdefgheyJ", "abcdefghWyJ4Il", "abcdefghWwAA"]
)
def test_cursor_keeps_texts_like_positions(text):
    cursor = PagedQuery("sessions_list", {"query": text}, 0.0).make_cursor(text)
    parsed = parse_cursor("sessions_list", cursor, Any)
    assert (parsed.query, parsed.place) == ({"query": text}, text)


@pytest.mark.requirement("serving:cursors")
async def test_event_cursor_is_short(call, db):
    for number in range(6):
        db.append_message(
            f"20261120_08000{number}_5e1f0a{number}b", "user", "hello", create={"source": "cli"}
        )
    cursor = (await call("events_wait", timeout_s=0))["cursor"]
    assert len(cursor) <= 320
    db.append_message("later", "user", "hello", create={"source": "cli"})
    events = (await call("events_wait", cursor=cursor, timeout_s=0))["events"]
    assert {event["session_id"] for event in events} == {"later"}
