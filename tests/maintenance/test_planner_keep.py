"""Conversations that a request keeps: by id, by the beginning of an id, by words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from session_core import InvalidInput, Ledger, Maintenance, SessionDB
from session_core.maintenance import PlanRequest

TALKS = {
    "20240101_a1": ["the invoice of March", "paid on Monday"],
    "20240102_b2": ["an invoice", "nothing of March here? No: april"],
    "20240103_c3": ["shopping list"],
    "20240104_d4": ["OR and NOT", "预算 for ships"],
}
"""Sessions with their messages, in the order of age."""


@pytest.fixture
def db(tmp_path: Path) -> Iterator[SessionDB]:
    with SessionDB(tmp_path / "state.db") as db:
        for place, (session_id, texts) in enumerate(TALKS.items()):
            rows = [
                {"role": "user", "content": text, "timestamp": 1e9 + place + number}
                for number, text in enumerate(texts)
            ]
            source = "telegram" if place == 3 else "cli"
            create = {"source": source, "started_at": 1e9 + place}
            db.append_messages(session_id, rows, create=create)
            db.end_session(session_id, "done")
        db.set_session_title("20240103_c3", "Groceries for Ann")
        yield db


@pytest.fixture
def maintenance(db: SessionDB, tmp_path: Path) -> Iterator[Maintenance]:
    with Ledger.open(db) as ledger, Maintenance(db, ledger) as maintenance:
        yield maintenance


@pytest.mark.requirement("maintenance:keep")
@pytest.mark.parametrize(
    ("entry", "kept"),
    [
        ("20240101_a1", "a1"),
        ("20240102", "b2"),
        ("March invoice", "a1"),
        ("INVOICE", "a1 b2"),
        ("invoice Monday", ""),
        ("groceries ann", "c3"),
        ("ann 1", ""),
        ("NOT", "d4"),
        ("预算", "d4"),
        ('"shopping list"', "c3"),
    ],
)
def test_entry_protects_conversations(maintenance: Maintenance, entry: str, kept: str) -> None:
    plan = maintenance.plan(PlanRequest("sessions", keep=(entry,)))
    ids = {session_id for session_id in TALKS if session_id[-2:] in kept.split()}
    assert {item.id for item in plan.items} == TALKS.keys() - ids
    assert plan.protected == ({"kept": len(ids)} if ids else {})
    assert set(plan.protected_ids.get("kept", ())) == ids
    unmatched = f"keep {entry!r} is in no message, title or id, so it protects nothing"
    assert plan.warnings == (() if ids else (unmatched,))


@pytest.mark.requirement("maintenance:keep")
def test_one_kept_session_keeps_conversation(maintenance: Maintenance, db: SessionDB) -> None:
    db.create_session("old", "cli", started_at=1e9)
    db.append_message("old", "user", "a zeppelin", timestamp=1e9)
    db.end_session("old", "compression")
    create = {"source": "cli", "parent_session_id": "old", "started_at": 1e9 + 1}
    db.append_message("new", "user", "and on", timestamp=1e9 + 1, create=create)
    db.end_session("new", "done")
    plan = maintenance.plan(PlanRequest("sessions", keep=("zeppelin",)))
    assert not {item.id for item in plan.items} & {"old", "new"}
    named = PlanRequest("sessions", ids=("new",), keep=("zeppelin",))
    assert maintenance.plan(named).outcome == "nothing"


@pytest.mark.requirement("maintenance:keep")
def test_every_match_is_kept(maintenance: Maintenance, db: SessionDB) -> None:
    with db.transaction():
        for number in range(230):
            create = {"source": "cli", "started_at": 1e9}
            db.append_message(f"k{number:03}", "user", "keep", timestamp=1e9, create=create)
            db.end_session(f"k{number:03}", "done")
    plan = maintenance.plan(PlanRequest("sessions", keep=("keep",)))
    assert (plan.count, plan.protected) == (4, {"kept": 230})
    assert len(list(plan.protected_ids["kept"])) == 5


@pytest.mark.parametrize("keep", [("",), ("  ",), ("!!",), ("x",) * 201, "word", (3,)])
def test_invalid_keep_is_refused(maintenance: Maintenance, keep: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput, match="keep"):
        maintenance.plan(PlanRequest("sessions", keep=keep))


@pytest.mark.parametrize("what", ["trash", "index", "routes", "orphans"])
def test_keep_needs_conversations(maintenance: Maintenance, what: str) -> None:
    with pytest.raises(InvalidInput, match="does not accept keep"):
        maintenance.plan(PlanRequest(what, keep=("invoice",)))
    assert maintenance.plan(PlanRequest("all", keep=("invoice",))).count >= 2


@pytest.mark.requirement("maintenance:plans")
def test_plan_has_totals_and_details(maintenance: Maintenance) -> None:
    plan = maintenance.plan(PlanRequest("sessions"))
    assert plan.totals is not None
    assert (plan.totals.messages, plan.totals.by_source) == (7, {"cli": 3, "telegram": 1})
    details = [(item.messages, item.last_active_at) for item in plan.items]
    assert details == [(2, 1e9 + 1), (2, 1e9 + 2), (1, 1e9 + 2), (2, 1e9 + 4)]
    assert maintenance.get_plan(plan.plan or "") == plan


@pytest.mark.requirement("maintenance:plans")
def test_plan_shows_items_from_any_start(maintenance: Maintenance, db: SessionDB) -> None:
    with db.transaction():
        for number in range(30):
            create = {"source": "cli", "started_at": 1e9 + 10 + number}
            at = 1e9 + 10 + number
            db.append_message(f"n{number:02}", "user", "hi", timestamp=at, create=create)
            db.end_session(f"n{number:02}", "done")
    plan = maintenance.plan(PlanRequest("sessions")).plan or ""
    whole = maintenance.get_plan(plan, 100).items
    assert len(whole) == 34
    for start in (0, 5, 19, 20, 33, 34):
        assert maintenance.get_plan(plan, 7, start).items == whole[start : start + 7]
    assert whole[30].messages == 1
    assert whole[30].last_active_at == 1e9 + 10 + int(whole[30].id[1:])
