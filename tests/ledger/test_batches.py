"""Batches: added, listed, undone once, and found by their sessions."""

from __future__ import annotations

import pytest

from session_core.errors import Conflict, InvalidInput, NotFound
from session_core.ledger.ledger import Ledger
from session_core.ledger.storage import make_step_id
from session_core.ledger.trash import TRASH_RETENTION_S
from tests.ledger.conftest import START, Clock
from tests.ledger.trash_samples import ROWS, make_large_trash, prepare_trash


@pytest.mark.requirement("ledger:trash")
def test_batch_keeps_steps_and_trash_in_order(ledger: Ledger) -> None:
    batch = ledger.add_batch("sessions_edit").id
    first = prepare_trash(ledger, batch, members=["a", "b"])
    second = prepare_trash(ledger, batch, [])
    third = prepare_trash(ledger, batch, make_large_trash())
    assert [step.id for step in ledger.list_steps(batch)] == [first, second, third]
    assert [step.members for step in ledger.list_steps(batch)] == [("a", "b"), (), ()]
    assert ledger.get_step(first).result == {"of": first}
    assert list(ledger.read_trash(first)) == ROWS
    assert list(ledger.read_trash(second)) == []
    assert list(ledger.read_trash(third)) == list(make_large_trash())
    assert ledger.get_batch(batch).count == 4


def test_partly_undone_step_allows_another_undo(ledger: Ledger) -> None:
    batch = ledger.add_batch("sessions_edit").id
    step = prepare_trash(ledger, batch)
    for left in ({"rows": 1}, None):
        assert ledger.get_undoable_batch(batch).undone_at is None
        undo = make_step_id()
        ledger.prepare_step(undo, ledger.add_batch("restore").id, [], undoes=step)
        with pytest.raises(Conflict, match="being undone"):
            ledger.prepare_step(make_step_id(), ledger.add_batch("restore").id, [], undoes=step)
        ledger.finish_step(undo, {"left": left})
        assert ledger.get_last_attempt(step) == {"left": left}
    with pytest.raises(Conflict, match="undone already"):
        ledger.get_undoable_batch(batch)
    with pytest.raises(Conflict, match="was undone"):
        ledger.prepare_step(make_step_id(), ledger.add_batch("restore").id, [], undoes=step)


def test_last_batch_of_session_is_found(ledger: Ledger, clock: Clock) -> None:
    batches = [ledger.add_batch("prune sessions").id for _ in range(2)]
    for batch in batches:
        step = make_step_id()
        ledger.prepare_step(step, batch, ROWS)
        ledger.finish_step(step, {"sessions": ["a", "b"]})
    assert (ledger.find_batch_of_session("b"), ledger.find_batch_of_session("c")) == (
        batches[1],
        None,
    )
    clock.now += TRASH_RETENTION_S + 1
    assert ledger.find_batch_of_session("b") is None


def test_batches_are_paged_newest_first(ledger: Ledger, clock: Clock) -> None:
    state_path = []
    for number in range(5):
        clock.now = START - number
        state_path.append(ledger.add_batch(f"change {number}").id)
        prepare_trash(ledger, state_path[-1])
    clock.now = START
    seen, cursor = [], None
    while True:
        page = ledger.list_batches(2, cursor)
        seen += [batch.id for batch in page.items]
        assert len(page.items) <= 2
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == state_path[::-1]
    assert [batch.id for batch in ledger.list_batches(5).items] == seen
    assert ledger.list_batches(5).next_cursor is None


def test_foreign_cursor_and_bad_limit_are_refused(ledger: Ledger) -> None:
    for _ in range(2):
        prepare_trash(ledger, ledger.add_batch("sessions_edit").id)
    cursor = ledger.list_batches(1).next_cursor
    with pytest.raises(InvalidInput, match="different query"):
        ledger.list_audit_entries(1, cursor)
    for ask in (ledger.list_batches, ledger.list_audit_entries):
        with pytest.raises(InvalidInput, match="cursor"):
            ask(1, "nonsense")
        with pytest.raises(InvalidInput, match="limit"):
            ask(0)


def test_empty_batch_is_not_listed(ledger: Ledger) -> None:
    batch = ledger.add_batch("sessions_edit").id
    ledger.prepare_step(make_step_id(), batch, ROWS)
    assert ledger.list_batches().items == []
    assert ledger.get_batch(batch).count == 0


def test_unknown_batch_or_step_raises(ledger: Ledger) -> None:
    batch = ledger.add_batch("sessions_edit").id
    near = batch[:-1] + ("2" if batch[-1] != "2" else "3")
    with pytest.raises(NotFound) as caught:
        ledger.get_batch(near)
    assert caught.value.nearest == (batch,)
    for ask in (ledger.get_step, ledger.read_trash):
        with pytest.raises(NotFound, match="s-nobody"):
            ask("s-nobody")
    with pytest.raises(NotFound):
        ledger.prepare_step(make_step_id(), near, ROWS)
    assert ledger.list_steps(near) == []


@pytest.mark.requirement("ledger:trash")
def test_second_undo_of_batch_is_refused(ledger: Ledger, clock: Clock) -> None:
    batch = ledger.add_batch("sessions_prune").id
    steps = [prepare_trash(ledger, batch), prepare_trash(ledger, batch)]
    undo = ledger.add_batch("sessions_restore").id
    clock.now += 5
    prepare_trash(ledger, undo, [], undoes=steps[1])
    assert ledger.get_undoable_batch(batch).undone_at is None
    assert [step.undone_at for step in ledger.list_steps(batch)] == [None, clock.now]
    prepare_trash(ledger, undo, [], undoes=steps[0])
    assert ledger.get_batch(batch).undone_at == clock.now
    with pytest.raises(Conflict, match="undone already"):
        ledger.get_undoable_batch(batch)
    with pytest.raises(Conflict, match="undone"):
        prepare_trash(ledger, undo, [], undoes=steps[0])


def test_concurrent_undo_of_step_is_refused(ledger: Ledger) -> None:
    step = prepare_trash(ledger, ledger.add_batch("sessions_prune").id)
    first, second = make_step_id(), make_step_id()
    batch = ledger.add_batch("sessions_restore").id
    ledger.prepare_step(first, batch, [], undoes=step)
    with pytest.raises(Conflict, match="another process"):
        ledger.prepare_step(second, batch, [], undoes=step)
    ledger.abort_step(first)
    ledger.prepare_step(second, batch, [], undoes=step)


def test_partly_undone_batch_refuses_steps(ledger: Ledger) -> None:
    batch = ledger.add_batch("sessions_prune").id
    steps = [prepare_trash(ledger, batch), prepare_trash(ledger, batch)]
    prepare_trash(ledger, ledger.add_batch("sessions_restore").id, [], undoes=steps[1])
    with pytest.raises(Conflict, match="begin a new one"):
        prepare_trash(ledger, batch)


def test_unfinished_step_cannot_be_undone(ledger: Ledger) -> None:
    batch = ledger.add_batch("sessions_prune").id
    step = make_step_id()
    ledger.prepare_step(step, batch, ROWS)
    with pytest.raises(Conflict):
        prepare_trash(ledger, batch, undoes=step)
