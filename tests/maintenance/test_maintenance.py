"""The public methods of `Maintenance`, on which the server is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from session_core import Compressor, SessionFilter
from session_core.errors import Conflict, InvalidInput
from session_core.ledger import undo_log
from session_core.maintenance.maintenance import AsyncMaintenance
from session_core.maintenance.types import ApplyResult, PlanPreview, PlanRequest
from tests.maintenance.changed_homes import Changing


class _Killed(BaseException):
    """The process ends here."""


def fill(changed: Changing) -> None:
    """Add an item for each kind of plan."""
    for number in range(3):
        changed.home.session(f"old_{number}", 140, reason="idle")
        changed.home.db.set_session_title(f"old_{number}", f"Trip {number}")
    changed.home.session("open", 140)
    changed.home.session("ghost", 140, messages=0)
    changed.home.session("new", 1, reason="idle")
    changed.home.route("1", "nobody", 40)


ASKED = {
    "prune sessions": PlanRequest("sessions"),
    "prune routes": PlanRequest("routes"),
    "prune all": PlanRequest("all"),
    "prune index": PlanRequest("index"),
    "prune trash": PlanRequest("trash", older_than_days=0),
    "finalize abandoned": PlanRequest("abandoned", "finalize"),
}


@pytest.mark.needs_files
@pytest.mark.requirement("maintenance:face")
@pytest.mark.parametrize("kind", ASKED)
def test_plan_is_read_by_handle(changed: Changing, kind: str) -> None:
    fill(changed)
    if kind == "prune trash":
        changed.maintenance.edit("new", title="Work")
    if kind == "prune index":
        changed.home.large_session("large", 140)
        changed.plan_and_apply()
    planned = changed.maintenance.plan(ASKED[kind])
    assert planned.items
    assert changed.maintenance.get_plan(make_plan_handle(planned)) == planned
    result = changed.maintenance.apply(make_plan_handle(planned))
    assert isinstance(result, ApplyResult)
    assert (result.outcome, result.plan) == ("applied", planned.plan)
    assert changed.maintenance.get_plan(make_plan_handle(planned)) == planned


def make_plan_handle(planned: PlanPreview) -> str:
    assert planned.plan is not None
    return planned.plan


def test_closed_plan_is_not_applied(changed: Changing) -> None:
    fill(changed)
    planned = changed.plan()
    changed.maintenance.close_plan(make_plan_handle(planned))
    with pytest.raises(Conflict, match="closed"):
        changed.apply(planned)
    assert "old_0" in changed.sessions()


# -- all of it, and the room that it took ------------------------------------------------------


@pytest.mark.needs_files
@pytest.mark.requirement("maintenance:face")
def test_prune_all_reclaims_space(changed: Changing) -> None:
    changed.home.large_session("large", 140)
    fill(changed)
    before = changed.read_everything()
    size = changed.home.db.admin.measure_sizes().db
    result = changed.plan_and_apply("all")
    assert (result.outcome, result.skipped, result.remaining) == ("applied", (), 0)
    assert changed.home.db.admin.measure_sizes().free == 0
    assert changed.home.db.admin.measure_sizes().db < size / 2
    assert result.bytes.returned_to_disk > 100_000
    assert (result.bytes.free_in_file, result.shrinks) == (0, False)
    assert changed.restore(result).restored == result.removed
    assert changed.read_everything() == before


@pytest.mark.needs_files
def test_prune_all_resumes_at_vacuum(changed: Changing) -> None:
    changed.home.large_session("large", 140)
    planned = changed.plan("all")
    part = changed.apply(planned, stop=lambda: not changed.sessions())
    assert (part.outcome, part.removed, part.remaining) == ("partial", 1, 1)
    assert part.bytes.returned_to_disk == 0
    result = changed.apply(planned)
    assert (result.outcome, result.remaining) == ("applied", 0)
    assert result.bytes.returned_to_disk > 100_000
    assert changed.apply(planned) == result


def test_prune_all_of_empty_home_plans_nothing(changed: Changing) -> None:
    changed.home.session("new", 1)
    assert changed.plan("index").outcome == "nothing"
    assert changed.plan("all").outcome == "nothing"


# -- taking back -------------------------------------------------------------------------------


@pytest.mark.requirement("maintenance:face")
def test_partial_restore_is_no_listed_batch(changed: Changing) -> None:
    fill(changed)
    result = changed.plan_and_apply()
    changed.restore(result)
    (batch,) = changed.maintenance.batches().items
    assert (batch.id, batch.undone_at is not None) == (result.batch, True)
    assert [entry.what for entry in changed.maintenance.log().items] == [
        f"restore {result.batch}",
        "prune sessions",
    ]


@pytest.mark.requirement("maintenance:face")
def test_hooks_are_called_by_next_process(
    changed: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed.home.session("s", 10, messages=30)
    changed.home.session("other", 10, messages=30)
    with Compressor(changed.home.db, changed.ledger, store=changed.home.store) as compressor:
        batch = compressor.compress("other", keep_last=2).batch
        planned = changed.plan("sessions", "finalize", ids=("s",))

        def die(*_: object, **__: object) -> None:
            raise _Killed

        with monkeypatch.context() as patch:
            patch.setattr("session_core.maintenance.apply.session_finalizer.call_end_hooks", die)
            patch.setattr(undo_log.UndoLog, "finish_step", die)
            with pytest.raises(_Killed):
                changed.apply(planned)
        changed.ledger._file.write(lambda rows: rows.execute_update("UPDATE steps SET pid = 0"))
        compressor.undo(batch)
    assert changed.told.calls == []
    assert changed.apply(planned).finalized == 1
    assert changed.told.calls == [("finalize", "s", "finalized")]


# -- edits, exports and imports ----------------------------------------------------------------


def test_edit_applies_and_is_undone(changed: Changing) -> None:
    fill(changed)
    before = changed.read_everything()
    edited = changed.maintenance.edit("new", title="Work", archived=True)
    assert (edited.sessions[0].title, edited.sessions[0].status) == ("Work", "archived")
    changed.maintenance.restore(str(edited.batch))
    assert changed.read_everything() == before


@pytest.mark.requirement("maintenance:face")
def test_pins_protect_without_column(restored: Changing) -> None:
    sessions = restored.plan().items
    pinned = sessions[0].id
    edited = restored.maintenance.edit(pinned, pinned=True)
    stated = restored.home.of("sessions").protected["pinned"]
    assert restored.plan().protected["pinned"] == stated + 1
    listed = restored.home.db.list_sessions(SessionFilter(status="all"), limit=100).items
    shown = restored.ledger.pins.apply_pins(listed)
    assert [item.pinned for item in shown if item.root_id == pinned] == [True]
    restored.maintenance.restore(str(edited.batch))


def test_export_is_imported(changed: Changing, tmp_path: Path) -> None:
    fill(changed)
    before = changed.read_everything()
    file, reports = tmp_path / "out.jsonl", list[tuple[int, int]]()
    out = changed.maintenance.export_sessions(
        file, ["old_0"], progress=lambda *done: reports.append(done)
    )
    assert (out.sessions, reports) == (1, [(0, 1)])
    changed.home.db.delete_sessions(["old_0"])
    assert changed.maintenance.import_sessions(file).sessions == 1
    assert changed.read_everything() == before


def test_export_streams_to_function(changed: Changing) -> None:
    fill(changed)
    parts: list[bytes] = []
    out = changed.maintenance.export_sessions(parts.append, ["old_0"], form="markdown")
    text = b"".join(parts)
    assert text.startswith(b"# Trip 0\n")
    assert out.bytes == len(text)


@pytest.mark.anyio
async def test_async_edit_export_import(changed: Changing, tmp_path: Path) -> None:
    fill(changed)
    maintenance = AsyncMaintenance(changed.maintenance)
    file: Any = tmp_path / "out.jsonl"
    edited = await maintenance.edit("new", title="Work")
    assert (await maintenance.batches()).items[0].id == edited.batch
    assert (await maintenance.export_sessions(file)).sessions == 6
    assert len((await maintenance.import_sessions(file)).skipped) == 6
    planned = await maintenance.plan(PlanRequest("sessions"))
    assert (await maintenance.get_plan(str(planned.plan))) == planned
    await maintenance.close_plan(str(planned.plan))
    assert [item.what for item in (await maintenance.log()).items] == ["import", "export", "edit"]


@pytest.mark.anyio
async def test_async_progress_and_stop(changed: Changing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("session_core.maintenance.apply.run._PROGRESS_INTERVAL_S", -1.0)
    for number in range(3):
        changed.home.session(f"old_{number}", 140, messages=0)
        text = "x" * 80_000
        changed.home.db.append_message(f"old_{number}", "user", text, timestamp=1_700_000_000.0)
        changed.home.db.end_session(f"old_{number}", "idle")
    maintenance = AsyncMaintenance(changed.maintenance)
    plan = str((await maintenance.plan(PlanRequest("sessions"))).plan)
    reports: list[tuple[int, int]] = []

    def tell(so_far: ApplyResult) -> None:
        reports.append((so_far.done, so_far.remaining))

    part = await maintenance.apply(plan, progress=tell, stop=lambda: len(changed.sessions()) < 3)
    assert (part.outcome, part.removed + part.remaining) == ("partial", 3)
    result = await maintenance.apply(plan, progress=tell)
    assert (result.outcome, result.removed, changed.sessions()) == ("applied", 3, set())
    assert reports == sorted(reports, key=lambda item: item[0])
    assert all(sum(item) == 3 for item in reports)
    restored = await maintenance.restore(str(result.batch), stop=lambda: True)
    assert restored.outcome == "partial"


def test_compression_plan_is_refused(changed: Changing) -> None:
    for _ in range(20):
        changed.home.db.append_message("long", "user", "well " * 300, create={"source": "cli"})
        changed.home.db.append_message("long", "assistant", "noted")
    with Compressor(changed.home.db, changed.ledger, clock=changed.home.clock) as compressor:
        plan = compressor.plan("long", keep_last=4).plan
        with pytest.raises(InvalidInput, match="compress"):
            changed.maintenance.apply(plan)
        assert compressor.apply(plan).session_id == "long"


def test_export_and_import_accept_text_paths(changed: Changing, tmp_path: Path) -> None:
    fill(changed)
    file = str(tmp_path / "sessions.jsonl")
    exported = changed.maintenance.export_sessions(file, ["new"])
    assert exported.sessions == 1
    assert (
        changed.maintenance.preview_import(file).skipped
        == changed.maintenance.import_sessions(file).skipped
    )
