"""Two concurrent undos of one compression: one succeeds, and the other reports that."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from session_core import Compressor, Conflict, Ledger, SessionDB, SessionStore, StateFolder
from session_core.compression import UndoResult
from tests.compression.homes import LAST, Chat, summarize_short

SHAPES = ("in_place", "continuation")
ROUNDS = 3


def run_concurrently(chat: Chat, act: Callable[[Compressor], object]) -> list[object]:
    """Run an action twice at once, each with its own home and ledger, and return both results."""
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


@pytest.mark.needs_files
@pytest.mark.requirement("compression:undo-at-once")
@pytest.mark.parametrize("shape", SHAPES)
def test_second_concurrent_undo_reports_undone(chat: Chat, shape: Any) -> None:
    before = chat.whole()
    for _ in range(ROUNDS):
        result = chat.compressor().compress(
            chat.session_id, summarize_short, shape=shape, keep_last=LAST
        )
        outcomes = run_concurrently(
            chat, lambda compressor, batch=result.batch: compressor.undo(batch)
        )  # type: ignore[misc]
        (undone,) = [outcome for outcome in outcomes if isinstance(outcome, UndoResult)]
        assert undone.session_id == result.old_session_id
        assert [outcome for outcome in outcomes if isinstance(outcome, str)] == [
            f"batch {result.batch} was undone already"
        ]
        assert chat.whole() == before


@pytest.mark.needs_files
@pytest.mark.requirement("compression:undo-at-once")
def test_concurrent_undo_plan_returns_same_result(chat: Chat) -> None:
    for _ in range(ROUNDS):
        result = chat.compressor().compress(
            chat.session_id, summarize_short, shape="continuation", keep_last=LAST
        )
        chat.say("said since")
        stored_plan = chat.compressor().undo(result.batch).plan
        assert stored_plan is not None
        outcomes = run_concurrently(
            chat, lambda compressor, plan=stored_plan.plan: compressor.apply_undo(plan)
        )  # type: ignore[misc]
        assert outcomes[0] == outcomes[1]
        assert isinstance(outcomes[0], UndoResult)
        assert chat.db.get_session(result.session_id) is None
