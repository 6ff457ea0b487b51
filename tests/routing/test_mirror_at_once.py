"""A mirror that takes long: who waits for it, and who does not."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from session_core import SessionDB
from session_core._files import exclusive
from session_core.routing.mirror import LOCK
from tests.routing.chats import KEY, OTHER, chat, file_entries, rows, wait_until

if TYPE_CHECKING:
    import pytest


def test_a_change_does_not_wait_for_a_mirror_that_is_written(
    make: Any, db: SessionDB, folder: Path
) -> None:
    store = make(db)
    for chat_id in (42, 43):
        store.get_or_create_session(chat(chat_id))
    first = store.peek_session_id(OTHER)
    changed: list[object] = []

    def change() -> None:
        changed.extend(store.update_session(KEY, tokens) for tokens in range(50))

    resets = threading.Thread(target=store.reset_session, args=(OTHER,))
    changes = threading.Thread(target=change)
    with exclusive(folder / LOCK):
        resets.start()
        wait_until(lambda: store.peek_session_id(OTHER) != first)
        changes.start()
        changes.join(30)
        assert (len(changed), resets.is_alive()) == (50, True)
    resets.join()
    changes.join()


def test_several_who_wait_for_the_mirror_write_it_once(
    make: Any, db: SessionDB, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make(db)
    for number in range(6):
        store.get_or_create_session(chat(number))
    copies, writes = store._copies, []
    write, before = copies._mirror.write, copies._changes
    monkeypatch.setattr(
        copies._mirror, "write", lambda *args, **named: writes.append(write(*args, **named))
    )
    threads = [
        threading.Thread(target=store.reset_session, args=(f"agent:main:telegram:dm:{number}",))
        for number in range(6)
    ]
    with exclusive(folder / LOCK):
        for thread in threads:
            thread.start()
        wait_until(lambda: copies._changes == before + 6)
    for thread in threads:
        thread.join()
    assert len(writes) == 1
    assert file_entries(folder) == rows(db, folder)
