"""`sessions_compress`: brief, summary, counts, and no secret in a summary."""

from __future__ import annotations

import json

import pytest
from mcp import Client

from mcp_serve import server
from mcp_serve.stores.stores import ServedStores, ServerOptions
from tests.serve.form_users import Human

pytestmark = pytest.mark.anyio

SECRET = "Zx9Qw3Rt7Yp1Lk5Jh8"


@pytest.fixture(autouse=True)
def _long(db):
    add_messages(db)


def add_messages(db):
    """Append enough messages that earlier ones are not in the protected tail."""
    rows = []
    for number in range(60):
        text = f"ticket ABC-{number}: we decided to use port {8000 + number}. " + "well, " * 200
        rows += [{"role": "user", "content": text}, {"role": "assistant", "content": "noted"}]
    db.append_messages("long", rows, create={"source": "cli"})


@pytest.mark.requirement("changing:compress")
async def test_summary_plan_requires_summary(call, refused, db):
    planned = await call("sessions_compress", session="long", keep_last=10)
    text = await refused("sessions_compress", plan=planned["plan"])
    assert "waits for a summary that you write" in text
    assert "method=extractive" in text
    assert db.message_count("long") == 120
    answer = await call("sessions_compress", plan=planned["plan"], summary="Ports were decided.")
    assert answer["outcome"] == "applied"


@pytest.mark.requirement("changing:compress")
async def test_extractive_plan_rejects_summary(call, refused):
    planned = await call("sessions_compress", session="long", method="extractive", keep_last=10)
    arguments = {"plan": planned["plan"], "summary": "Ports were decided."}
    assert "pass no summary" in await refused("sessions_compress", **arguments)
    assert (await call("sessions_compress", plan=planned["plan"]))["outcome"] == "applied"


@pytest.mark.requirement("changing:compress")
async def test_compression_counts_replaced_messages(call):
    planned = await call("sessions_compress", session="long", keep_last=10)
    answer = await call("sessions_compress", plan=planned["plan"], summary="Ports were decided.")
    again = await call("sessions_compress", plan=planned["plan"], summary="Ports were decided.")
    counts = [item["count"] for item in (planned, answer, again)]
    assert counts == [planned["brief"]["messages"]] * 3
    assert counts[0] > 50


@pytest.mark.requirement("changing:compress")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_compression_question_counts_messages(home_path, mode):
    served, human = ServedStores(ServerOptions(home=str(home_path))), Human(action="cancel")
    async with Client(
        server.create_server(served), mode=mode, elicitation_callback=human
    ) as client:
        arguments = {"session": "long", "keep_last": 10}
        planned = (await client.call_tool("sessions_compress", arguments)).structured_content
        plan = {"plan": planned["plan"]}
        for extra in ({}, {"summary": "[redacted: secret]"}):
            assert (await client.call_tool("sessions_compress", plan | extra)).is_error
        assert human.asked == []
        answer = await client.call_tool("sessions_compress", plan | {"summary": "Decided."})
        assert answer.structured_content["outcome"] == "cancelled"
        assert answer.structured_content["count"] == planned["count"]
        assert human.asked[0].startswith(f"Compress: {planned['count']}?")
    served.close()


SAID = {
    "assigned": f"export DB_PASSWORD={SECRET}",
    "quoted": f"the key was set: api_key = '{SECRET}'",
    "in a pair": json.dumps({"client_secret": SECRET}),
    "private key": f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n{SECRET[::-1]}9\n"
    "-----END RSA PRIVATE KEY-----",
    "address": f"https://deploy:{SECRET}@git.example.org/repo",
}


@pytest.mark.requirement("changing:clean")
@pytest.mark.parametrize("kind", SAID)
async def test_extractive_summary_contains_no_secret(call, db, kind):
    """A value alone is not a known secret. Next to its name it was one."""
    text = f"{SAID[kind]}\nWe decided to use {SECRET} for all, on port 8443.\n"
    for number in range(8):
        db.append_message("long", "user", f"{text}ticket XY-{number} stays open")
        db.append_message("long", "tool", f"$ login {SECRET}\nok: {SECRET[:9]}", tool_name="run")
    add_messages(db)
    planned = await call("sessions_compress", session="long", method="extractive", keep_last=10)
    assert planned["brief"]["must_survive"]
    assert SECRET[:9] not in json.dumps(planned)
    answer = await call("sessions_compress", plan=planned["plan"])
    live = json.dumps([row["content"] for row in db.get_messages(answer["session_id"])])
    assert "8443" in live
    assert SECRET[:9] not in live


@pytest.mark.requirement("changing:clean")
@pytest.mark.options(redact=False)
async def test_unredacted_summary_keeps_secrets(call, db):
    for _ in range(8):
        db.append_message("long", "user", f"We decided: DB_PASSWORD={SECRET} on port 8443.")
    add_messages(db)
    planned = await call("sessions_compress", session="long", method="extractive", keep_last=10)
    answer = await call("sessions_compress", plan=planned["plan"])
    assert SECRET in json.dumps([row["content"] for row in db.get_messages(answer["session_id"])])


@pytest.mark.requirement("changing:dropped")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_lossy_undo_asks_for_consent(home_path, db, mode):
    served, human = ServedStores(ServerOptions(home=str(home_path))), Human(action="decline")
    async with Client(
        server.create_server(served), mode=mode, elicitation_callback=human
    ) as client:

        async def call(tool, **arguments):
            return (await client.call_tool(tool, arguments)).structured_content

        human.answer = {"action": "accept", "content": {"agree": True}}
        arguments = {"session": "long", "keep_last": 10, "shape": "continuation"}
        planned = await call("sessions_compress", **arguments)
        answer = await call("sessions_compress", plan=planned["plan"], summary="Decided.")
        db.set_session_title(answer["session_id"], "Named since")
        undo = await call("sessions_restore", batch=answer["batch"])
        assert undo["outcome"] == "planned"
        assert undo["warnings"] == ["changes made since go to the trash: title"]
        db.append_message(answer["session_id"], "user", "said since")
        undo = await call("sessions_restore", batch=answer["batch"])
        assert undo["warnings"][0] == "1 messages added since go to the trash"
        human.asked.clear()
        back = await call("sessions_restore", plan=undo["plan"])
        assert (back["outcome"], back["plan"]) == ("applied", undo["plan"])
        assert human.asked[0].startswith("Undo a compression: 1?")
        assert "Note: 1 messages added since go to the trash" in human.asked[0]
    served.close()
