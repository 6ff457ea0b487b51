"""Lost routes are selected and removed. Routes that the next message repairs are not."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from session_core import SessionFilter
from session_core.activity import ActivitySnapshot, HomeActivity
from session_core.errors import Denied, NotFound
from session_core.maintenance.apply import route_removal, run
from session_core.maintenance.select import lost_routes
from session_core.maintenance.types import PlanRequest
from tests.maintenance.changed_homes import Changing, list_skip_reasons, live_gateway
from tests.maintenance.homes import NOW, Home, opened


@pytest.mark.requirement("maintenance:routes")
def test_stated_lost_routes_are_selected(full: Home) -> None:
    selected = lost_routes.select_lost_routes(full.take_snapshot(), PlanRequest("routes"))
    assert {route.id for route in selected.items} == set(full.of("routes").chosen)
    assert dict(selected.protected) == dict(full.of("routes").protected)


def test_lost_route_gives_reason(full: Home) -> None:
    selected = lost_routes.select_lost_routes(full.take_snapshot(), PlanRequest("routes"))
    said = {route.id.rpartition(":")[2]: route.why for route in selected.items}
    assert said["7"] == (
        "leads to session reset, which ended 2026-12-06 (session_reset); used last 40 days ago"
    )
    assert said["8"] == "leads to session never_was, which does not exist; used last 40 days ago"
    assert said["long_ago"].startswith("of the folder ")
    assert said["long_ago"].endswith(", which is gone; used last 100 days ago")


@pytest.mark.requirement("maintenance:routes")
@pytest.mark.parametrize(
    ("reason", "messages", "lost"),
    [
        ("agent_close", 1, False),
        ("agent_close", 0, True),
        ("compression", 1, False),
        ("session_switch", 1, False),
        ("cli_close", 1, True),
    ],
)
def test_route_of_continuing_chat_stays(home: Home, reason: str, messages: int, lost: bool) -> None:
    home.session("s", 9, reason=reason, messages=messages, source="telegram")
    key = home.route("1", "s", 9)
    selected = lost_routes.select_lost_routes(home.take_snapshot(), PlanRequest("routes"))
    assert [route.id for route in selected.items] == ([key] if lost else [])


def test_route_selection_agrees_with_store(home: Home) -> None:
    home.session("s", 9, reason="agent_close", source="telegram")
    home.session("t", 9, reason="cli_close", source="telegram")
    home.route("1", "s", 9)
    home.route("2", "t", 9)
    (lost,) = lost_routes.select_lost_routes(home.take_snapshot(), PlanRequest("routes")).items
    assert home.store.repair_routes() == ["agent:main:telegram:dm:1", lost.id]
    assert home.store.get(lost.id) is None


@pytest.mark.requirement("maintenance:routes")
def test_gateway_protects_all_routes(home: Home) -> None:
    home.route("1", "nowhere", 9)
    gateway = ActivitySnapshot(HomeActivity(NOW, gateway="a gateway (pid 7)"))
    selected = lost_routes.select_lost_routes(home.take_snapshot(gateway), PlanRequest("routes"))
    assert (selected.items, dict(selected.protected)) == ((), {"live": 1})


def test_route_of_active_session_stays(home: Home) -> None:
    key = home.route("1", "nowhere", 9)
    home.store.begin_turn(key, "nowhere")
    selected = lost_routes.select_lost_routes(home.take_snapshot(), PlanRequest("routes"))
    assert (selected.items, dict(selected.protected)) == ((), {"live": 1})


def test_named_routes_ignore_age(home: Home) -> None:
    key, _ = home.route("1", "nowhere", 0.1), home.route("2", "nowhere", 9)
    selected = lost_routes.select_lost_routes(
        home.take_snapshot(), PlanRequest("routes", ids=(key,))
    )
    assert [route.id for route in selected.items] == [key]


def test_unknown_route_name_gets_suggestions(home: Home) -> None:
    key = home.route("1", "nowhere", 9)
    with pytest.raises(NotFound, match=r"route .* does not exist") as refused:
        lost_routes.select_lost_routes(
            home.take_snapshot(), PlanRequest("routes", ids=(key[:-1] + "2",))
        )
    assert refused.value.nearest == (key,)


def test_route_filter_checks_session_then_route(home: Home) -> None:
    home.session("reset", 9, reason="session_reset", source="telegram", cwd="/srv/app")
    stale = home.route("1", "reset", 9)
    dangling = home.route("2", "nowhere", 9)
    other = home.route("3", "nowhere", 9, platform="slack")
    expected = {
        SessionFilter(): {stale, dangling, other},
        SessionFilter(source=("telegram",)): {stale, dangling},
        SessionFilter(source=("slack",)): {other},
        SessionFilter(project="/srv/app"): {stale},
        SessionFilter(source=("telegram",), min_messages=1): {stale},
    }
    for where, keys in expected.items():
        selected = lost_routes.select_lost_routes(
            home.take_snapshot(), PlanRequest("routes", where=where)
        )
        assert {route.id for route in selected.items} == keys, where


def test_routes_of_gone_folder_are_filtered(full: Home) -> None:
    for where in (SessionFilter(project="/srv"), SessionFilter(source=("slack",))):
        selected = lost_routes.select_lost_routes(
            full.take_snapshot(), PlanRequest("routes", where=where)
        )
        assert "long_ago" not in {route.id for route in selected.items}


def test_gateway_protects_routes_of_gone_folder(full: Home) -> None:
    gateway = ActivitySnapshot(HomeActivity(NOW, gateway="a gateway (pid 7)"))
    selected = lost_routes.select_lost_routes(full.take_snapshot(gateway), PlanRequest("routes"))
    assert (selected.items, set(selected.protected)) == ((), {"live"})


def test_routes_in_file_only_are_selected(home_path) -> None:
    with opened(home_path, 16) as home:
        home.session("s", 9, reason="cli_close", source="telegram")
        stale = home.route("1", "s", 9)
        dangling = home.route("2", "nowhere", 9)
        selected = lost_routes.select_lost_routes(home.take_snapshot(), PlanRequest("routes"))
        assert {route.id for route in selected.items} == {stale, dangling}


def test_route_used_since_plan_stays(changed: Changing) -> None:
    for chat in ("1", "2"):
        changed.home.route(chat, "nobody", 40)
    planned = changed.plan("routes")
    key = "agent:main:telegram:dm:1"
    changed.home.store.update_session(key, 7)
    result = changed.apply(planned)
    assert list_skip_reasons(result) == {key: "its chat was used since"}
    assert list(changed.home.store.load_entries()) == [key]


@pytest.mark.needs_files
@pytest.mark.requirement("maintenance:gateway")
def test_route_removal_names_live_gateway(changed: Changing) -> None:
    changed.home.route("1", "nobody", 40)
    planned = changed.plan("routes")
    with (
        live_gateway(changed.home) as pid,
        pytest.raises(Denied, match=rf"gateway \(pid {pid}\).* stop it"),
    ):
        changed.apply(planned)
    assert len(changed.home.store.load_entries()) == 1


@pytest.mark.needs_files
def test_gateway_started_between_steps_protects_rest(
    changed: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        changed.home.route(str(number), "nobody", 40)
    planned = changed.plan("routes")
    monkeypatch.setattr(route_removal, "_BATCH_ROUTES", 1)
    monkeypatch.setattr(run, "_ACTIVITY_TTL_S", -1.0)
    with ExitStack() as stack:

        def begin() -> bool:
            stack.enter_context(live_gateway(changed.home))
            return False

        with pytest.raises(Denied, match="a gateway"):
            changed.apply(planned, stop=begin)
    assert len(changed.home.store.load_entries()) == 2
    (changed.home.folder / "gateway.pid").unlink()
    assert changed.apply(planned).removed == 3


@pytest.mark.needs_files
@pytest.mark.requirement("maintenance:gateway")
def test_route_removal_and_restore_cover_mirror(changed: Changing) -> None:
    changed.home.route("1", "nobody", 40)
    before = changed.read_everything()
    result = changed.plan_and_apply("routes")
    now = changed.read_everything()
    assert (now["rows"]["gateway_routing"], list(now["routes"])) == ([], ["_README"])
    changed.restore(result)
    assert changed.read_everything() == before
