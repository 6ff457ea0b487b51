"""The numbered schema of a home of our own: the first change adds tables to an older home."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from session_core import InvalidInput, SessionDB
from session_core.state import sql_blocks
from tests.homes import add_message, add_session, connect, make_own_database

NEW = ("ms_session_state", "ms_shared_state")


@pytest.fixture
def older(home_path: Path) -> Path:
    """Return a database of our own as the first version made it, with a message."""
    path = home_path / "state.db"
    with connect(path, "rwc") as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("BEGIN")
        for name in ("schema", "index"):
            for statement in sql_blocks.split_statements(name):
                connection.execute(statement)
        connection.execute("INSERT INTO state_meta VALUES ('mcp_sessions_home', 'id')")
        add_session(connection, "s", chat_id="c")
        add_message(connection, "s", "user", "from the past")
        connection.execute("COMMIT")
    return path


def list_schema(path: Path) -> set[str]:
    """Return the statements of a schema, without differences of spaces."""
    with connect(path) as connection:
        rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
        return {" ".join(sql.split()) for (sql,) in rows}


@pytest.mark.requirement("state:schema")
def test_first_change_updates_older_home(older: Path, tmp_path: Path) -> None:
    before = list_schema(older)
    with SessionDB(older) as db:
        assert db.admin.get_capabilities().state
        assert db.state.read_session_state("s") == {}
        assert db.state.read_app_state("app") == {}
        assert [row["id"] for row in db.sdk.find_platform_sessions("cli", "c")] == ["s"]
        assert "payload_json" not in db.get_messages("s")[0]
        assert list_schema(older) == before
        db.append_message("s", "user", "now", payload_json=[1])
        db.state.merge_session_state("s", {"key": 1})
        rows = [(row["content"], row["payload_json"]) for row in db.get_messages("s")]
        assert rows == [("from the past", None), ("now", "[1]")]
        assert db.state.read_session_state("s") == {"key": 1}
        assert db.admin.check_integrity(deep=True) == []
    make_own_database(tmp_path / "new" / "state.db")
    assert list_schema(older) == list_schema(tmp_path / "new" / "state.db")


def test_reader_leaves_older_home_unchanged(older: Path) -> None:
    before = list_schema(older)
    with SessionDB(older, read_only=True) as db:
        assert db.state.read_user_state("app", "user") == {}
        assert [hit.session_id for hit in db.search("past").hits] == ["s"]
    assert list_schema(older) == before


def test_failed_change_leaves_older_home(older: Path) -> None:
    before = list_schema(older)
    with SessionDB(older) as db:
        with pytest.raises(InvalidInput):
            db.append_message("s", "user", "x", no_such_column=1)
        assert list_schema(older) == before
        db.state.merge_session_state("s", {"key": 1})
        assert db.state.read_session_state("s") == {"key": 1}


def test_concurrent_writers_update_schema_once(older: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: write_state(older, number), range(8)))
    with SessionDB(older) as db:
        assert db.state.read_session_state("s") == {str(number): number for number in range(8)}


def write_state(path: Path, number: int) -> None:
    with SessionDB(path) as db:
        db.state.merge_session_state("s", {str(number): number})


def test_newer_home_keeps_its_number(older: Path) -> None:
    with SessionDB(older) as db:
        db.append_message("s", "user", "x")
        db.set_meta("mcp_sessions_schema", "99")
    with SessionDB(older) as db:
        db.append_message("s", "user", "y", payload_json={})
        assert db.get_meta("mcp_sessions_schema") == "99"
