"""Every filter argument selects the rows it describes, also combined with others."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from session_core import SessionSource, SessionStore

pytestmark = pytest.mark.anyio

DAY_S = 86_400
BEGAN = 1_700_000_000


def add_message(db, name, text, at, **create):
    db.append_message(name, "user", text, timestamp=at, create={"started_at": at, **create})


@pytest.fixture(autouse=True)
def _conversations(db):
    """Four sessions that differ in every property that a list can filter."""
    add_message(db, "first", "the old ferry", BEGAN, source="cli", cwd="/srv/shop/api")
    db.end_session("first", "user_exit")
    add_message(
        db, "second", "the ferry timetable", BEGAN + DAY_S, source="telegram", cwd="/srv/shopping"
    )
    for number in range(4):
        add_message(db, "third", f"a ferry number {number}", BEGAN + 2 * DAY_S, source="cli")
    db.set_session_title("third", "Crossing the strait")
    db.end_session("third", "idle")
    add_message(db, "fourth", "ferry", BEGAN + 3 * DAY_S, source="cli")
    db.append_message("fourth", "assistant", "which ferry?", timestamp=BEGAN + 3 * DAY_S)
    db.set_session_archived("fourth", archived=True)
    add_message(db, "first", "a ferry again", BEGAN + 4 * DAY_S)


LISTED = [
    ({}, "first third second"),
    ({"query": "strait crossing"}, "third"),
    ({"project": "/srv/shop"}, "first"),
    ({"source": "telegram"}, "second"),
    ({"status": "open"}, "second"),
    ({"status": "ended"}, "first third"),
    ({"status": "archived"}, "fourth"),
    ({"status": "all"}, "first fourth third second"),
    ({"since": "2023-11-17T00:00:00Z"}, "first"),
    ({"since": "2023-11-16T23:13:20+01:00", "status": "all"}, "first fourth third"),
    ({"until": "2023-11-15"}, "second"),
    ({"until": "2023-11-16T00:00:00"}, "second"),
    ({"end_reason": "idle"}, "third"),
    ({"min_messages": 3}, "third"),
    ({"min_messages": 2, "max_messages": 3}, "first"),
    ({"order": "started"}, "third second first"),
    ({"order": "size"}, "third first second"),
    ({"source": "cli", "status": "ended", "max_messages": 2}, "first"),
]


@pytest.mark.requirement("serving:filters")
@pytest.mark.parametrize(("arguments", "result"), LISTED, ids=str)
async def test_list_filters_select_sessions(call, arguments, result):
    page = await call("sessions_list", **arguments)
    assert [row["id"] for row in page["sessions"]] == result.split()


@pytest.mark.requirement("serving:filters")
async def test_list_accepts_ages(call, db):
    db.append_message("now", "user", "hello", create={"source": "cli"})
    for age in ("12h", "7d", "2w", "90m"):
        (row,) = (await call("sessions_list", since=age))["sessions"]
        assert row["id"] == "now"
    assert len((await call("sessions_list", until="7d"))["sessions"]) == 3


FOUND = [
    ({}, "first second third"),
    ({"session": "third"}, "third"),
    ({"project": "/srv/shop"}, "first"),
    ({"source": "telegram"}, "second"),
    ({"status": "archived"}, "fourth"),
    ({"status": "ended"}, "first third"),
    ({"status": "all", "roles": ["assistant"]}, "fourth"),
    ({"since": "2023-11-18"}, "first"),
    ({"until": "2023-11-14"}, "first"),
    ({"until": "2023-11-15T00:00:00"}, "first"),
    ({"since": "2023-11-15", "until": "2023-11-15"}, "second"),
    ({"mode": "substring", "query": "rry ti"}, "second"),
]


@pytest.mark.requirement("serving:filters")
@pytest.mark.parametrize(("arguments", "result"), FOUND, ids=str)
async def test_search_filters_select_hits(call, arguments, result):
    page = await call("sessions_search", **{"query": "ferry", **arguments})
    assert sorted(hit["session_id"] for hit in page["hits"]) == result.split()


MATCHED = {"old ferry": "all", "timetab": "prefix", "ferry zeppelin": "any"}


@pytest.mark.requirement("serving:matched")
@pytest.mark.parametrize("query", MATCHED)
async def test_search_reports_match_mode(call, query):
    page = await call("sessions_search", query=query)
    assert page["hits"]
    assert page["matched"] == MATCHED[query]


PRUNED = [
    ({}, "first third"),
    ({"project": "/srv"}, "first"),
    ({"source": "cli", "end_reason": "idle"}, "third"),
    ({"min_messages": 4}, "third"),
    ({"max_messages": 3}, "first"),
    ({"older_than_days": 100_000}, ""),
    ({"sessions": ["third"]}, "third"),
]


@pytest.mark.requirement("changing:chosen")
@pytest.mark.parametrize(("arguments", "planned"), PRUNED, ids=str)
async def test_prune_filters_select_sessions(call, arguments, planned):
    plan = await call("sessions_prune", **arguments)
    assert sorted(item["id"] for item in plan["items"]) == planned.split()


FINALIZED = [
    ({"what": "abandoned"}, "fifth second"),
    ({"what": "abandoned", "source": "telegram"}, "second"),
    ({"what": "abandoned", "project": "/srv/shopping"}, "second"),
    ({"what": "abandoned", "older_than_days": 100_000}, ""),
    ({"sessions": ["second"]}, "second"),
]


@pytest.mark.requirement("changing:chosen")
@pytest.mark.parametrize(("arguments", "planned"), FINALIZED, ids=str)
async def test_finalize_filters_select_sessions(call, db, arguments, planned):
    add_message(db, "fifth", "left open", BEGAN, source="cli", cwd="/srv/shop")
    plan = await call("sessions_finalize", **arguments)
    assert sorted(item["id"] for item in plan["items"]) == planned.split()


@pytest.mark.requirement("changing:chosen")
async def test_finalize_sets_reason_and_starts_new(call, db, home_path):
    with SessionStore.open(home_path, db) as store:
        chat = SessionSource(platform="telegram", chat_id="42")
        before = store.get_or_create_session(chat)
        add_message(db, before.session_id, "hello", BEGAN, source="telegram")
    arguments = {"sessions": [before.session_id], "reason": "moved_on", "start_new": True}
    planned = await call("sessions_finalize", **arguments)
    await call("sessions_finalize", plan=planned["plan"])
    assert db.get_session(before.session_id)["end_reason"] == "moved_on"
    (route,) = (await call("routes_list"))["routes"]
    assert route["session_key"] == before.session_key
    assert route["session_id"] != before.session_id


STATES = ("active", "suspended", "resume_pending", "expired", "stale", "dangling")


@pytest.fixture(name="routed_home")
def _routed(db, home_path):
    """A chat in each state of a route."""
    (home_path / "config.yaml").write_text("session_reset: {mode: idle, idle_minutes: 60}")
    keys = {}
    with SessionStore.open(home_path, db) as store:
        for state in STATES:
            chat = SessionSource(platform="telegram", chat_id=state, chat_name=f"Chat {state}")
            entry = store.get_or_create_session(chat)
            keys[state] = entry.session_key
            if state != "dangling":
                add_message(db, entry.session_id, "hi", BEGAN + 9 * DAY_S, source="telegram")
        store.suspend_session(keys["suspended"])
        store.mark_resume_pending(keys["resume_pending"])
        db.end_session(store.load_entries()[keys["stale"]].session_id, "user_exit")
        old = store.load_entries()[keys["expired"]]
        old.updated_at -= timedelta(days=9)
        store.save(old, urgent=True)
    return keys


@pytest.mark.requirement("serving:filters")
async def test_routes_filter_by_state(call, routed_home):
    routes = (await call("routes_list"))["routes"]
    assert {route["state"]: route["session_key"] for route in routes} == routed_home
    for state in STATES:
        (route,) = (await call("routes_list", state=state))["routes"]
        assert (route["session_key"], route["state"]) == (routed_home[state], state)
    (result,) = (await call("routes_list", query="chat STALE", platform="telegram"))["routes"]
    assert result["session_key"] == routed_home["stale"]
    assert (await call("routes_list", platform="discord"))["routes"] == []


@pytest.mark.requirement("changing:chosen")
async def test_default_age_applies_to_filters_only(call, db):
    at = time.time() - 30 * DAY_S
    for name in ("lately", "kept"):
        add_message(db, name, "hi", at, source="slack")
        db.end_session(name, "user_exit")
    await call("sessions_edit", sessions="kept", pinned=True)
    for arguments in ({"source": "slack"}, {"source": "slack", "end_reason": "user_exit"}):
        assert (await call("sessions_prune", **arguments))["outcome"] == "nothing"
    named = await call("sessions_prune", sessions=["lately", "kept"])
    assert [item["id"] for item in named["items"]] == ["lately"]
    assert named["protected"] == [{"why": "it is pinned", "count": 1, "ids": ["kept"]}]


@pytest.mark.requirement("changing:chosen")
async def test_prune_everything_keeps_trash(call, db):
    db.create_session("ghost", "cli", started_at=BEGAN)
    await call("sessions_edit", sessions="third", title="Named anew")
    planned = await call("sessions_prune", what="all")
    assert {"first", "third", "ghost"} <= {item["id"] for item in planned["items"]}
    await call("sessions_prune", plan=planned["plan"])
    assert len((await call("sessions_restore"))["batches"]) == 2
