"""Changing tasks of a model: previewed, applied exactly, and undone."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.anyio


def get_repair_call(finding):
    """Return the tool and argument that a finding names, as a model reads them."""
    tool, _, what = finding["tool"].partition("(what=")
    return tool, what.strip("')")


@pytest.mark.requirement("tasks:changing")
async def test_home_is_repaired_from_report_commands(given, client):
    model = given("Tidy up my sessions.", "look")
    report = await model.call("sessions_stats")
    findings = [each for each in report["findings"] if each["tool"]]
    assert findings
    for finding in findings:
        tool, what = get_repair_call(finding)
        planned = await model.call(tool, what=what)
        assert planned["outcome"] == "planned", planned
        answer = await model.call(tool, plan=planned["plan"])
        assert answer["outcome"] == "applied"
    model.steps = ("look", *("plan", "apply") * len(findings))
    model.check(most=1_500 + 3_500 * len(findings))
    left = (await client.call_tool("sessions_stats", {})).structured_content["findings"]
    codes = {each["code"] for each in findings}
    assert not codes & {item["code"] for item in left}


@pytest.mark.requirement("tasks:changing")
async def test_last_change_is_undone_from_answer(given):
    model = given("Remove the empty sessions. No, wait, bring them back!", "plan", "apply", "undo")
    planned = await model.call("sessions_prune", what="ghosts")
    answer = await model.call("sessions_prune", plan=planned["plan"])
    restored = await model.call("sessions_restore", batch=answer["batch"])
    assert (answer["removed"], restored["restored"]) == (3, 3)
    model.check(most=1_600)


@pytest.mark.requirement("tasks:changing")
async def test_change_of_yesterday_is_found_and_undone(given):
    yesterday = given("Remove the empty sessions.", "plan", "apply")
    planned = await yesterday.call("sessions_prune", what="ghosts")
    await yesterday.call("sessions_prune", plan=planned["plan"])
    model = given("Bring back what was removed yesterday.", "what can be", "undo")
    (batch,) = (await model.call("sessions_restore"))["batches"]
    assert batch["count"] == 3
    assert batch["tool"]
    restored = await model.call("sessions_restore", batch=batch["batch"])
    assert restored["restored"] == 3
    model.check(most=500)


@pytest.mark.requirement("tasks:changing")
async def test_long_session_is_compressed_by_model_summary(given, client):
    model = given("Compress 'Move of the services'.", "which", "plan", "read", "apply")
    (row,) = (await model.call("sessions_list", query="Move of the services"))["sessions"]
    planned = await model.call("sessions_compress", session=row["id"])
    brief = planned["brief"]
    page = await model.call(
        "sessions_read", session=row["id"], after=brief["from_id"], limit=200, max_chars=40_000
    )
    while page["messages"][-1]["id"] < brief["to_id"]:
        page = await model.call("sessions_read", cursor=page["next_cursor"])
    summary = "All services move.\n" + "\n".join(brief["must_survive"])
    answer = await model.call(
        "sessions_compress", plan=planned["plan"], summary=summary[: brief["target_chars"]]
    )
    assert (answer["outcome"], answer["tokens_after"] < answer["tokens_before"]) == (
        "applied",
        True,
    )
    assert answer["retention"]["kept"] > 0
    model.check(most=46_500)
    again = await client.call_tool("sessions_read", {"session": answer["session_id"], "after": 0})
    assert "All services move." in again.content[0].text


@pytest.mark.requirement("tasks:changing")
async def test_long_session_is_compressed_without_model(given):
    model = given("Compress 'Move of the services', do not read it.", "which", "plan", "apply")
    (row,) = (await model.call("sessions_list", query="Move of the services"))["sessions"]
    planned = await model.call("sessions_compress", session=row["id"], method="extractive")
    answer = await model.call("sessions_compress", plan=planned["plan"])
    assert (answer["outcome"], answer["tokens_after"] < answer["tokens_before"]) == (
        "applied",
        True,
    )
    model.check(most=6_500)


@pytest.mark.requirement("tasks:changing")
async def test_conversation_is_renamed_and_pinned(given):
    model = given("Call the one about Lisbon 'Holiday in May', and keep it.", "which", "do it")
    (row,) = (await model.call("sessions_list", query="Lisbon"))["sessions"]
    edited = await model.call(
        "sessions_edit", sessions=row["id"], title="Holiday in May", pinned=True
    )
    assert (edited["sessions"][0]["title"], edited["sessions"][0]["pinned"]) == (
        "Holiday in May",
        True,
    )
    model.check(most=800)


@pytest.mark.requirement("tasks:changing")
async def test_unended_session_is_finalized(given):
    model = given("End the sessions that nobody has used for a month.", "plan", "apply")
    planned = await model.call("sessions_finalize", what="abandoned")
    assert planned["count"] > 50
    answer = await model.call("sessions_finalize", plan=planned["plan"])
    assert (answer["finalized"], answer["remaining"]) == (planned["count"], 0)
    model.check(most=6_500)


@pytest.mark.requirement("tasks:changing")
async def test_single_conversation_is_removed(given, client):
    model = given("Delete the conversation about the invoice screenshot.", "which", "plan", "apply")
    (hit, *_) = (await model.call("sessions_search", query="invoice screenshot", limit=1))["hits"]
    planned = await model.call("sessions_prune", sessions=[hit["session_id"]])
    assert planned["outcome"] == "planned", planned
    answer = await model.call("sessions_prune", plan=planned["plan"])
    assert answer["removed"] == 1
    model.check(most=1_300)


@pytest.mark.requirement("tasks:changing")
async def test_old_project_conversations_are_removed(given, client):
    model = given("Delete what is older than two months in /home/sam/billing.", "plan", "apply")
    planned = await model.call("sessions_prune", project="/home/sam/billing", older_than_days=60)
    assert planned["count"] > 5
    answer = await model.call("sessions_prune", plan=planned["plan"])
    assert (answer["outcome"], answer["removed"]) == ("applied", planned["count"])
    model.check(most=7_000)
