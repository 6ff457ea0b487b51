"""Text that is not UTF-8 hides no rows, and no error contains stored values."""

from __future__ import annotations

from pathlib import Path

import pytest

from session_core import Busy, Corrupt, SessionDB, SessionError, StorageError, _sqlite3
from session_core.state.sqlite.connection import translate_error
from session_core.state.sqlite.lock_wait import is_busy
from tests.homes import connect, fill_database, make_hermes_database, make_own_database

BROKEN = "CAST(x'ff41fe20747572' || x'6e' AS TEXT)"
SHOWN = "\ufffdA\ufffd turn"


@pytest.fixture(params=["own", "hermes"])
def db(request: pytest.FixtureRequest, home_path: Path) -> SessionDB:
    path = home_path / "state.db"
    (make_own_database if request.param == "own" else make_hermes_database)(path)
    fill_database(path, 3, 4)
    with connect(path) as connection:
        connection.execute(f"UPDATE messages SET content = {BROKEN} WHERE id IN (1, 5)")  # noqa: S608 -- above
        connection.execute(f"UPDATE sessions SET model = {BROKEN}")  # noqa: S608 -- above
    return SessionDB(path)


def test_invalid_utf8_reads_as_replacement_characters(db: SessionDB) -> None:
    row = db.get_message(1)
    assert row is not None
    assert row["content"] == SHOWN
    assert db.get_messages(row["session_id"])[0]["content"] == SHOWN
    assert (db.get_session(row["session_id"]) or {})["model"] == SHOWN


def test_invalid_utf8_hides_no_rows(db: SessionDB) -> None:
    assert len(db.list_sessions().items) == 3
    session_ids = {hit.session_id for hit in db.search("turn", limit=9).hits}
    assert len(session_ids) == 3
    assert db.read_changes().events == []


def test_session_with_invalid_utf8_is_deleted(db: SessionDB) -> None:
    session = (db.get_message(1) or {})["session_id"]
    db.append_message(session, "user", "after it")
    db.set_session_title(session, "Broken")
    db.end_session(session, "done")
    assert db.delete_session(session)
    assert db.get_message(1) is None
    assert len(db.list_sessions(limit=9).items) == 2


SAID = "my password is database is locked"


@pytest.mark.parametrize(
    "text",
    [
        f"Could not decode to UTF-8 column 'content' with text '{SAID}'",
        f'fts5: syntax error near "{SAID}"',
        f"no such column: {SAID}",
        f"malformed database schema ({SAID})",
        SAID,
    ],
)
def test_errors_hide_text_of_driver(text: str) -> None:
    error = _sqlite3.load_library().OperationalError(text)
    translated = translate_error(error, Path("state.db"))
    assert isinstance(translated, StorageError)
    assert "password" not in str(translated)
    assert not is_busy(error)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("database is locked", Busy),
        ("database table is locked: messages", Busy),
        ("database disk image is malformed", Corrupt),
        ("file is not a database", Corrupt),
        ("disk I/O error", StorageError),
    ],
)
def test_driver_errors_are_translated(text: str, kind: type[SessionError]) -> None:
    assert (
        type(translate_error(_sqlite3.load_library().OperationalError(text), Path("state.db")))
        is kind
    )
