"""An interrupt anywhere in the engine ends only the call that it hits.

Python runs a signal handler when a function begins and when a call returns, so the test raises the
interrupt there.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from session_core import SessionDB
from session_core.state import sqlite
from tests.interrupts import make_interrupting_profiler, run_beside_thread

pytestmark = pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")
"""An interrupt right after a connection's opening leaves it to be collected."""

ENGINE = str(Path(sqlite.__file__).parent)


def append_in_transaction(db: SessionDB) -> None:
    with db.transaction():
        db.append_message("s", "user", "a")
        with db.transaction():
            db.append_message("s", "user", "b")


CALLS: dict[str, Callable[[SessionDB], object]] = {
    "a change": lambda db: db.append_messages(
        "s", [{"role": "user", "content": text} for text in "ab"]
    ),
    "a transaction": append_in_transaction,
    "a look": lambda db: db.get_session("s"),
}


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Collect garbage here, so that it does not affect another test."""
    yield
    gc.collect()


@pytest.fixture
def db(home_path: Path) -> Iterator[SessionDB]:
    with SessionDB(home_path / "state.db", patience_s=1.0) as opened:
        opened.create_session("s", "cli")
        yield opened


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_interrupt_anywhere_leaves_working_database(
    db: SessionDB, call: Callable[[SessionDB], object]
) -> None:
    place = 0
    while run_interrupted(db, call, place):
        place += 1
        stored = [row["content"] for row in db.get_messages("s")]
        assert stored.count("a") == stored.count("b")
        assert (db.get_session("s") or {})["message_count"] == len(stored)
        run_beside_thread(lambda: db.append_message("s", "user", "thread"))
        db.append_message("s", "user", "after")
        assert len(db.get_messages("s")) == len(stored) + 2
        db.clear_messages("s")
    assert place > 30


def test_interrupted_transaction_blocks_no_other_connection(db: SessionDB) -> None:
    with SessionDB(db.path, patience_s=0.0) as other:
        place = 0
        while run_interrupted(db, append_in_transaction, place):
            place += 1
            other.append_message("s", "user", "other")


def test_interrupted_close_can_be_repeated(home_path: Path) -> None:
    place, is_interrupted = 0, True
    while is_interrupted:
        db = SessionDB(home_path / "state.db")
        db.append_message("s", "user", "a", create={"source": "cli"})
        db.get_session("s")
        is_interrupted = run_interrupted(db, lambda db: db.close(), place)
        place += 1
        db.close()
        opened = db._store.pool
        assert (opened.writer, opened.guard, list(opened.readers)) == (None, None, [])
    assert place > 30


def run_interrupted(db: SessionDB, call: Callable[[SessionDB], object], place: int) -> bool:
    """Make a call and interrupt it at the nth place, and return whether it has so many."""
    try:
        with raise_interrupt_at(place):
            call(db)
    except KeyboardInterrupt:
        return True
    return False


@contextmanager
def raise_interrupt_at(at: int) -> Iterator[None]:
    """Raise KeyboardInterrupt once, at the nth place in the engine."""
    before = sys.getprofile()
    sys.setprofile(make_interrupting_profiler(at, (ENGINE,)))
    try:
        yield
    finally:
        sys.setprofile(before)
