"""Several stores: answers name their store. Handles and cursors carry it."""

from __future__ import annotations

import pytest
from mcp import Client

from mcp_serve import server
from mcp_serve.stores.stores import ServedStores, ServerOptions
from session_core import SessionDB, SessionSource, SessionStore
from tests.serve.form_users import Human

WORK = "hermes:work"
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.options(stores=[WORK, "hermes", WORK]),
]

OLD = 1_600_000_000


@pytest.fixture(name="homes", autouse=True)
def _homes(home_path):
    """A home with a second store, each with a chat and an old session."""
    result = {"hermes": home_path, "hermes:work": home_path / "profiles" / "work"}
    for name, path in result.items():
        path.mkdir(parents=True, exist_ok=True)
        with SessionDB(path / "state.db") as db:
            create = {"source": "cli", "started_at": OLD}
            for item in (f"old_{name}", f"older_{name}"):
                db.append_message(item, "user", f"of {name}", timestamp=OLD, create=create)
                db.end_session(item, "user_exit")
            db.append_message(f"new_{name}", "user", f"of {name}", create={"source": "cli"})
            with SessionStore.open(path, db) as store:
                store.get_or_create_session(SessionSource(platform="telegram", chat_id=name))
    return result


LISTS = (
    ("sessions_list", "sessions", {}),
    ("sessions_search", "hits", {"query": "of"}),
    ("routes_list", "routes", {}),
)


@pytest.mark.requirement("faces:told-apart")
@pytest.mark.parametrize(("tool", "rows", "more"), LISTS)
async def test_named_store_limits_lists(call, tool, rows, more):
    for names in (["hermes"], [WORK], ["hermes", WORK]):
        named = {"store": names[0]} if len(names) == 1 else {}
        page = await call(tool, **named, **more)
        assert sorted({row["store"] for row in page[rows]}) == names


@pytest.mark.requirement("faces:told-apart")
async def test_change_without_store_is_in_first(call):
    assert (await call("sessions_prune"))["store"] == WORK


@pytest.mark.requirement("faces:told-apart")
async def test_changed_session_finds_its_store(call):
    edited = await call("sessions_edit", sessions="new_hermes", title="T")
    assert edited["sessions"][0]["store"] == "hermes"
    planned = await call("sessions_finalize", sessions=["new_hermes"])
    assert (planned["store"], planned["count"]) == ("hermes", 1)


@pytest.mark.requirement("faces:told-apart")
async def test_change_of_several_stores_is_refused(refused):
    sessions = ["old_hermes", f"old_{WORK}", "older_hermes", "unknown"]
    message = await refused("sessions_prune", sessions=sessions)
    assert "one call changes one store" in message
    assert "sessions_prune(store='hermes', sessions=['old_hermes', 'older_hermes'])" in message
    assert f"sessions_prune(store='{WORK}', sessions=['old_{WORK}'])" in message


@pytest.mark.requirement("faces:carried")
async def test_cursor_keeps_store(call):
    first = await call("sessions_list", store="hermes", limit=2)
    rest = await call("sessions_list", cursor=first["next_cursor"])
    result = [row["id"] for row in first["sessions"] + rest["sessions"]]
    assert result == ["new_hermes", "older_hermes", "old_hermes"]


@pytest.mark.requirement("faces:told-apart")
async def test_event_cursor_keeps_store(call, homes):
    cursor = (await call("events_wait", store="hermes", timeout_s=0))["cursor"]
    for name, path in homes.items():
        with SessionDB(path / "state.db") as db:
            db.append_message(f"new_{name}", "user", f"more of {name}")
    answer = await call("events_wait", cursor=cursor, timeout_s=5)
    (event,) = answer["events"]
    assert (event["store"], event["text"]) == ("hermes", "more of hermes")


@pytest.mark.requirement("faces:told-apart")
async def test_read_and_edit_name_store(call):
    arguments = {"session": "new_hermes", "store": "hermes"}
    assert (await call("sessions_read", **arguments))["session"]["store"] == "hermes"
    arguments["sessions"] = [arguments.pop("session")]
    assert (await call("sessions_edit", **arguments, title="T"))["sessions"][0]["store"] == "hermes"


@pytest.mark.requirement("faces:carried")
@pytest.mark.parametrize("store", ["hermes", WORK])
async def test_plan_and_batch_find_store(call, store, homes):
    planned = await call("sessions_prune", store=store)
    answer = await call("sessions_prune", plan=planned["plan"])
    assert (answer["outcome"], answer["removed"]) == ("applied", 2)
    (listed,) = (await call("sessions_restore", store=store))["batches"]
    back = await call("sessions_restore", batch=answer["batch"])
    assert (back["outcome"], back["restored"]) == ("applied", 2)
    assert {item["store"] for item in (planned, answer, listed, back)} == {store}
    with SessionDB(homes[store] / "state.db", read_only=True) as db:
        assert db.get_session(f"old_{store}")["end_reason"] == "user_exit"


@pytest.mark.requirement("faces:carried")
async def test_damaged_store_does_not_hide_plans(call, homes):
    for file in homes[WORK].glob("state.db*"):
        file.unlink()
    (homes[WORK] / "state.db").mkdir()
    planned = await call("sessions_prune", store="hermes")
    assert (await call("sessions_prune", plan=planned["plan"]))["removed"] == 2


@pytest.mark.requirement("faces:carried")
async def test_plan_is_refused_for_other_store(call, refused):
    planned = await call("sessions_prune", store="hermes")
    arguments = {"plan": planned["plan"], "store": "hermes:work"}
    assert "there is no plan" in await refused("sessions_prune", **arguments)
    edited = await call("sessions_edit", store="hermes", sessions="new_hermes", title="T")
    arguments = {"batch": edited["batch"], "store": "hermes:work"}
    assert "there is no" in await refused("sessions_restore", **arguments)


@pytest.mark.requirement("faces:carried")
async def test_unknown_plan_is_refused_in_stores(refused):
    assert "there is no plan 'p_nope'" in await refused("sessions_prune", plan="p_nope")
    assert "there is no batch 'b_nope'" in await refused("sessions_restore", batch="b_nope")


@pytest.mark.requirement("faces:carried")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_consent_question_names_store(home_path, mode):
    served, human = (
        ServedStores(ServerOptions(home=str(home_path), all_profiles=True)),
        Human(action="decline"),
    )
    async with Client(
        server.create_server(served), mode=mode, elicitation_callback=human
    ) as client:
        arguments = {"store": "hermes:work"}
        plan = (await client.call_tool("sessions_prune", arguments)).structured_content["plan"]
        answer = await client.call_tool("sessions_prune", {"plan": plan})
        assert answer.structured_content["outcome"] == "declined"
        assert human.asked[0].startswith(
            "Prune sessions in store hermes:work: 2?\n- old_hermes:work: "
        )
        assert answer.structured_content["store"] == "hermes:work"
        assert served.get_home("hermes:work").ledger.get_plan(plan).state == "closed"
    served.close()
