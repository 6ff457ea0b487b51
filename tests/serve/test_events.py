"""`events_wait`: events arrive, survive a restart, and no call delays another."""

from __future__ import annotations

import anyio
import pytest
from mcp import Client

from mcp_serve import answer_size, server
from mcp_serve.stores.stores import ServedStores, ServerOptions
from session_core import SessionSource, SessionStore

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("serving:events")
async def test_wait_starts_now_without_timeout(db, call):
    db.append_message("s1", "user", "before", create={"source": "cli"})
    assert (await call("events_wait", timeout_s=0))["events"] == []


@pytest.mark.requirement("serving:events")
async def test_wait_returns_new_message(db, call):
    start = await call("events_wait", timeout_s=0)
    answer = {}

    async def wait():
        answer.update(await call("events_wait", cursor=start["cursor"], timeout_s=20))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await call("sessions_list")
        db.append_message("s1", "user", "hello", timestamp=1_700_000_000, create={"source": "cli"})
    kinds = [event["type"] for event in answer["events"]]
    assert kinds == ["session_started", "message"]
    assert answer["events"][1] == {
        "type": "message",
        "at": "2023-11-14T22:13:20Z",
        "session_id": "s1",
        "message_id": 1,
        "role": "user",
        "text": "hello",
    }
    assert answer["gap"] is False


@pytest.mark.requirement("serving:events-kept")
async def test_event_cursor_survives_restart(db, call, home_path):
    start = await call("events_wait", timeout_s=0)
    db.append_message("s1", "user", "meanwhile", create={"source": "cli"})
    served = ServedStores(ServerOptions(home=str(home_path)))
    async with Client(server.create_server(served)) as other:
        arguments = {"cursor": start["cursor"], "timeout_s": 5}
        answer = (await other.call_tool("events_wait", arguments)).structured_content
    served.close()
    assert [event.get("text") for event in answer["events"]] == [None, "meanwhile"]


@pytest.mark.requirement("serving:events-kept")
async def test_events_continue_after_limit(db, call):
    db.create_session("s1", "cli")
    cursor = (await call("events_wait", timeout_s=0))["cursor"]
    for number in range(5):
        db.append_message("s1", "user", f"{number}")
    texts = []
    for _ in range(3):
        answer = await call("events_wait", cursor=cursor, timeout_s=5, limit=2)
        cursor = answer["cursor"]
        texts += [event["text"] for event in answer["events"]]
    assert texts == ["0", "1", "2", "3", "4"]


@pytest.mark.requirement("serving:events")
async def test_wait_follows_single_session(db, call):
    for name in ("a", "b"):
        db.create_session(name, "cli")
    start = await call("events_wait", session="a", timeout_s=0)
    db.append_message("b", "user", "not this")
    db.append_message("a", "user", "this")
    answer = await call("events_wait", cursor=start["cursor"], timeout_s=5)
    assert [event["text"] for event in answer["events"]] == ["this"]


@pytest.mark.requirement("serving:events")
async def test_wait_reports_titles_compressions_and_ends(db, call):
    for name in ("a", "b"):
        db.append_message(name, "user", "hello", create={"source": "cli"})
    cursor = (await call("events_wait", timeout_s=0))["cursor"]
    db.set_session_title("a", "Named")
    answer = await call("events_wait", cursor=cursor, timeout_s=5)
    assert [(e["type"], e["session_id"], e["title"]) for e in answer["events"]] == [
        ("title_changed", "a", "Named")
    ]
    db.archive_and_compact("b", [{"role": "user", "content": "[summary]"}])
    kinds = set()
    while "compressed" not in kinds:
        answer = await call("events_wait", cursor=answer["cursor"], timeout_s=20)
        assert answer["events"]
        kinds |= {event["type"] for event in answer["events"]}
    db.end_session("a", "user_exit")
    answer = await call("events_wait", cursor=answer["cursor"], timeout_s=5)
    assert [(e["type"], e["reason"]) for e in answer["events"]] == [("session_ended", "user_exit")]


@pytest.mark.requirement("serving:events")
async def test_wait_reports_changed_route(db, call, home_path):
    with SessionStore.open(home_path, db) as store:
        chat = SessionSource(platform="telegram", chat_id="42")
        entry = store.get_or_create_session(chat)
        db.append_message(entry.session_id, "user", "hello", create={"source": "telegram"})
        cursor = (await call("events_wait", timeout_s=0))["cursor"]
        following = store.reset_session(entry.session_key)
    routed = []
    while not routed:
        answer = await call("events_wait", cursor=cursor, timeout_s=20)
        assert answer["events"]
        cursor = answer["cursor"]
        routed += [event for event in answer["events"] if event["type"] == "route_changed"]
    assert [(event["session_key"], event["session_id"]) for event in routed] == [
        (entry.session_key, following.session_id)
    ]


@pytest.mark.requirement("serving:events-kept")
async def test_restart_keeps_only_stored_events(db, call, home_path):
    db.append_message("a", "user", "hello", create={"source": "cli"})
    cursor = (await call("events_wait", timeout_s=0))["cursor"]
    db.set_session_title("a", "Named")
    db.end_session("a", "user_exit")
    db.create_session("b", "cli")
    here = await call("events_wait", cursor=cursor, timeout_s=5)
    served = ServedStores(ServerOptions(home=str(home_path)))
    async with Client(server.create_server(served)) as other:
        arguments = {"cursor": cursor, "timeout_s": 5}
        other_answer = (await other.call_tool("events_wait", arguments)).structured_content
    served.close()
    stored = [("session_ended", "a"), ("session_started", "b")]
    assert sorted((e["type"], e["session_id"]) for e in other_answer["events"]) == stored
    assert {e["type"] for e in here["events"]} >= {kind for kind, _ in stored}
    assert other_answer["gap"] is False


@pytest.mark.requirement("serving:events")
async def test_old_followed_session_reports_title(db, call):
    for number in range(60):
        when = {"timestamp": 1e9 + number, "create": {"source": "cli", "started_at": 1e9}}
        db.append_message(f"s{number}", "user", "hello", **when)
    cursor = (await call("events_wait", session="s0", timeout_s=0))["cursor"]
    db.set_session_title("s0", "Named")
    answer = await call("events_wait", cursor=cursor, timeout_s=20)
    assert [(e["type"], e.get("title")) for e in answer["events"]] == [("title_changed", "Named")]
    db.archive_and_compact("s0", [{"role": "user", "content": "[summary]"}])
    kinds = set()
    while "compressed" not in kinds:
        answer = await call("events_wait", cursor=answer["cursor"], timeout_s=20)
        assert answer["events"]
        kinds |= {event["type"] for event in answer["events"]}


@pytest.mark.requirement("serving:events")
async def test_new_follower_hides_no_events(db, call):
    for name in ("a", "b"):
        db.append_message(name, "user", "hello", create={"source": "cli"})
    for number in range(50):
        db.append_message(f"n{number}", "user", "hello", create={"source": "cli"})
    cursor = (await call("events_wait", timeout_s=0))["cursor"]
    db.set_session_title("n7", "Named")
    await call("events_wait", session="a", timeout_s=0)
    answer = await call("events_wait", cursor=cursor, timeout_s=20)
    assert [(e["type"], e["session_id"]) for e in answer["events"]] == [("title_changed", "n7")]


@pytest.mark.requirement("serving:events")
async def test_event_text_is_shortened(db, call):
    cursor = (await call("events_wait", timeout_s=0))["cursor"]
    db.append_message("s1", "user", "x" * 5_000, create={"source": "cli"})
    answer = await call("events_wait", cursor=cursor, timeout_s=5)
    assert len(answer["events"][-1]["text"]) == 500


@pytest.mark.requirement("serving:events-kept")
async def test_many_events_fit_budget_without_loss(db, call):
    db.create_session("s1", "cli")
    cursor = (await call("events_wait", timeout_s=0))["cursor"]
    with db.transaction():
        for number in range(300):
            db.append_message("s1", "user", f"{number} " + "word " * 90)
    texts = []
    while len(texts) < 300:
        answer = await call("events_wait", cursor=cursor, timeout_s=5, limit=500)
        assert answer_size.count_chars(answer) <= answer_size.DEFAULT_CHARS
        assert answer["events"]
        cursor = answer["cursor"]
        texts += [event["text"] for event in answer["events"]]
    assert [text.split()[0] for text in texts] == [str(number) for number in range(300)]
