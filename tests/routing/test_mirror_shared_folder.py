"""Applications that keep routes in one folder do not read each other's mirror."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB, SessionStore
from tests.routing.chats import (
    KEY,
    chat,
    file_entries,
    get_session_ids,
    make_stored_entry,
    write_file,
)


@pytest.fixture
def other(home_path: Path) -> Any:
    """The database of another application in the same folder."""
    with SessionDB(home_path / "other.db") as db:
        yield db


def test_application_ignores_routes_of_second_application(
    make: Any, db: SessionDB, other: SessionDB, folder: Path
) -> None:
    session_id = make(db).get_or_create_session(chat()).session_id
    assert list(file_entries(folder)) == [KEY]
    for other_store in (make(other), make(other)):
        assert get_session_ids(other_store) == {}
        with SessionStore(folder, db=db) as again:
            assert get_session_ids(again) == {KEY: session_id}
    assert make(other).get_or_create_session(chat()).session_id != session_id
    assert get_session_ids(make(db)) == {KEY: session_id}


def test_mirror_follows_last_writer(
    make: Any, db: SessionDB, other: SessionDB, folder: Path
) -> None:
    own_id = make(db).get_or_create_session(chat()).session_id
    other_id = make(other).get_or_create_session(chat()).session_id
    assert {key: entry["session_id"] for key, entry in file_entries(folder).items()} == {
        KEY: other_id
    }
    assert make(db).reset_session(KEY).session_id not in {own_id, other_id}
    assert get_session_ids(make(other)) == {KEY: other_id}


def test_deleted_database_leaves_no_route(
    make: Any, db: SessionDB, home_path: Path, folder: Path
) -> None:
    before = make(db).get_or_create_session(chat()).session_id
    db.close()
    for path in home_path.glob("state.db*"):
        path.unlink()
    with SessionDB(home_path / "state.db") as anew:
        assert get_session_ids(make(anew)) == {}
        assert make(anew).get_or_create_session(chat()).session_id != before


def test_mirror_without_owner_is_adopted(make: Any, db: SessionDB, folder: Path) -> None:
    write_file(folder, {"_README": "by hand", KEY: make_stored_entry("s1")})
    assert get_session_ids(make(db)) == {KEY: "s1"}
