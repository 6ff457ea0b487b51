"""Consent: the user is asked before a plan is applied, and never otherwise."""

from __future__ import annotations

import pytest
from mcp import Client

from mcp_serve import server
from mcp_serve.stores.stores import ServedStores, ServerOptions
from tests.serve.form_users import Human

pytestmark = pytest.mark.anyio

OLD = 1_600_000_000
MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])


@pytest.fixture(autouse=True)
def _old_ones(db):
    for number in range(7):
        create = {"source": "cli", "started_at": OLD}
        db.append_message(f"old{number}", "user", "x", timestamp=OLD, create=create)
        db.end_session(f"old{number}", "user_exit")
    db.append_message("new", "user", "hello", create={"source": "cli"})


@pytest.fixture(name="served")
def _served(home_path):
    served = ServedStores(ServerOptions(home=str(home_path)))
    yield served
    served.close()


@pytest.mark.requirement("changing:asked")
@MODES
async def test_consent_is_asked_for_plans_only(served, mode):
    human = Human(action="accept", content={"agree": True})
    async with Client(
        server.create_server(served), mode=mode, elicitation_callback=human
    ) as client:

        async def call(tool, **arguments):
            answer = await client.call_tool(tool, arguments)
            assert not answer.is_error, answer.content[0].text
            return answer.structured_content

        for tool, arguments in (
            ("sessions_list", {}),
            ("sessions_stats", {}),
            ("sessions_prune", {"what": "all"}),
            ("sessions_finalize", {"sessions": ["new"]}),
            ("sessions_compress", {"session": "new"}),
            ("sessions_restore", {}),
        ):
            await call(tool, **arguments)
        edited = await call("sessions_edit", sessions="new", title="Named", archived=True)
        await call("sessions_restore", batch=edited["batch"])
        assert human.asked == []
        planned = await call("sessions_finalize", sessions=["new"])
        await call("sessions_finalize", plan=planned["plan"])
        assert [item.partition("\n")[0] for item in human.asked] == ["Finalize sessions: 1?"]
        await call("sessions_finalize", plan=planned["plan"])  # returns the stored result
        assert len(human.asked) == 1


@pytest.mark.requirement("changing:asked")
@MODES
async def test_consent_question_is_stable_with_examples(served, mode):
    human = Human(action="cancel")
    async with Client(
        server.create_server(served), mode=mode, elicitation_callback=human
    ) as client:
        plan = (await client.call_tool("sessions_prune", {})).structured_content["plan"]
        for _ in range(2):
            answer = (await client.call_tool("sessions_prune", {"plan": plan})).structured_content
            assert (answer["outcome"], answer["plan"]) == ("cancelled", plan)
            (warning,) = answer["warnings"]
            assert warning == (
                "not confirmed; nothing was changed; call again with the same plan, "
                "or start the server with --confirm=never"
            )
    first, again = human.asked
    assert first == again
    lines = first.split("\n")
    assert lines[0] == "Prune sessions: 7?"
    assert [line.partition(":")[0] for line in lines[1:6]] == [f"- old{n}" for n in range(5)]
    assert lines[6:] == ["- and 2 more"]


@pytest.mark.requirement("changing:asked")
@MODES
async def test_client_without_elicitation_agrees_by_plan(served, mode):
    async with Client(server.create_server(served), mode=mode) as client:
        plan = (await client.call_tool("sessions_prune", {})).structured_content["plan"]
        answer = (await client.call_tool("sessions_prune", {"plan": plan})).structured_content
    assert (answer["outcome"], answer["removed"]) == ("applied", 7)
