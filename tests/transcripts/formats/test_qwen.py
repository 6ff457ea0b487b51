"""The reader of Qwen Code on lines like those of its version 0.24."""

from __future__ import annotations

from pathlib import Path

import pytest

from session_core.transcripts.format import Attachment, Record, SourceFile, ToolCall, Usage
from session_core.transcripts.formats.qwen import QwenFormat
from tests.transcripts.formats.reading import (
    collect_facts,
    list_messages,
    list_texts,
    list_unknown_types,
    read_fixture,
)

READER = QwenFormat()


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return read_fixture(READER, "qwen/session.jsonl")


def test_session_has_texts_in_order(records):
    assert list_texts(records) == [
        ("user", "Count the bees"),
        ("assistant", "I count."),
        ("tool", "40000"),
        ("tool", "gone"),
        ("assistant", "There are 40000."),
        ("system", "Agent completed."),
        ("user", "/about"),
        ("system", "version 0.24.4"),
        ("system", "Summary: 40000 bees."),
    ]


def test_answer_has_its_parts(records):
    answer = list_messages(records)[1]
    assert (answer.reasoning, answer.model) == ("one by one", "qwen-max")
    assert answer.tool_calls == (ToolCall("call_1", "run_shell_command", '{"command":"wc bees"}'),)


def test_results_name_their_tool(records):
    results = [message for message in list_messages(records) if message.role == "tool"]
    assert [(result.tool_name, result.is_error) for result in results] == [
        ("run_shell_command", False),
        ("read_file", True),
    ]


def test_prompts_are_typed_text_only(records):
    (prompt,) = (message for message in list_messages(records) if message.is_prompt)
    assert prompt.attachments == (Attachment("image", "hive.png", 3),)


def test_compaction_is_marked(records):
    (record,) = (record for record in records if record.is_compaction)
    assert record.messages[0].is_summary


def test_session_has_facts(records):
    assert collect_facts(records) == {
        "title": "Bees",
        "title_rank": 0,
        "folder": "/srv/bees",
        "branch": "hive",
        "model": "qwen-max",
        "agent_version": "0.24.4",
        "started_at": 1793775600.0,
        "usage": Usage(60, 18, 40, 0, 8),
    }


def test_unknown_records_are_counted(records):
    assert list_unknown_types(records) == ["system.telepathy", "hologram"]


def test_fork_keeps_keys_of_copies(records):
    original = {message.key for message in list_messages(records)}
    fork = read_fixture(READER, "qwen/fork.jsonl")
    assert [m.text for m in list_messages(fork) if m.key not in original] == ["And the wasps?"]
    facts = collect_facts(fork)
    assert (facts["parent_id"], facts["link"]) == (
        "9e9e9e9e-1111-4222-8333-444455556666",
        "branch",
    )


def test_subagent_has_no_prompt():
    records = read_fixture(READER, "qwen/agent-general-purpose-call_3.jsonl")
    assert list_texts(records) == [("user", "Look into the hive"), ("assistant", "It hums.")]
    assert not any(message.is_prompt for message in list_messages(records))


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("-srv-bees/chats/9e9e.jsonl", SourceFile("9e9e")),
        (
            "-srv-bees/subagents/9e9e/agent-a.jsonl",
            SourceFile(
                "agent-a",
                "9e9e",
                "delegate",
                sidecars=("-srv-bees/subagents/9e9e/agent-a.meta.json",),
            ),
        ),
        ("-srv-bees/chats/9e9e.json", None),
        ("-srv-bees/other/9e9e.jsonl", None),
    ],
)
def test_files_match_by_path(path, found):
    assert READER.match_file(path) == found


def test_folders_without_chats_are_skipped():
    wanted = ("-srv-bees", "-srv-bees/chats", "-srv-bees/subagents/9e9e")
    assert all(map(READER.match_folder, wanted))
    assert not READER.match_folder("-srv-bees/checkpoints")


def test_sidecar_states_the_task():
    facts = READER.read_sidecar("agent-a.meta.json", b'{"description":"Look around"}')
    assert facts == {"title": "Look around", "title_rank": 3}


def test_resume_command_names_the_session():
    assert READER.build_resume_command("9e9e") == ("qwen", "--resume", "9e9e")
    assert READER.build_resume_command("agent-a") is None
    assert READER.find_roots({}, Path("/home/ada")) == (Path("/home/ada/.qwen/projects"),)
