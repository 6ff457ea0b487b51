"""A file that is no session database is refused by its own error, and not a byte of it changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from session_core.errors import Corrupt, InvalidInput, SessionError, Unsupported
from session_core.state.sqlite.database import SessionDB
from tests.faults import state, template

pytestmark = pytest.mark.faults


@dataclass(frozen=True, slots=True)
class Bad:
    """A kind of bad file: how it is made, and what is raised for it."""

    make: Callable[[Path], object]
    error: type[SessionError]
    says: str


def _noise(path: Path) -> None:
    path.write_bytes(random.Random(7).randbytes(40_960))


def _text(path: Path) -> None:
    path.write_text("these are not the rows that you are looking for\n" * 200)


def _other(path: Path) -> None:
    with state.open_connection(path, "rwc") as opened:
        opened.execute("CREATE TABLE bookmarks (url TEXT)")


def _old(path: Path) -> None:
    with state.open_connection(path, "rwc") as opened:
        opened.execute("CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, started_at REAL)")
        opened.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT)")


def _cut(path: Path) -> None:
    _whole(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 3])


def _cut_in_a_page(path: Path) -> None:
    _whole(path)
    path.write_bytes(path.read_bytes()[:5000])


def _cut_in_the_header(path: Path) -> None:
    _whole(path)
    path.write_bytes(path.read_bytes()[:60])


def _overwritten(path: Path) -> None:
    _whole(path)
    content = bytearray(path.read_bytes())
    content[4096:] = random.Random(7).randbytes(len(content) - 4096)
    path.write_bytes(content)


def _whole(path: Path) -> None:
    template.build_home(path.parent / "whole", "hermes")
    (path.parent / "whole" / "state.db").rename(path)
    (path.parent / "whole").rmdir()


BAD = {
    "noise, as encrypted files are": Bad(_noise, Corrupt, "encrypted"),
    "text": Bad(_text, Corrupt, "no database"),
    "another database": Bad(_other, Corrupt, "no table sessions"),
    "a schema too old": Bad(_old, Unsupported, "too old"),
    "cut to a third": Bad(_cut, Corrupt, "damaged"),
    "cut in the second page": Bad(_cut_in_a_page, Corrupt, "damaged"),
    "cut in the header": Bad(_cut_in_the_header, Corrupt, "damaged"),
    "overwritten": Bad(_overwritten, Corrupt, "damaged"),
}


@pytest.mark.requirement("faults:files")
@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_is_refused_and_left_as_it_is(tmp_path, what):
    bad = BAD[what]
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
    assert {entry.name for entry in tmp_path.iterdir()} <= {"state.db", "user", *_SIDES}


def test_a_directory_is_refused_by_its_name(tmp_path):
    with pytest.raises(InvalidInput, match="is a directory"):
        SessionDB(tmp_path)
    assert _entries(tmp_path) == set()


@pytest.mark.parametrize("name", ["missing/state.db", "state.db"])
def test_what_is_not_there_reads_as_empty_and_is_not_made(tmp_path, name):
    with SessionDB(tmp_path / name) as db:
        assert db.get_session("chat") is None
        assert db.list_sessions().items == []
    assert _entries(tmp_path) == set()


def test_an_empty_file_reads_as_empty_and_stays_empty(tmp_path):
    path = tmp_path / "state.db"
    path.touch()
    with SessionDB(path) as db:
        assert db.list_sessions().items == []
    assert path.stat().st_size == 0


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "home").write_text("a file")
    with SessionDB(tmp_path / "home" / "state.db") as db, pytest.raises(SessionError):
        db.set_meta("key", "value")
    assert (tmp_path / "home").read_text() == "a file"


_SIDES = ("state.db-wal", "state.db-shm")


def _entries(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()} - {"user"}
