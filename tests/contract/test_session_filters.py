"""Filters of sessions in lists, searches of ids and counts."""

from __future__ import annotations

from typing import Any

import pytest

from session_core import SessionFilter, StateDatabase
from tests.contract.engines import has_column
from tests.contract.listing import add_session_at, list_session_ids

ORDERS = ("recent", "started", "size", "cost", "tokens")


@pytest.fixture
def varied_conversations(db: StateDatabase) -> StateDatabase:
    """Make conversations that differ in every column that a filter uses."""
    with db.transaction():
        add_session_at(
            db, "app", 10.0, started_at=1.0, cwd="/srv/app", model="Big-One", user_id="u1"
        )
        add_session_at(db, "sub", 20.0, 21.0, started_at=2.0, cwd="/srv/app/sub", source="tui")
        add_session_at(
            db, "app2", 30.0, started_at=3.0, cwd="/srv/app2", source="telegram", user_id="u2"
        )
        add_session_at(db, "App", 40.0, started_at=4.0, cwd="/srv/App/x", model="big_two")
        add_session_at(db, "win", 50.0, started_at=5.0, cwd="C:\\work\\app")
        add_session_at(db, "bare", started_at=6.0)
        for session_id, title in (
            ("app", "100% sure"),
            ("sub", "100 sure"),
            ("win", "a_b"),
            ("bare", "axb"),
        ):
            db.set_session_title(session_id, title)
        db.end_session("app", "cli_close")
        db.end_session("sub", "compression")
        db.set_session_archived("app2", archived=True)
        db.update_token_counts("sub", input_tokens=10, output_tokens=5, estimated_cost_usd=0.5)
        db.update_token_counts("App", input_tokens=3, billing_provider="Acme", actual_cost_usd=2.0)
        calls = [{"id": "c", "function": {"name": "x", "arguments": "{}"}}] * 2
        db.append_message("win", "assistant", "", tool_calls=calls, timestamp=51.0)
    return db


@pytest.mark.requirement("lists:filters")
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({}, "win App sub app bare"),
        ({"status": "open"}, "win App bare"),
        ({"status": "ended"}, "sub app"),
        ({"status": "archived"}, "app2"),
        ({"status": "all"}, "win App app2 sub app bare"),
        ({"ids": ("app", "nobody", "bare")}, "app bare"),
        ({"ids": ()}, ""),
        ({"source": ("tui", "telegram")}, "sub"),
        ({"source": ()}, ""),
        ({"exclude_source": ("tui", "telegram")}, "win App app bare"),
        ({"exclude_source": ()}, "win App sub app bare"),
        ({"source": ("cli", "tui"), "exclude_source": ("cli",)}, "sub"),
        ({"titled": True}, "win sub app bare"),
        ({"titled": False}, "App"),
        ({"project": "/srv/app"}, "sub app"),
        ({"project": "/srv/app/"}, "sub app"),
        ({"project": "/srv"}, "App sub app"),
        ({"project": "/srv/ap"}, ""),
        ({"project": "/srv/%"}, ""),
        ({"project": "/srv/app_"}, ""),
        ({"project": "/"}, "App sub app"),
        ({"project": "C:\\work"}, "win"),
        ({"project": ("/srv/App", "/srv/app/sub")}, "App sub"),
        ({"project": ()}, ""),
        ({"project": "C:\\work\\app\\"}, "win"),
        ({"cwd_prefix": "/srv/app"}, "sub app"),
        ({"cwd_prefix": "/srv/app/sub"}, "sub"),
        ({"started_after": 2.0, "started_before": 5.0}, "App sub"),
        ({"active_after": 21.0, "active_before": 51.0}, "App sub"),
        ({"active_before": 7.0}, "bare"),
        ({"title_like": "SURE"}, "sub app"),
        ({"title_like": "100%"}, "app"),
        ({"title_like": "a_b"}, "win"),
        ({"title_like": "\\"}, ""),
        ({"words": "sure 100"}, "sub app"),
        ({"words": "100% sure"}, "app"),
        ({"words": "sure nothing"}, ""),
        ({"words": "sure ub"}, "sub"),
        ({"words": ""}, "win App sub app bare"),
        ({"end_reason": "cli_close"}, "app"),
        ({"min_messages": 2}, "win sub"),
        ({"max_messages": 0}, "bare"),
        ({"min_messages": 1, "max_messages": 1}, "App app"),
        ({"model_like": "big"}, "App app"),
        ({"model_like": "big_"}, "App"),
        ({"provider": "ACME"}, "App"),
        ({"user_id": "u1"}, "app"),
        ({"user_id": "u2"}, ""),
        ({"min_tokens": 3}, "App sub"),
        ({"min_tokens": 1, "max_tokens": 14}, "App"),
        ({"min_cost": 0.5}, "App sub"),
        ({"max_cost": 0.4}, "win app bare"),
        ({"min_cost": 1.0}, "App"),
        ({"min_tool_calls": 2}, "win"),
        ({"max_tool_calls": 1}, "App sub app bare"),
        ({"source": ("cli",), "project": "/srv", "status": "ended"}, "app"),
    ],
)
def test_list_filter_matches_literally(
    varied_conversations: StateDatabase, where: dict[str, Any], expected: str
) -> None:
    selected = SessionFilter(**where)
    assert list_session_ids(varied_conversations, selected, limit=2) == expected.split()
    for order in ORDERS:
        assert sorted(list_session_ids(varied_conversations, selected, order=order)) == sorted(
            expected.split()
        )
    assert sorted(varied_conversations.find_sessions(selected)) == sorted(expected.split())


@pytest.mark.requirement("lists:filters")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("where", "lines"),
    [
        ({"started_after": 1.0}, "a3 b"),
        ({"started_after": 1.5}, "b"),
        ({"started_before": 2.0}, "a3"),
        ({"started_before": 1.0}, ""),
        ({"started_after": 1.0, "started_before": 60.0}, "a3 b"),
    ],
)
def test_list_filters_by_displayed_start(
    db: StateDatabase, order: Any, where: dict[str, float], lines: str
) -> None:
    add_session_at(db, "a1", 10.0, started_at=1.0)
    db.end_session("a1", "compression")
    add_session_at(db, "a2", 11.0, started_at=0.5, parent_session_id="a1")
    db.end_session("a2", "compression")
    add_session_at(db, "a3", 12.0, started_at=70.0, parent_session_id="a2")
    add_session_at(db, "b", 5.0, started_at=2.0)
    assert (
        sorted(list_session_ids(db, SessionFilter(**where), order=order, limit=1)) == lines.split()
    )


@pytest.mark.schemas(16, 30)
@pytest.mark.parametrize(
    ("where", "column"),
    [
        ({"chat_id": "c1"}, "chat_id"),
        ({"chat_type": "dm"}, "chat_type"),
        ({"branch_like": "FEAT"}, "git_branch"),
        ({"project": "/repo"}, "git_repo_root"),
        ({"words": "ann"}, "display_name"),
    ],
)
def test_list_filter_on_missing_column_is_empty(
    db: StateDatabase, where: dict[str, Any], column: str
) -> None:
    add_session_at(
        db,
        "a",
        1.0,
        chat_id="c1",
        chat_type="dm",
        git_branch="feat/x",
        git_repo_root="/repo",
        display_name="Ann",
    )
    add_session_at(db, "b", 2.0, chat_id="c2", chat_type="group", git_branch="main")
    assert list_session_ids(db, SessionFilter(**where)) == (["a"] if has_column(db, column) else [])


def test_list_filter_accepts_thousands_of_ids(db: StateDatabase) -> None:
    add_session_at(db, "a", 1.0)
    wanted = tuple(f"nobody{number}" for number in range(70_000))
    assert list_session_ids(db, SessionFilter(ids=(*wanted, "a"))) == ["a"]
    assert db.find_sessions(SessionFilter(ids=wanted)) == []


def test_find_sessions_returns_every_kind_oldest_first(db: StateDatabase) -> None:
    add_session_at(db, "root", 1.0, started_at=3.0)
    db.end_session("root", "compression")
    add_session_at(db, "tip", 9.0, started_at=2.0, parent_session_id="root")
    add_session_at(db, "helper", 4.0, started_at=1.0, model_config={"_delegate_from": "tip"})
    assert db.find_sessions(SessionFilter()) == ["helper", "tip", "root"]
    assert db.find_sessions(SessionFilter(min_messages=2)) == []


def test_session_count_equals_found_rows(varied_conversations: StateDatabase) -> None:
    db = varied_conversations
    for where in (SessionFilter(), SessionFilter(status="all"), SessionFilter(titled=True)):
        assert db.sdk.session_count(where) == len(db.find_sessions(where)) > 0
    assert db.sdk.session_count() == db.sdk.session_count(SessionFilter())


def test_list_filter_uses_conversation_tip(db: StateDatabase) -> None:
    add_session_at(db, "root", 1.0, source="cli")
    db.end_session("root", "compression")
    add_session_at(db, "tip", 9.0, source="tui", parent_session_id="root")
    assert list_session_ids(db, SessionFilter(source=("cli",))) == []
    assert list_session_ids(db, SessionFilter(source=("tui",))) == ["tip"]
    assert list_session_ids(db, SessionFilter(status="ended")) == []
