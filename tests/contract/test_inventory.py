"""The inventory of a home: a light row of every session, and the health facts."""

from __future__ import annotations

from typing import Any

import pytest

from session_core import StateDatabase
from session_core.types import OrphanRows, RawText
from tests.contract.engines import ForeignWriter, has_column

pytestmark = pytest.mark.schemas(16, 30)


DELEGATE = {"_delegate_from": "somebody"}
BRANCH = {"_branched_from": "somebody"}


def index_by_id(found: StateDatabase) -> dict[str, Any]:
    return {each.id: each for each in found.admin.list_inventory()}


def test_inventory_of_empty_home_is_empty(db: StateDatabase) -> None:
    assert db.admin.list_inventory() == []
    facts = db.admin.read_health_facts()
    assert (facts.orphans, facts.claims, set(facts.weeks), facts.cost) == ((), (), {0}, 0.0)
    assert set(facts.tokens.values()) == {0}


@pytest.mark.requirement("maintenance:inventory")
def test_inventory_lists_session_with_protection_facts(
    db: StateDatabase, foreign: ForeignWriter
) -> None:
    db.create_session("root", "cli", started_at=100.0)
    db.end_session("root", "compression")
    db.create_session("s", "telegram", parent_session_id="root", started_at=200.0)
    db.append_message("s", "user", "one", timestamp=210.0)
    db.append_message("s", "assistant", "two", timestamp=205.0)
    db.set_session_title("s", "The schema")
    db.update_token_counts("s", api_call_count=2)
    session = index_by_id(db)["s"]
    assert (session.source, session.title, session.parent_id) == ("telegram", "The schema", "root")
    assert (session.link, session.started_at, session.last_active_at) == (
        "continuation",
        200.0,
        210.0,
    )
    assert (session.ended_at, session.end_reason, session.archived) == (None, None, False)
    assert (session.live, session.rows, session.counted, session.api_calls) == (2, 2, 2, 2)
    assert index_by_id(db)["root"].last_active_at == 100.0
    assert foreign.update_rows("sessions", {"id": "s"}, message_count=9) == 1
    assert (index_by_id(db)["s"].live, index_by_id(db)["s"].counted) == (2, 9)


@pytest.mark.requirement("maintenance:inventory")
def test_inventory_reports_revision_and_link_kind(db: StateDatabase) -> None:
    expected = fill_home(db)
    items = index_by_id(db)
    assert set(items) == set(expected)
    for name in expected:
        assert items[name].revision == db.get_revision(name)
        assert items[name].link == db.get_link_kind(name)
        assert items[name].rows == db.message_count(name)


@pytest.mark.parametrize("flag", [2, -1])
def test_inventory_revision_includes_inactive_last_message(
    db: StateDatabase, foreign: ForeignWriter, flag: Any
) -> None:
    ids = [db.append_message("s", "user", "one", create={"source": "cli"}) for _ in range(3)]
    foreign.update_rows("messages", {"id": ids[-1]}, active=flag)
    assert db.get_revision("s").last_id == index_by_id(db)["s"].revision.last_id == ids[-1]


@pytest.mark.needs("loose types")
def test_inventory_revision_includes_message_with_text_flag(
    db: StateDatabase, foreign: ForeignWriter
) -> None:
    ids = [db.append_message("s", "user", "one", create={"source": "cli"}) for _ in range(3)]
    foreign.update_rows("messages", {"id": ids[-1]}, active="abc")
    assert db.get_revision("s").last_id == index_by_id(db)["s"].revision.last_id == ids[-1]


def fill_home(db: StateDatabase) -> list[str]:
    """Make sessions of every kind, with rows that are live, compacted and rewound."""
    names = ["root", "next", "branch", "worker", "tool"]
    db.create_session("root", "cli", started_at=1.0)
    for name in names[1:]:
        config = {"branch": BRANCH, "worker": DELEGATE}.get(name)
        source = "tool" if name == "tool" else "cli"
        db.create_session(name, source, parent_session_id="root", model_config=config)
    for name in names:
        ids = [db.append_message(name, "user", f"{name} {n}") for n in range(6)]
        if has_column(db, "compacted") and name != "tool":
            db.rows.compact_messages(name, ids[:2], [{"role": "user", "content": "short"}])
        db.rewind_to_message(name, ids[4])
    db.end_session("root", "compression")
    return names


@pytest.mark.needs("loose types")
@pytest.mark.parametrize("time", ["soon", float("inf"), b"x"])
def test_inventory_ignores_invalid_times(
    db: StateDatabase, foreign: ForeignWriter, time: Any
) -> None:
    db.append_message("s", "user", "x", timestamp=50.0, create={"source": "cli"})
    db.append_message("s", "user", "y", timestamp=60.0)
    foreign.update_rows("messages", {"timestamp": 60}, timestamp=time)
    assert index_by_id(db)["s"].last_active_at == (None if isinstance(time, float) else 50.0)
    foreign.update_rows("messages", {}, timestamp=time)
    foreign.update_rows("sessions", {}, started_at=time)
    session = index_by_id(db)["s"]
    assert (session.started_at, session.last_active_at) == (0.0, None)


@pytest.mark.needs("loose types")
def test_inventory_omits_unusable_session_ids(db: StateDatabase, foreign: ForeignWriter) -> None:
    db.create_session("s", "cli")
    for unusable in (RawText(b"\xffa"), b"\x00"):
        foreign.insert_row("sessions", id=unusable, source="cli", started_at=1)
    assert list(index_by_id(db)) == ["s"]


@pytest.mark.requirement("maintenance:inventory")
def test_health_facts_count_rows_without_session(db: StateDatabase, foreign: ForeignWriter) -> None:
    for name in ("gone", "there"):
        for number in range(3):
            at = 100.0 + number
            db.append_message(name, "user", "x", timestamp=at, create={"source": "cli"})
    foreign.delete_rows("sessions", {"id": "gone"})
    orphan_rows = OrphanRows("messages", "session_id", "gone", 3, 102.0)
    assert db.admin.read_health_facts().orphans == (orphan_rows,)


@pytest.mark.needs("foreign tables")
def test_health_facts_count_rows_of_foreign_table(
    db: StateDatabase, foreign: ForeignWriter
) -> None:
    db.create_session("there", "cli")
    foreign.add_notes_table()
    for about in ("gone", "there", None):
        foreign.insert_row("notes", note="x", about=about, session_id="somewhere else")
    assert db.admin.read_health_facts().orphans == (OrphanRows("notes", "about", "gone", 1),)


def test_inventory_sums_tokens_and_cost(db: StateDatabase) -> None:
    for name in ("a", "b"):
        db.create_session(name, "cli")
        db.update_token_counts(name, input_tokens=5, output_tokens=2, estimated_cost_usd=0.5)
    facts = db.admin.read_health_facts()
    assert (facts.tokens["input"], facts.tokens["output"], facts.cost) == (10, 4, 1.0)
