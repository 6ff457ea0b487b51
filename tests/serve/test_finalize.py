"""The tool `sessions_finalize`."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("old_sessions")]


@pytest.mark.requirement("changing:plans")
async def test_finalize_ends_named_sessions(call, refused, db):
    assert "pass the sessions to finalize" in await refused("sessions_finalize")
    planned = await call("sessions_finalize", sessions=["new"])
    assert (planned["outcome"], planned["count"]) == ("planned", 1)
    answer = await call("sessions_finalize", plan=planned["plan"])
    assert (answer["outcome"], answer["finalized"]) == ("applied", 1)
    assert db.get_session("new")["end_reason"] == "finalized"
    await call("sessions_restore", batch=answer["batch"])
    assert db.get_session("new")["ended_at"] is None
