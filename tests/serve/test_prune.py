"""`sessions_prune`: plan, apply exactly that, undo; filters that a kind does not take."""

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
    done = await call("sessions_prune", plan=planned["plan"])
    assert (done["outcome"], done["removed"], done["remaining"]) == ("applied", 3, 0)
    assert list_ids(await call("sessions_list", status="all")) == ["new"]
    again = await call("sessions_prune", plan=planned["plan"])
    assert again == done
    (batch,) = (await call("sessions_restore"))["batches"]
    assert (batch["batch"], batch["count"]) == (done["batch"], 3)
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
