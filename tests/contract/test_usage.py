"""Tokens and costs: the totals of a session, and a row for each model and task."""

from __future__ import annotations

from typing import Any

import pytest

from session_core import InvalidInput, NotFound, StateDatabase

pytestmark = pytest.mark.schemas(16, 30)

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


def read_totals(db: StateDatabase, session_id: str = "s") -> dict[str, Any]:
    row: Any = db.get_session(session_id)
    assert row is not None
    return {name: row[name] for name in (*COUNTS, "estimated_cost_usd", "actual_cost_usd")}


def multiply_call(factor: int) -> dict[str, Any]:
    return {name: CALL[name] * factor for name in (*COUNTS, "estimated_cost_usd")}


def list_model_usage(db: StateDatabase, session_id: str = "s") -> list[tuple[str, str, int]]:
    """Return model, task and input tokens of each row. Empty if the home lacks them."""
    rows = db.admin.get_model_usage(session_id)
    return [(row["model"], row.get("task", ""), row["input_tokens"]) for row in rows]


@pytest.fixture
def has_model_rows(db: StateDatabase) -> bool:
    """Return True if this home has rows for each model."""
    with_call: dict[str, Any] = {"model": "m", "input_tokens": 1}
    db.update_token_counts("probe", **with_call)
    return bool(db.admin.get_model_usage("probe"))


@pytest.mark.requirement("usage:totals")
def test_token_counts_are_added(db: StateDatabase, has_model_rows: bool) -> None:
    db.create_session("s", "cli")
    for _ in range(3):
        db.update_token_counts("s", **CALL)
    assert read_totals(db) == {**multiply_call(3), "actual_cost_usd": None}
    assert list_model_usage(db) == ([("m", "", 30)] if has_model_rows else [])


@pytest.mark.requirement("usage:totals")
def test_absolute_token_counts_create_no_model_row(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.update_token_counts("s", absolute=True, **CALL)
    db.update_token_counts("s", absolute=True, **CALL)
    assert read_totals(db) == {**multiply_call(1), "actual_cost_usd": None}
    assert list_model_usage(db) == []


def test_actual_cost_is_added_only_if_known(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.update_token_counts("s", **CALL)
    assert read_totals(db)["actual_cost_usd"] is None
    for _ in range(2):
        db.update_token_counts("s", actual_cost_usd=0.25, cost_status="final", cost_source="bill")
    row: Any = db.get_session("s")
    assert (row["actual_cost_usd"], row["cost_status"]) == (0.5, "final")
    db.update_token_counts("s", **CALL)
    row = db.get_session("s")
    assert (row["actual_cost_usd"], row["cost_status"]) == (0.5, "final")


def test_token_counts_create_missing_session(db: StateDatabase) -> None:
    db.update_token_counts("s", **CALL)
    row: Any = db.get_session("s")
    assert (row["source"], row["model"], row["input_tokens"]) == ("unknown", "m", 10)


@pytest.mark.requirement("usage:models")
def test_token_counts_are_stored_per_model(db: StateDatabase, has_model_rows: bool) -> None:
    db.create_session("s", "cli")
    for model in ("m", "n", "m"):
        db.update_token_counts("s", **{**CALL, "model": model})
    db.update_token_counts("s", **{**CALL, "billing_provider": "q"})
    assert read_totals(db)["input_tokens"] == 40
    expected = [("m", "", 10), ("m", "", 20), ("n", "", 10)] if has_model_rows else []
    assert sorted(list_model_usage(db)) == expected


def test_token_counts_default_to_session_model(db: StateDatabase, has_model_rows: bool) -> None:
    db.create_session("s", "cli", model="m")
    db.update_token_counts("s", input_tokens=5)
    db.create_session("t", "cli")
    db.update_token_counts("t", input_tokens=5)
    assert list_model_usage(db) == ([("m", "", 5)] if has_model_rows else [])
    assert list_model_usage(db, "t") == ([("unknown", "", 5)] if has_model_rows else [])


@pytest.mark.requirement("usage:route")
def test_first_call_can_replace_requested_model(db: StateDatabase) -> None:
    db.create_session("s", "cli", model="requested")
    db.update_token_counts("s", **CALL)
    row: Any = db.get_session("s")
    assert (row["model"], row["billing_provider"]) == ("m", "p")
    db.update_token_counts("s", **{**CALL, "model": "later", "billing_provider": "q"})
    row = db.get_session("s")
    assert (row["model"], row["billing_provider"]) == ("m", "p")


def test_model_route_fills_empty_fields(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.update_token_counts("s", input_tokens=1, model="m")
    db.update_token_counts("s", input_tokens=1, billing_base_url="u", billing_mode="api")
    row: Any = db.get_session("s")
    assert (row["model"], row["billing_base_url"], row["billing_mode"]) == ("m", "u", "api")


@pytest.mark.requirement("usage:models")
def test_auxiliary_usage_counts_for_task_only(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.update_token_counts("s", **CALL)
    before = read_totals(db)
    tasks = has_task(db)
    for _ in range(2):
        db.record_auxiliary_usage("s", "vision", model="v", input_tokens=7, api_call_count=1)
    assert read_totals(db) == before
    extra = [("v", "vision", 14)] if tasks else []
    assert [row for row in list_model_usage(db) if row[1]] == extra


def has_task(db: StateDatabase) -> bool:
    rows = db.admin.get_model_usage("s")
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
def test_token_counts_reject_invalid_values(db: StateDatabase, counts: dict[str, Any]) -> None:
    db.create_session("s", "cli")
    db.update_token_counts("s", **CALL)
    before = read_totals(db), list_model_usage(db)
    for absolute in (False, True):
        with pytest.raises(InvalidInput):
            db.update_token_counts("s", absolute=absolute, **counts)
    with pytest.raises(InvalidInput):
        db.record_auxiliary_usage("s", "vision", **counts)
    assert (read_totals(db), list_model_usage(db)) == before


def test_auxiliary_usage_requires_task_and_session(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    with pytest.raises(InvalidInput):
        db.record_auxiliary_usage("s", "", input_tokens=1)
    with pytest.raises(NotFound):
        db.record_auxiliary_usage("nobody", "vision", input_tokens=1)


def test_model_usage_is_empty_without_calls(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    assert db.admin.get_model_usage("s") == []
    assert db.admin.get_model_usage("nobody") == []
