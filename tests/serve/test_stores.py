"""Several homes at once: each answers for itself, with its name."""

from __future__ import annotations

import json

import pytest
from mcp import MCPError
from mcp.types import PromptReference, ResourceTemplateReference

from session_core import SessionDB
from tests.serve.fixed_resources import FIXED_RESOURCES

pytestmark = [pytest.mark.anyio, pytest.mark.options(all_profiles=True)]

STORES = ("hermes", "hermes:travel")


def make_store(home_path, name):
    return home_path if name == "hermes" else home_path / "profiles" / "travel"


@pytest.fixture(autouse=True)
def _homes(home_path):
    """Two homes with one session id in common and one more session each."""
    for at, name in enumerate(STORES):
        make_store(home_path, name).mkdir(parents=True, exist_ok=True)
        with SessionDB(make_store(home_path, name) / "state.db") as db:
            for number, item in enumerate(("both", name.removeprefix("hermes:"))):
                say = {"timestamp": 1e9 + 10 * number + at, "create": {"source": name}}
                db.append_message(item, "user", f"of {name}", **say)
            db.set_session_title(item, f"Title of {item}")


async def read_resource(client, uri):
    return json.loads((await client.read_resource(uri)).contents[0].text)


@pytest.mark.requirement("faces:stores")
async def test_instructions_list_stores(client):
    assert "Stores: hermes, hermes:travel. " in client.instructions


@pytest.mark.requirement("faces:stores")
async def test_unknown_session_error_names_stores(refused):
    message = await refused("sessions_read", session="nowhere")
    assert "no session 'nowhere' in hermes, hermes:travel" in message


@pytest.mark.requirement("faces:stores")
async def test_resource_list_merges_stores(client):
    listed = (await client.list_resources()).resources
    assert [(str(item.uri), item.name) for item in listed][: -len(FIXED_RESOURCES)] == [
        ("session://travel", "hermes:travel: Title of travel"),
        ("session://hermes", "hermes: Title of hermes"),
        ("session://both/messages?store=hermes%3Atravel", "hermes:travel: of hermes:travel"),
        ("session://both/messages?store=hermes", "hermes: of hermes"),
    ]
    assert [str(item.uri) for item in listed][-len(FIXED_RESOURCES) :] == FIXED_RESOURCES


@pytest.mark.requirement("faces:stores")
async def test_listed_resource_reads_same_session(client):
    for resource in (await client.list_resources()).resources[: -len(FIXED_RESOURCES)]:
        result = await read_resource(client, resource.uri)
        row = result.get("session", result)
        assert resource.name.startswith(f"{row['store']}: ")


@pytest.mark.requirement("faces:stores")
async def test_resource_pages_cover_every_store(client, home_path):
    for name in STORES:
        with SessionDB(make_store(home_path, name) / "state.db") as db:
            for number in range(40):
                say = {"timestamp": 1.1e9 + number, "create": {"source": "cli"}}
                db.append_message(f"{name[7:] or name}{number:02}", "user", "more", **say)
    result, cursor, pages = [], None, 0
    while pages == 0 or cursor:
        page = await client.list_resources(cursor=cursor)
        result += [str(resource.uri) for resource in page.resources]
        cursor, pages = page.next_cursor, pages + 1
    assert result[-len(FIXED_RESOURCES) :] == FIXED_RESOURCES
    newest = [
        f"session://{name[7:] or name}{n:02}"
        for n in range(39, 14, -1)
        for name in ("hermes", "hermes:travel")
    ]
    assert result[: -len(FIXED_RESOURCES)] == newest


@pytest.mark.requirement("faces:stores")
async def test_messages_resource_finds_owning_store(client):
    assert (await read_resource(client, "session://travel/messages"))["session"][
        "store"
    ] == "hermes:travel"
    for address in ("session://both", "session://both/messages"):
        with pytest.raises(MCPError, match="exists in several stores: hermes, hermes:travel"):
            await read_resource(client, address)
    page = await read_resource(client, "session://both/messages?store=hermes%3Atravel")
    assert [message["text"] for message in page["messages"]] == ["of hermes:travel"]


@pytest.mark.requirement("faces:stores")
async def test_completion_covers_every_store(client):
    prompt = PromptReference(name="catch_up")
    titles = await client.complete(prompt, {"name": "session", "value": "title"})
    assert titles.completion.values == ["Title of hermes", "Title of travel"]
    template = ResourceTemplateReference(uri="session://{session_id}")
    ids = await client.complete(template, {"name": "session_id", "value": "bo"})
    assert ids.completion.values == ["both"]


@pytest.mark.requirement("faces:stores")
async def test_damaged_store_leaves_other_working(client, home_path):
    for file in home_path.glob("state.db*"):
        file.unlink()
    (home_path / "state.db").write_bytes(b"this is no database at all" * 400)
    listed = [str(resource.uri) for resource in (await client.list_resources()).resources]
    assert listed == ["session://travel", "session://both", *FIXED_RESOURCES]
    assert (await read_resource(client, "session://both"))["store"] == "hermes:travel"
    assert (await read_resource(client, "session://both/messages"))["session"][
        "store"
    ] == "hermes:travel"
    prompt = PromptReference(name="catch_up")
    titles = await client.complete(prompt, {"name": "session", "value": "title"})
    assert titles.completion.values == ["Title of travel"]
