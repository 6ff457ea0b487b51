"""Unreadable files and entries: reported, set aside and never overwritten. The others stay."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB
from tests.homes import connect
from tests.routing.chats import (
    KEY,
    OTHER,
    chat,
    file_entries,
    get_session_ids,
    make_stored_entry,
    put_row,
    read_rows,
    write_file,
)

BROKEN: dict[str, bytes] = {
    "a list": b"[]",
    "null": b"null",
    "a string": b'"text"',
    "truncated": json.dumps({KEY: make_stored_entry()}).encode()[:-20],
    "not UTF-8": b'{"agent:main:telegram:dm:42": "\xff"}',
    "empty": b"",
    "too deep": b"[" * 100_000,
}


@pytest.mark.requirement("copies:broken")
@pytest.mark.parametrize("with_db", [True, False])
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_broken_file_is_renamed(
    make: Any, db: SessionDB, folder: Path, broken: bytes, with_db: bool
) -> None:
    path = write_file(folder, broken)
    store = make(db if with_db else None)
    assert get_session_ids(store) == {}
    assert path.read_bytes() == broken
    assert any("sessions.json" in problem for problem in store.problems)
    store.get_or_create_session(chat())
    (broken_path,) = folder.glob("sessions.json.broken-*")
    assert broken_path.read_bytes() == broken
    assert list(file_entries(folder)) == [KEY]
    assert any(broken_path.name in problem for problem in store.problems)


@pytest.mark.requirement("copies:broken")
def test_byte_order_mark_is_accepted(make: Any, db: SessionDB, folder: Path) -> None:
    write_file(folder, b"\xef\xbb\xbf" + json.dumps({KEY: make_stored_entry("s1")}).encode())
    store = make(db)
    assert get_session_ids(store) == {KEY: "s1"}
    assert store.problems == []


@pytest.mark.requirement("copies:broken")
@pytest.mark.parametrize("with_db", [True, False])
def test_unreadable_file_stays_in_place(
    make: Any, db: SessionDB, folder: Path, with_db: bool
) -> None:
    """The file may become readable again."""
    folder.mkdir()
    (folder / "sessions.json").mkdir()
    store = make(db if with_db else None)
    if with_db:
        assert store.get_or_create_session(chat()).session_key == KEY
        assert any("mirror" in problem for problem in store.problems)
    else:
        with pytest.raises(Exception, match=r"sessions\.json cannot be read"):
            store.get_or_create_session(chat())
    assert list(folder.glob("*.broken-*")) == []


ODD: dict[str, Any] = {
    "a boolean": True,
    "nothing": None,
    "a list": [1],
    "no session id": {"session_key": KEY},
    "no time": make_stored_entry() | {"updated_at": "yesterday"},
    "an unsafe id": make_stored_entry() | {"session_id": "../../etc/passwd"},
    "an origin without a chat": make_stored_entry(origin={"platform": "telegram"}),
}


@pytest.mark.requirement("copies:odd")
@pytest.mark.parametrize("with_db", [True, False])
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_broken_entry_leaves_valid_entries(
    make: Any, db: SessionDB, folder: Path, odd: Any, with_db: bool
) -> None:
    write_file(folder, {OTHER: odd, KEY: make_stored_entry("s1")})
    store = make(db if with_db else None)
    assert get_session_ids(store) == {KEY: "s1"}
    assert any(OTHER in problem for problem in store.problems)
    store.reset_session(KEY)
    store.remove(store.load_entries())
    store.close()
    assert file_entries(folder) == {OTHER: odd}


@pytest.mark.requirement("copies:odd")
@pytest.mark.parametrize("with_db", [True, False])
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_message_replaces_broken_file_entry(
    make: Any, db: SessionDB, folder: Path, odd: Any, with_db: bool
) -> None:
    write_file(folder, {KEY: odd, OTHER: make_stored_entry("s2", OTHER)})
    store = make(db if with_db else None)
    entry = store.get_or_create_session(chat())
    store.reset_session(OTHER)
    store.close()
    assert get_session_ids(make(db if with_db else None)) == {
        KEY: entry.session_id,
        **get_session_ids(store),
    }
    (broken_path,) = folder.glob("sessions.json.broken-*")
    assert json.loads(broken_path.read_bytes()) == {KEY: odd}
    assert (folder / "sessions.json").read_text().count(f'"{KEY}": ') == 1


@pytest.mark.requirement("copies:odd")
def test_message_replaces_broken_row(make: Any, db: SessionDB, folder: Path) -> None:
    put_row(db, folder, "{truncated")
    store = make(db)
    entry = store.get_or_create_session(chat())
    assert get_session_ids(store) == {KEY: entry.session_id}
    (broken_path,) = folder.glob("sessions.json.broken-*")
    assert json.loads(broken_path.read_bytes()) == {KEY: "{truncated"}


@pytest.mark.requirement("copies:odd")
def test_broken_row_leaves_valid_rows(make: Any, db: SessionDB, folder: Path) -> None:
    put_row(db, folder, "{truncated", OTHER)
    put_row(db, folder, make_stored_entry("s1"))
    store = make(db)
    assert get_session_ids(store) == {KEY: "s1"}
    store.reset_session(KEY)
    text = db.routes.get_entry(OTHER, scope=str(folder.resolve()))
    assert text == "{truncated"
    assert list(file_entries(folder)) == [KEY]


def test_lone_surrogate_key_is_harmless(make: Any, db: SessionDB, folder: Path) -> None:
    strange = "agent:main:telegram:dm:\ud800"
    write_file(folder, {strange: make_stored_entry("s2"), KEY: make_stored_entry("s1")})
    store = make(db)
    store.reset_session(KEY)
    assert list(read_rows(db, folder)) == [KEY]
    assert set(file_entries(folder)) == {KEY, strange}


@pytest.mark.requirement("copies:odd")
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_file_entry_replaces_broken_row(make: Any, db: SessionDB, folder: Path, odd: Any) -> None:
    put_row(db, folder, json.dumps(odd))
    put_row(db, folder, make_stored_entry("s2", OTHER), OTHER)
    write_file(folder, {KEY: make_stored_entry("s1"), OTHER: make_stored_entry("older", OTHER)})
    store = make(db)
    assert get_session_ids(store) == {KEY: "s1", OTHER: "s2"}
    assert store.peek_session_id(KEY) == "s1"
    assert not list(folder.glob("*.broken-*"))
    store.suspend_session(OTHER)
    store.close()
    assert {key: row["session_id"] for key, row in read_rows(db, folder).items()} == {
        KEY: "s1",
        OTHER: "s2",
    }
    assert file_entries(folder) == read_rows(db, folder)
    (broken_path,) = folder.glob("sessions.json.broken-*")
    assert json.loads(broken_path.read_bytes()) == {KEY: json.dumps(odd)}


def test_broken_entries_of_several_chats_are_kept(make: Any, db: SessionDB, folder: Path) -> None:
    stores = [make(db) for _ in range(8)]
    for number in range(8):
        put_row(db, folder, f"{{broken {number}", f"agent:main:telegram:dm:{number}")
    threads = [
        threading.Thread(target=store.get_or_create_session, args=(chat(number),))
        for number, store in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    broken_contents = [
        json.loads(path.read_bytes()) for path in folder.glob("sessions.json.broken-*")
    ]
    assert sorted(text for entry in broken_contents for text in entry.values()) == [
        f"{{broken {number}" for number in range(8)
    ]


def test_repeated_problem_is_reported_once(make: Any, folder: Path) -> None:
    write_file(folder, {KEY: True})
    store = make()
    for number in range(3):
        write_file(folder, {KEY: True, f"_{number}": number})
        store.load_entries()
    assert len(store.problems) == 1


# Bytes instead of text


@pytest.fixture(params=[b"{}", b"\xff\xfe"], ids=["an object", "no text"])
def bytes_row(request: Any, db: SessionDB, folder: Path) -> None:
    """A row that holds bytes instead of text, as a script may store it."""
    put_row(db, folder, "")
    with connect(db.path) as connection:
        connection.execute("UPDATE gateway_routing SET entry_json = ?", (request.param,))


@pytest.mark.requirement("copies:odd")
@pytest.mark.usefixtures("bytes_row")
def test_message_replaces_bytes_row(make: Any, db: SessionDB, folder: Path) -> None:
    store = make(db)
    entry = store.get_or_create_session(chat())
    assert get_session_ids(store) == {KEY: entry.session_id}
    assert store.get_or_create_session(chat()).session_id == entry.session_id
    store.close()
    assert list(file_entries(folder)) == [KEY]


def test_bytes_entry_is_read(make: Any, db: SessionDB, folder: Path) -> None:
    put_row(db, folder, make_stored_entry("s1"))
    with connect(db.path) as connection:
        connection.execute("UPDATE gateway_routing SET entry_json = CAST(entry_json AS BLOB)")
    store = make(db)
    assert store.peek_session_id(KEY) == "s1"
    assert store.suspend_session(KEY)
    assert read_rows(db, folder)[KEY]["suspended"]


def test_bytes_entry_is_removed(make: Any, db: SessionDB, folder: Path) -> None:
    put_row(db, folder, make_stored_entry("s1"))
    with connect(db.path) as connection:
        connection.execute("UPDATE gateway_routing SET entry_json = CAST(entry_json AS BLOB)")
    store = make(db)
    assert store.remove(store.load_entries()) == [KEY]
    assert get_session_ids(store) == {}
