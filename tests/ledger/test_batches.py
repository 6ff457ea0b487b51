"""Batches and their trash: listed, read by pieces, kept until they expire, and emptied."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from session_core.errors import Conflict, Corrupt, Denied, InvalidInput, NotFound
from session_core.ledger.batches import TRASH_RETENTION_S, make_step_id
from session_core.ledger.codec import pack_trash
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import StateFolder
from session_core.ledger.types import EmptyResult, TrashItem
from tests.homes import connect
from tests.ledger.conftest import START, Clock

on_posix = pytest.mark.skipif(sys.platform == "win32", reason="it has no modes")

ROWS = [
    TrashItem("messages", {"id": n, "content": f"said {n}", "blob": b"\0\xff"}) for n in range(3)
]


def prepare_trash(
    ledger: Ledger, batch: str, kept: Iterable[TrashItem] = ROWS, **more: object
) -> str:
    """Run a step of a batch without a home."""
    step = make_step_id()
    ledger.prepare_step(step, batch, kept, **more)  # type: ignore[arg-type]
    ledger.finish_step(step, {"of": step})
    return step


def make_large_trash(seed: int = 1, count: int = 40) -> Iterable[TrashItem]:
    """Return some megabytes of trash that cannot be compressed."""
    chance = random.Random(seed)
    return (
        TrashItem("file", {"number": n, "bytes": chance.randbytes(100_000)}) for n in range(count)
    )


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


def test_trash_is_read_in_pieces(ledger: Ledger) -> None:
    batch = ledger.add_batch("sessions_edit").id
    step = prepare_trash(ledger, batch, make_large_trash(), members=["a"])
    assert ledger.get_step(step).chunks > 2
    status = ledger.read_trash(step)
    assert next(status).value["number"] == 0
    ledger.add_batch("written meanwhile")
    assert next(status).value["number"] == 1


def test_trash_bytes_are_counted(ledger: Ledger) -> None:
    batch = ledger.add_batch("sessions_edit").id
    prepare_trash(ledger, batch, make_large_trash())
    prepare_trash(ledger, ledger.add_batch("sessions_edit").id)
    assert 4_000_000 < ledger.get_batch(batch).bytes < 6_000_000
    assert ledger.get_batch(batch).bytes < ledger.count_trash_bytes() < 6_000_000


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


@pytest.mark.requirement("ledger:trash")
def test_trash_expires_after_thirty_days(ledger: Ledger, clock: Clock) -> None:
    batch = ledger.add_batch("sessions_prune").id
    step = prepare_trash(ledger, batch)
    clock.now = START + TRASH_RETENTION_S - 1
    assert ledger.empty_trash() == EmptyResult(0, 0)
    assert ledger.get_undoable_batch(batch).expires_at == START + TRASH_RETENTION_S
    clock.now = START + TRASH_RETENTION_S
    assert ledger.list_batches().items == []
    with pytest.raises(Conflict, match="gone"):
        ledger.get_undoable_batch(batch)
    assert list(ledger.read_trash(step)) == ROWS
    emptied = ledger.empty_trash()
    assert (emptied.batches, emptied.bytes > 0) == (1, True)
    with pytest.raises(Conflict, match="gone"):
        ledger.read_trash(step)
    assert ledger.get_batch(batch).emptied_at == clock.now
    assert ledger.empty_trash() == EmptyResult(0, 0)


@pytest.mark.requirement("ledger:trash")
def test_trash_of_given_age_is_emptied(ledger: Ledger, clock: Clock) -> None:
    old = ledger.add_batch("old").id
    prepare_trash(ledger, old)
    clock.now += 100
    new = ledger.add_batch("new").id
    prepare_trash(ledger, new)
    assert ledger.empty_trash(100).batches == 1
    assert [batch.id for batch in ledger.list_batches().items] == [new]
    assert ledger.empty_trash(0).batches == 1
    assert ledger.count_trash_bytes() == 0
    for age in (-1, float("nan"), float("inf")):
        with pytest.raises(InvalidInput, match="older_than_s"):
            ledger.empty_trash(age)


def test_running_batch_is_not_emptied(ledger: Ledger) -> None:
    batch = ledger.add_batch("sessions_prune").id
    prepare_trash(ledger, batch)
    step = make_step_id()
    ledger.prepare_step(step, batch, ROWS)
    assert ledger.empty_trash(0) == EmptyResult(0, 0)
    ledger.abort_step(step)
    assert ledger.empty_trash(0).batches == 1
    with pytest.raises(Conflict, match="emptied"):
        prepare_trash(ledger, batch)


@pytest.mark.needs_files
def test_emptied_trash_frees_disk_space(ledger: Ledger, folder: StateFolder) -> None:
    prepare_trash(ledger, ledger.add_batch("sessions_prune").id, make_large_trash(count=80))
    state_path = folder.find()
    assert state_path is not None
    assert sum(file.stat().st_size for file in state_path.iterdir()) > 8_000_000
    ledger.empty_trash(0)
    assert sum(file.stat().st_size for file in state_path.iterdir()) < 400_000


def undo_step(ledger: Ledger, step: str) -> None:
    """Record a step as undone, as `run_step` does."""
    back = make_step_id()
    ledger.prepare_step(back, ledger.add_batch("restore").id, [], undoes=step)
    ledger.finish_step(back, {})


@pytest.mark.needs_files
def test_restored_batch_frees_disk_space(ledger: Ledger, folder: StateFolder) -> None:
    restored, other = (ledger.add_batch("sessions_prune").id for _ in range(2))
    step = prepare_trash(ledger, restored, make_large_trash(count=80))
    kept = prepare_trash(ledger, other)
    state_path = folder.find()
    assert state_path is not None
    undo_step(ledger, step)
    assert ledger.delete_content() > 4_000_000
    assert sum(file.stat().st_size for file in state_path.iterdir()) < 400_000
    batch = ledger.get_batch(restored)
    assert (batch.bytes, batch.undone_at is not None, batch.emptied_at) == (0, True, None)
    assert restored in [row.id for row in ledger.list_batches().items]
    with pytest.raises(Conflict, match="undone already"):
        ledger.read_trash(step)
    assert list(ledger.read_trash(kept)) == ROWS
    assert ledger.get_undoable_batch(other).id == other


def test_partly_undone_batch_keeps_trash(ledger: Ledger) -> None:
    batch = ledger.add_batch("sessions_prune").id
    steps = [prepare_trash(ledger, batch), prepare_trash(ledger, batch)]
    undo_step(ledger, steps[0])
    assert ledger.delete_content() == 0
    assert [list(ledger.read_trash(step)) for step in steps] == [ROWS, ROWS]
    undo_step(ledger, steps[1])
    assert ledger.delete_content() > 0


@pytest.mark.needs_files
def test_restored_trash_elsewhere_is_deleted(
    open_ledger: Callable[..., Ledger], disk: Path
) -> None:
    ledger = open_ledger(trash_dir=disk)
    step = prepare_trash(ledger, ledger.add_batch("sessions_prune").id, make_large_trash())
    before = ledger.count_disk_bytes()
    undo_step(ledger, step)
    ledger.delete_content()
    assert before - ledger.count_disk_bytes() > 3_000_000
    assert sum(file.stat().st_size for file in disk.iterdir()) < 400_000


def test_reading_deleted_trash_raises_conflict(
    open_ledger: Callable[..., Ledger],
) -> None:
    ledger, other = open_ledger(), open_ledger()
    step = prepare_trash(ledger, ledger.add_batch("sessions_prune").id, make_large_trash())
    reading = other.read_trash(step)
    next(reading)
    undo_step(ledger, step)
    ledger.delete_content()
    with pytest.raises(Conflict, match="undone already"):
        list(reading)


def test_empty_deletes_only_named_batches(ledger: Ledger) -> None:
    first, second, third = (ledger.add_batch("sessions_prune").id for _ in range(3))
    for batch in (first, second, third):
        prepare_trash(ledger, batch)
    assert [row.id for row in ledger.list_expired_batches(batches=[third, first])] == [
        first,
        third,
    ]
    assert ledger.empty_trash(batches=[first, third]).batches == 2
    assert ledger.get_undoable_batch(second).bytes > 0


@pytest.mark.needs_files
def test_large_write_leaves_short_log(ledger: Ledger, folder: StateFolder) -> None:
    prepare_trash(ledger, ledger.add_batch("sessions_prune").id, make_large_trash(count=160))
    state_path = folder.find()
    assert state_path is not None
    assert (state_path / "ledger.db-wal").stat().st_size < 8_000_000


@pytest.mark.needs_files
def test_incomplete_trash_is_reported(ledger: Ledger, folder: StateFolder) -> None:
    step = prepare_trash(ledger, ledger.add_batch("sessions_prune").id, make_large_trash())
    state_path = folder.find()
    assert state_path is not None
    with connect(state_path / "ledger.db") as connection:
        connection.execute("DELETE FROM trash WHERE position = 2")
    with pytest.raises(Corrupt, match=step):
        list(ledger.read_trash(step))


# -- trash on another disk ---------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A folder in place of another disk."""
    path = tmp_path / "disk"
    path.mkdir()
    return path


@pytest.mark.needs_files
@pytest.mark.requirement("ledger:trash")
def test_trash_on_other_disk_is_found(
    open_ledger: Callable[..., Ledger], disk: Path, folder: StateFolder
) -> None:
    aside = open_ledger(trash_dir=disk)
    batch = aside.add_batch("sessions_prune").id
    steps = [prepare_trash(aside, batch, make_large_trash()), prepare_trash(aside, batch)]
    here = folder.find()
    assert here is not None
    assert sum(file.stat().st_size for file in here.iterdir()) < 400_000
    assert sum(file.stat().st_size for file in disk.iterdir()) > 4_000_000
    assert {file.stat().st_mode & 0o777 for file in disk.iterdir()} == {0o600}
    ledger = open_ledger()
    assert list(ledger.read_trash(steps[0])) == list(make_large_trash())
    assert list(ledger.read_trash(steps[1])) == ROWS
    assert 4_000_000 < ledger.empty_trash(0).bytes < 6_000_000
    assert sum(file.stat().st_size for file in disk.iterdir()) < 400_000


@pytest.mark.needs_files
def test_unmounted_disk_refuses_step(open_ledger: Callable[..., Ledger], disk: Path) -> None:
    ledger = open_ledger(trash_dir=disk / "not there")
    batch = ledger.add_batch("sessions_prune").id
    with pytest.raises(NotFound, match="mount its disk"):
        prepare_trash(ledger, batch)
    assert ledger.list_batches().items == []
    assert not (disk / "not there").exists()


@pytest.mark.needs_files
def test_temporarily_missing_disk_loses_no_trash(
    open_ledger: Callable[..., Ledger], disk: Path
) -> None:
    ledger = open_ledger(trash_dir=disk)
    step = prepare_trash(ledger, ledger.add_batch("sessions_prune").id)
    away = disk.rename(disk.with_name("away"))
    again = open_ledger()
    with pytest.raises(NotFound, match="mount its disk"):
        list(again.read_trash(step))
    assert again.empty_trash(0) == EmptyResult(1, 0)
    away.rename(disk)
    assert again.empty_trash().bytes > 0
    assert again.count_trash_bytes() == 0


@pytest.mark.needs_files
@pytest.mark.parametrize("kept", [ROWS, list(make_large_trash())], ids=["one piece", "several"])
def test_modified_trash_is_refused(
    open_ledger: Callable[..., Ledger], disk: Path, kept: list[TrashItem]
) -> None:
    ledger = open_ledger(trash_dir=disk)
    step = prepare_trash(ledger, ledger.add_batch("sessions_prune").id, kept)
    (file,) = disk.glob("*.db")
    with connect(file) as connection:
        for position, data in enumerate(
            pack_trash([TrashItem("messages", {"content": "planted"})])
        ):
            sql = "UPDATE trash SET data = ? WHERE step = ? AND position = ?"
            connection.execute(sql, (data, step, position))
    with pytest.raises(Corrupt, match="modified"):
        next(ledger.read_trash(step))


@on_posix
@pytest.mark.needs_files
@pytest.mark.parametrize("loose", [0o666, 0o620, 0o602])
def test_writable_file_is_refused_for_trash(
    open_ledger: Callable[..., Ledger], disk: Path, folder: StateFolder, loose: int
) -> None:
    ledger = open_ledger(trash_dir=disk)
    batch = ledger.add_batch("sessions_prune").id
    file = disk / f"{folder.trash_name}.db"
    file.touch()
    file.chmod(loose)
    with pytest.raises(Denied, match="writable by other users"):
        prepare_trash(ledger, batch)
    file.chmod(0o644)
    prepare_trash(ledger, batch)
    assert file.stat().st_mode & 0o777 == 0o600


@on_posix
@pytest.mark.needs_files
def test_foreign_file_is_refused_for_trash(
    open_ledger: Callable[..., Ledger],
    disk: Path,
    folder: StateFolder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = open_ledger(trash_dir=disk)
    batch = ledger.add_batch("sessions_prune").id
    (disk / f"{folder.trash_name}.db").touch(0o600)
    disk.chmod(0o777)
    stat = Path.stat

    def of_a_stranger(self: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        status = stat(self, follow_symlinks=follow_symlinks)
        values = list(status)
        values[4] = 4242
        return os.stat_result(values) if self.parent == disk else status

    monkeypatch.setattr(Path, "stat", of_a_stranger)
    with pytest.raises(Denied, match="another user"):
        prepare_trash(ledger, batch)


@pytest.mark.needs_files
def test_trash_in_home_is_refused(open_ledger: Callable[..., Ledger], folder: StateFolder) -> None:
    inside = folder.db_path.parent / "trash"
    inside.mkdir()
    ledger = open_ledger(trash_dir=inside)
    with pytest.raises(Denied, match="choose a trash folder elsewhere"):
        prepare_trash(ledger, ledger.add_batch("sessions_prune").id)
    assert list(inside.iterdir()) == []
