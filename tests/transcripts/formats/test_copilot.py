"""The reader of Copilot CLI on events like those of its version 1.0."""

from __future__ import annotations

from pathlib import Path

import pytest

from session_core.transcripts.format import Attachment, Record, SourceFile, ToolCall, Usage
from session_core.transcripts.formats.copilot import CopilotFormat
from tests.transcripts.formats.reading import (
    collect_facts,
    list_messages,
    list_texts,
    list_unknown_types,
    read_fixture,
)

READER = CopilotFormat()


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return read_fixture(READER, "copilot/events.jsonl")


def test_session_has_texts_in_order(records):
    assert list_texts(records) == [
        ("user", "Build a kite"),
        ("assistant", "I cut the sail."),
        ("tool", "cut done"),
        ("user", "Find string"),
        ("assistant", "String found."),
        ("tool", "no scissors"),
        ("tool", "bad"),
        ("system", "<skill-context>kites</skill-context>"),
        ("system", "rate limited"),
        ("system", "Summary: the sail is cut."),
    ]


def test_answer_has_its_parts(records):
    answer = list_messages(records)[1]
    assert (answer.reasoning, answer.model) == ("paper or silk", "gpt-5")
    assert answer.tool_calls == (ToolCall("call_1", "bash", '{"command":"cut"}'),)


def test_results_state_their_failure(records):
    results = [message for message in list_messages(records) if message.role == "tool"]
    assert [result.is_error for result in results] == [False, True, True]
    assert results[0].tool_name == "bash"


def test_prompts_are_typed_text_only(records):
    (prompt,) = (message for message in list_messages(records) if message.is_prompt)
    assert prompt.attachments == (Attachment("file", "kite.svg"),)


def test_compaction_is_marked(records):
    (record,) = (record for record in records if record.is_compaction)
    assert record.messages[0].is_summary


def test_session_has_facts(records):
    assert collect_facts(records) == {
        "folder": "/srv/kites",
        "branch": "wind",
        "model": "gpt-5-mini",
        "agent_version": "1.0.102",
        "started_at": 1793775600.0,
        "usage": Usage(60, 7, 30, 10),
    }


def test_old_version_counts_at_its_end():
    facts = collect_facts(read_fixture(READER, "copilot/old.jsonl"))
    assert facts["usage"] == Usage(120, 14, 60, 20)


def test_unknown_records_are_counted(records):
    assert list_unknown_types(records) == ["weather.changed"]


def test_sidecar_names_the_workspace():
    own = b"cwd: /srv/kites\nbranch: wind\nname: Kites\nuser_named: true\n"
    assert READER.read_sidecar("5a5a/workspace.yaml", own) == {
        "folder": "/srv/kites",
        "branch": "wind",
        "title": "Kites",
        "title_rank": 0,
    }
    assert READER.read_sidecar("x", b"name: Build a kite\n")["title_rank"] == 2


@pytest.mark.parametrize(
    "data", [b"[", b"\xff", b"- 1", b"cwd: [1]", b"[" * 5000, b"a: 99999-99-99", b"!!python/x"]
)
def test_hostile_sidecars_state_nothing(data):
    assert READER.read_sidecar("x", data) == {}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("5a5a/events.jsonl", SourceFile("5a5a", sidecars=("5a5a/workspace.yaml",))),
        ("5a5a.jsonl", SourceFile("5a5a")),
        ("5a5a/checkpoints/events.jsonl", None),
    ],
)
def test_files_match_by_path(path, found):
    assert READER.match_file(path) == found
    assert not READER.match_folder("5a5a/checkpoints")


def test_resume_command_names_the_session():
    assert READER.build_resume_command("5a5a") == ("copilot", "--resume=5a5a")
    home = Path("/home/ada")
    assert READER.find_roots({}, home) == (home / ".copilot/session-state",)
    assert READER.find_roots({"COPILOT_HOME": "/x"}, home) == (Path("/x/session-state"),)
