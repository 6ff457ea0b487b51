"""A slow mirror: the callers that wait for it, and the callers that do not."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from session_core import Busy, SessionDB, _atomic
from session_core._atomic import hold_file_lock
from session_core.routing import mirror, sql_backend
from session_core.routing.mirror import LOCK_NAME
from tests.lifecycle.runtimes import beside
from tests.routing.chats import KEY, OTHER, chat, file_entries, read_rows, wait_until


@pytest.mark.requirement("copies:waiting")
def test_change_does_not_wait_for_mirror(make: Any, db: SessionDB, folder: Path) -> None:
    store = make(db)
    for chat_id in (42, 43):
        store.get_or_create_session(chat(chat_id))
    first = store.peek_session_id(OTHER)
    changed: list[object] = []

    def change() -> None:
        changed.extend(store.update_session(KEY, tokens) for tokens in range(50))

    resets = threading.Thread(target=store.reset_session, args=(OTHER,))
    changes = threading.Thread(target=change)
    with hold_file_lock(folder / LOCK_NAME):
        resets.start()
        wait_until(lambda: store.peek_session_id(OTHER) != first)
        changes.start()
        changes.join(30)
        assert (len(changed), resets.is_alive()) == (50, True)
    resets.join()
    changes.join()


@pytest.mark.requirement("copies:waiting")
def test_waiting_changes_write_mirror_once(
    make: Any, db: SessionDB, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make(db)
    for number in range(6):
        store.get_or_create_session(chat(number))
    copies, writes = store.backend, []
    write, before = copies._mirror.write, copies._changes
    monkeypatch.setattr(
        copies._mirror, "write", lambda *args, **named: writes.append(write(*args, **named))
    )
    threads = [
        threading.Thread(target=store.reset_session, args=(f"agent:main:telegram:dm:{number}",))
        for number in range(6)
    ]
    with hold_file_lock(folder / LOCK_NAME):
        for thread in threads:
            thread.start()
        wait_until(lambda: copies._changes == before + 6)
    for thread in threads:
        thread.join()
    assert len(writes) == 1
    assert file_entries(folder) == read_rows(db, folder)


def test_mirror_lock_is_released_despite_fork(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda *given: opened.append(real(*given)) or opened[-1])
    monkeypatch.setattr(_atomic, "_LOCK_TIMEOUT_S", 0)
    with hold_file_lock(folder / LOCK_NAME):
        child = os.dup(opened[-1])
    with hold_file_lock(folder / LOCK_NAME):
        pass
    os.close(child)


def test_held_mirror_lock_does_not_block_reset(
    make: Any, db: SessionDB, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make(db)
    old = store.get_or_create_session(chat()).session_id
    monkeypatch.setattr(_atomic, "_LOCK_TIMEOUT_S", 0)
    monkeypatch.setattr(sql_backend, "MIRROR_PATIENCE_S", 0)
    with hold_file_lock(folder / LOCK_NAME):
        with pytest.raises(Busy, match="held"), hold_file_lock(folder / LOCK_NAME):
            pass
        assert store.reset_session(KEY).session_id != old
        assert file_entries(folder)[KEY]["session_id"] == old
    assert any("is locked by" in problem for problem in store.problems)
    store.close()
    assert file_entries(folder) == read_rows(db, folder)


def test_concurrent_resets_share_mirror_timeout(
    make: Any, db: SessionDB, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_backend, "MIRROR_PATIENCE_S", 0.01)
    monkeypatch.setattr(mirror, "RETRY_S", 3600.0)
    store = make(db)
    for number in range(6):
        store.get_or_create_session(chat(number))
    copies, tries = store.backend, []
    lock_file, queue = copies._mirror.lock_file, Queue(copies._mirroring)

    def try_lock(patience_s: float | None = None) -> Any:
        tries.append(patience_s)
        wait_until(lambda: queue.waiting == 5)
        return lock_file(patience_s)

    monkeypatch.setattr(copies, "_mirroring", queue)
    with monkeypatch.context() as patch, hold_file_lock(folder / LOCK_NAME):
        patch.setattr(copies._mirror, "lock_file", try_lock)
        resets = [partial(store.reset_session, f"agent:main:telegram:dm:{n}") for n in range(6)]
        with beside(*resets) as entries:
            pass
    assert tries == [0.01]
    assert all(store.peek_session_id(entry.session_key) == entry.session_id for entry in entries)
    store.close()
    assert file_entries(folder) == read_rows(db, folder)


class Queue:
    """A lock that counts its waiting callers."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self.waiting = -1

    def __enter__(self) -> None:
        """Wait for it."""
        self.waiting += 1
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        self._lock.release()
