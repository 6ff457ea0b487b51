"""Invalid paths, incomplete files, links, and the files left after a close."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path, PureWindowsPath
from typing import Any

import pytest

from session_core import Corrupt, Denied, InvalidInput, NotFound, SessionDB, list_holders
from session_core.processes import get_sidecar_path
from session_core.state.sqlite.connection import make_uri, translate_error
from session_core.state.sqlite.database_file import _make_template, open_empty, open_writer
from tests.homes import connect, fill_database, make_hermes_database, make_own_database

WAIT_S = 20.0
USES: dict[str, Callable[[SessionDB], Any]] = {
    "read": lambda db: db.get_session("s"),
    "change": lambda db: db.append_message("s", "user", "x", create={"source": "cli"}),
    "transaction": lambda db: db.transaction().__enter__(),
    "follow": lambda db: db.read_changes(),
    "check": lambda db: db.admin.check_integrity(),
    "sizes": lambda db: db.admin.measure_sizes(),
}


@pytest.fixture(params=["own", "hermes"])
def path(request: pytest.FixtureRequest, home_path: Path) -> Path:
    path = home_path / "state.db"
    (make_own_database if request.param == "own" else make_hermes_database)(path)
    fill_database(path, 2, 3)
    return path


# -- invalid files ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "says"),
    [("", "name a file"), ("a\0b", "NUL"), (b"state.db", "text"), (7, "text")],
)
def test_malformed_path_is_invalid_input(wrong: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        SessionDB(wrong)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no such files here")
def test_path_of_special_file_is_invalid_input(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for wrong, says in (
        (tmp_path, "directory"),
        (Path(os.devnull), "device"),
        (tmp_path / "pipe", "pipe"),
    ):
        with pytest.raises(InvalidInput, match=says):
            SessionDB(wrong)


def test_file_in_place_of_folder_is_denied(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with SessionDB(tmp_path / "file" / "state.db") as db, pytest.raises(Denied, match="folder"):
        db.create_session("s", "cli")


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_dangling_link_is_not_an_empty_home(
    tmp_path: Path, use: Callable[[SessionDB], Any]
) -> None:
    link = tmp_path / "state.db"
    link.symlink_to(tmp_path / "disk" / "state.db")
    with SessionDB(link) as db, pytest.raises(NotFound, match="create an empty file"):
        use(db)
    assert not (tmp_path / "disk").exists()


def test_link_to_empty_file_becomes_home(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "state.db").touch()
    (tmp_path / "state.db").symlink_to(tmp_path / "disk" / "state.db")
    with SessionDB(tmp_path / "state.db") as db:
        db.create_session("s", "cli")
    with SessionDB(tmp_path / "disk" / "state.db", read_only=True) as reopened:
        assert reopened.get_session("s")


# -- a log without its database --------------------------------------------------------------


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("log", ["-wal", "-journal"])
@pytest.mark.parametrize("there", [True, False], ids=["empty", "gone"])
def test_orphaned_log_is_kept_without_creating_home(
    tmp_path: Path, there: bool, log: str, use: Callable[[SessionDB], Any]
) -> None:
    path = tmp_path / "state.db"
    if there:
        path.touch()
    left = Path(f"{path}{log}")
    left.write_bytes(b"what was said" * 400)
    with SessionDB(path) as db, pytest.raises(Corrupt, match="restore both"):
        use(db)
    assert sorted(file.name for file in tmp_path.iterdir() if file.is_file()) == [
        name for name in ("state.db", left.name) if there or name == left.name
    ]
    assert left.read_bytes() == b"what was said" * 400


def test_empty_journal_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "state.db").touch()
    (tmp_path / "state.db-journal").write_bytes(bytes(512))
    with SessionDB(tmp_path / "state.db") as db:
        assert db.get_session("s") is None


# -- links -----------------------------------------------------------------------------------


def test_sidecar_files_are_found_through_link(tmp_path: Path, path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)
    with connect(path) as writer, SessionDB(link) as db:
        writer.execute("PRAGMA wal_autocheckpoint=0")
        writer.execute("UPDATE sessions SET model = 'm'")
        assert (
            db.admin.measure_sizes().wal
            == db.admin.measure_sizes(exact=True).wal
            == Path(f"{path}-wal").stat().st_size
            > 0
        )
        assert list_holders(link) == list_holders(path)


# -- closing ---------------------------------------------------------------------------------


def test_closed_database_file_is_complete(tmp_path: Path, path: Path) -> None:
    with SessionDB(path) as db:
        for number in range(20):
            db.append_message("s", "user", str(number), create={"source": "cli"})
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    with SessionDB(copy, read_only=True) as reopened:
        assert [row["content"] for row in reopened.get_messages("s")] == [str(n) for n in range(20)]


def test_close_truncates_log_of_own_home(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as db:
        db.append_message("s", "user", "x", create={"source": "cli"})
        assert get_sidecar_path(path, "-wal").stat().st_size > 0
    assert get_sidecar_path(path, "-wal").stat().st_size == 0


def test_long_log_is_truncated_by_later_changes(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as db:
        db.append_messages(
            "s", [{"role": "tool", "content": "x" * (1 << 20)}] * 40, create={"source": "cli"}
        )
        long = get_sidecar_path(path, "-wal").stat().st_size
        for number in range(500):
            db.append_message("s", "user", str(number))
        assert get_sidecar_path(path, "-wal").stat().st_size <= 16 << 20 < long


def test_close_waits_for_no_other_connection(path: Path) -> None:
    with connect(path) as writer, connect(path) as reader:
        db = SessionDB(path)
        db.append_message("s", "user", "x", create={"source": "cli"})
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM messages").fetchone()
        writer.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(1) as pool:
            pool.submit(db.close).result(WAIT_S)
        writer.execute("ROLLBACK")
    with SessionDB(path, read_only=True) as reopened:
        assert reopened.message_count("s") == 1


# -- readers ---------------------------------------------------------------------------------


def test_concurrent_reads_leave_few_connections(path: Path) -> None:
    crowd = 40
    together = threading.Barrier(crowd)
    with SessionDB(path) as db, ThreadPoolExecutor(crowd) as pool:
        for reading in [
            pool.submit(db._read, lambda _: together.wait(WAIT_S)) for _ in range(crowd)
        ]:
            reading.result(WAIT_S)
        assert 0 < len(db._store.pool.readers) <= 8
        assert len(db.get_messages("fill_0_00001")) == 3


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        (r"\\server\share\state.db", "file:////server/share/state.db?mode=ro"),
        (r"C:\Users\me\state.db", "file:///C:/Users/me/state.db?mode=ro"),
    ],
)
def test_windows_path_becomes_uri_without_host(path: str, uri: str) -> None:
    assert make_uri(PureWindowsPath(path), "mode=ro") == uri


def test_writer_uses_full_fsync_on_darwin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_own_database(tmp_path / "state.db")
    for system, full in (("linux", 0), ("darwin", 1)):
        monkeypatch.setattr(sys, "platform", system)
        handle = open_writer(tmp_path / "state.db", own=True)
        assert handle.fetch_value("PRAGMA checkpoint_fullfsync") == full
        handle.connection.close()


def test_damaged_schema_name_is_corrupt(tmp_path: Path) -> None:
    error = UnicodeDecodeError("utf-8", b"\xc1", 0, 1, "invalid start byte")
    assert isinstance(translate_error(error, tmp_path), Corrupt)
    path = tmp_path / "state.db"
    make_hermes_database(path)
    with connect(path) as connection:
        connection.execute(
            "CREATE TRIGGER odd BEFORE INSERT ON messages BEGIN INSERT INTO nowhaaaare VALUES (1);"
            " END"
        )
    path.write_bytes(path.read_bytes().replace(b"nowhaaaare", b"nowh\xc1\xc2\xc3\xc4re"))
    with SessionDB(path) as db, pytest.raises(Corrupt):
        db.append_message("s", "user", "x", create={"source": "cli"})


@pytest.mark.parametrize("name", ["file::memory:", "file:x?mode=memory"])
def test_uri_as_database_path_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    with pytest.raises(InvalidInput, match="URIs are not supported"):
        SessionDB(name)
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("scheme", ["postgresql", "sqlite", "https"])
def test_address_as_database_path_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    with pytest.raises(InvalidInput, match="got an address") as caught:
        SessionDB(f"{scheme}://me:hunter2@host/state.db")
    assert "hunter2" not in str(caught.value)
    assert set(tmp_path.iterdir()) == before


# -- missing files -----------------------------------------------------------------------------


def test_empty_databases_share_no_rows() -> None:
    with closing(open_empty().connection) as first, closing(open_empty().connection) as second:
        first.execute("INSERT INTO state_meta VALUES ('key', 'value')")
        with closing(open_empty().connection) as third:
            for other in (second, third):
                keys = other.execute("SELECT key FROM state_meta").fetchall()
                assert keys == [("mcp_sessions_schema",)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no such processes here")
def test_fork_waits_for_no_copy() -> None:
    with _make_template(os.getpid()).lock:
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)
            try:
                open_empty()
                os._exit(0)
            finally:
                os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0


ADK_TABLES = """
    CREATE TABLE app_states (app_name TEXT PRIMARY KEY, state TEXT);
    CREATE TABLE user_states (app_name TEXT, user_id TEXT, state TEXT);
    CREATE TABLE sessions (app_name TEXT, user_id TEXT, id TEXT, state TEXT);
    CREATE TABLE events (id TEXT, app_name TEXT, event_data TEXT);
"""
OPENAI_TABLES = """
    CREATE TABLE agent_sessions (session_id TEXT PRIMARY KEY);
    CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id TEXT, message_data TEXT);
"""
OTHER_TABLES = """
    CREATE TABLE sessions (id TEXT PRIMARY KEY, data TEXT);
    CREATE TABLE messages (id INTEGER PRIMARY KEY, session TEXT);
"""


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        (ADK_TABLES, "is a session database of Google ADK, not a home; pass the path of another"),
        (OPENAI_TABLES, "is a session database of the OpenAI Agents SDK, not a home; pass the"),
        (OTHER_TABLES, "is not a session database: its sessions has no source; pass the path of"),
    ],
)
def test_database_of_other_program_is_named(tmp_path, tables, reason):
    path = tmp_path / "sessions.db"
    with connect(path, "rwc") as connection:
        connection.executescript(tables)
    before = path.read_bytes()
    with SessionDB(path) as db, pytest.raises(Corrupt) as refusal:
        db.append_message("s", "user", "hello", create={"source": "cli"})
    assert reason in str(refusal.value)
    assert "Hermes" not in str(refusal.value)
    assert path.read_bytes() == before
