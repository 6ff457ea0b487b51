"""Two who undo the same compression at once: one does it, and the other hears what is true."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from session_core import (
    Compressor,
    Conflict,
    Ledger,
    SessionDB,
    SessionStore,
    StateFolder,
    UndoResult,
)
from session_core.compression.types import UndoPlan
from tests.compression.homes import LAST, Chat, short

SHAPES = ("in_place", "continuation")
ROUNDS = 3


def run_concurrently(chat: Chat, act: Callable[[Compressor], object]) -> list[object]:
    """Let two act at once, each with a home and a ledger of its own; return what each heard."""
    begin = threading.Barrier(2)
    path = chat.db.path

    def one() -> object:
        with (
            SessionDB(path, clock=chat.clock) as db,
            SessionStore(path.parent / "sessions", db=db) as store,
            Ledger(StateFolder(path, root=chat.state), clock=chat.clock) as ledger,
        ):
            compressor = Compressor(db, ledger, store=store, clock=chat.clock)
            begin.wait()
            try:
                return act(compressor)
            except Conflict as error:
                return str(error)

    with ThreadPoolExecutor(2) as pool:
        return [future.result() for future in [pool.submit(one) for _ in range(2)]]


@pytest.mark.requirement("compression:undo-at-once")
@pytest.mark.parametrize("shape", SHAPES)
def test_second_concurrent_undo_reports_undone(chat: Chat, shape: Any) -> None:
    before = chat.whole()
    for _ in range(ROUNDS):
        done = chat.compressor().compress(chat.session_id, short, shape=shape, keep_last=LAST)
        heard = run_concurrently(chat, lambda one, batch=done.batch: one.undo(batch))  # type: ignore[misc]
        (undone,) = [each for each in heard if isinstance(each, UndoResult)]
        assert undone.session_id == done.old_session_id
        assert [each for each in heard if isinstance(each, str)] == [
            f"batch {done.batch} was undone already"
        ]
        assert chat.whole() == before


@pytest.mark.requirement("compression:undo-at-once")
def test_concurrent_undo_plan_returns_same_result(chat: Chat) -> None:
    for _ in range(ROUNDS):
        done = chat.compressor().compress(
            chat.session_id, short, shape="continuation", keep_last=LAST
        )
        chat.say("said since")
        planned = chat.compressor().undo(done.batch)
        assert isinstance(planned, UndoPlan)
        heard = run_concurrently(chat, lambda one, plan=planned.plan: one.apply_undo(plan))  # type: ignore[misc]
        assert heard[0] == heard[1]
        assert isinstance(heard[0], UndoResult)
        assert chat.db.get_session(done.session_id) is None
