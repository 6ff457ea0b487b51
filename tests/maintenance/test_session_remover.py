"""The removal of sessions: whole conversations, unless they are in use."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from session_core.maintenance.apply.session_remover import SessionRemover
from tests.maintenance.changed_homes import Changing, list_skip_reasons
from tests.maintenance.homes import BRANCH, DAY, DELEGATE, NOW, Home
from tests.maintenance.test_run_outdated import add_lock, append_message, reopen_session


@pytest.mark.requirement("maintenance:apply")
@pytest.mark.parametrize(
    "change", [append_message, reopen_session, add_lock], ids=lambda change: change.__name__
)
def test_session_active_during_step_is_skipped(
    changed: Changing, monkeypatch: pytest.MonkeyPatch, change: Callable[[Home], None]
) -> None:
    for name in ("first", "old"):
        changed.home.session(name, 140, reason="idle")
    planned = changed.plan()
    usual, looked = SessionRemover.draft_step, []

    def look(self: SessionRemover, members):
        piece = usual(self, members)
        if not looked:
            looked.append(change(changed.home))
        return piece

    monkeypatch.setattr(SessionRemover, "draft_step", look)
    result = changed.apply(planned)
    assert (result.removed, list(list_skip_reasons(result))) == (1, ["old"])
    assert changed.sessions() == {"old"}


@pytest.mark.requirement("maintenance:apply")
def test_changed_session_keeps_whole_conversation(
    changed: Changing,
) -> None:
    changed.home.session("root", 140, reason="compression")
    changed.home.session("tip", 140, reason="idle", parent_session_id="root")
    planned = changed.plan()
    changed.home.db.append_message("root", "user", "one more thing")
    result = changed.apply(planned)
    assert list_skip_reasons(result) == {"root": "session root was changed since"}
    assert changed.sessions() == {"root", "tip"}


def test_branch_parent_is_cut_and_restored(changed: Changing) -> None:
    changed.home.session("trunk", 140, reason="branched")
    changed.home.session("branch", 3, parent_session_id="trunk", config=BRANCH)
    result = changed.plan_and_apply()
    assert changed.home.db.get_session("branch")["parent_session_id"] is None
    changed.restore(result)
    assert changed.home.db.get_session("branch")["parent_session_id"] == "trunk"


def test_delegate_is_removed_before_its_parent(changed: Changing) -> None:
    changed.home.session("boss", 140, reason="idle", messages=200)
    changed.home.session("worker", 140, parent_session_id="boss", config=DELEGATE)
    large = "a long story " * 3000
    for _ in range(3):
        changed.home.clock.now = NOW - 140 * DAY
        changed.home.db.append_message("boss", "user", large)
    changed.home.clock.now = NOW
    planned = changed.plan()
    before = changed.read_everything()
    assert changed.apply(planned, 0).outcome == "partial"
    assert changed.sessions() == {"boss"}
    result = changed.apply(planned)
    assert (result.removed, result.skipped, changed.sessions()) == (1, (), set())
    changed.restore(result)
    assert changed.read_everything() == before


def test_id_truncated_by_json_blocks_nothing(changed: Changing) -> None:
    for name in ("a", "a\0b", "a/b", "line\nbreak", "x" * 5_000, "\U0001f680"):
        changed.home.session(name, 140, reason="idle")
    before = changed.read_everything()
    result = changed.plan_and_apply()
    assert (result.removed, result.skipped, changed.sessions()) == (6, (), set())
    changed.restore(result)
    assert changed.read_everything() == before


def test_self_parent_session_is_removed(changed: Changing) -> None:
    for name in ("first", "own", "last"):
        changed.home.session(name, 140, reason="idle")
    changed.home.sql("UPDATE sessions SET parent_session_id = id WHERE id = 'own'")
    before = changed.read_everything()
    result = changed.plan_and_apply()
    assert (result.removed, result.skipped) == (3, ())
    changed.restore(result)
    assert changed.read_everything() == before


def test_nonpositive_message_ids_are_removed_and_restored(changed: Changing) -> None:
    changed.home.session("old", 140, reason="idle", messages=3)
    first = changed.home.db.get_messages("old")[0]["id"]
    changed.home.sql("UPDATE messages SET id = -5 WHERE id = ?", first)
    before = changed.read_everything()["rows"]["messages"]
    result = changed.plan_and_apply()
    assert (result.removed, changed.read_everything()["rows"]["messages"]) == (1, [])
    changed.restore(result)
    assert changed.read_everything()["rows"]["messages"] == before
