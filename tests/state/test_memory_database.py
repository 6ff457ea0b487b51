"""Databases in memory: no file, private or shared by name, and readers that never wait."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from session_core import Busy, Denied, InvalidInput, SessionDB, SessionFilter
from session_core.state.sqlite import memory_database


@pytest.fixture
def db() -> Iterator[SessionDB]:
    with SessionDB(":memory:") as opened:
        yield opened


@pytest.fixture(scope="module")
def audited() -> Iterator[list[tuple[str, str]]]:
    """Return the files and databases that are opened while it is not empty."""
    seen: list[tuple[str, str]] = []

    def watch(event: str, arguments: Any) -> None:
        if seen and event in ("open", "sqlite3.connect", "os.mkdir", "subprocess.Popen"):
            name = arguments[0]  # Python 3.10 passes the bytes of a database
            seen.append((event, os.fsdecode(name) if isinstance(name, bytes) else str(name)))

    sys.addaudithook(watch)
    yield seen
    seen.clear()


def list_texts(db: SessionDB, session_id: str = "s") -> list[Any]:
    return [row["content"] for row in db.get_messages(session_id)]


@pytest.mark.requirement("state:memory")
def test_memory_database_touches_no_file(
    audited: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # imports write files otherwise
    before = sorted(tmp_path.iterdir())
    audited.append(("begin", ""))
    with SessionDB(":memory:") as db:
        for number in range(30):
            db.append_message("s", "user", f"zebra {number}", create={"source": "cli"})
        with db.snapshot(), pytest.raises(InvalidInput):
            db.set_meta("key", "value")
        assert len(db.search("zebra", per="message", limit=50).hits) == 30
        assert db.list_sessions(SessionFilter()).items[0].messages == 30
        assert db.admin.check_integrity(deep=True) == []
        assert db.admin.list_holders() == []
        sizes = db.admin.measure_sizes(exact=True)
        assert sizes.db > 0
        assert db.admin.vacuum().after_bytes > 0
        assert (db.path, db.folder, db.kind) == (None, None, "own")
        assert db.admin.get_home_id()
    opened = {
        (event, name) for event, name in audited[1:] if not name.endswith((".py", ".pyc", ".sql"))
    }
    audited.clear()
    assert opened == {("sqlite3.connect", "file::memory:")}
    assert sorted(tmp_path.iterdir()) == before


def test_private_databases_are_separate(db: SessionDB) -> None:
    db.create_session("s", "cli")
    with SessionDB(":memory:") as other:
        assert other.get_session("s") is None
        assert other.admin.get_home_id() != db.admin.get_home_id()


def test_named_database_is_shared_until_closed() -> None:
    with SessionDB(":memory:one") as first, SessionDB(":memory:one") as second:
        first.append_message("s", "user", "x", create={"source": "cli"})
        second.append_message("s", "user", "y")
        assert list_texts(first) == list_texts(second) == ["x", "y"]
        first.close()
        assert list_texts(second) == ["x", "y"]
        with SessionDB(":memory:two") as other:
            assert other.get_session("s") is None
    with SessionDB(":memory:one") as again:
        assert again.get_session("s") is None
    assert not {":memory:one", ":memory:two"} & memory_database._shared.keys()


def test_dropped_database_is_released() -> None:
    db = SessionDB(":memory:dropped")
    db.create_session("s", "cli")
    del db
    assert ":memory:dropped" not in memory_database._shared


def test_readers_see_commit_during_transaction(db: SessionDB) -> None:
    db.append_message("s", "user", "before", create={"source": "cli"})
    with ThreadPoolExecutor(1) as pool, db.transaction():
        db.append_message("s", "user", "inside")
        assert list_texts(db) == ["before", "inside"]
        assert pool.submit(list_texts, db).result(timeout=10) == ["before"]
        assert pool.submit(list_texts, db).result(timeout=10) == ["before"]
    assert list_texts(db) == ["before", "inside"]


def test_instance_waits_for_transaction_of_another() -> None:
    with SessionDB(":memory:w") as first, SessionDB(":memory:w", patience_s=0.1) as second:
        first.create_session("s", "cli")
        with ThreadPoolExecutor(1) as pool, first.transaction():
            first.append_message("s", "user", "inside")
            assert not second.in_transaction
            assert list_texts(second) == []
            with pytest.raises(Busy):
                pool.submit(second.append_message, "s", "user", "x").result(timeout=10)
        second.append_message("s", "user", "after")
        assert list_texts(first) == ["inside", "after"]


def test_threads_append_and_read_in_order(db: SessionDB) -> None:
    db.create_session("s", "cli")
    wrong: list[object] = []
    stop = threading.Event()

    def read() -> None:
        seen = 0
        while not stop.is_set():
            count = len(list_texts(db))
            if count < seen:
                wrong.append((seen, count))
            seen = count

    def append(number: int) -> None:
        for place in range(25):
            message_id = db.append_message("s", "user", f"{number} {place}")
            if db.get_message(message_id) is None:
                wrong.append(message_id)

    with ThreadPoolExecutor(6) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        for writer in [pool.submit(append, number) for number in range(4)]:
            writer.result(timeout=60)
        stop.set()
        for reader in readers:
            reader.result(timeout=60)
    assert wrong == []
    texts = list_texts(db)
    assert [[text for text in texts if text.startswith(f"{n} ")] for n in range(4)] == [
        [f"{number} {place}" for place in range(25)] for number in range(4)
    ]


def test_read_only_instance_changes_nothing() -> None:
    with SessionDB(":memory:ro") as db, SessionDB(":memory:ro", read_only=True) as reader:
        db.create_session("s", "cli")
        assert reader.get_session("s") is not None
        with pytest.raises(Denied):
            reader.create_session("t", "cli")


def test_closed_memory_database_refuses_calls() -> None:
    db = SessionDB(":memory:")
    db.close()
    db.close()
    with pytest.raises(InvalidInput, match="closed"):
        db.get_session("s")
    with pytest.raises(InvalidInput, match="closed"):
        db.create_session("s", "cli")
