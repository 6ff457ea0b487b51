"""The reader of Codex on rollouts like those of its versions 0.1, 0.44 and 0.169."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from session_core.transcripts.format import (
    Attachment,
    Query,
    Record,
    Rewind,
    SourceFile,
    ToolCall,
    Usage,
)
from session_core.transcripts.formats.codex import CodexFormat, CodexStateFormat
from tests.transcripts.formats.reading import (
    collect_facts,
    list_messages,
    list_texts,
    list_unknown_types,
    open_database,
    read_fixture,
)

READER = CodexFormat("sessions", archived=False)
PARENT = "01aa0000-0000-7000-8000-000000000001"
PLACE = "2026/11/03/rollout-2026-11-03T08-00-00-"


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return read_fixture(READER, "codex/paginated.jsonl")


def test_paginated_messages_are_read_once(records):
    assert list_texts(records) == [
        ("system", "<permissions instructions>all</permissions instructions>"),
        ("system", "<environment_context><cwd>/srv/tides</cwd></environment_context>"),
        ("user", "Plot the tide table"),
        ("tool", "tides.csv"),
        ("tool", "Done"),
        ("assistant", "1. Read the csv"),
        ("assistant", "The plot is in tides.svg"),
        ("assistant", "<summary>plotted</summary>"),
        ("system", "Summary: the tides were plotted."),
        ("system", "<subagent_notification>{}</subagent_notification>"),
        ("system", "# Context from my IDE setup:\n\n## Active file: a.py"),
        ("user", "Add the moon"),
        ("system", "stream disconnected"),
    ]


def test_calls_of_every_kind_are_read(records):
    calls = [call for message in list_messages(records) for call in message.tool_calls]
    assert calls == [
        ToolCall("call_1", "exec_command", '{"cmd":"ls data"}'),
        ToolCall("call_2", "apply_patch", "*** Begin Patch"),
        ToolCall("ws_1", "web_search", '{"type":"search","query":"tide formula"}'),
    ]


def test_results_name_their_tool(records):
    results = [message for message in list_messages(records) if message.role == "tool"]
    assert [result.tool_name for result in results] == ["exec_command", "apply_patch"]


@pytest.mark.parametrize(("code", "is_error"), [(0, False), (3, True)])
def test_exit_code_states_failure(code, is_error):
    output = f"Chunk ID: 77\\nWall time: 0.0 seconds\\nProcess exited with code {code}\\nOutput:"
    payload = f'"payload":{{"type":"function_call_output","call_id":"c","output":"{output}"}}'
    line = f'{{"timestamp":"2026-11-03T08:00:00Z","type":"response_item",{payload}}}'
    (message,) = READER.read_record(line.encode(), 0, {}).messages
    assert message.is_error == is_error


def test_reasoning_is_read_unless_encrypted(records):
    assert [m.reasoning for m in list_messages(records) if m.reasoning] == ["Look for the data"]


def test_prompts_are_typed_text_only(records):
    prompts = [message for message in list_messages(records) if message.is_prompt]
    assert [prompt.text for prompt in prompts] == ["Plot the tide table", "Add the moon"]
    assert prompts[1].attachments == (Attachment("image", None, 3),)


def test_compaction_and_rewind_are_marked(records):
    (compaction,) = (record for record in records if record.is_compaction)
    assert [message.is_summary for message in compaction.messages] == [True]
    assert [record.rewind for record in records if record.rewind] == [Rewind(turns=1)]


def test_thread_has_facts(records):
    assert collect_facts(records) == {
        "title": "Tide plots",
        "title_rank": 0,
        "folder": "/srv/tides",
        "branch": "moon",
        "model": "gpt-6-astra",
        "agent_version": "0.169.0",
        "started_at": 1793692800.0,
        "usage": Usage(160, 30, 90, 0, 4),
    }


def test_unknown_records_are_counted(records):
    unknown = ["event_msg.hologram_shown", "response_item.telepathy", "constellation"]
    assert list_unknown_types(records) == unknown


def test_subagent_skips_inherited_context():
    records = read_fixture(READER, "codex/subagent.jsonl")
    facts = collect_facts(records)
    assert [message.key for message in list_messages(records)] == ["msg_c1", "msg_c2"]
    assert (facts["parent_id"], facts["link"]) == (PARENT, "delegate")
    assert facts["usage"] == Usage(30, 4, 20)


def test_fork_counts_its_own_tokens():
    facts = collect_facts(read_fixture(READER, "codex/fork.jsonl"))
    assert (facts["parent_id"], facts["link"]) == (PARENT, "branch")
    assert facts["usage"] == Usage(40, 5, 10)


def test_legacy_messages_have_distinct_keys():
    messages = list_messages(read_fixture(READER, "codex/legacy.jsonl"))
    texts = [message.text for message in messages if message.role != "system"]
    assert texts == ["count to two", "", "", "1\n2\n", "one, two", "again", "one, two"]
    assert len({message.key for message in messages}) == len(messages)
    assert [message.is_error for message in messages if message.role == "tool"] == [True]


def test_legacy_fork_keeps_keys_of_copies():
    original = {
        message.key for message in list_messages(read_fixture(READER, "codex/legacy.jsonl"))
    }
    records = read_fixture(READER, "codex/legacy_fork.jsonl")
    own = [message.text for message in list_messages(records) if message.key not in original]
    assert own == ["count to three"]
    assert collect_facts(records)["usage"] == Usage(20, 2)


def test_first_version_is_read():
    records = read_fixture(READER, "codex/first_version.jsonl")
    assert list_texts(records) == [("user", "say hi"), ("tool", "hi"), ("assistant", "hi")]
    assert list_messages(records)[2].is_error
    assert not list_unknown_types(records)


def test_compacted_history_is_not_decoded():
    data = b'{"timestamp":"2026-11-03T08:00:00Z","type":"compacted","payload":{"message":"S"'
    record = READER.read_record(data + b',"replacement_history":[{]', 0, {})
    assert (record.messages[0].text, record.is_compaction) == ("S", True)
    assert READER.read_cut_record(data, 0, 10**9, {}).is_compaction


def test_compaction_without_history_is_read():
    data = b'{"timestamp":"2025-09-03T08:00:00Z","type":"compacted","payload":{"message":"S"}}'
    record = READER.read_record(data, 0, {})
    assert (record.messages[0].text, record.is_compaction) == ("S", True)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (f"{PLACE}{PARENT}.jsonl", SourceFile(PARENT)),
        (f"{PLACE}{PARENT}.jsonl.zst", SourceFile(PARENT, is_zstd=True)),
        (f"{PLACE}{PARENT}_01bb.jsonl", SourceFile(f"{PARENT}_01bb")),
        ("2026/11/03/notes.jsonl", None),
    ],
)
def test_files_match_by_name(path, found):
    assert READER.match_file(path) == found


def test_archived_threads_lie_in_their_folder():
    archive = CodexFormat("archived_sessions", archived=True)
    assert archive.match_file(f"rollout-2026-11-03T08-00-00-{PARENT}.jsonl").archived
    assert archive.find_roots({"CODEX_HOME": "/x"}, Path("/home/ada")) == (
        Path("/x/archived_sessions"),
    )


def test_resume_command_names_the_thread():
    assert READER.build_resume_command(f"{PARENT}_01bb") == ("codex", "resume", PARENT)


@pytest.fixture
def threads(tmp_path: Path) -> Iterator[tuple[Any, Query]]:
    rows = [
        ("t1", 10, "Plot the tides", "Plot the tides", "Tide plots", 0, "moon"),
        ("t2", 10, "Plot the tides", "Plot the tides", None, 1, None),
        ("t3", 20, "A better title", "Plot the tides", None, 0, None),
    ]
    schema = (
        "CREATE TABLE threads (id TEXT PRIMARY KEY, updated_at INTEGER NOT NULL, title TEXT,"
        " first_user_message TEXT, name TEXT, archived INTEGER, git_branch TEXT)"
    )
    with open_database(tmp_path / "state_5.sqlite", schema) as (connection, query):
        connection.executemany("INSERT INTO threads VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        yield connection, query


def test_state_database_has_titles(threads):
    reader, state, query = CodexStateFormat(), {}, threads[1]
    records = reader.read_changes(query, state, 2) + reader.read_changes(query, state, 2)
    assert reader.has_tables(query)
    assert {record.session_id: record.facts for record in records} == {
        "t1": {"archived": False, "title": "Tide plots", "title_rank": 0, "branch": "moon"},
        "t2": {"archived": True},
        "t3": {"archived": False, "title": "A better title", "title_rank": 1},
    }
    assert reader.read_changes(query, state, 2) == []


def test_state_database_reports_changes(threads):
    reader, state = CodexStateFormat(), {}
    connection, query = threads
    reader.read_changes(query, state, 10)
    connection.execute("UPDATE threads SET name = 'New', updated_at = 30 WHERE id = 't1'")
    (record,) = reader.read_changes(query, state, 10)
    assert (record.session_id, record.facts["title"]) == ("t1", "New")
    assert reader.list_session_ids(query) == ["t1", "t2", "t3"]


def test_state_database_matches_by_name():
    reader = CodexStateFormat()
    assert reader.match_database("state_5.sqlite")
    assert not reader.match_database("worktrees/x/state_5.sqlite")
