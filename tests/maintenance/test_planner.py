"""Each kind of plan selects the expected items, and its restore leaves no trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from session_core import SessionFilter
from session_core.errors import InvalidInput, NotFound
from session_core.ledger.types import Member
from session_core.maintenance.members import get_name, get_part
from session_core.maintenance.types import PlanRequest
from tests.maintenance.changed_homes import Changing
from tests.maintenance.homes import BRANCH, DAY, NOW

KINDS: dict[str, dict[str, Any]] = {
    "sessions": {},
    "ghosts": {},
    "routes": {},
    "orphans": {},
    "all": {},
    "abandoned": {"verb": "finalize"},
    "orphaned": {"verb": "finalize"},
    "expired": {"verb": "finalize"},
}


def list_stated(changing: Changing, what: str) -> set[str]:
    """Return the expected items of a kind. For orphans, of its parts."""
    home = changing.home
    if what == "orphans":
        parts = ("rows", "locks", "links", "files")
        return {name for part in parts for name in home.of(part).chosen}
    if what == "all":
        parts = ("sessions", "ghosts", "routes", "orphans")
        names = {name for part in parts for name in list_stated(changing, part)}
        return names - {"compression_locks/old"} | {"index"}  # the lock goes with its session
    return set(home.of(what).chosen)


@pytest.mark.requirement("maintenance:plans")
@pytest.mark.parametrize("what", KINDS)
def test_stated_items_are_planned_applied_and_restored(restored: Changing, what: str) -> None:
    before = restored.read_everything()
    planned = restored.plan(what, **KINDS[what])
    plan = restored.ledger.get_plan(planned.plan)
    assert set(map(get_stated_name, plan.members)) == list_stated(restored, what)
    result = restored.apply(planned)
    assert (result.outcome, result.skipped, result.remaining) == ("applied", (), 0)
    things = planned.count - (what == "all")  # the index is won back, and nothing is gone
    assert result.removed + result.finalized == things
    assert restored.read_everything() != before
    back = restored.restore(result)
    assert (back.outcome, back.unfit, back.remaining) == ("applied", (), 0)
    assert back.restored == things
    assert restored.read_everything() == before
    assert {item.code for item in restored.home.db.admin.check_integrity(deep=True)} <= LEFT_OVER


def get_stated_name(member: Member) -> str:
    """Return the expected name of a member: a route without its folder."""
    is_route = get_part(member) == "routes"
    return str(member.revision["key"]) if is_route else get_name(member)


LEFT_OVER = {"orphaned_messages", "orphaned_rows", "broken_parents"}
"""What the home was damaged with."""


@pytest.mark.requirement("maintenance:plans")
@pytest.mark.parametrize("what", ["sessions", "ghosts", "routes", "expired"])
def test_preview_counts_protected_by_reason(restored: Changing, what: str) -> None:
    planned = restored.plan(what, **KINDS[what])
    assert planned.protected == dict(restored.home.of(what).protected)


def test_apply_removes_only_planned_items(restored: Changing) -> None:
    before = restored.sessions()
    result = restored.plan_and_apply("sessions")
    together = restored.home.of("sessions").chosen.values()
    assert before - restored.sessions() == {id_ for ids in together for id_ in ids}
    restored.restore(result)


def test_preview_has_all_fields(changed: Changing) -> None:
    changed.home.session("old", 140, reason="idle")
    changed.home.db.set_session_title("old", "The schema")
    planned = changed.plan()
    item = planned.items[0]
    assert (item.id, item.title) == ("old", "The schema")
    assert item.why == "ended 2026-08-28 (idle), last active 140 days ago"
    assert planned.expires_at == NOW + DAY
    assert planned.bytes.needed_now > 0
    assert planned.bytes.free_in_file >= planned.bytes.trash > 0
    assert planned.bytes.returned_to_disk == 0


def test_named_unmatched_sessions_are_reported(changed: Changing) -> None:
    for number in range(7):
        changed.home.session(f"s{number}", 120, reason="cli_close")
    where = SessionFilter(source=("telegram",))
    planned = changed.plan(ids=tuple(f"s{number}" for number in range(7)), where=where)
    assert (planned.outcome, planned.warnings) == (
        "nothing",
        ("7 of the named sessions do not match the filter and stay: s0, s1, s2, s3, s4, ...",),
    )
    assert changed.plan(ids=("s1",), where=SessionFilter(source=("cli",))).warnings == ()


def test_imported_sessions_are_pruned_by_id(changed: Changing, tmp_path: Path) -> None:
    changed.home.session("there", 120, reason="cli_close")
    changed.home.session("a", 120, reason="cli_close")
    changed.home.session("b", 1, reason="cli_close")
    changed.maintenance.export_sessions(tmp_path / "out.jsonl")
    changed.home.db.delete_sessions(["a", "b"])
    result = changed.maintenance.import_sessions(tmp_path / "out.jsonl")
    assert (set(result.ids), result.sessions) == ({"a", "b"}, 2)
    assert [batch.id for batch in changed.maintenance.batches().items] == [result.batch]
    changed.apply(changed.plan(ids=result.ids))
    assert changed.sessions() == {"there"}


def test_preview_lists_at_most_twenty_items(changed: Changing) -> None:
    for number in range(22):
        changed.home.session(f"old_{number}", 140, reason="idle")
    planned = changed.plan()
    assert (planned.count, len(planned.items)) == (22, 20)


def test_empty_selection_creates_no_plan(changed: Changing) -> None:
    planned = changed.plan()
    assert (planned.outcome, planned.plan, planned.count) == ("nothing", None, 0)


@pytest.mark.requirement("maintenance:plans")
def test_planning_changes_nothing(restored: Changing) -> None:
    before = restored.read_everything()
    for what, asked in KINDS.items():
        restored.plan(what, **asked)
    assert restored.read_everything() == before


def test_session_of_two_kinds_is_planned_once(changed: Changing) -> None:
    changed.home.session("old_ghost", 140, reason="idle", messages=0)
    planned = changed.plan("all")
    assert [item.id for item in planned.items] == ["old_ghost"]
    changed.apply(planned)
    assert changed.sessions() == set()


def test_child_of_removed_parent_is_cut_once(
    changed: Changing,
) -> None:
    changed.home.session("ghost", 9, reason="branched", messages=0)
    changed.home.session("child", 8, begun=10, parent_session_id="ghost", config=BRANCH)
    changed.home.sql("UPDATE sessions SET parent_session_id = 'child' WHERE id = 'ghost'")
    assert [item.id for item in changed.plan("orphans").items] == ["child"]
    planned = changed.plan("all")
    assert {item.id for item in planned.items} >= {"ghost"}
    result = changed.apply(planned)
    assert result.skipped == ()
    assert changed.home.db.get_session("child")["parent_session_id"] is None


@pytest.mark.requirement("maintenance:plans")
@pytest.mark.parametrize(
    "wanted",
    [
        PlanRequest("everything"),  # type: ignore[arg-type]
        PlanRequest("sessions", "finalize"),
        PlanRequest("sessions", "finalize", ids=()),
        PlanRequest("ghosts", ids=("a",)),
        PlanRequest("sessions", start_new=True),
        PlanRequest("sessions", older_than_days=-1),
    ],
)
def test_invalid_request_is_refused(changed: Changing, wanted: PlanRequest) -> None:
    with pytest.raises(InvalidInput):
        changed.maintenance.plan(wanted)


def test_plan_lists_requested_number_of_items(changed: Changing) -> None:
    for number in range(25):
        changed.home.session(f"old_{number:02}", 140, reason="idle")
    changed.home.db.set_session_title("old_24", "The last")
    planned = changed.plan("sessions")
    assert (planned.count, len(planned.items)) == (25, 20)
    plan = changed.maintenance.get_plan(str(planned.plan), 100)
    assert plan.items[:20] == planned.items
    assert {item.id for item in plan.items} == {f"old_{number:02}" for number in range(25)}
    titled = [item.id for item in plan.items if item.title == "The last"]
    assert titled == ["old_24"]
    assert len(changed.maintenance.get_plan(str(planned.plan), 3).items) == 3
    with pytest.raises(InvalidInput, match="items must be >= 1"):
        changed.maintenance.get_plan(str(planned.plan), 0)


def test_unknown_session_is_not_planned(changed: Changing) -> None:
    with pytest.raises(NotFound):
        changed.plan(ids=("nobody",))


@pytest.mark.needs_files
def test_trash_and_index_plans_share_interface(changed: Changing) -> None:
    changed.home.large_session("old", 140)
    result = changed.plan_and_apply()
    assert [batch.id for batch in changed.maintenance.batches().items] == [result.batch]
    planned = changed.plan("index")
    assert changed.maintenance.apply(planned.plan).outcome == "applied"
    planned = changed.plan("trash", older_than_days=0)
    assert changed.maintenance.apply(planned.plan).removed == 1
    assert changed.maintenance.batches().items == []
    kinds = [line.what for line in changed.maintenance.log().items]
    assert kinds == ["prune trash", "prune index", "prune sessions"]


@pytest.mark.parametrize(
    "filters",
    [
        *({name: ""} for name in ("project", "title_like", "cwd_prefix", "model_like")),
        {"project": ("/src/app", "")},
    ],
)
def test_empty_filter_is_refused(changed: Changing, filters: dict[str, Any]) -> None:
    changed.home.session("old", 140, reason="idle")
    with pytest.raises(InvalidInput, match="is empty and would match everything"):
        changed.plan(where=SessionFilter(**filters))
    assert changed.plan().count == 1
