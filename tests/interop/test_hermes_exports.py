"""Our exports imported into a Hermes home, and exports of Hermes imported into ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from session_core.state.sqlite.session_db import SessionDB
from tests.interop.hermes import Hermes
from tests.maintenance.transfer_homes import CHAT_STATE, Place, differences, place, rows

DETACHED = "parent_session_id: the row that it refers to is gone"


@pytest.fixture
def file(home: Path, theirs: Hermes, tmp_path: Path) -> Path:
    """An export of the whole Hermes home."""
    path = tmp_path / "sessions.jsonl"
    with place(home, "own") as here:
        here.exporting.write_file(path)
    return path


@pytest.fixture
def imported_hermes(version: str, file: Path, tmp_path: Path) -> Iterator[tuple[Hermes, Place]]:
    """An empty Hermes home with the imported export."""
    with Hermes(version, tmp_path / "empty") as other, place(tmp_path / "empty", "own") as there:
        result = there.importing.import_file(file)
        assert (result.outcome, result.skipped, result.broken) == ("applied", (), ())
        yield other, there


def answers(hermes: Hermes, ids: list[str]) -> dict[str, Any]:
    """Return the answers of Hermes about sessions, by every method."""
    asked = ("get_session", "get_messages", "get_messages_as_conversation", "get_session_title",
             "get_compression_tip", "resolve_resume_session_id", "export_session",
             "get_compression_lineage", "message_count")  # fmt: skip
    return {name: hermes.each(name, ids) for name in asked if hermes.has(name)}


def drop_chat_state(value: Any) -> Any:
    """Return answers without the chat state and the columns that the empty home does not have."""
    if isinstance(value, dict):
        left = {"of_the_future", *CHAT_STATE}
        return {key: drop_chat_state(one) for key, one in value.items() if key not in left}
    if isinstance(value, list):
        return [drop_chat_state(one) for one in value]
    return f"{type(value).__name__}: {value}" if isinstance(value, Exception) else value


@pytest.mark.requirement("maintenance:exports-and-hermes")
def test_hermes_export_imports_back_equal(home: Path, imported_hermes: tuple[Hermes, Place]):
    assert differences(rows(home / "state.db"), rows(imported_hermes[1].path)) == []
    assert imported_hermes[1].db.admin.check_integrity(deep=True) == []


@pytest.mark.requirement("maintenance:exports-and-hermes")
def test_hermes_continues_imported_sessions(theirs: Hermes, imported_hermes: tuple[Hermes, Place]):
    other, _ = imported_hermes
    ids = [row[0] for row in theirs.sql("SELECT id FROM sessions ORDER BY id")]
    before, after = (drop_chat_state(answers(each, ids)) for each in (theirs, other))
    assert after == before
    for word in ("zebra", "deploy", "数据库", "marmot"):
        found = [
            sorted((hit["session_id"], hit["id"]) for hit in each.call("search_messages", word))
            for each in (theirs, other)
        ]
        assert found[0] == found[1] != []
    answer = other.call("append_message", "cli_work", "user", "and on we go")
    assert answer > max(row[0] for row in theirs.sql("SELECT max(id) FROM messages"))
    assert other.sql("PRAGMA integrity_check") == [["ok"]]


@pytest.mark.requirement("maintenance:exports-and-hermes")
def test_hermes_export_imports_into_own_home(theirs: Hermes, tmp_path: Path):
    ids = [row[0] for row in theirs.sql("SELECT id FROM sessions WHERE id <> 'odd'")]
    exported = theirs.each("export_session", ids)
    path = tmp_path / "theirs.jsonl"
    path.write_text("\n".join(json.dumps(each) for each in exported.values()))
    with place(tmp_path / "ours", "own") as ours:
        result = ours.importing.import_file(path)
        assert (result.sessions, result.broken, result.left_out) == (len(ids), (), ())
        for session_id in ids:
            found = drop_chat_state(_strip_columns(ours.db, session_id, exported[session_id]))
            assert found == drop_chat_state(exported[session_id])


def _strip_columns(db: SessionDB, session_id: str, like: dict[str, Any]) -> dict[str, Any]:
    """Return an exported session with the columns of Hermes."""
    row: Any = db.get_session(session_id)
    names = list(like["messages"][0]) if like["messages"] else []
    messages: Any = db.get_messages(session_id)
    found = {name: row[name] for name in like if name in row}
    return {
        **found,
        "messages": [
            {name: message[name] for name in names if name in message} for message in messages
        ],
    }
