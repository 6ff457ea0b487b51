"""Delegates without a link to their parent, recognised by their mark."""

from __future__ import annotations

from typing import Any

import pytest

from session_core import SessionFilter, StateDatabase
from tests.contract.engines import ForeignWriter


def add_session(db: StateDatabase, session_id: str, **fields: Any) -> None:
    db.create_session(session_id, "cli", **fields)
    db.append_message(session_id, "user", f"walrus said {session_id}")


def add_delegate(db: StateDatabase, session_id: str, mark: str, **fields: Any) -> None:
    add_session(db, session_id, model_config={"_delegate_from": mark}, **fields)


@pytest.fixture
def delegate_home(db: StateDatabase) -> StateDatabase:
    add_session(db, "boss")
    add_session(db, "other")
    add_delegate(db, "worker", "boss")
    add_delegate(db, "helper", "worker")
    add_delegate(db, "lost", "__orphaned__")
    add_delegate(db, "of_nobody", "gone")
    return db


@pytest.mark.requirement("homes:unlinked-delegates")
@pytest.mark.parametrize("order", ["recent", "started", "size"])
@pytest.mark.parametrize("where", [SessionFilter(), SessionFilter(source=("cli",), status="all")])
def test_unlinked_delegate_is_no_conversation(
    delegate_home: StateDatabase, order: Any, where: SessionFilter
) -> None:
    assert {line.id for line in delegate_home.list_sessions(where, order=order).items} == {
        "boss",
        "other",
    }
    assert (
        delegate_home.get_link_kind("worker") == delegate_home.get_link_kind("lost") == "delegate"
    )


@pytest.mark.requirement("homes:unlinked-delegates")
def test_unlinked_delegate_is_readable_and_searchable(delegate_home: StateDatabase) -> None:
    assert len(delegate_home.get_messages("lost")) == 1
    hits = delegate_home.search("walrus", per="message").hits
    assert {hit.session_id for hit in hits} >= {"worker", "helper", "lost", "of_nobody"}


@pytest.mark.requirement("homes:unlinked-delegates")
def test_inventory_reports_parent_from_mark(delegate_home: StateDatabase) -> None:
    links = {
        stock.id: (stock.parent_id, stock.link) for stock in delegate_home.admin.list_inventory()
    }
    assert links == {
        "boss": (None, None),
        "other": (None, None),
        "worker": ("boss", "delegate"),
        "helper": ("worker", "delegate"),
        "lost": (None, "delegate"),
        "of_nobody": (None, "delegate"),
    }


@pytest.mark.requirement("homes:unlinked-delegates")
def test_delete_parent_removes_unlinked_delegates(delegate_home: StateDatabase) -> None:
    assert delegate_home.delete_session("boss")
    assert {stock.id for stock in delegate_home.admin.list_inventory()} == {
        "other",
        "lost",
        "of_nobody",
    }
    assert delegate_home.delete_session("lost")
    assert {stock.id for stock in delegate_home.admin.list_inventory()} == {"other", "of_nobody"}


@pytest.mark.requirement("homes:unlinked-delegates")
def test_delegate_link_overrides_mark(db: StateDatabase) -> None:
    add_session(db, "boss")
    add_session(db, "other")
    add_delegate(db, "worker", "boss", parent_session_id="other")
    assert db.delete_session("boss")
    assert db.get_session("worker") is not None
    assert db.delete_session("other")
    assert db.get_session("worker") is None


@pytest.mark.requirement("homes:unlinked-delegates")
def test_delegate_mark_closing_cycle_is_ignored(db: StateDatabase) -> None:
    add_delegate(db, "a", "b")
    add_delegate(db, "b", "a")
    add_delegate(db, "self", "self")
    add_session(db, "child", parent_session_id="a")
    assert {stock.id: stock.parent_id for stock in db.admin.list_inventory()} == {
        "a": "b",
        "b": None,
        "self": None,
        "child": "a",
    }
    assert db.delete_session("self")
    assert db.delete_session("a")
    assert {stock.id for stock in db.admin.list_inventory()} == {"child"}


@pytest.mark.requirement("homes:unlinked-delegates")
def test_odd_delegate_marks_are_tolerated(db: StateDatabase, foreign: ForeignWriter) -> None:
    add_session(db, "boss")
    for number, config in enumerate(
        ('{"_delegate_from": 7}', '{"_delegate_from": ["boss"]}', "{x")
    ):
        add_session(db, f"odd_{number}", model_config=config)
    add_session(db, "bytes")
    foreign.update_rows("sessions", {"id": "bytes"}, model_config=b"{_delegate_from")
    assert {stock.parent_id for stock in db.admin.list_inventory()} == {None}
    assert {line.id for line in db.list_sessions().items} == {"boss", "odd_2", "bytes"}
    assert db.delete_session("boss")
    assert len(db.admin.list_inventory()) == 4
