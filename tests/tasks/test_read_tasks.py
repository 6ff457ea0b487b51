"""Reading tasks of a model, each in the number of calls that it needs."""

from __future__ import annotations

import anyio
import pytest

from session_core import SessionDB
from tests.tasks.conftest import CHAT

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("tasks:reading")
async def test_decision_is_found_with_preceding_messages(given):
    model = given("What did we decide about the orders schema?", "find it", "read it")
    answer = await model.call(
        "sessions_search", query="what did we decide about the orders schema?", limit=3
    )
    best = answer["hits"][0]
    page = await model.call(
        "sessions_read", session=best["session_id"], around=best["message_id"], limit=4
    )
    texts = [message["text"] for message in page["messages"]]
    assert any("two steps" in text and "order_items.sku" in text for text in texts)
    assert any("So what do we do about the orders table?" in text for text in texts)
    model.check(most=2_000)


@pytest.mark.requirement("tasks:reading")
async def test_error_cause_is_in_first_answer(given):
    model = given("Where did ERR_POOL_4711 come from?", "find it")
    answer = await model.call("sessions_search", query="ERR_POOL_4711", limit=3)
    assert "table_41.py" in answer["hits"][0]["snippet"]
    assert "orders_sync.flush_batch" in answer["hits"][0]["snippet"]
    model.check(most=450)


@pytest.mark.requirement("tasks:reading")
async def test_latest_project_work_is_found(given):
    model = given("What was I doing last in /home/sam/shop?", "which one", "what was said")
    listed = await model.call("sessions_list", project="/home/sam/shop", limit=1)
    (row,) = listed["sessions"]
    page = await model.call("sessions_read", session=row["id"], limit=10)
    assert page["messages"][-1]["text"].startswith("Decided: the schema of the orders table")
    model.check(most=3_200)


@pytest.mark.requirement("tasks:reading")
async def test_whole_conversation_is_read_from_start(given):
    model = given("Read me all of 'Schema change for orders', from 0 on.", "read it")
    page = await model.call(
        "sessions_read", session="Schema change for orders", after=0, limit=200, max_chars=40_000
    )
    texts = [message["text"] for message in page["messages"]]
    while page["next_cursor"]:
        page = await model.call("sessions_read", cursor=page["next_cursor"])
        texts += [message["text"] for message in page["messages"]]
    assert len(texts) == 183
    assert texts[0] == "Plan the schema change for orders, step by step."
    assert texts[-1].startswith("Decided")
    model.check(most=183 * 120 + sum(map(len, texts)))


@pytest.mark.requirement("tasks:reading")
async def test_chat_is_followed_until_new_message(given, home):
    model = given(f"Tell me what {CHAT} writes next.", "which chat", "wait")
    (route,) = (await model.call("routes_list", query=CHAT))["routes"]
    heard = {}
    over = anyio.Event()

    async def wait():
        heard.update(await model.call("events_wait", session=route["session_id"], timeout_s=50))
        over.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        with SessionDB(home / "state.db") as db, anyio.fail_after(60):
            while not over.is_set():
                db.append_message(route["session_id"], "user", "The train is late.")
                await anyio.sleep(0.05)
    assert next(event["text"] for event in heard["events"]) == "The train is late."
    assert {event["session_id"] for event in heard["events"]} == {route["session_id"]}
    model.check(most=1_400)


@pytest.mark.requirement("tasks:reading")
async def test_question_in_other_script_finds_conversation(given):
    model = given("予算はどうなりましたか", "find it", "read it")
    answer = await model.call("sessions_search", query="予算はどうなりましたか", limit=1)
    page = await model.call("sessions_read", session=answer["hits"][0]["session_id"])
    assert any("広告費を二割" in message["text"] for message in page["messages"])
    model.check(most=1_500)


@pytest.mark.requirement("tasks:reading")
async def test_summarized_message_is_found_and_read(given):
    model = given("Why did the pager go off at 3 am?", "find it", "read it")
    answer = await model.call("sessions_search", query="pager 3 am", limit=1)
    (hit,) = answer["hits"]
    page = await model.call(
        "sessions_read", session=hit["session_id"], around=hit["message_id"], view="full"
    )
    assert any("certificate of api.example.org" in message["text"] for message in page["messages"])
    model.check(most=1_600)


@pytest.mark.requirement("tasks:reading")
async def test_total_cost_is_found_in_later_part(given):
    model = given("What will 'Trip to Lisbon' cost us?", "read it")
    page = await model.call("sessions_read", session="Trip to Lisbon")
    assert any("1,240 euros" in message["text"] for message in page["messages"])
    model.check(most=750)


@pytest.mark.requirement("tasks:reading")
async def test_stats_and_problems_take_single_call(given):
    model = given("How big are my sessions, and is anything wrong?", "look")
    report = await model.call("sessions_stats")
    assert report["sessions"]["total"] > 240
    assert report["size"]["db"] > 0
    assert all(finding["what"] for finding in report["findings"])
    model.check(most=1_500)


@pytest.mark.requirement("tasks:reading")
async def test_wrong_argument_is_fixed_from_error(given):
    model = given("What did I do in the last week?", "try", "do it as the error says")
    assert await model.call("sessions_list", from_date="7d") == {}
    assert "since" in model.errors[0]
    listed = await model.call("sessions_list", since="7d", limit=5)
    assert listed["sessions"]
    model.check(most=2_200, errors=1)
