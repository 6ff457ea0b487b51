"""Changing tools: plan, apply exactly that, undo. The user confirms if the client can ask."""

from __future__ import annotations

import json

import pytest
from mcp import Client

from mcp_serve import server
from mcp_serve.stores.stores import ServedStores, ServerOptions
from session_core import Ledger, Maintenance, StateFolder
from tests.serve.form_users import Human

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("old_sessions")]


@pytest.mark.requirement("changing:handles")
async def test_plan_rejects_other_arguments(call, refused):
    planned = await call("sessions_prune")
    text = await refused("sessions_prune", plan=planned["plan"], older_than_days=1)
    assert text == (
        "older_than_days cannot be passed with plan; the plan has recorded its arguments."
    )


@pytest.mark.requirement("changing:handles")
async def test_plan_of_other_tool_is_refused(call, refused):
    planned = await call("sessions_prune")
    text = await refused("sessions_finalize", plan=planned["plan"])
    assert "is a plan to prune sessions; pass it to sessions_prune" in text


@pytest.mark.requirement("changing:handles")
async def test_unknown_plan_names_nearest_once(call, refused):
    assert await refused("sessions_prune", plan="p_nope") == "there is no plan 'p_nope'; plan anew."
    text = await refused("sessions_restore", batch="b_nope")
    assert text == "there is no batch 'b_nope'; list what can be undone."
    plan = (await call("sessions_prune"))["plan"]
    text = await refused("sessions_prune", plan=f"{plan}x")
    assert text == f"there is no plan '{plan}x'; did you mean {plan}."


def make_long_session(db):
    for number in range(60):
        text = f"ticket ABC-{number}: we decided to use port {8000 + number}. " + "well, " * 200
        db.append_message("long", "user", text, create={"source": "cli"})
        db.append_message("long", "assistant", "noted")


@pytest.mark.requirement("changing:plans")
async def test_compress_applies_caller_summary(call, refused, db):
    make_long_session(db)
    planned = await call("sessions_compress", session="long", keep_last=10)
    brief = planned["brief"]
    assert brief["from_id"] < brief["to_id"]
    assert brief["must_survive"]
    assert len(brief["digest"]) <= brief["target_chars"]
    assert "redacted" in await refused(
        "sessions_compress", plan=planned["plan"], summary="the key was [redacted: aws key]"
    )
    answer = await call("sessions_compress", plan=planned["plan"], summary="Ports were decided.")
    assert (answer["outcome"], answer["tokens_after"] < answer["tokens_before"]) == (
        "applied",
        True,
    )
    assert answer["retention"]["found"] > answer["retention"]["kept"]
    page = await call("sessions_read", session=answer["session_id"])
    assert any("Ports were decided." in message["text"] for message in page["messages"])
    restored = await call("sessions_restore", batch=answer["batch"])
    assert restored["outcome"] == "applied"


@pytest.mark.requirement("changing:plans")
async def test_compress_applies_extractive_summary(call, db):
    make_long_session(db)
    planned = await call("sessions_compress", session="long", method="extractive", keep_last=10)
    answer = await call("sessions_compress", plan=planned["plan"])
    assert answer["outcome"] == "applied"
    assert answer["retention"]["kept"] > 0


@pytest.mark.requirement("changing:handles")
async def test_short_session_needs_no_compression(call):
    planned = await call("sessions_compress", session="new")
    assert (planned["outcome"], planned["plan"], planned["count"]) == ("nothing", None, 0)
    assert planned["warnings"]


@pytest.mark.requirement("changing:read-only")
@pytest.mark.options(read_only=True)
async def test_read_only_server_lists_no_changing_tools(client):
    names = [tool.name for tool in (await client.list_tools()).tools]
    assert names == [
        "sessions_list",
        "sessions_read",
        "sessions_search",
        "sessions_stats",
        "routes_list",
        "events_wait",
    ]
    prompts = (await client.list_prompts()).prompts
    assert [prompt.name for prompt in prompts] == ["catch_up", "continue_here"]


@pytest.mark.requirement("changing:decided")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize(
    ("answer", "outcome", "remaining"),
    [
        ({"action": "accept", "content": {"agree": True}}, "applied", 1),
        ({"action": "accept", "content": {"agree": False}}, "declined", 4),
        ({"action": "decline"}, "declined", 4),
        ({"action": "cancel"}, "cancelled", 4),
    ],
)
async def test_declined_plan_is_not_applied(home_path, mode, answer, outcome, remaining):
    served, human = ServedStores(ServerOptions(home=str(home_path))), Human(**answer)
    created = server.create_server(served)
    async with Client(created, mode=mode, elicitation_callback=human, cache=None) as client:
        plan = (await client.call_tool("sessions_prune", {})).structured_content["plan"]
        assert human.asked == []
        result = await client.call_tool("sessions_prune", {"plan": plan})
        assert result.structured_content["outcome"] == outcome, result.content[0].text
        assert len(human.asked) == 1
        assert human.asked[0].startswith("Prune sessions: 3?")
        listed = (await client.call_tool("sessions_list", {"status": "all"})).structured_content
        assert len(listed["sessions"]) == remaining
        again = await client.call_tool("sessions_prune", {"plan": plan})
        assert again.is_error == (outcome == "declined")
    served.close()


@pytest.mark.requirement("changing:decided")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_empty_consent_changes_nothing(home_path, mode):
    served, human = ServedStores(ServerOptions(home=str(home_path))), Human(action="accept")
    async with Client(
        server.create_server(served), mode=mode, elicitation_callback=human
    ) as client:
        plan = (await client.call_tool("sessions_prune", {})).structured_content["plan"]
        result = await client.call_tool("sessions_prune", {"plan": plan})
        assert result.is_error
        assert result.content[0].text == (
            "the client did not answer the confirmation question, and nothing was changed; "
            "call again with the same plan, or start the server with --confirm=never if the "
            "client cannot ask"
        )
        assert served.get_home().ledger.get_plan(plan).state == "planned"
    served.close()


@pytest.mark.requirement("changing:decided")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_refused_call_asks_no_consent(home_path, mode):
    served, human = ServedStores(ServerOptions(home=str(home_path))), Human(action="decline")
    async with Client(
        server.create_server(served), mode=mode, elicitation_callback=human
    ) as client:
        plan = (await client.call_tool("sessions_prune", {})).structured_content["plan"]
        extra = {"plan": plan, "older_than_days": 1}
        assert (await client.call_tool("sessions_prune", extra)).is_error
        for tool in ("sessions_finalize", "sessions_compress", "sessions_restore"):
            assert (await client.call_tool(tool, {"plan": plan})).is_error
        assert human.asked == []
        assert served.get_home().ledger.get_plan(plan).state == "planned"
    served.close()


@pytest.mark.requirement("changing:decided")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_confirm_never_asks_no_consent(home_path, mode):
    served, human = (
        ServedStores(ServerOptions(home=str(home_path), confirm=False)),
        Human(action="cancel"),
    )
    async with Client(
        server.create_server(served), mode=mode, elicitation_callback=human
    ) as client:
        plan = (await client.call_tool("sessions_prune", {})).structured_content["plan"]
        result = await client.call_tool("sessions_prune", {"plan": plan})
        assert result.structured_content["outcome"] == "applied"
        assert human.asked == []
    served.close()


@pytest.mark.requirement("changing:plans")
async def test_restored_batches_are_not_listed(call, db):
    for number in range(6):
        db.append_message(f"b{number}", "user", "hello", create={"source": "cli"})
    done = [await call("sessions_edit", sessions=f"b{n}", title=f"b {n}") for n in range(6)]
    for item in done[2:]:
        await call("sessions_restore", batch=item["batch"])
    page = await call("sessions_restore", limit=2)
    assert [item["batch"] for item in page["batches"]] == [done[1]["batch"], done[0]["batch"]]
    assert page["next_cursor"] is None


async def test_import_removal_is_planned_first(call, db, tmp_path):
    file = tmp_path / "sessions.jsonl"
    text = {"role": "user", "content": "planted", "timestamp": 5.0}
    lines = [{"id": name, "source": "cli", "started_at": 1.0, "messages": [text]} for name in "ab"]
    file.write_text("\n".join(map(json.dumps, lines)))
    with Ledger(StateFolder(db.path)) as ledger, Maintenance(db, ledger) as maintenance:
        batch = maintenance.import_sessions(file).batch
    (listed,) = (await call("sessions_restore"))["batches"]
    assert (listed["batch"], listed["tool"], listed["count"]) == (batch, "import", 2)
    planned = await call("sessions_restore", batch=batch)
    assert (planned["outcome"], planned["count"]) == ("planned", 2)
    answer = await call("sessions_restore", plan=planned["plan"])
    assert (answer["outcome"], answer["restored"], answer["remaining"]) == ("applied", 2, 0)
    assert await call("sessions_restore", plan=planned["plan"]) == answer
    rows = (await call("sessions_list", status="all"))["sessions"]
    assert sorted(row["id"] for row in rows) == ["new", "old0", "old1", "old2"]
    (listed,) = (await call("sessions_restore"))["batches"]
    assert listed["batch"] == answer["batch"]
    assert (await call("sessions_restore", batch=answer["batch"]))["restored"] == 2
