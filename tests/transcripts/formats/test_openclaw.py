"""The readers of OpenClaw on files and databases like those of its versions 2026.7 and 2026.9."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from session_core.transcripts.format import (
    Attachment,
    Query,
    Record,
    SourceFile,
    ToolCall,
    Usage,
)
from session_core.transcripts.formats.openclaw import OpenClawDatabaseFormat, OpenClawFileFormat
from tests.transcripts.formats.reading import (
    FIXTURES,
    collect_facts,
    list_messages,
    list_texts,
    list_unknown_types,
    open_database,
    read_fixture,
)

FILES = OpenClawFileFormat()
DATABASES = OpenClawDatabaseFormat()
NEW_EVENT = "INSERT INTO transcript_events VALUES (?, ?, ?, 0)"


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return read_fixture(FILES, "openclaw/session.jsonl")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[tuple[Any, Query]]:
    schema = (FIXTURES / "openclaw/agent.sql").read_text("utf-8")
    with open_database(tmp_path / "openclaw-agent.sqlite", schema) as opened:
        yield opened


def read_all(query: Query, state: dict[str, Any], limit: int = 100) -> list[Record]:
    found: list[Record] = []
    while records := DATABASES.read_changes(query, state, limit):
        found += records
    return found


def select_session(records: list[Record], session_id: str) -> list[Record]:
    return [record for record in records if record.session_id == session_id]


def test_session_has_texts_in_order(records):
    assert list_texts(records) == [
        ("user", "Bake a bread"),
        ("assistant", "I heat the oven."),
        ("tool", "230 degrees"),
        ("tool", "no flour"),
        ("system", "overloaded"),
        ("user", "!ls"),
        ("tool", "bread"),
        ("system", "Summary: the oven is hot."),
        ("system", "Heartbeat"),
        ("system", "Another loaf was left."),
    ]


def test_answer_has_its_parts(records):
    answer = list_messages(records)[1]
    assert (answer.reasoning, answer.model) == ("rye or wheat", "m-2")
    assert answer.tool_calls == (ToolCall("call_1", "exec", '{"command":"heat 230"}'),)


def test_results_state_their_failure(records):
    results = [message for message in list_messages(records) if message.role == "tool"]
    assert [(result.tool_name, result.is_error) for result in results] == [
        ("exec", False),
        ("read", True),
        ("bash", True),
    ]


def test_prompts_have_attachments(records):
    (prompt,) = (message for message in list_messages(records) if message.is_prompt)
    assert prompt.attachments == (Attachment("image", None, 3),)


def test_compaction_is_marked(records):
    assert [record.type for record in records if record.is_compaction] == ["compaction"]


def test_session_has_facts(records):
    assert collect_facts(records) == {
        "title": "Bread",
        "title_rank": 0,
        "folder": "/srv/oven",
        "model": "m-2",
        "started_at": 1793858400.0,
        "usage": Usage(50, 9, 20, 3, 0, 0.125),
    }


def test_unknown_records_are_counted(records):
    assert list_unknown_types(records) == ["hologram", "damaged"]


def test_database_has_the_events_of_files(database, records):
    stored = select_session(read_all(database[1], {}), "3c3c")
    assert list_texts(stored) == list_texts(records)[:2]
    assert [m.key for m in list_messages(stored)] == [m.key for m in list_messages(records)[:2]]
    assert DATABASES.has_tables(database[1])


def test_database_sessions_have_facts(database):
    found = read_all(database[1], {})
    facts = {name: collect_facts(select_session(found, name)) for name in ("3c3c", "4d4d", "5e5e")}
    assert facts["3c3c"]["title"] == "Bread"
    assert facts["3c3c"]["resume_id"] == "agent:main:main"
    subagent, fork = facts["4d4d"], facts["5e5e"]
    assert (subagent["parent_id"], subagent["link"]) == ("3c3c", "delegate")
    assert (fork["parent_id"], fork["link"], fork["archived"]) == ("3c3c", "branch", True)


def test_database_fork_keeps_keys_of_copies(database):
    found = read_all(database[1], {})
    original = {message.key for message in list_messages(select_session(found, "3c3c"))}
    fork = list_messages(select_session(found, "5e5e"))
    assert [message.text for message in fork if message.key not in original] == ["And a cake?"]


def test_database_records_are_read_by_offset(database):
    for record in read_all(database[1], {}):
        if record.type != "session_windows":
            session = DATABASES.read_session(database[1], str(record.session_id), [record.offset])
            assert session == [record]
    assert DATABASES.read_session(database[1], "3c3c", [10**9]) == []


def test_database_changes_are_found_once(database):
    connection, query = database
    state: dict[str, Any] = {}
    read_all(query, state, 1)
    connection.execute(NEW_EVENT, ("3c3c", 9, '{"type":"session_info","name":"Rolls"}'))
    connection.execute("UPDATE session_nodes SET label = 'Buns', updated_at = 9e15")
    found = read_all(query, state)
    assert [record.type for record in found] == ["session_windows"] * 3 + ["session_info"]
    assert {record.facts["title"] for record in found} == {"Buns", "Rolls"}


def test_database_rewrite_is_read_again(database):
    connection, query = database
    state: dict[str, Any] = {}
    read_all(query, state)
    connection.execute("DELETE FROM transcript_events WHERE session_id = '5e5e'")
    event = '{"type":"message","id":"z","message":{"role":"user","content":"A pie"}}'
    connection.execute(NEW_EVENT, ("5e5e", 0, event))
    assert list_texts(read_all(query, state)) == [("user", "A pie")]


def test_older_layout_is_read(tmp_path):
    schema = """
        CREATE TABLE session_windows (session_id TEXT, session_key TEXT, updated_at INTEGER);
        CREATE TABLE transcript_events (session_id TEXT, seq INTEGER, event_json TEXT);
        INSERT INTO session_windows VALUES ('s1', 'agent:main:main', 1), (x'00', 5, 'x');
        INSERT INTO transcript_events VALUES
            ('s1', 0, '{"type":"message","message":{"role":"user","content":"Hello"}}'),
            (x'00', 'seq', 7), (NULL, -1, '[[['), ('s1', 1, x'ff');
    """
    with open_database(tmp_path / "a.sqlite", schema) as (_, query):
        assert list_texts(read_all(query, {}, 2)) == [("user", "Hello")]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("main/sessions/3c3c.jsonl", SourceFile("3c3c")),
        (
            "main/sessions/3c3c.jsonl.reset.2026-11-05T06-00-00.000Z",
            SourceFile("3c3c", archived=True),
        ),
        (
            "main/sessions/3c3c.jsonl.deleted.2026-11-05T06-00-00.000Z.zst",
            SourceFile("3c3c", archived=True, is_zstd=True),
        ),
        ("main/sessions/3c3c.checkpoint.9f.jsonl", None),
        ("main/sessions/sessions.json", None),
        ("main/sessions/3c3c.jsonl.bak-1", None),
    ],
)
def test_files_match_by_path(path, found):
    assert FILES.match_file(path) == found


def test_folders_of_work_are_skipped():
    assert FILES.match_folder("main/sessions")
    assert DATABASES.match_folder("main/agent")
    assert not FILES.match_folder("main/workspace")
    assert not DATABASES.match_folder("main/sessions")
    assert DATABASES.match_database("main/agent/openclaw-agent.sqlite")


def test_resume_command_needs_the_key():
    command = ("openclaw", "chat", "--session", "agent:main:main")
    assert DATABASES.build_resume_command("agent:main:main") == command
    assert FILES.build_resume_command("3c3c") is None
    home = Path("/home/ada")
    assert FILES.find_roots({}, home) == (home / ".openclaw/agents",)
    assert FILES.find_roots({"OPENCLAW_STATE_DIR": "/x"}, home) == (Path("/x/agents"),)
