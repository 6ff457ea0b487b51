"""A file that is no session database is refused by its own error, and not a byte of it changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from session_core.errors import Corrupt, InvalidInput, SessionError, Unsupported
from session_core.state.sqlite.session_db import SessionDB
from tests.faults import state, template

pytestmark = pytest.mark.faults


@dataclass(frozen=True, slots=True)
class BadFileKind:
    """A kind of bad file: the function that makes it, and the expected error."""

    make: Callable[[Path], object]
    error: type[SessionError]
    says: str


def _write_noise(path: Path) -> None:
    path.write_bytes(random.Random(7).randbytes(40_960))


def _write_text(path: Path) -> None:
    path.write_text("these are not the rows that you are looking for\n" * 200)


def _write_foreign_database(path: Path) -> None:
    with state.open_connection(path, "rwc") as opened:
        opened.execute("CREATE TABLE bookmarks (url TEXT)")


def _write_old_database(path: Path) -> None:
    with state.open_connection(path, "rwc") as opened:
        opened.execute("CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, started_at REAL)")
        opened.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT)")


def _write_truncated(path: Path) -> None:
    _write_valid_database(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 3])


def _write_truncated_page(path: Path) -> None:
    _write_valid_database(path)
    path.write_bytes(path.read_bytes()[:5000])


def _write_truncated_header(path: Path) -> None:
    _write_valid_database(path)
    path.write_bytes(path.read_bytes()[:60])


def _write_overwritten(path: Path) -> None:
    _write_valid_database(path)
    content = bytearray(path.read_bytes())
    content[4096:] = random.Random(7).randbytes(len(content) - 4096)
    path.write_bytes(content)


def _write_valid_database(path: Path) -> None:
    template.build_home(path.parent / "whole", "hermes")
    (path.parent / "whole" / "state.db").rename(path)
    (path.parent / "whole").rmdir()


BAD_FILES = {
    "noise, as encrypted files are": BadFileKind(_write_noise, Corrupt, "encrypted"),
    "text": BadFileKind(_write_text, Corrupt, "SQLITE_NOTADB"),
    "another database": BadFileKind(_write_foreign_database, Corrupt, "no table sessions"),
    "a schema too old": BadFileKind(_write_old_database, Unsupported, "too old"),
    "cut to a third": BadFileKind(_write_truncated, Corrupt, "damaged"),
    "cut in the second page": BadFileKind(_write_truncated_page, Corrupt, "damaged"),
    "cut in the header": BadFileKind(_write_truncated_header, Corrupt, "damaged"),
    "overwritten": BadFileKind(_write_overwritten, Corrupt, "damaged"),
}


@pytest.mark.requirement("faults:files")
@pytest.mark.parametrize("what", BAD_FILES)
def test_bad_file_is_refused_and_unchanged(tmp_path, what):
    bad = BAD_FILES[what]
    path = tmp_path / "state.db"
    bad.make(path)
    before = path.read_bytes()
    for _ in range(2):
        with SessionDB(path, patience_s=0.0) as db:
            with pytest.raises(bad.error, match=bad.says):
                db.get_messages("chat")
            with pytest.raises(bad.error, match=bad.says):
                db.append_message("chat", "user", "hello", create={"source": "cli"})
            with pytest.raises(bad.error):
                db.list_sessions()
    assert path.read_bytes() == before
    assert {entry.name for entry in tmp_path.iterdir()} <= {"state.db", "user", *_SIDE_SUFFIXES}


def test_directory_in_place_of_database_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="is a directory"):
        SessionDB(tmp_path)
    assert _list_entries(tmp_path) == set()


@pytest.mark.parametrize("name", ["missing/state.db", "state.db"])
def test_missing_file_reads_as_empty(tmp_path, name):
    with SessionDB(tmp_path / name) as db:
        assert db.get_session("chat") is None
        assert db.list_sessions().items == []
    assert _list_entries(tmp_path) == set()


def test_empty_file_reads_as_empty(tmp_path):
    path = tmp_path / "state.db"
    path.touch()
    with SessionDB(path) as db:
        assert db.list_sessions().items == []
    assert path.stat().st_size == 0


def test_file_in_place_of_folder_is_refused(tmp_path):
    (tmp_path / "home").write_text("a file")
    with SessionDB(tmp_path / "home" / "state.db") as db, pytest.raises(SessionError):
        db.set_meta("key", "value")
    assert (tmp_path / "home").read_text() == "a file"


_SIDE_SUFFIXES = ("state.db-wal", "state.db-shm")


def _list_entries(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()} - {"user"}
