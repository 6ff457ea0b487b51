"""The answers of changing tools have exactly the keys of the contract at each step."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest

pytestmark = pytest.mark.anyio

OLD = 1_600_000_000

PLAN = ["outcome", "plan", "expires_at", "count", "items", "protected", "bytes", "warnings"]
TOTALS = ["totals"]
DONE = ["skipped", "remaining", "batch"]


@pytest.fixture(autouse=True)
def _old_ones(db):
    """More sessions than an answer lists, one pinned, one long."""
    for number in range(25):
        create = {"source": "cli", "started_at": OLD}
        db.append_message(f"old{number:02}", "user", "x" * 50, timestamp=OLD, create=create)
        db.end_session(f"old{number:02}", "user_exit")
    db.append_message("new", "user", "hello", create={"source": "cli"})
    for number in range(60):
        text = f"ticket ABC-{number}: we decided to use port {8000 + number}. " + "well, " * 200
        db.append_message("long", "user", text, create={"source": "cli"})


def parse_moment(text):
    result = datetime.fromisoformat(text.replace("Z", "+00:00"))
    assert result.tzinfo is not None
    return result


@pytest.mark.requirement("changing:answers")
async def test_plan_answer_has_contract_keys(call):
    pinned = await call("sessions_edit", sessions="old07", pinned=True)
    assert pinned.keys() == {"sessions", "batch"}
    plan = await call("sessions_prune")
    assert sorted(plan) == sorted([*PLAN, *TOTALS, "next_cursor"])
    assert (plan["outcome"], plan["count"], len(plan["items"])) == ("planned", 24, 20)
    assert plan["protected"] == [{"why": "it is pinned", "count": 1, "ids": ["old07"]}]
    assert plan["totals"].keys() == {"messages", "bytes", "by_source"}
    assert "old07" not in [item["id"] for item in plan["items"]]
    assert {tuple(item) for item in plan["items"]} == {
        ("id", "title", "why", "messages", "last_active_at")
    }
    assert all("user_exit" in item["why"] for item in plan["items"])
    assert plan["bytes"].keys() == {"needed_now", "free_in_file", "returned_to_disk", "trash"}
    remaining = parse_moment(plan["expires_at"]) - datetime.now(timezone.utc)
    assert timedelta(hours=23) < remaining <= timedelta(hours=24)


@pytest.mark.requirement("changing:answers")
async def test_prune_result_reports_removed_and_skipped(call, db):
    plan = await call("sessions_prune")
    db.append_message("old03", "user", "back again")
    answer = await call("sessions_prune", plan=plan["plan"])
    assert sorted(answer) == sorted([*PLAN, *TOTALS, *DONE, "removed"])
    assert answer["items"] == []
    assert (answer["outcome"], answer["removed"], answer["remaining"]) == ("applied", 24, 0)
    ((remaining,),) = (answer["skipped"],)
    assert remaining["id"] == "old03"
    assert remaining["why"]
    (batch,) = (await call("sessions_restore"))["batches"]
    assert sorted(batch) == ["at", "batch", "count", "expires_at", "tool"]
    kept = parse_moment(batch["expires_at"]) - parse_moment(batch["at"])
    assert (batch["batch"], batch["count"], kept) == (answer["batch"], 24, timedelta(days=30))
    back = await call("sessions_restore", batch=batch["batch"])
    assert sorted(back) == sorted([*PLAN, *DONE, "restored"])
    assert (back["outcome"], back["restored"], back["batch"]) == ("applied", 24, batch["batch"])
    assert await call("sessions_restore") == {"batches": [], "next_cursor": None}


@pytest.mark.requirement("changing:answers")
async def test_finalize_result_reports_count(call):
    plan = await call("sessions_finalize", sessions=["new"])
    assert sorted(plan) == sorted([*PLAN, *TOTALS])
    answer = await call("sessions_finalize", plan=plan["plan"])
    assert sorted(answer) == sorted([*PLAN, *TOTALS, *DONE, "finalized"])
    assert (answer["finalized"], answer["skipped"]) == (1, [])


@pytest.mark.requirement("changing:answers")
async def test_trash_plan_warns_about_missing_undo(call):
    plan = await call("sessions_prune", what="trash", older_than_days=0)
    assert plan["outcome"] == "nothing"
    await call("sessions_edit", sessions="new", title="T")
    plan = await call("sessions_prune", what="trash", older_than_days=0)
    assert plan["warnings"] == ["this has no undo: emptied trash can never be restored"]
    answer = await call("sessions_prune", plan=plan["plan"])
    assert (answer["removed"], answer["batch"]) == (1, None)
    assert (await call("sessions_restore"))["batches"] == []


async def test_trash_prune_removes_single_batches(call, refused):
    edits = [await call("sessions_edit", sessions="new", title=title) for title in ("T", "U")]
    first, second = (edit["batch"] for edit in edits)
    plan = await call("sessions_prune", what="trash", sessions=[first])
    assert (plan["count"], [item["id"] for item in plan["items"]]) == (1, [first])
    assert plan["warnings"] == ["this has no undo: emptied trash can never be restored"]
    assert plan["bytes"]["returned_to_disk"] > 0
    assert len((await call("sessions_restore"))["batches"]) == 2
    await call("sessions_prune", plan=plan["plan"])
    assert [batch["batch"] for batch in (await call("sessions_restore"))["batches"]] == [second]
    assert (await call("sessions_restore", batch=second))["restored"] == 1
    again = await call("sessions_prune", what="trash", sessions=[first, second])
    assert again["outcome"] == "nothing"
    assert ["emptied already" in again["warnings"][0], "restored" in again["warnings"][1]] == [
        True,
        True,
    ]
    assert "b-none" in await refused("sessions_prune", what="trash", sessions=["b-none"])


async def test_prune_result_names_shrink_call(call, db):
    db.append_messages("old03", [{"role": "user", "content": "x" * 300_000}] * 4)
    db.end_session("old03", "user_exit")
    plan = await call("sessions_prune", sessions=["old03"])
    assert "next" not in plan
    answer = await call("sessions_prune", plan=plan["plan"])
    assert answer["next"] == "sessions_prune(what='index')"
    assert answer["bytes"]["free_in_file"] > 1_000_000
    assert (answer["bytes"]["returned_to_disk"], answer["bytes"]["trash"] > 0) == (0, True)


@pytest.mark.requirement("changing:answers")
async def test_compression_reports_facts_and_retention(call):
    plan = await call("sessions_compress", session="long", keep_last=10)
    about_one = [key for key in PLAN if key not in ("items", "protected")]
    assert sorted(plan) == sorted([*about_one, "brief"])
    brief = plan["brief"]
    assert sorted(brief) == sorted(
        ["from_id", "to_id", "messages", "tokens", "must_survive", "target_chars", "digest"]
    )
    assert any("8003" in fact or "ABC-3" in fact for fact in brief["must_survive"])
    summary = "We decided to use port 8012."
    answer = await call("sessions_compress", plan=plan["plan"], summary=summary)
    more = ["shape", "session_id", "tokens_before", "tokens_after", "retention"]
    assert sorted(answer) == sorted([*about_one, "remaining", "batch", *more])
    assert answer["shape"] in ("in_place", "continuation")
    assert sorted(answer["retention"]) == ["by_kind", "found", "kept"]
    for kind, (result, kept) in answer["retention"]["by_kind"].items():
        assert result >= kept >= 0, kind
    assert (
        answer["retention"]["kept"]
        == sum(k for _, k in answer["retention"]["by_kind"].values())
        > 0
    )


@pytest.mark.requirement("changing:answers")
@pytest.mark.parametrize("shape", ["in_place", "continuation"])
async def test_compression_uses_requested_shape(call, db, shape):
    plan = await call("sessions_compress", session="long", keep_last=7, shape=shape)
    answer = await call("sessions_compress", plan=plan["plan"], summary="Ports were decided.")
    assert (answer["shape"], answer["session_id"] == "long") == (shape, shape == "in_place")
    live = [row["content"] for row in db.get_messages(answer["session_id"])]
    assert [text[:15] for text in live[-7:]] == [f"ticket ABC-{n}: " for n in range(53, 60)]


@pytest.mark.requirement("serving:halves")
async def test_text_and_structured_answers_match(client):
    for name, arguments in (("sessions_list", {}), ("sessions_prune", {}), ("sessions_stats", {})):
        answer = await client.call_tool(name, arguments)
        (text,) = [part.text for part in answer.content]
        whole = answer.structured_content
        assert text == json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
