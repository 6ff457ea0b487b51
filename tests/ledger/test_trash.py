"""The trash of a ledger: its pieces, its expiry, its deletion, and its place on other disks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from session_core.errors import Conflict, Corrupt, Denied, InvalidInput, NotFound
from session_core.ledger.codec import pack_trash
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import StateFolder
from session_core.ledger.storage import make_step_id
from session_core.ledger.trash import TRASH_RETENTION_S
from session_core.ledger.types import EmptyResult, TrashItem
from tests.homes import connect
from tests.ledger.conftest import START, Clock
from tests.ledger.trash_samples import ROWS, make_large_trash, prepare_trash, undo_step

on_posix = pytest.mark.skipif(sys.platform == "win32", reason="it has no modes")


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
