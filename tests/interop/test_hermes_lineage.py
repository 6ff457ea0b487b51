"""Continuations and delegates as the real Hermes makes them, in lists, filters and plans."""

from __future__ import annotations

import pytest

from session_core import Maintenance, SessionDB, SessionFilter
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import StateFolder
from session_core.maintenance.types import PlanRequest
from tests.interop.hermes import Hermes

DAY = 86_400.0
SHOP = SessionFilter(project="/srv/new_shop")


@pytest.fixture
def rotated_session(theirs: Hermes) -> Hermes:
    """A conversation with a folder and a user that the compressor of Hermes has continued."""
    theirs.call("create_session", "shop_1", "telegram", cwd="/srv/new_shop", user_id="u_shop")
    for number in range(40):
        role = ("user", "assistant")[number % 2]
        theirs.call("append_message", "shop_1", role, f"step {number} of the walrus " * 20)
    theirs.job("rotate", session_id="shop_1", child="shop_2", summary="they spoke", keep=4)
    return theirs


@pytest.mark.requirement("homes:lineage-of-hermes")
def test_rotated_conversation_keeps_folder_and_owner(
    rotated_session: Hermes, ours: SessionDB
) -> None:
    assert rotated_session.sql("SELECT cwd, user_id FROM sessions WHERE id = 'shop_2'") == [
        [None, None]
    ]

    for where in (SHOP, SessionFilter(cwd_prefix="/srv/new_shop"), SessionFilter(user_id="u_shop")):
        lines = ours.list_sessions(where).items
        assert [(line.id, line.project) for line in lines] == [("shop_2", "/srv/new_shop")]
    hits = ours.search("walrus", project="/srv/new_shop", per="message").hits
    assert "shop_2" in {hit.session_id for hit in hits}


@pytest.mark.requirement("homes:lineage-of-hermes")
def test_prune_plan_finds_rotated_conversation(
    rotated_session: Hermes, ours: SessionDB, tmp_path
) -> None:
    for session_id in ("shop_1", "shop_2"):
        rotated_session.sql(
            "UPDATE sessions SET started_at = 1.0, ended_at = 2.0 WHERE id = ?", session_id
        )
        rotated_session.sql("UPDATE messages SET timestamp = 1.5 WHERE session_id = ?", session_id)
    ledger = Ledger(StateFolder(ours.path, root=tmp_path / "kept"))
    planned = Maintenance(ours, ledger).plan(PlanRequest("sessions", where=SHOP))
    assert [item.id for item in planned.items] == ["shop_1"]


@pytest.mark.requirement("homes:lineage-of-hermes")
def test_unlinked_delegate_is_not_listed(theirs: Hermes, ours: SessionDB) -> None:
    theirs.call("create_session", "boss_of_old", "cli")
    marked = {"_delegate_from": "boss_of_old"}
    theirs.call(
        "create_session",
        "worker_of_old",
        "cli",
        parent_session_id="boss_of_old",
        model_config=marked,
    )
    theirs.call("append_message", "worker_of_old", "user", "an unlinked walrus")
    theirs.sql("UPDATE sessions SET started_at = 1.0, ended_at = 2.0 WHERE id = 'boss_of_old'")
    theirs.call("prune_sessions", 90)
    link = "SELECT parent_session_id FROM sessions WHERE id = 'worker_of_old'"
    assert theirs.sql(link) == [[None]]

    rows = theirs.call("list_sessions_rich", limit=500)
    lines = ours.list_sessions(limit=500).items
    assert "worker_of_old" not in {row["id"] for row in rows} | {line.id for line in lines}
    hits = ours.search("unlinked walrus", per="message").hits
    assert [hit.session_id for hit in hits] == ["worker_of_old"]


@pytest.mark.requirement("homes:lineage-of-hermes")
def test_unlinked_delegates_follow_parent_as_in_hermes(theirs: Hermes, ours: SessionDB) -> None:
    for name in ("theirs", "ours"):
        theirs.call("create_session", f"boss_{name}", "cli")
        for number in range(2):
            marked = {"_delegate_from": f"boss_{name}"}
            theirs.call("create_session", f"worker_{name}_{number}", "cli", model_config=marked)
            theirs.call("append_message", f"worker_{name}_{number}", "user", "at work")
    theirs.call("delete_session", "boss_theirs")
    ours.delete_session("boss_ours")
    left = theirs.sql("SELECT id FROM sessions WHERE id LIKE '%_theirs%' OR id LIKE '%_ours%'")
    assert left == []
