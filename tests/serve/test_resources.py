"""Resources: the answers of the tools under addresses."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from mcp import MCPError

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("many_sessions")]


async def read_resource(client, uri):
    (content,) = (await client.read_resource(uri)).contents
    assert content.mime_type == "application/json"
    return json.loads(content.text)


@pytest.mark.requirement("faces:listing")
async def test_resources_list_newest_fifty_in_pages(client):
    result, cursor, pages = [], None, 0
    while pages == 0 or cursor:
        page = await client.list_resources(cursor=cursor)
        result += [str(resource.uri) for resource in page.resources]
        cursor, pages = page.next_cursor, pages + 1
    assert pages > 1
    assert result[:2] == ["session://s%2F59", "session://s%2F58"]
    assert len(result) == 58
    assert {"sessions://stats", "sessions://routes"} <= set(result)


@pytest.mark.requirement("faces:refusals")
async def test_foreign_cursor_is_protocol_error(client):
    with pytest.raises(MCPError) as caught:
        await client.list_resources(cursor="x")
    assert caught.value.error.code == -32602


@pytest.mark.requirement("faces:listing")
async def test_templates_match_contract(client):
    listed = (await client.list_resource_templates()).resource_templates
    assert [item.uri_template for item in listed] == [
        "session://{session_id}",
        "session://{session_id}/messages{?cursor,store}",
        "route://{session_key}",
    ]


@pytest.mark.requirement("faces:resources")
async def test_resource_equals_tool_answer(client, call):
    row = await read_resource(client, "session://s%2F07")
    page = await read_resource(client, "session://s%2F07/messages")
    by_tool = await call("sessions_read", session="s/07")
    assert row == by_tool["session"]
    assert page == by_tool
    assert (await read_resource(client, "sessions://stats"))["sessions"]["total"] == 60
    assert (await read_resource(client, "sessions://routes")) == {"routes": [], "next_cursor": None}


@pytest.mark.requirement("faces:resources")
async def test_messages_resource_continues_by_cursor(client, db):
    for number in range(60):
        db.append_message("s/07", "user", f"more {number}")
    page = await read_resource(client, "session://s%2F07/messages")
    more = await read_resource(client, f"session://s%2F07/messages?cursor={page['next_cursor']}")
    assert len(page["messages"]) + len(more["messages"]) == 61


@pytest.mark.requirement("faces:refusals")
@pytest.mark.parametrize(
    "uri", ["session://nope", "session://..%2Fx", "route://nope", "route://_README", "other://x"]
)
async def test_missing_resource_is_not_found(client, uri):
    with pytest.raises(MCPError) as caught:
        await client.read_resource(uri)
    assert caught.value.error.code == -32602


@pytest.mark.requirement("faces:refusals")
async def test_malformed_address_cursor_is_protocol_error(client):
    with pytest.raises(MCPError) as caught:
        await client.read_resource("session://s%2F07/messages?cursor=x")
    assert caught.value.error.code == -32602


@pytest.mark.requirement("faces:refusals")
async def test_address_cursor_belongs_to_session(client, db):
    for number in range(60):
        db.append_message("s/07", "user", f"more {number}")
    cursor = (await read_resource(client, "session://s%2F07/messages"))["next_cursor"]
    with pytest.raises(MCPError) as caught:
        await client.read_resource(f"session://s%2F08/messages?cursor={cursor}")
    assert caught.value.error.code == -32602
    assert "session differs from the query of the cursor" in caught.value.error.message


@pytest.mark.requirement("faces:resources")
async def test_route_resource_matches_route_list(client, call, routed_home):
    (row,) = (await call("routes_list"))["routes"]
    assert await read_resource(client, f"route://{quote(routed_home.session_key, safe='')}") == row
    assert await read_resource(client, "sessions://routes") == {
        "routes": [row],
        "next_cursor": None,
    }
    assert row["session_id"] == routed_home.session_id


@pytest.mark.requirement("faces:resources")
async def test_stats_resource_equals_tool_answer(client, call):
    report = await read_resource(client, "sessions://stats")
    assert report.keys() == (await call("sessions_stats")).keys()
    assert (report["sessions"]["total"], report["messages"]) == (60, 60)
