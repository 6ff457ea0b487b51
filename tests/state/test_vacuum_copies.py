"""The copy of a vacuum: its creation and its removal."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from session_core import Denied, SessionDB, StorageError
from session_core.state.sqlite.admin import vacuum_file
from tests.homes import connect, fill_database, make_hermes_database, make_own_database
from tests.state.vacuum_trace import dump_tables, list_copies, trace_vacuum, vacuum_through_copy
from tests.thorough import take_main_kinds


@pytest.fixture(params=take_main_kinds(["own", 16, 22, 30]))
def path(request: pytest.FixtureRequest, home_path: Path) -> Path:
    path = home_path / "state.db"
    make_own_database(path) if request.param == "own" else make_hermes_database(path, request.param)
    fill_database(path, 40, 20)
    return path


@pytest.fixture
def db(path: Path) -> Iterator[SessionDB]:
    with SessionDB(path) as db:
        db.delete_sessions([f"fill_0_{n:05}" for n in range(20)])
        yield db


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuum_file, "_INSTRUCTIONS_PER_STEP", 2000)
    monkeypatch.setattr(vacuum_file, "_PAGES_PER_STEP", 16)


@pytest.mark.requirement("maintenance:vacuum-copies")
def test_rewritten_rows_equal_plain_vacuum(db: SessionDB, path: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.db"
    with connect(path, "ro") as connection, connect(plain, "rwc") as other:
        connection.backup(other)
        other.execute("VACUUM")
    vacuum_through_copy(db)
    assert dump_tables(path) == dump_tables(plain)


KEPT = ("page_size", "auto_vacuum", "journal_mode", "user_version", "application_id", "encoding")


@pytest.mark.requirement("maintenance:vacuum-copies")
@pytest.mark.parametrize(
    "made",
    [
        "page_size=512",
        "page_size=65536",
        "auto_vacuum=FULL",
        "auto_vacuum=INCREMENTAL",
        "encoding='UTF-16le'",
        "user_version=7",
        "application_id=77",
        "default_cache_size=5",
        "reserved bytes",
    ],
)
def test_rewrite_keeps_file_settings(home_path: Path, made: str) -> None:
    path = home_path / "state.db"
    if made == "reserved bytes":
        create_reserved_database(path, 32)
    with connect(path, "rwc") as connection:
        connection.execute(f"PRAGMA {made}" if "=" in made else "SELECT 1")
        connection.execute("CREATE TABLE first (it)")
    make_hermes_database(path)
    fill_database(path, 40, 20)
    with SessionDB(path) as db:
        db.delete_sessions([f"fill_0_{n:05}" for n in range(20)])
        before = read_file_settings(path)
        vacuum_through_copy(db)
        assert db.admin.measure_sizes().free == 0
        db.append_message("fill_0_00039", "user", "after it")
    assert read_file_settings(path) == before


def create_reserved_database(path: Path, count: int) -> None:
    """Create an empty database that reserves bytes at the end of each page."""
    with connect(path, "rwc") as connection:
        connection.execute("PRAGMA user_version=1")
    page = bytearray(path.read_bytes())
    size = int.from_bytes(page[16:18], "big")
    page[20] = count
    page[105:107] = (size - count).to_bytes(2, "big")
    path.write_bytes(page)


def read_file_settings(path: Path) -> tuple[object, ...]:
    with connect(path, "ro") as connection:
        pragmas = [connection.execute(f"PRAGMA {name}").fetchone() for name in KEPT]
        cache = connection.execute("PRAGMA default_cache_size").fetchone()
        # Some versions report a trigram index in UTF-16 as damaged after rows were deleted.
        problems = connection.execute("PRAGMA quick_check").fetchall()
    # In another process, since closing a file drops all locks of the closing process on it.
    head = "import sys; print(open(sys.argv[1], 'rb').read(21)[16:])"
    result = subprocess.run(
        [sys.executable, "-c", head, str(path)], capture_output=True, check=True
    )
    return (*pragmas, cache, problems, result.stdout)


@pytest.mark.requirement("maintenance:vacuum-copies")
def test_vacuum_copy_is_private(db: SessionDB, path: Path) -> None:
    modes: set[int] = set()
    trace_vacuum(
        db, lambda _: modes.update(copy.stat().st_mode & 0o777 for copy in list_copies(path.parent))
    )
    assert modes == {0o600}


def test_vacuum_copy_lies_beside_linked_database(home_path: Path, tmp_path: Path) -> None:
    path, linked = home_path / "state.db", tmp_path / "linked.db"
    make_own_database(path)
    linked.symlink_to(path)
    with SessionDB(linked) as db:
        db.append_message("one", "user", "words", create={"source": "cli"})
        seen: list[int] = []
        vacuum_through_copy(db, lambda: seen.append(len(list_copies(home_path, ".tmp"))))
    assert set(seen) == {1}
    assert linked.is_symlink()


@pytest.mark.requirement("maintenance:vacuum-copies")
def test_exchanged_copy_is_not_written_back(db: SessionDB, path: Path) -> None:
    def act(now: str) -> None:
        if now == "copy begins":
            (copy,) = list_copies(path.parent)
            copy.unlink()
            copy.touch()

    before = dump_tables(path)
    with pytest.raises(StorageError, match="replaced"):
        trace_vacuum(db, act)
    assert dump_tables(path) == before


def test_folder_without_room_for_name_is_denied(home_path: Path) -> None:
    path = home_path / ("n" * 245)
    make_own_database(path)
    with SessionDB(path) as db:
        db.append_message("one", "user", "words", create={"source": "cli"})
        with pytest.raises(Denied, match="no copy can be created"):
            vacuum_through_copy(db)


KILLED = (
    "import os, sys\n"
    "from functools import partial\n"
    "from session_core import SessionDB\n"
    "from session_core.state.sqlite.admin import vacuum_file as stepping\n"
    "stepping._INSTRUCTIONS_PER_STEP = 2000\n"
    "db = SessionDB(sys.argv[1])\n"
    "kill = lambda: os.kill(os.getpid(), 9)\n"
    "db._store.get_writer().run_exclusively(partial(db.admin._vacuum_through_file, step=kill))\n"
)


@pytest.mark.requirement("maintenance:vacuum-copies")
def test_stale_copy_is_deleted_at_next_write(path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert list_copies(path.parent, ".tmp") != []
    with SessionDB(path) as db:
        db.get_messages("fill_0_00039")
        assert list_copies(path.parent) != []  # a read deletes no copy
        db.set_meta("written", "1")
        assert list_copies(path.parent) == []


@pytest.mark.requirement("maintenance:vacuum-copies")
def test_only_stale_copies_are_deleted(db: SessionDB, path: Path, tmp_path: Path) -> None:
    folder, name = path.parent, ".state.db.vacuum-"
    precious = tmp_path / "precious"
    precious.write_text("of somebody")
    linked, twice = folder / f"{name}linked00.tmp", folder / f"{name}twice000.tmp"
    linked.symlink_to(precious)
    twice.hardlink_to(precious)
    (folder / f"{name}folder00.tmp").mkdir()
    (folder / ".other.db.vacuum-left0000.tmp").touch()
    (folder / f"{name}left0000.tmp.old").touch()
    (folder / f"{name}left0000.tmp").touch()
    (folder / f"{name}left0001.tmp-journal").touch()
    before = {file.name for file in folder.iterdir()}
    db.admin.vacuum()
    deleted = before - {file.name for file in folder.iterdir()}
    assert deleted == {f"{name}left0000.tmp", f"{name}left0001.tmp-journal"}
    assert precious.read_text() == "of somebody"


@pytest.mark.requirement("maintenance:vacuum-copies")
def test_copy_in_use_is_not_deleted(db: SessionDB, path: Path) -> None:
    other = path.parent / ".state.db.vacuum-other000.tmp"
    with subprocess.Popen(
        [sys.executable, "-c", f"f = open({str(other)!r}, 'wb'); print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        seen: list[bool] = []

        def act(now: str) -> None:
            vacuum_file.delete_stale_copies(path)
            seen.append(now == "first look" or len(list_copies(path.parent, ".tmp")) == 2)

        trace_vacuum(db, act)
        assert set(seen) == {True}
        vacuum_file.delete_stale_copies(path)
        assert list_copies(path.parent) == [other]
        holder.communicate(b"\n")
    vacuum_file.delete_stale_copies(path)
    assert list_copies(path.parent) == []
