"""Bytes that are not text in the trigram index of a Hermes home."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from session_core import SessionDB
from tests.homes import connect, make_hermes_database

IMAGE = b"\x89PNG\r\n\x1a\n\x00\xff\xfe\xfd plain words"
ENTRY = "SELECT CAST(content AS BLOB) FROM messages_fts_trigram"


@pytest.fixture(params=[16, 22])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    make_hermes_database(tmp_path / "state.db", request.param)
    return tmp_path / "state.db"


@pytest.fixture
def db(path: Path) -> Iterator[SessionDB]:
    with SessionDB(path) as opened:
        opened.create_session("s", "cli")
        yield opened


def read_entries(path: Path) -> list[bytes]:
    with connect(path) as connection:
        return [row[0] for row in connection.execute(ENTRY)]


def test_bytes_are_indexed_alike_by_versions(db: SessionDB, path: Path) -> None:
    db.append_message("s", "user", IMAGE)
    (entry,) = read_entries(path)
    assert b"\0" not in entry
    assert entry.endswith(b"plain words  ")


def test_session_with_bytes_is_changed_and_deleted(db: SessionDB, path: Path) -> None:
    first = db.append_message("s", "user", IMAGE)
    assert db.rewind_to_message("s", first).rewound == 1
    assert db.restore_rewound("s", first) == 1
    assert db.get_messages("s")[0]["content"] == IMAGE
    db.replace_messages("s", [{"role": "user", "content": IMAGE}])
    assert db.clear_messages("s") == 1
    db.append_message("s", "user", IMAGE)
    assert db.delete_session("s")
    assert read_entries(path) == []
    assert db.admin.check_integrity(deep=True) == []


def test_bytes_indexed_by_older_version_are_removed(db: SessionDB, path: Path) -> None:
    first = db.append_message("s", "user", b"\x89PNG stored")
    with connect(path) as connection:  # the entry of a row with a NUL in an older version
        connection.execute("DROP TRIGGER messages_fts_trigram_update")
        connection.execute("UPDATE messages SET content = ?", (b"\x89PNG stored\0 no more",))
        connection.execute(
            "UPDATE messages_fts_trigram_content SET c0 = CAST(? AS TEXT)",
            (b"\x89PNG stored  \0 no more  ",),
        )
    db.rewind_to_message("s", first)
    assert read_entries(path) == [b"\xef\xbf\xbdPNG stored    no more  "]
    assert db.admin.check_integrity(deep=True) == []
