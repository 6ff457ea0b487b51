"""Transactions abandoned by a thread that ended, or by a fork, in the child."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from session_core import SessionDB, StorageError
from session_core.state.sqlite.write_queue import get_thread_token

WAIT_S = 20.0
FORKS = """
import os, sys
from session_core import SessionDB, Unsupported
path, how = sys.argv[1:]
db, go, told = SessionDB(path), os.pipe(), None
try:
    with db.transaction():
        db.append_message("s", "user", "undone " * 2000)
        child = os.fork()
        if child:
            raise KeyError
        os.read(go[0], 1)
        if how == "by an error":
            raise KeyError
except KeyError:
    told = "its own error"
except Unsupported:
    told = "unsupported"
if not child:
    os._exit(told != {"by an error": "its own error", "in peace": "unsupported"}[how])
with SessionDB(path) as other:
    for number in range(40):
        other.append_message("s", "user", str(number))
    os.write(go[1], b"x")
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    other.append_message("s", "user", "40")
db.close()
sys.exit(status)
"""


@pytest.fixture
def db(home_path: Path) -> Iterator[SessionDB]:
    with SessionDB(home_path / "state.db", patience_s=10.0) as opened:
        opened.create_session("s", "cli")
        yield opened


def hold_transaction_open(db: SessionDB) -> Iterator[None]:
    with db.transaction():
        db.append_message("s", "user", "half done")
        yield


def run_in_thread(step: Callable[[], None]) -> None:
    thread = threading.Thread(target=step, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive()


def abandon_transaction(db: SessionDB) -> tuple[Iterator[None], int]:
    """Return an open transaction whose thread has ended, and the number of that thread."""
    numbers: list[int] = []
    holding = hold_transaction_open(db)

    def hold() -> None:
        numbers.append(threading.get_ident())
        next(holding)

    run_in_thread(hold)
    return holding, numbers[0]


def read_stored_texts(db: SessionDB) -> list[str]:
    """Return the committed texts."""
    with SessionDB(db.path, read_only=True) as other:
        return [row["content"] for row in other.get_messages("s")]


def test_thread_token_differs_after_number_reuse() -> None:
    marks = []
    for _ in range(20):
        run_in_thread(lambda: marks.append(get_thread_token()))
    assert len({id(mark) for mark in marks}) == len(marks)
    assert get_thread_token() == get_thread_token()
    assert not any(mark == get_thread_token() for mark in marks)


def test_reused_thread_number_joins_no_transaction(
    db: SessionDB,
) -> None:
    holding, number = abandon_transaction(db)
    acknowledged: list[str] = []

    def append() -> None:
        if threading.get_ident() == number and not acknowledged:
            db.append_message("s", "user", "acknowledged")
            acknowledged.append("acknowledged")

    for _ in range(300):
        run_in_thread(append)
    assert read_stored_texts(db) == acknowledged
    del holding


def test_abandoned_transaction_commits_nothing_of_the_next(
    db: SessionDB,
) -> None:
    holding, _ = abandon_transaction(db)
    errors: list[Exception] = []

    def finish() -> None:
        try:
            next(holding)
        except StorageError as error:
            errors.append(error)

    with db.transaction():
        db.append_message("s", "user", "one")
        run_in_thread(finish)
        assert read_stored_texts(db) == []
        db.append_message("s", "user", "two")
    assert len(errors) == 1
    assert read_stored_texts(db) == ["one", "two"]


@pytest.mark.parametrize("how", ["in peace", "by an error"])
def test_forked_child_leaves_parent_transaction_untouched(db: SessionDB, how: str) -> None:
    forks = [sys.executable, "-c", FORKS, str(db.path), how]
    assert subprocess.run(forks, timeout=WAIT_S, check=False).returncode == 0
    assert read_stored_texts(db) == [str(number) for number in range(41)]
    assert db.admin.check_integrity() == []
