"""`sessions_prune`: plan, apply exactly that, undo. Filters that a kind does not take."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("old_sessions")]


def list_ids(page):
    return sorted(row["id"] for row in page["sessions"])


@pytest.mark.requirement("changing:plans")
async def test_prune_plans_then_applies_then_restores(call):
    planned = await call("sessions_prune")
    assert (planned["outcome"], planned["count"]) == ("planned", 3)
    assert sorted(item["id"] for item in planned["items"]) == ["old0", "old1", "old2"]
    assert list_ids(await call("sessions_list", status="all")) == ["new", "old0", "old1", "old2"]
    assert planned["totals"]["messages"] == 3
    assert planned["totals"]["by_source"] == {"cli": 3}
    assert planned["items"][0]["messages"] == 1
    assert planned["items"][0]["last_active_at"] == "2020-09-13T12:26:40Z"
    answer = await call("sessions_prune", plan=planned["plan"])
    assert (answer["outcome"], answer["removed"], answer["remaining"]) == ("applied", 3, 0)
    assert (answer["items"], answer["totals"]) == ([], planned["totals"])
    assert list_ids(await call("sessions_list", status="all")) == ["new"]
    again = await call("sessions_prune", plan=planned["plan"])
    assert again == answer
    (batch,) = (await call("sessions_restore"))["batches"]
    assert (batch["batch"], batch["count"]) == (answer["batch"], 3)
    restored = await call("sessions_restore", batch=batch["batch"])
    assert (restored["outcome"], restored["restored"]) == ("applied", 3)
    assert list_ids(await call("sessions_list", status="all")) == ["new", "old0", "old1", "old2"]


@pytest.mark.requirement("changing:handles")
async def test_empty_prune_answers_without_plan(call):
    planned = await call("sessions_prune", source="telegram")
    assert (planned["outcome"], planned["plan"], planned["count"]) == ("nothing", None, 0)


@pytest.mark.requirement("changing:handles")
async def test_sessionless_prune_rejects_filters(refused):
    for arguments in ({"what": "trash", "source": "cli"}, {"what": "index", "sessions": ["old0"]}):
        text = await refused("sessions_prune", **arguments)
        assert text.startswith(f"what='{arguments['what']}' takes no ")
        assert "filter" in text


@pytest.mark.requirement("changing:chosen")
async def test_prune_keeps_named_conversations(call, db):
    db.append_message("old1", "user", "the tax return", timestamp=1_600_000_001)
    planned = await call("sessions_prune", keep=["tax return", "old2", "zeppelin"])
    assert [item["id"] for item in planned["items"]] == ["old0"]
    (kept,) = planned["protected"]
    assert (kept["why"], kept["count"], kept["ids"]) == ("keep names it", 2, ["old1", "old2"])
    assert planned["warnings"] == [
        "keep 'zeppelin' is in no message, title or id, so it protects nothing"
    ]


@pytest.mark.requirement("changing:chosen")
async def test_prune_explains_unknown_values(call):
    planned = await call("sessions_prune", source="discord")
    assert (planned["outcome"], planned["items"]) == ("nothing", [])
    assert planned["note"] == "No source 'discord'; existing: cli."
    assert (await call("sessions_prune", source="CLI"))["count"] == 3
    finalized = await call("sessions_finalize", what="abandoned", project="nowhere")
    assert finalized["note"] == "No session has a folder; leave project out."


@pytest.mark.requirement("changing:plans")
async def test_plan_items_are_paged_by_cursor(call, db):
    with db.transaction():
        for number in range(40):
            create = {"source": "cli", "started_at": 1_600_000_000}
            at = 1_600_000_000 + number
            db.append_message(f"more{number:02}", "user", "x", timestamp=at, create=create)
            db.end_session(f"more{number:02}", "done")
    page = planned = await call("sessions_prune")
    assert (planned["count"], len(planned["items"])) == (43, 20)
    ids = [item["id"] for item in page["items"]]
    while page["next_cursor"]:
        page = await call("sessions_prune", plan=planned["plan"], cursor=page["next_cursor"])
        assert (page["outcome"], page["plan"]) == ("planned", planned["plan"])
        ids += [item["id"] for item in page["items"]]
    assert len(ids) == len(set(ids)) == 43
    alone = await call("sessions_prune", cursor=planned["next_cursor"])
    assert alone["items"][0]["id"] == ids[20]
    assert list_ids(await call("sessions_list", status="all", limit=100)) == sorted([*ids, "new"])
