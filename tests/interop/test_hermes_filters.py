"""Every list filter selects the same ended sessions as in Hermes."""

from __future__ import annotations

import pytest

from session_core.types import SessionFilter

DRIFTED = {"min_messages", "max_messages"}
"""Theirs goes by a counter, ours counts rows: a correction, so only true counters are compared."""

INHERITED = {"source", "cwd_prefix", "user_id", "chat_id", "chat_type"}
"""A continuation has them of its conversation, also where its own row has nothing."""


@pytest.fixture
def filters(theirs):
    """Conditions that each select some sessions and leave out others."""
    first, middle = theirs.sql("SELECT min(started_at), avg(started_at) FROM sessions")[0]
    return [
        {},
        {"started_before": middle},
        {"started_after": middle},
        {"started_after": first, "started_before": middle},
        {"source": "cli"},
        {"title_like": "TRIP"},
        {"end_reason": "compression"},
        {"cwd_prefix": "/srv"},
        {"min_messages": 2},
        {"max_messages": 1},
        {"model_like": "M1"},
        {"provider": "OpenRouter"},
        {"user_id": "u1"},
        {"chat_id": "77"},
        {"chat_type": "dm"},
        {"branch_like": "FEAT"},
        {"min_tokens": 100},
        {"max_tokens": 99},
        {"min_cost": 0.2},
        {"max_cost": 0.1},
        {"min_tool_calls": 1},
        {"max_tool_calls": 0},
        {"source": "telegram", "chat_type": "dm", "min_messages": 2},
    ]


@pytest.mark.requirement("interop:filters")
def test_list_filter_matches_hermes(theirs, ours, filters):
    if not theirs.has("list_prune_candidates"):
        return
    theirs.sql("UPDATE sessions SET ended_at = started_at + 60 WHERE ended_at IS NULL")
    theirs.sql("UPDATE sessions SET git_branch = 'feature/x' WHERE id IN ('boss', 'trunk')")
    wrong_counter = set(ours.admin.find_drifted_sessions())
    continuations = {
        stock.id
        for stock in ours.admin.list_inventory()
        if ours.get_link_kind(stock.id) == "continuation"
    }
    selected = {}
    for given in filters:
        theirs_of = {row["id"] for row in theirs.call("list_prune_candidates", **given)}
        values = {"status": "all", **given}
        if "source" in values:
            values["source"] = (values["source"],)
        ours_of = set(ours.find_sessions(SessionFilter(**values)))
        left_out = wrong_counter if DRIFTED & set(given) else set()
        if INHERITED & set(given):
            left_out = continuations - theirs_of
        assert ours_of - left_out == theirs_of - left_out, given
        selected[str(given)] = len(ours_of)
    total = theirs.sql("SELECT count(*) FROM sessions")[0][0]
    assert selected["{}"] == total
    assert all(0 < count < total for given, count in selected.items() if given != "{}"), selected


def test_title_filter_is_not_pattern(ours):
    """A correction: Hermes treats % and _ as wildcards."""
    assert ours.find_sessions(SessionFilter(title_like="50%", status="all")) == ["titled_4"]
    assert ours.find_sessions(SessionFilter(title_like="50_", status="all")) == ["titled_5"]
