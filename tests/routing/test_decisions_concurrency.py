"""Concurrent threads and processes on one store: one session per chat, no lost entry."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB, SessionStore
from tests.cli.fork_server import get_fork_server
from tests.routing.chats import (
    KEY,
    chat,
    file_entries,
    make_stored_entry,
    put_row,
    read_rows,
    wait_until,
)

THREADS = 32
PROCESSES = 4
SHARED = "agent:main:telegram:dm:shared"


def run_concurrently(*calls: Callable[[], Any]) -> list[Any]:
    """Run calls at the same moment, and return their results."""
    barrier = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)

    def work(number: int) -> None:
        barrier.wait()
        try:
            results[number] = calls[number]()
        except BaseException as error:  # noqa: BLE001 -- the test looks at it
            results[number] = error

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors = [result for result in results if isinstance(result, BaseException)]
    assert errors == []
    return results


@contextmanager
def parse_continuously(path: Path) -> Iterator[list[int]]:
    """Parse a file in a loop while the block runs. Assert that it is whole each time."""
    ended = threading.Event()
    reads: list[int] = []
    torn: list[bytes] = []

    def work() -> None:
        while not ended.is_set():
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                continue
            try:
                reads.append(len(json.loads(data)))
            except ValueError:
                torn.append(data)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield reads
    finally:
        ended.set()
        thread.join()
    assert torn == []


@contextmanager
def start_workers(verb: str, home: Path, *, with_db: bool) -> Iterator[list[Any]]:
    """Start worker processes, release them together, and collect their output."""
    program = get_fork_server().write_module_command("tests.routing.worker")
    command = [program, verb, str(home)]
    workers = [
        subprocess.Popen(
            [*command, str(number), "db" if with_db else "file"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    outputs: list[Any] = []
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "up\n"
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        yield outputs
        for worker in workers:
            out, _ = worker.communicate(timeout=100)
            assert worker.returncode == 0
            outputs.append(json.loads(out))
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


# Threads


@pytest.mark.requirement("store:threads")
@pytest.mark.parametrize("with_db", [True, False])
def test_concurrent_messages_share_session(make: Any, db: SessionDB, with_db: bool) -> None:
    created_ids: list[Any] = []
    store = make(
        db if with_db else None, new_id=lambda _: created_ids.append(1) or f"s{len(created_ids)}"
    )
    entries = run_concurrently(*[lambda: store.get_or_create_session(chat())] * THREADS)
    assert {entry.session_id for entry in entries} == {"s1"}
    assert len(created_ids) == 1
    assert store.decisions.locks._locks == {}


def test_concurrent_stores_share_session(make: Any, db: SessionDB) -> None:
    stores = [make(db) for _ in range(8)]
    entries = run_concurrently(
        *(lambda store=store: store.get_or_create_session(chat()) for store in stores)
    )
    assert len({entry.session_id for entry in entries}) == 1


def test_decision_does_not_block_chats(store: SessionStore) -> None:
    """A decision may call slow code of the application."""
    entered, opened = threading.Event(), threading.Event()

    def hang(entry: Any) -> bool:
        entered.set()
        return opened.wait(30)

    store.get_or_create_session(chat())
    thread = threading.Thread(target=store.decisions.change_entry, args=(KEY, hang))
    thread.start()
    entered.wait(30)
    assert store.get_or_create_session(chat(43)).session_key != KEY
    assert store.get(KEY) is not None
    opened.set()
    thread.join()


@pytest.mark.requirement("store:threads")
@pytest.mark.parametrize("with_db", [True, False])
def test_threads_in_many_chats_keep_entries(
    make: Any, db: SessionDB, folder: Path, with_db: bool
) -> None:
    store = make(db if with_db else None)
    folder.mkdir()

    def work(number: int) -> None:
        for turn in range(4):
            key = store.get_or_create_session(chat(f"{number}_{turn}")).session_key
            store.update_session(key, number)
            store.get_or_create_session(chat("shared"))

    with parse_continuously(folder / "sessions.json") as reads:
        run_concurrently(*(lambda number=number: work(number) for number in range(THREADS // 2)))
    store.close()
    entries = file_entries(folder)
    assert len(entries) == THREADS // 2 * 4 + 1
    assert not with_db or entries == read_rows(db, folder)
    assert reads


@pytest.mark.requirement("store:threads")
def test_threads_lose_no_entry_update(store: SessionStore) -> None:
    store.get_or_create_session(chat())

    def count(entry: Any) -> bool:
        entry.total_tokens += 1
        return True

    run_concurrently(*[lambda: store.decisions.change_entry(KEY, count)] * THREADS)
    entry = store.get(KEY)
    assert entry is not None
    assert entry.total_tokens == THREADS


def test_stores_lose_no_entry_update(make: Any, db: SessionDB, home_path: Path) -> None:
    databases = [SessionDB(home_path / "state.db") for _ in range(4)]
    stores = [make(database) for database in databases]
    stores[0].get_or_create_session(chat())

    def count(entry: Any) -> bool:
        entry.total_tokens += 1
        return True

    run_concurrently(
        *(lambda store=store: store.decisions.change_entry(KEY, count) for store in stores * 8)
    )
    entry = stores[0].get(KEY)
    assert entry is not None
    assert entry.total_tokens == 32
    for store in stores:
        store.close()
    for database in databases:
        database.close()


@pytest.mark.requirement("store:threads")
def test_threads_leave_table_and_mirror_equal(
    store: SessionStore, db: SessionDB, folder: Path
) -> None:
    for number in range(16):
        store.get_or_create_session(chat(number))

    def key(number: int) -> str:
        return f"agent:main:telegram:dm:{number}"

    def remove(number: int) -> None:
        entry = store.get(key(number))
        if entry is not None:
            store.remove({key(number): entry})

    run_concurrently(
        *(lambda number=number: remove(number) for number in range(8)),
        *(lambda number=number: store.reset_session(key(number)) for number in range(4, 12)),
        *(lambda number=number: store.suspend_session(key(number)) for number in range(8, 16)),
        *(
            lambda number=number: store.get_or_create_session(chat(number))
            for number in range(16, 24)
        ),
    )
    store.close()
    assert file_entries(folder) == read_rows(db, folder)
    assert {key(number) for number in range(8, 24)} <= set(read_rows(db, folder))
    assert not {key(number) for number in range(4)} & set(read_rows(db, folder))


@pytest.mark.requirement("store:processes")
def test_stale_mirror_never_replaces_newer_mirror(
    make: Any, db: SessionDB, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two stores, as in two processes: the slow one has read before the other writes."""
    slow, quick = make(db), make(db)
    slow.get_or_create_session(chat())
    read, opened = threading.Event(), threading.Event()
    write = slow.backend._mirror.write

    def write_late(members: Any, **options: Any) -> None:
        member_list = list(members)
        read.set()
        assert opened.wait(30)
        write(member_list, **options)

    monkeypatch.setattr(slow.backend._mirror, "write", write_late)
    threads = [
        threading.Thread(target=slow.reset_session, args=(KEY,)),
        threading.Thread(target=quick.get_or_create_session, args=(chat("quick"),)),
    ]
    threads[0].start()
    assert read.wait(30)
    threads[1].start()
    threads[1].join(0.2)  # blocked by the other; if it is not, this is time enough
    opened.set()
    for thread in threads:
        thread.join()
    assert file_entries(folder) == read_rows(db, folder)


def test_concurrent_adoption_imports_entries_once(make: Any, db: SessionDB, folder: Path) -> None:
    members = {f"agent:main:telegram:dm:{n}": make_stored_entry(f"s{n}") for n in range(50)}
    folder.mkdir()
    (folder / "sessions.json").write_text(json.dumps(members))
    stores = [make(db) for _ in range(8)]
    run_concurrently(
        *(lambda s=s, n=n: s.get_or_create_session(chat(n)) for n, s in enumerate(stores))
    )
    rows = read_rows(db, folder)
    assert {key: entry["session_id"] for key, entry in rows.items()} == {
        key: entry["session_id"] for key, entry in members.items()
    }


@pytest.mark.requirement("store:forced-at-once")
@pytest.mark.parametrize("has_route", [True, False])
def test_concurrent_force_new_creates_single_session(
    make: Any, db: SessionDB, has_route: bool
) -> None:
    store = make(db)
    first = store.get_or_create_session(chat()).session_id if has_route else None
    session_ids = []

    def force() -> None:
        session_ids.append(store.get_or_create_session(chat(), force_new=True).session_id)

    threads = [threading.Thread(target=force) for _ in range(8)]
    with store.decisions.locks.hold_lock(KEY):
        for thread in threads:
            thread.start()
        wait_until(lambda: store.decisions.locks._locks[KEY][1] == 9)
    for thread in threads:
        thread.join()
    assert session_ids == [store.peek_session_id(KEY)] * 8
    assert first not in session_ids


def test_concurrent_resets_of_chat_are_serialized(store: SessionStore, db: SessionDB) -> None:
    store.get_or_create_session(chat())
    entries = run_concurrently(*[lambda: store.reset_session(KEY)] * 16)
    assert len({entry.session_id for entry in entries}) == 16
    assert store.peek_session_id(KEY) in {entry.session_id for entry in entries}


# Processes


@pytest.mark.requirement("store:processes")
@pytest.mark.parametrize("with_db", [True, False])
def test_processes_share_session_and_keep_entries(
    db: SessionDB, home_path: Path, folder: Path, with_db: bool
) -> None:
    with (
        parse_continuously(folder / "sessions.json"),
        start_workers("arrive", home_path, with_db=with_db) as outputs,
    ):
        pass
    assert len(set(outputs)) == 1
    entries = file_entries(folder)
    assert entries[SHARED]["session_id"] == outputs[0]
    assert len(entries) == PROCESSES * 15 + 1
    assert not with_db or entries == read_rows(db, folder)


@pytest.mark.requirement("store:processes")
@pytest.mark.parametrize("with_db", [True, False])
def test_removed_entry_stays_removed_across_processes(
    db: SessionDB, home_path: Path, folder: Path, with_db: bool
) -> None:
    with start_workers("remove", home_path, with_db=with_db):
        pass
    remaining_keys = {
        f"agent:main:telegram:dm:{n}_{turn}" for n in range(PROCESSES) for turn in range(0, 15, 2)
    }
    entries = file_entries(folder)
    assert set(entries) == remaining_keys
    assert not with_db or entries == read_rows(db, folder)


def test_open_store_sees_changes_of_processes(
    make: Any, db: SessionDB, home_path: Path, folder: Path
) -> None:
    put_row(db, folder, make_stored_entry("s1", SHARED), SHARED)
    store = make(db)
    assert store.peek_session_id(SHARED) == "s1"
    with start_workers("arrive", home_path, with_db=True):
        pass
    assert len(store.load_entries()) == PROCESSES * 15 + 1
    entry = store.get(SHARED)
    assert entry is not None
    assert (entry.session_id, entry.last_prompt_tokens) == ("s1", 14)
