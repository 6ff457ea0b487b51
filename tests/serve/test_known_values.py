"""Values of arguments that are spelled differently, are parts of folders, or do not exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_serve.stores.known_values import find_folders_ending_in
from tests.transcripts.trees import ClaudeTree

pytestmark = pytest.mark.anyio

FOLDERS = ["/srv/shop", "/srv/shop/api", "/home/ann/Shop", "/srv/shopping", "C:\\work\\shop\\web"]


@pytest.fixture(autouse=True)
def _sessions(db):
    for number, folder in enumerate(FOLDERS):
        source = "cli" if number % 2 else "Telegram"
        create = {"source": source, "cwd": folder}
        db.append_message(f"s{number}", "user", "hello", timestamp=1e9 + number, create=create)


async def list_ids(call, **arguments):
    page = await call("sessions_list", **arguments)
    return [row["id"] for row in page["sessions"]], page.get("note")


@pytest.mark.parametrize(
    ("ending", "found"),
    [
        ("shop", ["/home/ann/Shop", "/srv/shop"]),
        ("SHOP/", ["/home/ann/Shop", "/srv/shop"]),
        ("shop/api", ["/srv/shop/api"]),
        ("web", ["C:\\work\\shop\\web"]),
        ("work", ["C:\\work"]),
        ("srv", ["/srv"]),
        ("hop", []),
        ("", []),
    ],
)
def test_folders_are_found_by_last_part(ending, found):
    assert find_folders_ending_in(ending, FOLDERS) == found


@pytest.mark.requirement("serving:values")
async def test_project_takes_last_part_of_folder(call):
    ids, note = await list_ids(call, project="shop")
    assert ids == ["s2", "s1", "s0"]
    assert note == (
        "project means each of /home/ann/Shop, /srv/shop; pass one of them for it alone."
    )
    assert await list_ids(call, project="shopping") == (["s3"], None)
    assert await list_ids(call, project="/srv/shop") == (["s1", "s0"], None)


@pytest.mark.requirement("serving:values")
@pytest.mark.parametrize("project", ["shpo", "/srv/shpo"])
async def test_unknown_project_lists_folders(call, project):
    ids, note = await list_ids(call, project=project)
    assert ids == []
    assert note.startswith(f"No session is in a folder '{project}'; folders with sessions: ")
    assert "/srv/shop" in note


@pytest.mark.requirement("serving:values")
async def test_source_ignores_case(call):
    assert (await list_ids(call, source="CLI"))[0] == ["s3", "s1"]
    assert (await list_ids(call, source="telegram"))[0] == ["s4", "s2", "s0"]
    assert (await list_ids(call, exclude_source="TELEGRAM"))[0] == ["s3", "s1"]


@pytest.mark.requirement("serving:values")
async def test_unknown_source_lists_existing(call):
    assert await list_ids(call, source="discord") == (
        [],
        "No source 'discord'; existing: Telegram, cli.",
    )
    ids, note = await list_ids(call, exclude_source="discord")
    assert len(ids) == 5
    assert note == "No exclude_source 'discord'; existing: Telegram, cli."


@pytest.fixture(name="claude")
def _claude():
    ClaudeTree(Path.home()).write("claude", ["hello"])


@pytest.mark.requirement("serving:values")
async def test_values_are_those_of_all_stores(claude, call):
    assert (await list_ids(call, source="Claude-Code"))[0] == ["claude"]
    assert (await list_ids(call, project="app"))[0] == ["claude"]
    assert (await list_ids(call, source="discord"))[1].endswith("Telegram, cli, claude-code.")


@pytest.mark.requirement("serving:values")
async def test_unknown_values_hide_secrets(call):
    key = "sk-ant-api03-" + "abcdefghij" * 8 + "abcdefghijklm-AAAAAA"
    for name in ("source", "project"):
        ids, note = await list_ids(call, **{name: key})
        assert ids == []
        assert "abcdefghij" not in note


@pytest.mark.requirement("serving:values")
async def test_unknown_role_of_search_lists_usual(call):
    answer = await call("sessions_search", query="hello", roles=["User", "robot"])
    assert (len(answer["hits"]), answer.get("note")) == (5, None)
    answer = await call("sessions_search", query="hello", roles=["robot"])
    assert answer["hits"] == []
    assert (
        answer["note"] == "No hit has the role robot; usual roles: user, assistant, tool, system."
    )
    assert "note" not in await call("sessions_search", query="absent", roles=["user"])
