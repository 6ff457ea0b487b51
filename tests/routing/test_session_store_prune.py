"""Pruning of routes by their last use alone."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB, SessionStore
from session_core.config import GatewayConfig
from tests.routing.chats import (
    KEY,
    Clock,
    append_text,
    chat,
    count_writes,
    file_entries,
    make_stored_entry,
    pop_written_rows,
    put_row,
    read_rows,
    write_file,
)


def make_chat_key(name: str) -> str:
    return f"agent:main:telegram:dm:{name}"


@pytest.fixture
def filled(any_store: SessionStore, clock: Clock) -> SessionStore:
    """A store with chats used today, 10 days ago and 100 days ago."""
    for name, days in (("old", 90), ("recent", 10), ("new", 0)):
        any_store.get_or_create_session(chat(name))
        clock.advance(days=days)
    return any_store


@pytest.mark.requirement("store:prune")
def test_prune_removes_unused_entries(filled: SessionStore) -> None:
    assert filled.prune_old_entries(90) == 1
    assert list(filled.load_entries()) == [make_chat_key("recent"), make_chat_key("new")]


@pytest.mark.requirement("store:prune")
@pytest.mark.parametrize("days", [None, 0, -1, -90], ids=["none", "0", "-1", "-90"])
def test_prune_without_days_keeps_entries(filled: SessionStore, days: int | None) -> None:
    assert filled.prune_old_entries(days) == 0
    assert len(filled.load_entries()) == 3


@pytest.mark.requirement("store:prune")
def test_prune_age_counts_from_last_use(filled: SessionStore) -> None:
    filled.update_session(make_chat_key("old"))
    assert filled.prune_old_entries(5) == 1
    assert list(filled.load_entries()) == [make_chat_key("old"), make_chat_key("new")]


@pytest.mark.requirement("store:prune")
def test_prune_keeps_entry_at_exact_age(any_store: SessionStore, clock: Clock) -> None:
    any_store.get_or_create_session(chat())
    clock.advance(days=30)
    assert any_store.prune_old_entries(30) == 0
    clock.advance(microseconds=1)
    assert any_store.prune_old_entries(30) == 1


@pytest.mark.requirement("store:prune")
def test_prune_keeps_suspended_chat(filled: SessionStore) -> None:
    filled.suspend_session(make_chat_key("old"))
    assert filled.prune_old_entries(90) == 0


@pytest.mark.requirement("store:prune")
@pytest.mark.parametrize("answer", [True, None], ids=["works", "cannot be asked"])
def test_prune_keeps_chat_with_active_process(
    make: Any, db: SessionDB, clock: Clock, answer: bool | None
) -> None:
    asked = []

    def is_active(key: str) -> bool:
        asked.append(key)
        if answer is None:
            raise OSError
        return answer and key == make_chat_key("busy")

    store = make(db, has_active_processes_fn=is_active)
    for name in ("busy", "idle"):
        store.get_or_create_session(chat(name))
    clock.advance(days=30)
    asked.clear()
    removed = store.prune_old_entries(5)
    assert sorted(asked) == [make_chat_key("busy"), make_chat_key("idle")]
    remaining = (
        [make_chat_key("busy"), make_chat_key("idle")]
        if answer is None
        else [make_chat_key("busy")]
    )
    assert (removed, list(store.load_entries())) == (2 - len(remaining), remaining)


def test_prune_checks_processes_of_old_entries(make: Any, db: SessionDB) -> None:
    asked: list[str] = []
    store = make(db, has_active_processes_fn=lambda key: bool(asked.append(key)))
    store.get_or_create_session(chat())
    asked.clear()
    store.prune_old_entries(5)
    assert asked == []


@pytest.mark.requirement("store:idle-prune")
def test_prune_without_removals_writes_no_row(make: Any, db: SessionDB, folder: Path) -> None:
    store = make(db)
    store.get_or_create_session(chat())
    count_writes(db)
    before = (folder / "sessions.json").stat()
    assert store.prune_old_entries(5) == 0
    after = (folder / "sessions.json").stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)
    assert pop_written_rows(db) == []


@pytest.mark.requirement("store:idle-prune")
def test_prune_without_removals_writes_no_file(make: Any, folder: Path) -> None:
    store = make()
    store.get_or_create_session(chat())
    before = (folder / "sessions.json").stat()
    assert store.prune_old_entries(5) == 0
    assert (folder / "sessions.json").stat().st_ino == before.st_ino


def test_prune_deletes_single_row_per_entry(
    make: Any, db: SessionDB, folder: Path, clock: Clock
) -> None:
    store = make(db)
    for name in ("a", "b", "c"):
        store.get_or_create_session(chat(name))
        clock.advance(days=10)
    count_writes(db)
    assert store.prune_old_entries(15) == 2
    assert pop_written_rows(db) == [("DELETE", make_chat_key("a")), ("DELETE", make_chat_key("b"))]
    assert list(file_entries(folder)) == list(read_rows(db, folder)) == [make_chat_key("c")]


@pytest.mark.requirement("store:prune")
def test_prune_keeps_sessions_and_messages(
    store: SessionStore, db: SessionDB, clock: Clock
) -> None:
    entry = store.get_or_create_session(chat())
    append_text(store, db, entry)
    clock.advance(days=30)
    row = db.get_session(entry.session_id)
    assert store.prune_old_entries(5) == 1
    assert db.get_session(entry.session_id) == row
    assert db.message_count(entry.session_id) == 1


def test_prune_removes_file_only_entries(
    make: Any, db: SessionDB, folder: Path, clock: Clock
) -> None:
    write_file(folder, {KEY: make_stored_entry()})
    clock.advance(days=30)
    store = make(db)
    assert store.prune_old_entries(5) == 1
    assert file_entries(folder) == read_rows(db, folder) == {}


def test_prune_keeps_entry_used_meanwhile(
    make: Any, db: SessionDB, folder: Path, clock: Clock
) -> None:
    """A message arrives between the selection and the removal."""

    def comes_in(_: str) -> bool:
        put_row(db, folder, make_stored_entry("s1", updated_at=clock.time.isoformat()))
        return False

    put_row(db, folder, make_stored_entry("s1"))
    clock.advance(days=30)
    store = make(db, has_active_processes_fn=comes_in)
    assert store.prune_old_entries(5) == 0
    assert list(read_rows(db, folder)) == list(file_entries(folder)) == [KEY]


@pytest.mark.requirement("store:prune")
def test_concurrent_prunes_remove_entries_once(
    make: Any, db: SessionDB, folder: Path, clock: Clock
) -> None:
    store = make(db)
    for number in range(30):
        store.get_or_create_session(chat(number))
        if number == 19:
            clock.advance(days=30)
    removed: list[int] = []
    barrier = threading.Barrier(8)

    def prune() -> None:
        barrier.wait()
        removed.append(store.prune_old_entries(5))

    threads = [threading.Thread(target=prune) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(removed) == 20
    assert len(read_rows(db, folder)) == len(file_entries(folder)) == 10


@pytest.mark.parametrize(("stored", "days"), [(7, 7), (-5, 0), ("nonsense", 90), (None, 90)])
def test_prune_age_comes_from_configuration(stored: Any, days: int) -> None:
    config = GatewayConfig.from_dict({"session_store_max_age_days": stored})
    assert config.session_store_max_age_days == days
    assert GatewayConfig.from_dict(config.to_dict()).session_store_max_age_days == days


def test_prune_removes_many_entries_together(
    make: Any, db: SessionDB, folder: Path, clock: Clock
) -> None:
    with db.transaction():
        for number in range(3000):
            put_row(
                db,
                folder,
                make_stored_entry(f"s{number}", make_chat_key(str(number))),
                make_chat_key(str(number)),
            )
    store = make(db)
    clock.advance(days=30)
    store.get_or_create_session(chat("fresh"))
    assert store.prune_old_entries(5) == 3000
    assert list(file_entries(folder)) == list(read_rows(db, folder)) == [make_chat_key("fresh")]


def test_prune_handles_entry_with_foreign_timezone(
    store: SessionStore, db: SessionDB, folder: Path, clock: Clock
) -> None:
    old = (clock.time - timedelta(days=40)).astimezone().isoformat()
    put_row(db, folder, make_stored_entry(updated_at=old))
    assert store.prune_old_entries(30) == 1
