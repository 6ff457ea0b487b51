"""Transcripts of other agents as stores: alone, and merged with a home."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from mcp.types import ResourceTemplateReference

from mcp_serve.server import render_instructions
from mcp_serve.stores import transcripts
from mcp_serve.stores.stores import ServedStores, ServerOptions
from session_core import NotFound
from session_core.transcripts import indexer, transcript_store
from tests.transcripts.conftest import read_everything
from tests.transcripts.trees import START, ClaudeTree, format_time, make_line

pytestmark = pytest.mark.anyio

CLAUDE = "0190a3f2-1111-4222-8333-444455556666"
CODEX = "019a0000-0000-7000-8000-000000000001"
KEY = "sk-ant-api03-" + "abcdefghij" * 8 + "abcdefghijklm-AAAAAA"


@pytest.fixture(name="tree", autouse=True)
def _tree() -> ClaudeTree:
    """Transcripts of two agents in the home folder of the user."""
    tree = ClaudeTree(Path.home())
    tree.write(CLAUDE, ["which database for the ledger", "we chose postgres", f"key {KEY}"])
    write_codex(tree.home, CODEX, "rename the ledger table")
    return tree


def write_codex(home: Path, session: str, text: str, at: float = START + 500) -> Path:
    """Write a rollout of Codex with one prompt."""
    path = home / ".codex/sessions/2026/10/09" / f"rollout-2026-10-09T12-00-00-{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    meta = {"id": session, "cwd": "/src/shop", "originator": "codex", "cli_version": "0.150.0"}
    content = [{"type": "input_text", "text": text}]
    message = {"type": "message", "role": "user", "content": content}
    lines = (("session_meta", meta), ("response_item", message))
    path.write_text(
        "".join(
            json.dumps({"timestamp": format_time(at), "type": kind, "payload": payload}) + "\n"
            for kind, payload in lines
        )
    )
    return path


async def read_pages(call, tool, rows, limit, **arguments):
    """Return the rows of all pages."""
    page = await call(tool, limit=limit, **arguments)
    found = list(page[rows])
    while page["next_cursor"] is not None:
        page = await call(tool, cursor=page["next_cursor"])
        found += page[rows]
    return found


async def find_problems(call):
    """Return the findings about transcripts."""
    findings = (await call("sessions_stats"))["findings"]
    return [finding for finding in findings if finding["code"] == "unknown_layout"]


@pytest.mark.requirement("transcripts:served")
async def test_list_has_sessions_of_agents(call):
    rows = (await call("sessions_list"))["sessions"]
    assert [(row["store"], row["preview"]) for row in rows] == [
        ("codex", "rename the ledger table"),
        ("claude-code", "which database for the ledger"),
    ]
    assert rows[1]["resume"] == f"claude --resume {CLAUDE}"
    assert rows[1]["project"] == "/src/app"
    assert rows[1]["source"] == "claude-code"


def read_one_file_a_call(tree, monkeypatch):
    """Let each call read one file, of which many are newer than those of the fixture."""
    monkeypatch.setattr(transcript_store, "_REFRESH_S", 0.0)
    monkeypatch.setattr(indexer, "_MAX_WAIT_S", 0.0)
    monkeypatch.setattr(transcripts, "INDEXING_S", 0.0)
    for number in range(20):
        path = tree.write(f"other{number}", ["of no interest"])
        os.utime(path, (time.time() + 60, time.time() + 60))


@pytest.mark.requirement("transcripts:served")
async def test_search_of_unindexed_transcripts_states_coverage(call, tree, monkeypatch):
    read_one_file_a_call(tree, monkeypatch)
    monkeypatch.setattr(transcript_store, "SCAN_S", 0.0)
    answer = await call("sessions_search", query="postgres")
    assert answer["hits"] == []
    assert answer["searched_back_to"] is not None
    assert 0.0 <= answer["coverage"] < 1.0  # the newest file is read in any case
    assert "of the transcripts are indexed yet; repeat the call" in answer["note"]
    monkeypatch.setattr(transcripts, "INDEXING_S", 60.0)
    answer = await call("sessions_search", query="postgres")
    assert [hit["session_id"] for hit in answer["hits"]] == [CLAUDE]
    assert "note" not in answer


@pytest.mark.requirement("transcripts:bounded")
async def test_search_scans_unindexed_files(call, tree, monkeypatch):
    read_one_file_a_call(tree, monkeypatch)
    answer = await call("sessions_search", query="chose Postgres")
    assert [hit["session_id"] for hit in answer["hits"]] == [CLAUDE]
    assert answer["coverage"] < 1.0  # the files without the words are still to be indexed
    assert answer["searched_back_to"] is None
    answer = await call("sessions_search", query="zyzzyva")
    assert (answer["hits"], answer["searched_back_to"]) == ([], None)


@pytest.mark.requirement("transcripts:served")
async def test_search_and_read_lead_to_messages(call):
    answer = await call("sessions_search", query="chose postgres")
    assert "coverage" not in answer
    (hit,) = answer["hits"]
    assert (hit["session_id"], hit["store"]) == (CLAUDE, "claude-code")
    page = await call("sessions_read", session=CLAUDE, around=hit["message_id"], limit=2)
    assert [message["text"] for message in page["messages"]] == [
        "which database for the ledger",
        "we chose postgres",
    ]
    assert page["session"]["messages"] == 3


async def test_reading_pages_cover_whole_session(call, tree):
    tree.write("long", [f"message {number}" for number in range(25)])
    newest = await read_pages(call, "sessions_read", "messages", 10, session="long")
    oldest = await read_pages(call, "sessions_read", "messages", 10, session="long", after=0)
    assert len({message["id"] for message in newest}) == 25
    assert len(oldest) == 24


async def test_keys_are_redacted_in_transcripts(call):
    page = await call("sessions_read", session=CLAUDE)
    assert page["messages"][-1]["text"] == "key [redacted: anthropic key]"
    answer = await call("sessions_search", query="key", detail="detailed")
    assert KEY[:30] not in json.dumps(answer)
    assert "[redacted" in answer["hits"][0]["snippet"]


async def test_session_is_found_by_prefix(call, refused):
    page = await call("sessions_read", session=CLAUDE[:8])
    assert page["session"]["id"] == CLAUDE
    assert "in own, claude-code, codex" in (await refused("sessions_read", session="nowhere"))


def write_subagent(tree, session, agent):
    """Write the transcript of a subagent of a session."""
    folder = tree.get_path(session).with_suffix("") / "subagents"
    folder.mkdir(parents=True, exist_ok=True)
    fields = {"isSidechain": True, "agentId": agent, "sessionId": session}
    line = make_line(agent, 0, f"look for {agent}", **fields)
    (folder / f"agent-{agent}.jsonl").write_bytes(line)


@pytest.mark.requirement("transcripts:children")
async def test_read_names_subagents_and_parent(call, tree):
    for number in range(7):
        write_subagent(tree, CLAUDE, f"a{number}")
    page = await call("sessions_read", session=CLAUDE)
    assert page["note"].startswith("Subagents: agent-a")
    assert page["note"].endswith("and 2 more. Read one with sessions_read.")
    child = await call("sessions_read", session="agent-a6")
    assert child["note"] == f"Subagent of session {CLAUDE}. Read one with sessions_read."
    older = await call("sessions_read", session=CLAUDE, limit=2)
    assert "note" not in await call("sessions_read", cursor=older["next_cursor"])


@pytest.mark.requirement("transcripts:children")
async def test_list_leaves_out_subagents(call, tree):
    write_subagent(tree, CLAUDE, "a1")
    rows = (await call("sessions_list"))["sessions"]
    assert [row["id"] for row in rows] == [CODEX, CLAUDE]
    (hit,) = (await call("sessions_search", query="look for a1", mode="substring"))["hits"]
    assert hit["session_id"] == "agent-a1"


@pytest.mark.requirement("transcripts:merged")
@pytest.mark.parametrize("order", ["recent", "started", "size"])
async def test_list_pages_merge_homes_and_transcripts(call, db, tree, order):
    for number in range(5):
        at = START + 60 * number
        create = {"source": "cli", "started_at": at}
        db.append_message(f"home{number}", "user", "ledger", timestamp=at, create=create)
        tree.write(f"claude{number}", ["ledger"] * (number + 1))
    await call("sessions_search", query="ledger")  # indexes all, which changes counts
    whole = await read_pages(call, "sessions_list", "sessions", 100, order=order)
    paged = await read_pages(call, "sessions_list", "sessions", 3, order=order)
    assert paged == whole
    assert len({(row["store"], row["id"]) for row in whole}) == 12


@pytest.mark.requirement("transcripts:merged")
async def test_search_pages_merge_homes_and_transcripts(call, db, tree):
    for number in range(5):
        db.append_message(f"home{number}", "user", "apples", create={"source": "cli"})
        tree.write(f"claude{number}", ["apples and pears"])
    hits = await read_pages(call, "sessions_search", "hits", 3, query="apples")
    assert len({(hit["store"], hit["session_id"]) for hit in hits}) == len(hits) == 10
    page = await call("sessions_search", query="apples", limit=3)
    assert len(page["next_cursor"]) < 300


@pytest.mark.requirement("transcripts:merged")
async def test_named_store_limits_answers(call):
    listed = await call("sessions_list", store="codex")
    assert [row["id"] for row in listed["sessions"]] == [CODEX]
    answer = await call("sessions_search", query="ledger", store="claude-code")
    assert [hit["session_id"] for hit in answer["hits"]] == [CLAUDE]
    assert (await call("sessions_read", session=CODEX, store="codex"))["session"]["id"] == CODEX
    assert (await call("routes_list", store="codex"))["routes"] == []


@pytest.mark.requirement("transcripts:merged")
async def test_id_in_two_stores_is_ambiguous(call, db, refused):
    db.append_message(CLAUDE, "user", "of the home", create={"source": "cli"})
    message = await refused("sessions_read", session=CLAUDE)
    assert "exists in several stores: own, claude-code; pass store" in message
    page = await call("sessions_read", session=CLAUDE, store="own")
    assert page["messages"][0]["text"] == "of the home"
    pruned = await call("sessions_prune", sessions=[CLAUDE])
    assert [item["id"] for item in pruned["items"]] == [CLAUDE]


@pytest.mark.requirement("transcripts:unchanged")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("sessions_finalize", {"sessions": [CLAUDE]}),
        ("sessions_compress", {"session": CLAUDE}),
        ("sessions_prune", {"sessions": [CLAUDE]}),
    ],
)
async def test_changes_of_transcripts_are_refused(refused, tool, arguments):
    message = await refused(tool, **arguments)
    assert f"is a transcript of claude-code, and {tool} changes sessions of a home only" in message
    assert f"claude --resume {CLAUDE}" in message
    message = await refused("sessions_prune", store="codex", older_than_days=1)
    assert "codex holds transcripts of another agent" in message


@pytest.mark.requirement("transcripts:unchanged")
async def test_transcript_is_not_reopened(refused):
    message = await refused("sessions_edit", sessions=CODEX, reopen=True)
    assert f"continue it with `codex resume {CODEX}`" in message


@pytest.mark.requirement("transcripts:labels")
async def test_edit_of_transcript_is_undone(call):
    edited = await call("sessions_edit", sessions=CLAUDE[:8], title="The ledger", pinned=True)
    (row,) = edited["sessions"]
    assert (row["title"], row["pinned"], row["store"]) == ("The ledger", True, "claude-code")
    assert (await call("sessions_read", session="the ledger"))["session"]["id"] == CLAUDE
    (listed,) = (await call("sessions_restore"))["batches"]
    assert (listed["batch"], listed["store"]) == (edited["batch"], "claude-code")
    restored = await call("sessions_restore", batch=edited["batch"])
    assert (restored["outcome"], restored["restored"]) == ("applied", 1)
    row = (await call("sessions_read", session=CLAUDE))["session"]
    assert (row["title"], row["pinned"]) == (None, False)
    assert (await call("sessions_restore"))["batches"] == []


async def test_edit_errors_of_transcripts_are_explained(call, refused, tree):
    tree.write("other", ["one more"])
    assert "nothing to edit" in await refused("sessions_edit", sessions=CLAUDE)
    message = await refused("sessions_edit", sessions=[CLAUDE, "other"], title="Both")
    assert "a title is set on one session, got 2" in message
    message = await refused("sessions_edit", sessions=[CLAUDE, "nowhere"], pinned=True)
    assert "no session 'nowhere' in own, claude-code, codex" in message


@pytest.mark.requirement("transcripts:labels")
async def test_archived_transcripts_have_filter(call):
    await call("sessions_edit", sessions=[CLAUDE], archived=True)
    listed = await call("sessions_list")
    assert [row["id"] for row in listed["sessions"]] == [CODEX]
    (row,) = (await call("sessions_list", status="archived"))["sessions"]
    assert (row["id"], row["status"]) == (CLAUDE, "archived")
    assert (await call("sessions_search", query="postgres"))["hits"] == []
    assert (await call("sessions_stats"))["sessions"]["archived"] == 1


@pytest.mark.requirement("transcripts:labels")
async def test_edit_over_stores_lists_calls(call, db, refused):
    db.append_message("home", "user", "hi", create={"source": "cli"})
    message = await refused("sessions_edit", sessions=["home", CLAUDE, CODEX], archived=True)
    assert "sessions_edit(store='own', sessions=['home'], archived=true)" in message
    assert f"sessions_edit(store='codex', sessions=['{CODEX}'], archived=true)" in message


@pytest.mark.requirement("transcripts:labels")
async def test_batches_of_all_stores_are_paged(call, db):
    db.append_message("home", "user", "hi", create={"source": "cli"})
    made = []
    for number in range(3):
        for session in ("home", CLAUDE, CODEX):
            edited = await call("sessions_edit", sessions=session, title=f"{session} {number}"[:99])
            made.append((edited["batch"], edited["sessions"][0]["store"]))
    pages = await read_pages(call, "sessions_restore", "batches", 2)
    assert [(row["batch"], row["store"]) for row in pages] == made[::-1]
    named = await call("sessions_restore", store="codex")
    assert [row["store"] for row in named["batches"]] == ["codex"] * 3


async def test_prefix_of_several_stores_is_refused(call, db, refused):
    for number in range(2):
        db.append_message(f"{CLAUDE[:6]}{number}", "user", "hi", create={"source": "cli"})
    message = await refused("sessions_edit", sessions=CLAUDE[:6], pinned=True)
    assert "several sessions begin with" in message


@pytest.mark.options(read_only=True)
async def test_read_only_server_has_no_edit(client, call):
    assert "sessions_edit" not in {tool.name for tool in (await client.list_tools()).tools}
    await call("sessions_list")


@pytest.mark.requirement("transcripts:unchanged")
async def test_folders_of_agents_stay_unchanged(call, tree):
    before = [read_everything(tree.home / name) for name in (".claude", ".codex")]
    await call("sessions_search", query="ledger")
    await call("sessions_stats")
    await call("sessions_prune", older_than_days=1)
    assert [read_everything(tree.home / name) for name in (".claude", ".codex")] == before


@pytest.mark.options(stores=["claude-code"])
async def test_single_transcript_store_has_reading_tools_only(client, call):
    tools = {tool.name for tool in (await client.list_tools()).tools}
    assert tools == {
        *("sessions_list", "sessions_read", "sessions_search", "sessions_stats"),
        *("routes_list", "events_wait"),
    }
    (row,) = (await call("sessions_list"))["sessions"]
    assert "store" not in row
    assert (await call("sessions_stats"))["sessions"]["total"] == 1


def test_unknown_store_error_lists_transcripts(home_path):
    with pytest.raises(NotFound, match="existing: own, claude-code, codex"):
        ServedStores(ServerOptions(home=str(home_path), stores=["cursor"]))


def test_transcripts_are_left_out_unless_named(home_path):
    options = {"home": str(home_path), "finds_transcripts": False}
    assert ServedStores(ServerOptions(**options)).names == ["own"]
    served = ServedStores(ServerOptions(**options, stores=["codex"]))
    assert (served.home_names, served.transcript_names) == ([], ["codex"])


def test_instructions_name_transcript_stores(home_path):
    served = ServedStores(ServerOptions(home=str(home_path)))
    assert "Stores: own, claude-code, codex. " in render_instructions(served.names)


async def test_stats_count_each_store(call):
    stats = await call("sessions_stats")
    counts = [(row["name"], row["sessions"], row["messages"]) for row in stats["stores"]]
    assert counts == [("own", 0, 0), ("claude-code", 1, 3), ("codex", 1, 1)]
    assert stats["sessions"]["by_source"] == {"claude-code": 1, "codex": 1}
    assert await find_problems(call) == []


@pytest.mark.requirement("transcripts:coverage")
async def test_renamed_files_are_a_finding(call, tree):
    await call("sessions_stats")
    path = tree.get_path(CLAUDE)
    path.rename(path.with_suffix(".ndjson"))
    (finding,) = await find_problems(call)
    assert "claude-code: " in finding["what"]
    assert "none is a session file that is known here" in finding["what"]


@pytest.mark.requirement("transcripts:coverage")
async def test_renamed_folder_is_a_finding(call, tree, home_path):
    await call("sessions_stats")
    tree.projects.rename(tree.projects.with_name("sessions-v2"))
    assert "claude-code" in ServedStores(ServerOptions(home=str(home_path))).names
    (finding,) = await find_problems(call)
    assert "does not exist any more" in finding["what"]


@pytest.mark.requirement("transcripts:coverage")
async def test_renamed_records_are_a_finding(call, tree):
    path = tree.get_path(CLAUDE)
    data = path.read_bytes().replace(b'"type": "user"', b'"type": "human"')
    path.write_bytes(data.replace(b'"type": "assistant"', b'"type": "model"'))
    (finding,) = await find_problems(call)
    assert "'human' (2), 'model' (1)" in finding["what"]


@pytest.mark.requirement("transcripts:events")
async def test_appended_line_is_an_event(call, tree):
    start = await call("events_wait", timeout_s=0)
    path = tree.get_path(CLAUDE)
    with path.open("ab") as file:
        file.write(make_line(CLAUDE, 3, f"noted, {KEY}"))
    answer = await call("events_wait", cursor=start["cursor"], timeout_s=20)
    assert [(event["type"], event["store"], event["text"]) for event in answer["events"]] == [
        ("message", "claude-code", "noted, [redacted: anthropic key]")
    ]
    again = await call("events_wait", cursor=answer["cursor"], timeout_s=0)
    assert again["events"] == []


@pytest.mark.requirement("transcripts:events")
async def test_session_events_follow_one_transcript(call, tree):
    start = await call("events_wait", session=CODEX, timeout_s=0)
    tree.write(CLAUDE, ["not this one"])
    answer = await call("events_wait", cursor=start["cursor"], timeout_s=0)
    assert answer["events"] == []


@pytest.mark.requirement("transcripts:labels")
async def test_changed_title_is_an_event(call):
    cursor = (await call("events_wait", timeout_s=0))["cursor"]
    batch = (await call("sessions_edit", sessions=[CLAUDE], title="The ledger"))["batch"]
    answer = await call("events_wait", cursor=cursor, timeout_s=20)
    (event,) = answer["events"]
    assert (event["type"], event["session_id"], event["title"], event["store"]) == (
        *("title_changed", CLAUDE, "The ledger"),
        "claude-code",
    )
    await call("sessions_restore", batch=batch)
    (event,) = (await call("events_wait", cursor=answer["cursor"], timeout_s=20))["events"]
    assert (event["type"], event["session_id"]) == ("title_changed", CLAUDE)
    one = await call("events_wait", session=CODEX, timeout_s=0)
    await call("sessions_edit", sessions=[CLAUDE], title="Another")
    assert (await call("events_wait", cursor=one["cursor"], timeout_s=0))["events"] == []


async def test_resources_name_transcripts(client):
    listed = (await client.list_resources()).resources
    named = {resource.name: str(resource.uri) for resource in listed}
    assert named["claude-code: which database for the ledger"] == f"session://{CLAUDE}"
    row = json.loads((await client.read_resource(f"session://{CLAUDE}")).contents[0].text)
    assert row["store"] == "claude-code"
    page = (await client.read_resource(f"session://{CLAUDE}/messages")).contents[0].text
    assert len(json.loads(page)["messages"]) == 3


@pytest.mark.parametrize(
    ("argument", "typed", "values"),
    [("store", "c", ["claude-code", "codex"]), ("session_id", CLAUDE[:6], [CLAUDE])],
)
async def test_completions_know_transcripts(client, argument, typed, values):
    template = ResourceTemplateReference(
        type="ref/resource", uri="session://{session_id}/messages{?cursor,store}"
    )
    result = await client.complete(template, {"name": argument, "value": typed})
    assert result.completion.values == values


async def test_unwritable_index_is_named_in_note(call, db, monkeypatch, tmp_path):
    db.append_message("home", "user", "ledger", create={"source": "cli"})
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MCP_SESSIONS_STATE", str(tmp_path / "file"))
    answer = await call("sessions_list")
    assert [row["id"] for row in answer["sessions"]] == ["home"]
    assert "transcripts is left out" in answer["note"]
