"""A delegate without a link is removed and restored with its parent."""

from __future__ import annotations

from tests.maintenance.changed_homes import Changing

MARKED = {"_delegate_from": "boss"}


def fill(changed: Changing) -> None:
    home = changed.home
    home.session("boss", 140, reason="idle")
    home.session("worker", 140, reason="done", config=MARKED)
    home.session("helper", 140, config={"_delegate_from": "worker"})
    home.session("lost", 140, reason="idle", config={"_delegate_from": "__orphaned__"})
    home.session("fresh", 1, config={"_delegate_from": "__orphaned__"})


def test_pruned_parent_includes_unlinked_delegates(changed: Changing) -> None:
    fill(changed)
    before = changed.read_everything()

    planned = changed.plan(ids=("boss",))
    assert [item.id for item in planned.items] == ["boss"]
    result = changed.apply(planned)

    assert changed.sessions() == {"lost", "fresh"}
    changed.restore(result)
    assert changed.read_everything() == before


def test_unlinked_delegates_are_selected_once(changed: Changing) -> None:
    fill(changed)
    changed.plan_and_apply()
    assert changed.sessions() == {"fresh"}


def test_active_delegate_protects_its_parent(changed: Changing) -> None:
    fill(changed)
    changed.home.session("busy", 1, config=MARKED)
    changed.plan_and_apply()
    assert changed.sessions() == {"boss", "worker", "helper", "busy", "fresh"}


def test_removed_delegate_keeps_its_parent(changed: Changing) -> None:
    fill(changed)
    changed.plan_and_apply(ids=("worker",))
    assert changed.sessions() == {"boss", "lost", "fresh"}


def test_orphans_plan_leaves_marks_alone(changed: Changing) -> None:
    fill(changed)
    changed.home.session("of_nobody", 140, config={"_delegate_from": "gone"})
    assert not changed.plan("orphans").items
    codes = {finding.code for finding in changed.maintenance.health().findings}
    assert not codes & {"broken_parents", "cycles"}
