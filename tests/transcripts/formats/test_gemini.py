"""The readers of Gemini CLI and Antigravity on files like those that they write."""

from __future__ import annotations

from pathlib import Path

import pytest

from session_core.transcripts.format import (
    Attachment,
    Record,
    Rewind,
    SourceFile,
    ToolCall,
    Usage,
)
from session_core.transcripts.formats.gemini import AntigravityFormat, GeminiFormat
from tests.transcripts.formats.reading import (
    FIXTURES,
    collect_facts,
    list_messages,
    list_texts,
    list_unknown_types,
    read_fixture,
)

READER = GeminiFormat()
AGY = AntigravityFormat()


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return read_fixture(READER, "gemini/session.jsonl")


def test_messages_keep_their_last_state(records):
    answers = [m for m in list_messages(records) if m.key == "a1" and m.replaces]
    assert [len(answer.tool_calls) for answer in answers] == [0, 2]
    assert answers[1].reasoning == "Plan: look first"
    assert answers[1].tool_calls[0] == ToolCall("run_1", "run_shell_command", '{"command":"ls"}')


def test_results_belong_to_their_answer(records):
    results = {m.key: m for m in list_messages(records) if m.role == "tool" and m.replaces}
    assert [(m.text, m.tool_name, m.is_error) for m in results.values()] == [
        ("map.png", "run_shell_command", False),
        ("File not found", "read_file", True),
    ]


def test_prompts_are_typed_text_only(records):
    prompts = [m for m in list_messages(records) if m.is_prompt and m.replaces]
    assert [m.text for m in prompts] == ["Draw a map of the coast", "Add the rivers"]
    assert prompts[0].attachments == (Attachment("image", None, 3),)


def test_notices_are_of_the_system(records):
    texts = list_texts(records)
    assert ("system", "Session stats") in texts
    assert ("system", "quota exceeded") in texts
    assert ("user", "/stats") in texts
    assert ("assistant", "The map is ready.") in texts


def test_repeated_history_replaces_nothing(records):
    (history,) = (r for r in records if r.type == "$set" and len(r.messages) > 1)
    assert not any(message.replaces for message in history.messages)
    assert not history.is_compaction


def test_compaction_adds_its_summary_only(records):
    (compaction,) = (record for record in records if record.is_compaction)
    (summary,) = compaction.messages
    assert (summary.key, summary.role, summary.is_summary) == ("s1", "system", True)


def test_rewind_names_a_message(records):
    assert [record.rewind for record in records if record.rewind] == [Rewind(key="u3")]


def test_session_has_facts(records):
    assert collect_facts(records) == {
        "title": "Map of the coast",
        "title_rank": 1,
        "folder": "/srv/maps/more",
        "model": "gemini-3-flash",
        "resume_id": "7d7d7d7d-1111-4222-8333-444455556666",
        "started_at": 1793775600.0,
        "usage": Usage(180, 75, 120, 0, 15),
    }


def test_unknown_records_are_counted(records):
    assert list_unknown_types(records) == ["hologram", "untyped"]


def test_document_of_older_version_is_read():
    record = READER.read_record((FIXTURES / "gemini/session.json").read_bytes(), 0, {})
    assert [message.role for message in record.messages] == ["user", "assistant", "tool", "tool"]
    assert collect_facts([record])["title"] == "Old map"
    assert collect_facts([record])["usage"] == Usage(60, 25, 40, 0, 5)


def test_subagent_is_read():
    records = read_fixture(READER, "gemini/subagent.jsonl")
    assert list_texts(records) == [("user", "Find the rivers"), ("assistant", "Two rivers.")]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (
            "maps/chats/session-2026-11-04T07-00-7d7d7d7d.jsonl",
            SourceFile("7d7d7d7d", sidecars=("maps/.project_root",)),
        ),
        (
            "maps/chats/session-2026-11-04T07-00-7d7d7d7d.json",
            SourceFile("7d7d7d7d", is_document=True, sidecars=("maps/.project_root",)),
        ),
        (
            "maps/chats/7d7d7d7d-1111/sub-1.jsonl",
            SourceFile("sub-1", "7d7d7d7d", "delegate", sidecars=("maps/.project_root",)),
        ),
        ("maps/logs.json", None),
        ("maps/chats/checkpoint-1.json", None),
    ],
)
def test_files_match_by_path(path, found):
    assert READER.match_file(path) == found


def test_folders_without_chats_are_skipped():
    assert [READER.match_folder(path) for path in ("maps", "maps/chats", "maps/chats/7d")] == [
        True,
        True,
        True,
    ]
    assert not READER.match_folder("maps/tool-outputs")


def test_sidecar_names_the_folder():
    assert READER.read_sidecar("maps/.project_root", b"/srv/maps\n") == {"folder": "/srv/maps"}
    assert READER.read_sidecar("maps/.project_root", b"\x00") == {}


def test_resume_command_needs_the_whole_id():
    assert READER.build_resume_command("7d7d7d7d") is None
    assert READER.build_resume_command("7d7d7d7d-1") == ("gemini", "--resume", "7d7d7d7d-1")


def test_roots_follow_environment():
    home = Path("/home/ada")
    assert READER.find_roots({}, home) == (home / ".gemini/tmp",)
    assert READER.find_roots({"GEMINI_CLI_HOME": "/x"}, home) == (Path("/x/.gemini/tmp"),)


def test_antigravity_steps_are_read():
    records = read_fixture(AGY, "antigravity/transcript.jsonl")
    assert list_texts(records) == [
        ("user", "Paint the boat"),
        ("system", "earlier talk"),
        ("assistant", "I look at the hull."),
        ("tool", "The hull is steel."),
        ("tool", "no brush"),
    ]
    answer, seen, failed = list_messages(records)[2:]
    assert answer.tool_calls == (ToolCall(None, "view_file", '{"path":"hull.md"}'),)
    assert (seen.tool_name, failed.is_error) == ("view_file", True)
    assert list_unknown_types(records) == ["VISION"]
    assert collect_facts(records)["usage"] == Usage(9, 3)


def test_antigravity_files_match_by_path():
    logs = "antigravity-cli/brain/c1/.system_generated/logs"
    assert AGY.match_file(f"{logs}/transcript.jsonl") == SourceFile("c1")
    assert AGY.match_file(f"{logs}/transcript_full.jsonl") is None
    assert AGY.match_folder(logs)
    assert AGY.match_folder("antigravity")
    assert not AGY.match_folder("tmp")
    assert not AGY.match_folder("antigravity/brain/c1/images")
