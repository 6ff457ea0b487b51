"""The reader of OpenCode on databases like those of its versions 1.18 and 2.0."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from session_core.transcripts.format import Attachment, Query, Record, ToolCall, Usage
from session_core.transcripts.formats.opencode import OpenCodeFormat
from tests.transcripts.formats.reading import (
    FIXTURES,
    collect_facts,
    list_messages,
    list_texts,
    list_unknown_types,
    open_database,
)

READER = OpenCodeFormat()
NEW_ROW = "INSERT INTO message VALUES (?, 'ses_1', ?, 0, ?)"
NEW_PART = "INSERT INTO part VALUES (?, ?, 'ses_1', 0, ?, ?)"
ANSWER = '{"role":"assistant","time":{"created":99%s},"tokens":{"input":1}}'


def read_fixture(name: str) -> str:
    return (FIXTURES / f"opencode/{name}.sql").read_text("utf-8")


def read_all(query: Query, state: dict[str, Any], limit: int = 100) -> list[Record]:
    records: list[Record] = []
    while changes := READER.read_changes(query, state, limit):
        records += changes
    return records


def select_session(records: list[Record], session_id: str) -> list[Record]:
    return [record for record in records if record.session_id == session_id]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def version1(tmp_path: Path, stack: ExitStack) -> tuple[Any, Query]:
    return stack.enter_context(open_database(tmp_path / "a.db", read_fixture("version1")))


@pytest.fixture
def version2(tmp_path: Path, stack: ExitStack) -> tuple[Any, Query]:
    return stack.enter_context(open_database(tmp_path / "b.db", read_fixture("version2")))


def test_version1_has_texts_in_order(version1):
    records = select_session(read_all(version1[1], {}), "ses_1")
    assert list_texts(records) == [
        ("user", "Where do the roses go?"),
        ("system", "Called the Read tool"),
        ("assistant", "I look at the plan."),
        ("tool", "bed 4: empty"),
        ("tool", "File not found"),
        ("user", "And the beans?"),
        ("system", "Summary: bed 4 is empty."),
        ("system", "no route to the model"),
    ]
    assert list_unknown_types(records) == ["oracle"]


def test_version1_answer_has_its_parts(version1):
    records = select_session(read_all(version1[1], {}), "ses_1")
    answer, *results = next(record for record in records if record.type == "assistant").messages
    assert (answer.reasoning, answer.model) == ("Roses need sun", "m-large")
    assert answer.tool_calls[0] == ToolCall("call_1", "bash", '{"command":"cat plan.txt"}')
    failed = [(result.tool_call_id, result.is_error) for result in results]
    assert failed == [("call_1", False), ("call_2", True), ("call_3", True)]


def test_version1_sessions_have_facts(version1):
    records = read_all(version1[1], {})
    facts = collect_facts(select_session(records, "ses_1"))
    assert facts == {
        "archived": False,
        "title": "Roses",
        "title_rank": 0,
        "folder": "/home/ada/garden",
        "agent_version": "1.18.33",
        "started_at": 1793700000.0,
        "model": "m-large",
        "usage": Usage(30, 15, 21, 3, 6, 1.5),
    }
    subagent = collect_facts(select_session(records, "ses_2"))
    assert (subagent["parent_id"], subagent["link"]) == ("ses_1", "delegate")
    assert collect_facts(select_session(records, "ses_3"))["archived"]
    assert "title" not in collect_facts(select_session(records, "ses_4"))


def test_version1_user_has_attachments(version1):
    message = list_messages(select_session(read_all(version1[1], {}), "ses_1"))[0]
    assert message.is_prompt
    assert message.attachments == (Attachment("image", "bed.png"),)


def test_version1_fork_keeps_keys_of_copies(version1):
    records = read_all(version1[1], {})
    original = {message.key for message in list_messages(select_session(records, "ses_1"))}
    fork = list_messages(select_session(records, "ses_3"))
    assert [m.text for m in fork if m.key not in original] == ["What if it rains?"]


def test_version1_compaction_is_marked(version1):
    (record,) = (record for record in read_all(version1[1], {}) if record.is_compaction)
    assert record.messages[0].is_summary


def test_version2_has_texts_in_order(version2):
    records = select_session(read_all(version2[1], {}), "ses_1")
    assert list_texts(records) == [
        ("user", "Where do the roses go?"),
        ("assistant", "I look at the plan."),
        ("tool", "bed 4: empty"),
        ("tool", "File not found"),
        ("system", "A file changed"),
        ("user", "!ls"),
        ("tool", "plan.txt"),
        ("system", "Summary: bed 4 is empty."),
    ]
    assert list_unknown_types(records) == ["hologram"]
    assert [record.type for record in records if record.is_compaction] == ["compaction"]


def test_version2_sessions_have_facts(version2):
    records = read_all(version2[1], {})
    assert collect_facts(select_session(records, "ses_1"))["usage"] == Usage(11, 6, 3, 0, 1, 0.25)
    fork = collect_facts(select_session(records, "ses_9"))
    assert (fork["parent_id"], fork["link"], fork["title"]) == ("ses_1", "branch", "Rain")


def test_version2_replaces_rows_of_version1(version1):
    connection, query = version1
    connection.executescript(read_fixture("version2"))
    records = read_all(query, {})
    prompts = [m for m in list_messages(select_session(records, "ses_1")) if m.is_prompt]
    assert [prompt.text for prompt in prompts] == ["Where do the roses go?"]
    assert list_texts(select_session(records, "ses_2")) == [("user", "Look for beans")]


@pytest.mark.parametrize("name", ["version1", "version2"])
def test_records_are_read_by_offset(name, request):
    query = request.getfixturevalue(name)[1]
    records = [record for record in read_all(query, {}) if record.messages]
    places = [(record.session_id, record.offset) for record in records]
    assert len(set(places)) == len(places)
    for record in records:
        (again,) = READER.read_session(query, str(record.session_id), [record.offset])
        assert again == record
    assert READER.read_session(query, "ses_1", [1, 4096]) == []


def test_changes_are_found_once(version1):
    connection, query = version1
    state: dict[str, Any] = {}
    read_all(query, state, 2)
    assert READER.read_changes(query, state, 100) == []
    connection.execute(NEW_ROW, ("msg_z", 99, '{"role":"user"}'))
    connection.execute(NEW_PART, ("prt_z", "msg_z", 0, '{"type":"text","text":"new"}'))
    assert list_texts(read_all(query, state)) == [("user", "new")]


def test_unfinished_answers_are_read_again(version1):
    connection, query = version1
    state: dict[str, Any] = {}
    read_all(query, state)
    connection.execute(NEW_ROW, ("msg_z", 99, ANSWER % ""))
    (begun,) = read_all(query, state)
    assert (begun.messages[0].key, begun.facts) == (None, None)
    assert READER.read_changes(query, state, 100) == []
    connection.execute(NEW_PART, ("prt_z", "msg_z", 5, '{"type":"text","text":"half"}'))
    (half,) = read_all(query, state)
    assert (half.messages[0].text, half.messages[0].replaces) == ("half", True)
    connection.execute(
        "UPDATE message SET data = ?, time_updated = 7 WHERE id = 'msg_z'",
        (ANSWER % ',"completed":100',),
    )
    (finished,) = read_all(query, state)
    assert finished.messages[0].key
    assert finished.facts == {"usage": Usage(1)}
    assert finished.offset == begun.offset


def test_freed_row_ids_hide_no_message(version1):
    connection, query = version1
    state: dict[str, Any] = {}
    read_all(query, state)
    connection.execute("DELETE FROM message WHERE rowid = (SELECT max(rowid) FROM message)")
    connection.execute(NEW_ROW, ("msg_z", 99, '{"role":"user"}'))
    connection.execute(NEW_PART, ("prt_z", "msg_z", 0, '{"type":"text","text":"new"}'))
    assert ("user", "new") in list_texts(read_all(query, state))


def test_hostile_rows_end(version1):
    connection, query = version1
    for rowid, value in enumerate(
        [None, b"\xff", 5, "\x00", "[" * 5000, '{"role":"user","time":3}']
    ):
        row = (f"x{rowid}" if rowid else b"x", value if value is not None else 0)
        connection.execute("INSERT INTO message VALUES (?, 'ses_1', 'when', 'then', ?)", row)
        connection.execute(
            "INSERT INTO part VALUES (?, ?, 0, 0, 0, ?)", (f"y{rowid}", row[0], row[1])
        )
    connection.execute("UPDATE session SET time_updated = x'00' WHERE id = 'ses_2'")
    state: dict[str, Any] = {}
    records = read_all(query, state, 3)
    assert READER.read_changes(query, state, 3) == []
    assert len(records) > 12


def test_database_is_found_by_name():
    home = Path("/home/ada")
    assert READER.find_roots({}, home) == (home / ".local/share/opencode",)
    assert READER.find_roots({"XDG_DATA_HOME": "/x"}, home) == (Path("/x/opencode"),)
    assert READER.match_database("opencode.db")
    assert READER.match_database("opencode-dev.db")
    assert not READER.match_database("snapshot/opencode.db")
    assert not READER.match_folder("snapshot")


def test_other_tables_are_refused(tmp_path, stack):
    query = stack.enter_context(open_database(tmp_path / "c.db", "CREATE TABLE session (id)"))[1]
    assert not READER.has_tables(query)


def test_resume_command_names_the_session(version1):
    assert READER.build_resume_command("ses_1") == ("opencode", "--session", "ses_1")
    assert READER.list_session_ids(version1[1]) == ["ses_1", "ses_2", "ses_3", "ses_4"]
