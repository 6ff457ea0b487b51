"""The first write creates a home of our own. Refused and empty changes do not create it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from session_core import Busy, NotFound, SessionDB, TitleTaken
from session_core.state.sqlite import store
from tests.contract.engines import roll_back_at_end
from tests.homes import connect, make_own_database

NOTHING: dict[str, Callable[[SessionDB], Any]] = {
    "end_session": lambda db: db.end_session("s", "done"),
    "reopen_session": lambda db: db.reopen_session("s"),
    "update_session": lambda db: db.update_session("s", model="m"),
    "set_session_title": lambda db: db.set_session_title("s", None),
    "set_session_archived": lambda db: db.set_session_archived("s", archived=True),
    "delete_session": lambda db: db.delete_session("s"),
    "delete_sessions": lambda db: db.delete_sessions(["s", "t"]),
    "prune_empty_ghost_sessions": lambda db: db.prune_empty_ghost_sessions(),
    "finalize_orphaned": lambda db: db.finalize_orphaned_compression_sessions(),
}
REFUSED: dict[str, Callable[[SessionDB], Any]] = {
    "append_message": lambda db: db.append_message("s", "user", "hello"),
    "append_messages": lambda db: db.append_messages("s", [{"role": "user", "content": "hello"}]),
    "replace_messages": lambda db: db.replace_messages("s", []),
    "rewind_to_message": lambda db: db.rewind_to_message("s", 1),
    "clear_messages": lambda db: db.clear_messages("s"),
    "create_session": lambda db: db.create_session("s", "cli", parent_session_id="none"),
}


@pytest.mark.parametrize("change", NOTHING.values(), ids=NOTHING)
def test_change_without_effect_creates_no_home(
    tmp_path: Path, change: Callable[[SessionDB], Any]
) -> None:
    with SessionDB(tmp_path / "home" / "state.db") as db:
        assert not change(db)
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_refused_change_creates_no_home(tmp_path: Path, change: Callable[[SessionDB], Any]) -> None:
    with SessionDB(tmp_path / "home" / "state.db") as db, pytest.raises(NotFound):
        change(db)
    assert not (tmp_path / "home").exists()


def test_transaction_without_changes_creates_no_home(tmp_path: Path) -> None:
    with SessionDB(tmp_path / "home" / "state.db") as db:
        with roll_back_at_end(db):
            assert db.in_transaction
        with db.transaction(), db.transaction():
            assert db.end_session("s", "done") is False
        assert not db.in_transaction
    assert not (tmp_path / "home").exists()


def test_late_transaction_locks_what_it_reads(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as db, SessionDB(path, patience_s=0) as other:
        with db.transaction():
            assert db.get_session("s") is None
            with pytest.raises(Busy):
                other.create_session("s", "cli", display_name="other")
            db.create_session("s", "cli", display_name="first")
        assert other.get_session("s")["display_name"] == "first"


def test_late_transaction_is_rolled_back_whole(tmp_path: Path) -> None:
    with SessionDB(tmp_path / "state.db") as db:
        with roll_back_at_end(db):
            db.create_session("s", "cli")
            db.append_message("s", "user", "a")
        assert db.get_session("s") is None
        with db.transaction():
            db.append_message("s", "user", "b", create={"source": "cli"})
        assert [row["content"] for row in db.get_messages("s")] == ["b"]


def test_late_transaction_rolls_back_inner_block(tmp_path: Path) -> None:
    with SessionDB(tmp_path / "state.db") as db:
        with db.transaction():
            with roll_back_at_end(db):
                db.create_session("gone", "cli")
            db.create_session("kept", "cli")
        assert (db.get_session("gone"), (db.get_session("kept") or {})["id"]) == (None, "kept")


def test_late_transaction_survives_busy_database(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path, patience_s=0.0) as db, roll_back_at_end(db):
        make_own_database(path)
        with connect(path) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(Busy):
                db.create_session("s", "cli")
            other.execute("ROLLBACK")
        db.create_session("s", "cli")
    with SessionDB(path) as reopened:
        assert reopened.get_session("s") is None


def test_late_transaction_belongs_to_thread(tmp_path: Path) -> None:
    with SessionDB(tmp_path / "state.db") as db, ThreadPoolExecutor(1) as pool:
        with roll_back_at_end(db):
            pool.submit(db.create_session, "theirs", "cli").result(20)
            db.create_session("mine", "cli")
        assert (db.get_session("mine"), (db.get_session("theirs") or {})["id"]) == (None, "theirs")


def test_empty_file_becomes_private_home(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.touch()
    path.chmod(0o644)
    with SessionDB(path) as db:
        db.create_session("s", "cli")
    assert path.stat().st_mode & 0o777 == 0o600


def test_first_change_is_stored_once(tmp_path: Path) -> None:
    path = tmp_path / "home" / "state.db"
    with SessionDB(path) as db:
        first = db.append_message("s", "user", "hello", create={"source": "cli"})
        assert first.after == db.get_revision("s")
    with SessionDB(path) as reopened:
        assert [row["id"] for row in reopened.get_messages("s")] == [first]
        assert reopened.kind == "own"


def test_read_during_creation_finds_empty_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = store.has_database
    with SessionDB(tmp_path / "home" / "state.db") as db, ThreadPoolExecutor(1) as another:

        def look(path: Path) -> bool:
            exists = usual(path)
            monkeypatch.setattr(store, "has_database", usual)
            another.submit(db.create_session, "s", "cli").result(20)
            return exists

        monkeypatch.setattr(store, "has_database", look)
        assert db.get_session("s") is None
        assert db.get_session("s") is not None


def test_first_write_respects_concurrent_creation(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as late, SessionDB(path) as early:
        assert late.get_session("s") is None
        early.create_session("s", "cli")
        early.set_session_title("s", "Trip")
        late.create_session("t", "cli")
        with pytest.raises(TitleTaken):
            late.set_session_title("t", "Trip")
