"""Keys of the route index that begin with an underscore are metadata and never shown."""

from __future__ import annotations

import json

import pytest
from mcp import MCPError
from mcp.types import PromptReference, ResourceTemplateReference

from session_core import SessionSource, SessionStore

pytestmark = pytest.mark.anyio


def make_entry(key):
    """Return an entry as stored."""
    return {
        "session_key": key,
        "session_id": "20260101_000000_abcd",
        "created_at": "2026-01-01T00:00:00",
        "updated_at": "2026-01-01T00:00:00",
        "platform": "telegram",
        "chat_type": "dm",
    }


KEY = "agent:main:telegram:dm:42"
METADATA = {"_README": "what this file is", "_version": 3, "_before": make_entry("_before")}


def write_index_file(home_path):
    """Write the index as a file, and return the key of its only route."""
    (home_path / "sessions").mkdir()
    index = METADATA | {KEY: make_entry(KEY)}
    (home_path / "sessions" / "sessions.json").write_text(json.dumps(index))
    return KEY


def write_routing_table(home_path, db):
    """Write the index as rows, and return the key of its only route."""
    with SessionStore.open(home_path, db) as store:
        entry = store.get_or_create_session(SessionSource(platform="telegram", chat_id="42"))
    ((scope, _),) = db.routes.list_scopes().items()
    for name, value in METADATA.items():
        db.routes.save_entry(name, json.dumps(value), scope=scope, expect=None)
    return entry.session_key


@pytest.fixture(name="home_with_metadata", params=["the file alone", "the file", "the table"])
def _noted(request, home_path):
    """A home whose route index contains metadata."""
    if request.param != "the file alone":
        db = request.getfixturevalue("db")
        db.append_message("s1", "user", "hi", create={"source": "cli"})
    return (
        write_routing_table(home_path, db)
        if request.param == "the table"
        else write_index_file(home_path)
    )


@pytest.mark.requirement("serving:metadata")
async def test_metadata_appears_on_no_path(home_with_metadata, client, call, refused):
    assert [item["session_key"] for item in (await call("routes_list"))["routes"]] == [
        home_with_metadata
    ]
    assert (await call("routes_list", query="_"))["routes"] == []
    text = await client.read_resource("sessions://routes")
    assert [item["session_key"] for item in json.loads(text.contents[0].text)["routes"]] == [
        home_with_metadata
    ]
    listed = " ".join(str(item.uri) for item in (await client.list_resources()).resources)
    template = ResourceTemplateReference(uri="route://{session_key}")
    keys = await client.complete(template, {"name": "session_key", "value": ""})
    assert keys.completion.values == [home_with_metadata]
    prompt = PromptReference(name="catch_up")
    for name in METADATA:
        assert name not in listed
        assert (
            await client.complete(prompt, {"name": "session", "value": name})
        ).completion.values == []
        assert f"no session {name!r}" in await refused("sessions_read", session=name)
        assert f"no session {name!r}" in await refused("sessions_edit", sessions=name, title="x")
        assert f"no session {name!r}" in await refused("sessions_prune", sessions=[name])
        for address in (f"session://{name}", f"session://{name}/messages", f"route://{name}"):
            with pytest.raises(MCPError):
                await client.read_resource(address)


@pytest.mark.requirement("serving:metadata")
async def test_underscore_session_names_are_served(call, client, db):
    db.append_message("_README", "user", "I am one", create={"source": "cli"})
    db.set_session_title("_README", "_notes")
    (row,) = (await call("sessions_list"))["sessions"]
    assert (row["id"], row["title"]) == ("_README", "_notes")
    for arguments in ("_README", "_notes"):
        page = await call("sessions_read", session=arguments)
        assert [item["text"] for item in page["messages"]] == ["I am one"]
    edited = await call("sessions_edit", sessions="_README", pinned=True)
    assert edited["sessions"][0]["pinned"]
    listed = [str(item.uri) for item in (await client.list_resources()).resources]
    assert "session://_README" in listed
