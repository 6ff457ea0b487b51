"""Each kind of plan selects the expected sessions and protects other sessions for a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from session_core import SessionFilter
from session_core.activity import ActivitySnapshot, HomeActivity
from session_core.errors import InvalidInput, NotFound
from session_core.maintenance.select import ghosts, session_selectors
from session_core.maintenance.types import (
    PROTECTION_REASONS,
    PlanRequest,
    SelectedSessions,
    Selection,
)
from session_core.types import Holder
from tests.maintenance.homes import DAY, DELEGATE, NOW, Home

CHOOSERS: dict[str, tuple[PlanRequest, Callable[..., Selection[SelectedSessions]]]] = {
    "sessions": (PlanRequest("sessions"), session_selectors.select_old_sessions),
    "ghosts": (PlanRequest("ghosts"), ghosts.select_ghosts),
    "abandoned": (PlanRequest("abandoned", "finalize"), session_selectors.select_abandoned),
    "orphaned": (
        PlanRequest("orphaned", "finalize"),
        session_selectors.select_orphaned_continuations,
    ),
    "expired": (PlanRequest("expired", "finalize"), session_selectors.select_expired),
}

HELD = HomeActivity(NOW, holders=(Holder(7, "hermes"),))


def list_conversation_ids(selected: Selection[SelectedSessions]) -> dict[str, tuple[str, ...]]:
    return {item.id: tuple(session.id for session in item.sessions) for item in selected.items}


def run_selection(
    home: Home, kind: str, alive: ActivitySnapshot | None = None, **asked: Any
) -> Selection[SelectedSessions]:
    request, chooser = CHOOSERS[kind]
    return chooser(home.take_snapshot(alive), replace(request, **asked))


def list_selected(
    home: Home, kind: str, alive: ActivitySnapshot | None = None, **asked: Any
) -> set[str]:
    return set(list_conversation_ids(run_selection(home, kind, alive, **asked)))


@pytest.mark.requirement("maintenance:selection")
@pytest.mark.parametrize("kind", CHOOSERS)
def test_kind_selects_stated_and_protects_rest(full: Home, kind: str) -> None:
    selected = run_selection(full, kind)
    assert list_conversation_ids(selected) == full.of(kind).chosen
    assert dict(selected.protected) == dict(full.of(kind).protected)
    assert set(selected.protected) <= set(PROTECTION_REASONS)


# -- reasons -------------------------------------------------------------------------------


@pytest.mark.requirement("maintenance:selection")
def test_selected_sessions_give_reason(home: Home) -> None:
    home.session("s", 140, reason="idle")
    home.session("ghost", 3, messages=0)
    home.session("left", 1000)
    home.session("a", 20, reason="compression")
    home.session("b", 20, parent_session_id="a")
    home.session("chat", 2, source="slack")
    home.route("1", "chat", 2, platform="slack")
    assert {item.why for kind in CHOOSERS for item in run_selection(home, kind).items} == {
        "ended 2026-08-28 (idle), last active 140 days ago",
        "empty, never ended, begun 3 days ago",
        "never ended, last active 1,000 days ago",
        "continues a and never ran, last active 20 days ago",
        "its chat was used last 2 days ago, and its policy ends it (idle)",
    }


def test_finalized_sessions_have_end_reason(full: Home) -> None:
    reasons = {
        kind: {item.reason for item in run_selection(full, kind).items}
        for kind in ("abandoned", "orphaned", "expired")
    }
    assert reasons == {
        "abandoned": {"abandoned"},
        "orphaned": {"orphaned_compression"},
        "expired": {"idle"},
    }
    assert {item.reason for item in run_selection(full, "abandoned", reason="done").items} == {
        "done"
    }


def test_branch_stays_without_parent(full: Home) -> None:
    left = {item.id: item.left_behind for item in run_selection(full, "sessions").items}
    assert left["trunk"] == ("branch",)
    assert left["chain_1"] == ()


def test_shared_session_expires_for_both_chats(home: Home) -> None:
    home.session("shared", 0.5, source="slack")
    home.route("1", "shared", 0.5, platform="slack")
    second = home.route("2", "shared", 0.01, platform="slack")
    assert list_selected(home, "expired") == set()
    home.store.remove({second: home.store.load_entries()[second]})
    home.route("2", "shared", 0.4, platform="slack")
    assert list_selected(home, "expired") == {"shared"}


# -- other processes -----------------------------------------------------------------------


@pytest.mark.requirement("maintenance:beside")
def test_holder_protects_open_sessions(home: Home) -> None:
    home.session("boss", 120, reason="cli_close")
    home.session("worker", 120, parent_session_id="boss", config=DELEGATE)
    home.session("ghost", 30, messages=0)
    assert list_selected(home, "sessions", ActivitySnapshot(HomeActivity(NOW))) == {"boss"}
    for kind in ("sessions", "ghosts"):
        selected = run_selection(home, kind, ActivitySnapshot(HELD))
        assert (selected.items, dict(selected.protected)) == ((), {"never ended": 1})


@pytest.mark.requirement("maintenance:beside")
def test_open_sessions_are_finalized_despite_holder(home: Home) -> None:
    home.session("left", 60)
    assert list_selected(home, "abandoned", ActivitySnapshot(HELD)) == {"left"}


@pytest.mark.requirement("maintenance:beside")
@pytest.mark.parametrize(("ended", "goes"), [(6.9, False), (7.1, True)])
def test_holder_allows_sessions_ended_last_week(home: Home, ended: float, goes: bool) -> None:
    home.session("s", 120, reason="abandoned", ended=ended)
    selected = run_selection(home, "sessions", ActivitySnapshot(HELD))
    assert len(selected.items) == goes
    assert dict(selected.protected) == ({} if goes else {"ended lately": 1})
    assert list_selected(home, "sessions", ActivitySnapshot(HomeActivity(NOW))) == {"s"}


GUARDS: dict[str, ActivitySnapshot] = {
    "routed": ActivitySnapshot(HomeActivity(NOW), routes={"tip": ("key",)}),
    "suspended": ActivitySnapshot(
        HomeActivity(NOW), routes={"root": ("key",)}, suspended=frozenset({"root"})
    ),
    "compressing": ActivitySnapshot(HomeActivity(NOW), compressing={"tip": "somebody"}),
    "pinned": ActivitySnapshot(HomeActivity(NOW), pinned=frozenset({"root"})),
    "live": ActivitySnapshot(HomeActivity(NOW, turns={"worker": "somebody"})),
}


@pytest.mark.requirement("maintenance:selection")
@pytest.mark.parametrize("why", GUARDS)
def test_protected_session_protects_conversation(home: Home, why: Any) -> None:
    home.session("root", 120, reason="compression")
    home.session("tip", 120, reason="cli_close", parent_session_id="root")
    home.session("worker", 120, reason="cli_close", parent_session_id="tip", config=DELEGATE)
    selected = run_selection(home, "sessions", GUARDS[why])
    assert (selected.items, dict(selected.protected)) == ((), {why: 1})
    named = run_selection(home, "sessions", GUARDS[why], ids=("root",))
    assert (named.items, dict(named.protected)) == ((), {why: 1})
    assert list_selected(home, "sessions", ActivitySnapshot(HomeActivity(NOW))) == {"root"}


def test_pin_column_protects(empty: Home) -> None:
    if empty.db.get_session(empty.session("s", 120, reason="cli_close")).get("pinned") is None:
        assert list_selected(empty, "sessions") == {"s"}
        return
    empty.db.update_session("s", pinned=1)
    assert dict(run_selection(empty, "sessions").protected) == {"pinned": 1}


def test_gateway_protects_chat_sessions(home: Home) -> None:
    home.session("chat", 2, source="slack")
    home.route("1", "chat", 2, platform="slack")
    gateway = ActivitySnapshot(HomeActivity(NOW, gateway="a gateway"), routes={"chat": ("key",)})
    assert dict(run_selection(home, "expired", gateway).protected) == {"live": 1}
    assert list_selected(
        home, "expired", ActivitySnapshot(HomeActivity(NOW), routes={"chat": ("key",)})
    ) == {"chat"}


# -- which of them -------------------------------------------------------------------------

FILTERS: dict[str, tuple[SessionFilter, set[str]]] = {
    "source": (SessionFilter(source=("slack",)), {"slack"}),
    "project": (SessionFilter(project="/srv/a"), {"project"}),
    "cwd": (SessionFilter(cwd_prefix="/srv"), {"project"}),
    "title": (SessionFilter(title_like="schema"), {"titled"}),
    "words": (SessionFilter(words="The schema"), {"titled"}),
    "reason": (SessionFilter(end_reason="idle"), {"slack"}),
    "many": (SessionFilter(min_messages=3), {"long"}),
    "few": (SessionFilter(max_messages=1, source=("cli",)), {"short"}),
    "model": (SessionFilter(model_like="some"), {"model"}),
    "user": (SessionFilter(user_id="7"), {"model"}),
    "started": (SessionFilter(started_before=NOW - 300 * DAY), {"root"}),
    "begun": (SessionFilter(started_after=NOW - 200 * DAY, min_messages=3), {"long"}),
    "active": (SessionFilter(active_before=NOW - 150 * DAY), {"slack"}),
    "lately": (SessionFilter(active_after=NOW - 95 * DAY), {"titled"}),
    "archived": (SessionFilter(status="archived"), {"archived"}),
    "tokens": (SessionFilter(min_tokens=5), {"model"}),
}


@pytest.mark.requirement("maintenance:selection")
@pytest.mark.parametrize("name", FILTERS)
def test_selection_matches_filter(home: Home, name: str) -> None:
    home.session("slack", 160, reason="idle", source="slack")
    home.session("project", 120, reason="cli_close", cwd="/srv/a/b")
    home.session("titled", 92, reason="cli_close")
    home.db.set_session_title("titled", "The schema")
    home.session("long", 120, reason="cli_close", messages=3)
    home.session("short", 120, reason="cli_close", messages=1)
    home.session("model", 120, reason="cli_close", model="some-model", user_id="7")
    home.db.update_token_counts("model", input_tokens=5)
    home.session("root", 120, begun=400, reason="compression")
    home.session("tip", 120, reason="cli_close", parent_session_id="root")
    home.session("archived", 120, reason="cli_close")
    home.db.set_session_archived("archived", archived=True)
    where, expected = FILTERS[name]
    assert list_selected(home, "sessions", where=where) == expected


def test_custom_age_is_applied(full: Home) -> None:
    assert list_selected(full, "sessions", older_than_days=240) == {"drifted", "no_reason"}
    assert "not_so_old" in list_selected(full, "sessions", older_than_days=0)
    assert list_selected(full, "abandoned", older_than_days=55) == {
        "left",
        "left_long",
        "helper",
    }
    assert "young_ghost" in list_selected(full, "ghosts", older_than_days=0)


@pytest.mark.parametrize("days", [-1, float("nan"), float("inf")])
@pytest.mark.parametrize("kind", ["sessions", "ghosts", "abandoned", "orphaned"])
def test_invalid_age_is_refused(home: Home, kind: str, days: float) -> None:
    with pytest.raises(InvalidInput, match="older_than_days"):
        run_selection(home, kind, older_than_days=days)


def test_named_sessions_ignore_age(full: Home) -> None:
    named = run_selection(
        full, "sessions", ids=("not_so_old", "chain_2", "left_lately", "old_archived")
    )
    assert list_conversation_ids(named) == {
        "not_so_old": ("not_so_old",),
        "chain_1": ("chain_3", "chain_2", "chain_1"),
        "left_lately": ("left_lately",),
        "old_archived": ("old_archived",),
    }


@pytest.mark.parametrize("verb", ["prune", "finalize"])
def test_filter_applies_to_named_sessions(home: Home, verb: str) -> None:
    home.session("mine", 120, reason="cli_close" if verb == "prune" else None)
    home.session("other", 120, reason="cli_close" if verb == "prune" else None, source="telegram")
    home.db.set_session_archived("mine", archived=True)
    chooser = (
        session_selectors.select_old_sessions
        if verb == "prune"
        else session_selectors.select_named_to_end
    )
    for where in (SessionFilter(source=("cli",)), SessionFilter(active_before=NOW - 119 * DAY)):
        request = PlanRequest("sessions", verb, ids=("mine", "other"), where=where)  # type: ignore[arg-type]
        expected = {"mine"} if where.source else {"mine", "other"}
        assert set(list_conversation_ids(chooser(home.take_snapshot(), request))) == expected
    request = replace(request, where=SessionFilter(active_before=NOW - 121 * DAY))
    assert list_conversation_ids(chooser(home.take_snapshot(), request)) == {}


def test_named_delegate_excludes_its_parent(full: Home) -> None:
    named = list_conversation_ids(run_selection(full, "sessions", ids=("worker",)))
    assert named == {"worker": ("helper", "worker")}
    both = list_conversation_ids(run_selection(full, "sessions", ids=("worker", "boss", "helper")))
    assert both == {"boss": ("helper", "worker", "boss")}


def test_unknown_session_gets_suggestions(full: Home) -> None:
    with pytest.raises(NotFound, match="old_titlet") as refused:
        run_selection(full, "sessions", ids=("old_titlet",))
    assert "old_titled" in refused.value.nearest


def test_named_chat_session_is_finalized(full: Home) -> None:
    request = PlanRequest("sessions", "finalize", ids=("chat", "idle_suspended", "old", "boss"))
    selected = session_selectors.select_named_to_end(full.take_snapshot(), request)
    assert list_conversation_ids(selected) == {"chat": ("chat",), "helper": ("helper", "worker")}
    assert dict(selected.protected) == {"suspended": 1}
    assert {item.reason for item in selected.items} == {"finalized"}
