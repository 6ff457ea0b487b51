"""A damaged home: everything readable is reported, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from session_core import SessionDB
from session_core.errors import Corrupt
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import StateFolder
from session_core.maintenance.maintenance import Maintenance
from session_core.maintenance.types import ApplyResult, PlanRequest
from tests.maintenance.changed_homes import changing
from tests.maintenance.homes import opened

GARBAGE = b"this is no database, though it is long enough to be one" * 100


@pytest.fixture
def left(home_path: Path, tmp_path: Path) -> tuple[str, str]:
    """A home that was maintained and then damaged, with a plan and a batch."""
    with opened(home_path, "own") as home, changing(home, tmp_path / "kept") as made:
        home.session("old", 140, reason="idle")
        edited = made.maintenance.edit("old", title="Work")
        planned = made.plan()
    whole = (home_path / "state.db").read_bytes()
    (home_path / "whole").write_bytes(whole)
    (home_path / "state.db").write_bytes(GARBAGE)
    return str(planned.plan), str(edited.batch)


@pytest.fixture
def damaged(left: tuple[str, str], home_path: Path, tmp_path: Path) -> Iterator[Maintenance]:
    path = home_path / "state.db"
    with (
        SessionDB(path) as db,
        Ledger(StateFolder(path, root=tmp_path / "kept"), clock=lambda: 1_800_000_000.0) as ledger,
        Maintenance(db, ledger, clock=lambda: 1_800_000_000.0) as maintenance,
    ):
        assert left
        yield maintenance


@pytest.mark.requirement("maintenance:damaged")
def test_damaged_home_report_lists_damage(damaged: Maintenance) -> None:
    report = damaged.health(deep=True)
    assert {finding.code for finding in report.findings} == {"unreadable"}
    assert any("state.db is damaged" in finding.what for finding in report.findings)
    assert report.trash > 0


@pytest.mark.requirement("maintenance:damaged")
def test_damaged_home_plans_and_batches_are_readable(
    damaged: Maintenance, left: tuple[str, str]
) -> None:
    plan, batch = left
    assert [item.id for item in damaged.get_plan(plan).items] == ["old"]
    assert [batch.id for batch in damaged.batches().items] == [batch]
    assert [entry.what for entry in damaged.log().items] == ["edit"]


CHANGES: dict[str, Callable[[Maintenance, tuple[str, str]], object]] = {
    "plan": lambda maintenance, _: maintenance.plan(PlanRequest("sessions")),
    "apply": lambda maintenance, left: maintenance.apply(left[0]),
    "restore": lambda maintenance, left: maintenance.restore(left[1]),
    "edit": lambda maintenance, _: maintenance.edit("old", title="Another"),
    "export": lambda maintenance, _: maintenance.export_sessions(lambda _: None),
}


@pytest.mark.requirement("maintenance:damaged")
@pytest.mark.parametrize("name", CHANGES)
def test_damaged_home_refuses_changes(
    damaged: Maintenance, left: tuple[str, str], home_path: Path, name: str
) -> None:
    with pytest.raises(Corrupt, match="damaged"):
        CHANGES[name](damaged, left)
    assert (home_path / "state.db").read_bytes() == GARBAGE


def test_repaired_home_accepts_changes(
    damaged: Maintenance, left: tuple[str, str], home_path: Path
) -> None:
    with pytest.raises(Corrupt):
        damaged.apply(left[0])
    (home_path / "state.db").write_bytes((home_path / "whole").read_bytes())
    assert damaged.health().sessions.total == 1
    result = damaged.apply(left[0])
    assert isinstance(result, ApplyResult)
    assert result.removed == 1
    damaged.restore(str(result.batch))
    assert damaged.health().sessions.total == 1
