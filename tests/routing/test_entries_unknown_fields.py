"""Unknown metadata, fields and keys survive a change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB
from tests.routing.chats import (
    IDLE,
    KEY,
    chat,
    file_entries,
    get_session_ids,
    make_stored_entry,
    put_row,
    read_file,
    read_rows,
    write_file,
)

# The explanation and other metadata


@pytest.mark.requirement("copies:metadata")
@pytest.mark.parametrize("mirrored", [True, False])
def test_readme_comes_first_and_is_skipped(
    make: Any, db: SessionDB, folder: Path, mirrored: bool
) -> None:
    store = make(db if mirrored else None)
    store.get_or_create_session(chat())
    name, text = next(iter(read_file(folder).items()))
    assert name == "_README"
    assert "state.db" in text
    assert "hermes sessions list" in text
    assert list(get_session_ids(make(db if mirrored else None))) == [KEY]


@pytest.mark.requirement("copies:metadata")
@pytest.mark.parametrize("with_db", [True, False])
def test_file_metadata_is_skipped_and_kept(
    make: Any, db: SessionDB, folder: Path, with_db: bool
) -> None:
    metadata = {"_README": "theirs", "_note": make_stored_entry("no session"), "_x": [1, None]}
    write_file(folder, {**metadata, KEY: make_stored_entry("s1")})
    store = make(db if with_db else None)
    assert list(get_session_ids(store)) == [KEY]
    assert store.get("_note") is None
    assert store.lookup_by_session_id("no session") is None
    store.reset_session(KEY)
    store.close()
    members = read_file(folder)
    assert next(iter(members)) == "_README"
    assert {key: value for key, value in members.items() if key[0] == "_"} == metadata


@pytest.mark.requirement("copies:metadata")
def test_table_metadata_is_skipped_and_kept(make: Any, db: SessionDB, folder: Path) -> None:
    put_row(db, folder, make_stored_entry("no session"), "_note")
    store = make(db)
    store.get_or_create_session(chat())
    assert list(get_session_ids(store)) == [KEY]
    assert "_note" in read_rows(db, folder)
    assert list(file_entries(folder)) == [KEY]


def test_session_id_can_begin_with_underscore(make: Any, db: SessionDB, folder: Path) -> None:
    put_row(db, folder, make_stored_entry("_s1"))
    assert get_session_ids(make(db)) == {KEY: "_s1"}


# Entries


@pytest.mark.requirement("copies:unknown")
@pytest.mark.parametrize("with_db", [True, False])
def test_unknown_fields_survive_session_changes(
    make: Any, db: SessionDB, folder: Path, with_db: bool
) -> None:
    write_file(
        folder, {KEY: make_stored_entry(future={"a": [1]}, origin=chat().to_dict() | {"later": 1})}
    )
    store = make(db if with_db else None)
    store.get_or_create_session(chat())
    store.suspend_session(KEY)
    store.close()
    members = file_entries(folder)[KEY]
    assert (members["future"], members["origin"]["later"]) == ({"a": [1]}, 1)
    store.move_to_continuation(KEY, "s1", "rotated")
    store.close()
    assert file_entries(folder)[KEY] == members | {"session_id": "rotated"}


@pytest.mark.requirement("copies:unknown")
@pytest.mark.parametrize("with_db", [True, False])
def test_entry_can_have_different_storage_key(
    make: Any, db: SessionDB, folder: Path, with_db: bool
) -> None:
    own = "agent:main:telegram:dm:own"
    write_file(folder, {KEY: make_stored_entry("s1", own)})
    store = make(db if with_db else None, config=IDLE)
    entry = store.get_or_create_session(chat())
    assert (entry.session_id, entry.session_key) == ("s1", own)
    entry.total_tokens = 3
    store.save(entry)
    store.settings.now.advance(minutes=61)
    assert store.claim_expiry(entry)
    assert store.set_expiry_finalized(entry)
    assert store.suspend_session(KEY)
    reset = store.reset_session(KEY)
    assert reset is not None
    store.close()
    assert list(file_entries(folder)) == [KEY]
    assert get_session_ids(store) == {KEY: reset.session_id}
    store.settings.now.advance(days=10)
    assert store.prune_old_entries(5) == 1
    assert file_entries(folder) == {}
