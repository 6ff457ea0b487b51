"""The reader of Claude Code on lines like those that its versions 1.0 and 2.1 write."""

from __future__ import annotations

from pathlib import Path

import pytest

from session_core.transcripts.format import Attachment, Record, SourceFile, ToolCall, Usage
from session_core.transcripts.formats.claude_code import ClaudeCodeFormat
from tests.transcripts.formats.reading import (
    FIXTURES,
    collect_facts,
    list_messages,
    list_texts,
    list_unknown_types,
    read_fixture,
    read_lines,
)

READER = ClaudeCodeFormat()
SESSION = "claude_code/session.jsonl"


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return read_fixture(READER, SESSION)


def test_session_has_texts_in_file_order(records):
    assert list_texts(records) == [
        ("user", "Why does the rain gauge report zero?"),
        ("assistant", "I look at the driver."),
        ("user", "Check the wiring table too"),
        ("tool", "12: tick = 0"),
        ("assistant", "Line 12 resets the counter at each read."),
        ("system", "<ide_opened_file>The user opened gauge.c in the editor.</ide_opened_file>"),
        ("user", "Fix it, see the photo"),
        ("tool", "no callers"),
        ("system", "<task-notification>\n<task-id>a77</task-id>\n</task-notification>"),
        ("system", "Conversation compacted"),
        ("system", "Summary: the gauge resets at each read."),
        (
            "system",
            "<local-command-caveat>The command below was run by the person.</local-command-caveat>",
        ),
        ("user", "/compact keep the numbers"),
        ("system", "<local-command-stdout>Compacted</local-command-stdout>"),
        ("assistant", "Line 12 resets the counter at each read."),
        ("system", '{"status":529}'),
        ("assistant", "API Error: overloaded"),
    ]


def test_prompts_are_typed_text_only(records):
    prompts = [message.text for message in list_messages(records) if message.is_prompt]
    assert prompts == [
        "Why does the rain gauge report zero?",
        "Check the wiring table too",
        "Fix it, see the photo",
    ]


def test_streamed_parts_share_a_group(records):
    parts = [message for message in list_messages(records) if message.group == "msg_1"]
    assert [part.key for part in parts] == ["a1", "a2", "a3"]
    assert parts[0].reasoning == "The counter may wrap."
    assert parts[2].tool_calls == (
        ToolCall("toolu_1", "Bash", '{"command":"grep -n tick gauge.c"}'),
    )


def test_streamed_tokens_count_once(records):
    usage = [
        record.facts["usage"].output_tokens
        for record in records
        if record.facts and any(message.group == "msg_1" for message in record.messages)
    ]
    assert usage == [5, 25, 31]


def test_tool_results_name_their_tool(records):
    results = [message for message in list_messages(records) if message.role == "tool"]
    assert [(result.tool_name, result.is_error) for result in results] == [
        ("Bash", False),
        ("Agent", True),
    ]


def test_images_are_attachments(records):
    (message,) = (message for message in list_messages(records) if message.key == "u2:1")
    assert message.attachments == (Attachment("image", None, 6),)


def test_repeated_rows_keep_their_key(records):
    keys = [message.key for message in list_messages(records)]
    assert keys.count("a4") == 2


def test_compaction_is_marked_once(records):
    (boundary,) = (record for record in records if record.is_compaction)
    summaries = [message.key for message in list_messages(records) if message.is_summary]
    assert (boundary.messages[0].key, summaries) == ("s1", ["c1"])


def test_session_has_facts(records):
    assert collect_facts(records) == {
        "title": "Gauge driver",
        "title_rank": 0,
        "folder": "/home/ada/weather station",
        "branch": "sensor-fix",
        "model": "claude-opus-5-5",
        "agent_version": "2.1.326",
        "started_at": 1793610000.2,
        "usage": Usage(3600, 171, 1200, 80, 16, 0.4),
    }


def test_unknown_records_are_counted(records):
    assert list_unknown_types(records) == ["hologram", "damaged"]


def test_requests_repeat_no_message(records):
    requests = [record for record in records if record.type.startswith("api-request")]
    assert len(requests) == 3
    assert not list_messages(requests)


def test_subagent_is_linked_to_parent():
    records = read_fixture(READER, "claude_code/agent-a77b88c99d00e11f2.jsonl")
    facts = collect_facts(records)
    assert (facts["parent_id"], facts["link"], facts["title"]) == (
        "0a0a0a0a-1111-4222-8333-444455556666",
        "delegate",
        "List the callers",
    )
    assert not any(message.is_prompt for message in list_messages(records))
    assert "branch" not in facts  # outside of a repository the agent states HEAD


def test_fork_keeps_keys_of_copies():
    original = {message.key for message in list_messages(read_fixture(READER, SESSION))}
    fork = list_messages(read_fixture(READER, "claude_code/fork.jsonl"))
    assert [message.key for message in fork if message.key not in original] == ["f1", "f2"]


def test_fork_does_not_inherit_cost():
    facts = collect_facts(read_fixture(READER, "claude_code/fork.jsonl"))
    assert facts["usage"].cost_usd == 0.25


def test_old_version_is_read():
    records = read_fixture(READER, "claude_code/old.jsonl")
    facts = collect_facts(records)
    assert (facts["title"], facts["title_rank"]) == ("Old talk about logs", 3)
    assert (facts["folder"], facts["usage"].cost_usd) == ("/srv/logs", 0.01)
    assert [record.messages[0].key for record in records if record.is_compaction] == ["o3"]


def test_record_is_read_alone():
    data = (FIXTURES / SESSION).read_bytes()
    for record in read_lines(READER, data):
        line = data[record.offset : record.offset + record.length - 1]
        alone = READER.read_record(line, record.offset, {})
        assert [m.text for m in alone.messages] == [m.text for m in record.messages]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("-srv-x/0a.jsonl", SourceFile("0a", sidecars=("-srv-x/0a/custom-title.json",))),
        (
            "-srv-x/0a/subagents/agent-1.jsonl",
            SourceFile(
                "agent-1", "0a", "delegate", sidecars=("-srv-x/0a/subagents/agent-1.meta.json",)
            ),
        ),
        (
            "-srv-x/0a/subagents/workflows/w/agent-1.jsonl",
            SourceFile(
                "agent-1",
                "0a",
                "delegate",
                sidecars=("-srv-x/0a/subagents/workflows/w/agent-1.meta.json",),
            ),
        ),
        (
            "-srv-x/agent-2.jsonl",
            SourceFile("agent-2", None, "delegate", sidecars=("-srv-x/agent-2.meta.json",)),
        ),
        ("-srv-x/sessions-index.json", None),
        ("-srv-x/0a/tool-results/out.jsonl", None),
    ],
)
def test_files_match_by_path(path, found):
    assert READER.match_file(path) == found


def test_sidecars_state_titles():
    assert READER.read_sidecar("a/custom-title.json", b'{"customTitle":"Mine"}') == {
        "title": "Mine",
        "title_rank": 0,
    }
    meta = b'{"agentType":"Explore","description":"Look around"}'
    assert READER.read_sidecar("agent-1.meta.json", meta)["title"] == "Look around"
    assert READER.read_sidecar("agent-1.meta.json", b"[1") == {}


def test_roots_follow_environment():
    home = Path("/home/ada")
    assert READER.find_roots({}, home)[0] == home / ".claude/projects"
    assert READER.find_roots({"CLAUDE_CONFIG_DIR": "/x"}, home)[0] == Path("/x/projects")


def test_resume_command_names_the_session():
    assert READER.build_resume_command("0a") == ("claude", "--resume", "0a")
    assert READER.build_resume_command("agent-1") is None
