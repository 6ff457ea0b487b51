"""Tokens and costs: the totals of a session, and a row for each model and task."""

from __future__ import annotations

from typing import Any

import pytest

from session_core import InvalidInput, NotFound, StateDatabase

CALL: dict[str, Any] = {
    "model": "m",
    "billing_provider": "p",
    "api_call_count": 1,
    "input_tokens": 10,
    "output_tokens": 4,
    "cache_read_tokens": 3,
    "cache_write_tokens": 2,
    "reasoning_tokens": 1,
    "estimated_cost_usd": 0.5,
}
COUNTS = [name for name in CALL if name.endswith(("_tokens", "_count"))]


def totals(db: StateDatabase, session_id: str = "s") -> dict[str, Any]:
    row: Any = db.get_session(session_id)
    assert row is not None
    return {name: row[name] for name in (*COUNTS, "estimated_cost_usd", "actual_cost_usd")}


def times(factor: int) -> dict[str, Any]:
    return {name: CALL[name] * factor for name in (*COUNTS, "estimated_cost_usd")}


def used(db: StateDatabase, session_id: str = "s") -> list[tuple[str, str, int]]:
    """Return model, task and input tokens of each row; no rows where a home keeps none."""
    rows = db.get_model_usage(session_id)
    return [(row["model"], row.get("task", ""), row["input_tokens"]) for row in rows]


@pytest.fixture
def by_model(db: StateDatabase) -> bool:
    """Whether this home has rows for each model."""
    with_call: dict[str, Any] = {"model": "m", "input_tokens": 1}
    db.update_token_counts("probe", **with_call)
    return bool(db.get_model_usage("probe"))


@pytest.mark.requirement("usage:totals")
def test_counts_are_added(db: StateDatabase, by_model: bool) -> None:
    db.create_session("s", "cli")
    for _ in range(3):
        db.update_token_counts("s", **CALL)
    assert totals(db) == {**times(3), "actual_cost_usd": None}
    assert used(db) == ([("m", "", 30)] if by_model else [])


@pytest.mark.requirement("usage:totals")
def test_absolute_counts_are_set_and_make_no_row(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.update_token_counts("s", absolute=True, **CALL)
    db.update_token_counts("s", absolute=True, **CALL)
    assert totals(db) == {**times(1), "actual_cost_usd": None}
    assert used(db) == []


def test_an_actual_cost_is_added_only_where_it_is_known(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.update_token_counts("s", **CALL)
    assert totals(db)["actual_cost_usd"] is None
    for _ in range(2):
        db.update_token_counts("s", actual_cost_usd=0.25, cost_status="final", cost_source="bill")
    row: Any = db.get_session("s")
    assert (row["actual_cost_usd"], row["cost_status"]) == (0.5, "final")
    db.update_token_counts("s", **CALL)
    row = db.get_session("s")
    assert (row["actual_cost_usd"], row["cost_status"]) == (0.5, "final")


def test_a_session_that_is_not_there_is_created_with_an_unknown_source(db: StateDatabase) -> None:
    db.update_token_counts("s", **CALL)
    row: Any = db.get_session("s")
    assert (row["source"], row["model"], row["input_tokens"]) == ("unknown", "m", 10)


@pytest.mark.requirement("usage:models")
def test_each_model_has_its_own_row(db: StateDatabase, by_model: bool) -> None:
    db.create_session("s", "cli")
    for model in ("m", "n", "m"):
        db.update_token_counts("s", **{**CALL, "model": model})
    db.update_token_counts("s", **{**CALL, "billing_provider": "q"})
    assert totals(db)["input_tokens"] == 40
    expected = [("m", "", 10), ("m", "", 20), ("n", "", 10)] if by_model else []
    assert sorted(used(db)) == expected


def test_a_call_without_a_model_counts_for_that_of_the_session(
    db: StateDatabase, by_model: bool
) -> None:
    db.create_session("s", "cli", model="m")
    db.update_token_counts("s", input_tokens=5)
    db.create_session("t", "cli")
    db.update_token_counts("t", input_tokens=5)
    assert used(db) == ([("m", "", 5)] if by_model else [])
    assert used(db, "t") == ([("unknown", "", 5)] if by_model else [])


@pytest.mark.requirement("usage:route")
def test_the_first_call_may_replace_the_requested_route(db: StateDatabase) -> None:
    db.create_session("s", "cli", model="requested")
    db.update_token_counts("s", **CALL)
    row: Any = db.get_session("s")
    assert (row["model"], row["billing_provider"]) == ("m", "p")
    db.update_token_counts("s", **{**CALL, "model": "later", "billing_provider": "q"})
    row = db.get_session("s")
    assert (row["model"], row["billing_provider"]) == ("m", "p")


def test_a_route_fills_what_is_empty(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.update_token_counts("s", input_tokens=1, model="m")
    db.update_token_counts("s", input_tokens=1, billing_base_url="u", billing_mode="api")
    row: Any = db.get_session("s")
    assert (row["model"], row["billing_base_url"], row["billing_mode"]) == ("m", "u", "api")


@pytest.mark.requirement("usage:models")
def test_calls_beside_the_conversation_count_for_their_task_only(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.update_token_counts("s", **CALL)
    before = totals(db)
    tasks = has_task(db)
    for _ in range(2):
        db.record_auxiliary_usage("s", "vision", model="v", input_tokens=7, api_call_count=1)
    assert totals(db) == before
    extra = [("v", "vision", 14)] if tasks else []
    assert [row for row in used(db) if row[1]] == extra


def has_task(db: StateDatabase) -> bool:
    rows = db.get_model_usage("s")
    return bool(rows) and "task" in rows[0]


@pytest.mark.requirement("usage:invalid")
@pytest.mark.parametrize(
    "counts",
    [
        {"bogus": 1},
        {"message_count": 1},
        {"input_tokens": "5"},
        {"input_tokens": object()},
        {"estimated_cost_usd": "much"},
        {"estimated_cost_usd": float("nan")},
        {"input_tokens": 2**70},
        {"input_tokens": -1},
        {"input_tokens": 1.5},
        {"api_call_count": -1},
        {"actual_cost_usd": -0.1},
        {"model": object()},
    ],
)
def test_counts_that_make_no_sense_are_invalid(db: StateDatabase, counts: dict[str, Any]) -> None:
    db.create_session("s", "cli")
    db.update_token_counts("s", **CALL)
    before = totals(db), used(db)
    for absolute in (False, True):
        with pytest.raises(InvalidInput):
            db.update_token_counts("s", absolute=absolute, **counts)
    with pytest.raises(InvalidInput):
        db.record_auxiliary_usage("s", "vision", **counts)
    assert (totals(db), used(db)) == before


def test_a_task_needs_a_name_and_a_session(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    with pytest.raises(InvalidInput):
        db.record_auxiliary_usage("s", "", input_tokens=1)
    with pytest.raises(NotFound):
        db.record_auxiliary_usage("nobody", "vision", input_tokens=1)


def test_nothing_is_counted_for_a_session_without_calls(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    assert db.get_model_usage("s") == []
    assert db.get_model_usage("nobody") == []
