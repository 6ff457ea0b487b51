"""Ghosts: sessions without content, removed with the chains that they form."""

from __future__ import annotations

from session_core.activity import ActivitySnapshot, HomeActivity
from session_core.types import Lease
from tests.maintenance.homes import BRANCH, DELEGATE, NOW, Home
from tests.maintenance.test_session_selectors import (
    list_conversation_ids,
    list_selected,
    run_selection,
)


def test_ghost_removal_keeps_children(full: Home) -> None:
    left = {item.id: item.left_behind for item in run_selection(full, "ghosts").items}
    assert left["ghost_parent"] == ("ghost_child",)
    assert left["ghost_boss"] == ()


def test_ghost_with_active_child_stays(home: Home) -> None:
    home.session("ghost", 3, reason="branched", messages=0)
    home.session("child", 2, parent_session_id="ghost", config=BRANCH)
    at_work = ActivitySnapshot(HomeActivity(NOW, leases={"child": Lease("child", 7)}))
    assert list_selected(home, "ghosts", ActivitySnapshot(HomeActivity(NOW))) == {"ghost"}
    selected = run_selection(home, "ghosts", at_work)
    assert (selected.items, dict(selected.protected)) == ((), {"live": 1})


def test_chained_ghosts_are_removed_together(home: Home) -> None:
    home.session("a", 3, reason="compression", messages=0)
    home.session("b", 3, reason="compression", parent_session_id="a", messages=0)
    home.session("c", 3, reason="cli_close", parent_session_id="b")
    assert list_conversation_ids(run_selection(home, "ghosts")) == {"a": ("b", "a")}


def test_distant_delegate_protects_ghost(home: Home) -> None:
    home.session("boss", 3, reason="cli_close", messages=0)
    home.session("worker", 3, reason="compression", parent_session_id="boss", messages=0,
                 config=DELEGATE)  # fmt: skip
    home.session("went_on", 3, reason="cli_close", parent_session_id="worker")
    assert list_conversation_ids(run_selection(home, "ghosts")) == {"worker": ("worker",)}


def test_session_with_model_calls_is_no_ghost(home: Home) -> None:
    home.session("paid", 3, reason="cli_close", messages=0)
    home.db.update_token_counts("paid", input_tokens=900, api_call_count=1)
    home.session("ghost", 3, reason="cli_close", messages=0)
    assert list_selected(home, "ghosts") == {"ghost"}
