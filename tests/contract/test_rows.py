"""Rows as they are stored: copied whole, read whole, and put back."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from session_core import Conflict, InvalidInput, NotFound, StateDatabase
from tests.contract.engines import ForeignWriter

pytestmark = pytest.mark.schemas(16, 30)

ENTRY = '{"session_key": "k", "session_id": "s"}'


def fill_session(db: StateDatabase) -> None:
    db.create_session("s", "cli", model="m", model_config={"a": 1}, cwd="/srv", started_at=5.0)
    db.append_message("s", "user", "hello")
    db.set_session_title("s", "Trip")


@pytest.mark.requirement("compaction:rows")
def test_copy_session_copies_columns_except_excluded(db: StateDatabase) -> None:
    fill_session(db)
    db.rows.copy_session("s", "copy", without=("title", "message_count"), parent_session_id="s")
    row: dict[str, Any] = {**(db.get_session("s") or {})}
    expected = {"id": "copy", "title": None, "message_count": 0, "parent_session_id": "s"}
    copy: dict[str, Any] = {**(db.get_session("copy") or {})}
    assert copy.pop("started_at") > row.pop("started_at")
    assert copy == {**row, **expected}


@pytest.mark.needs("foreign columns")
def test_copy_session_copies_foreign_columns(db: StateDatabase, foreign: ForeignWriter) -> None:
    fill_session(db)
    foreign.add_column("sessions", "strange", "")
    foreign.update_rows("sessions", {}, strange=b"\x00\xff")
    db.rows.copy_session("s", "copy", without=("title",))
    assert dict(db.get_session("copy") or {})["strange"] == b"\x00\xff"


@pytest.mark.requirement("compaction:rows")
def test_copy_session_rejects_existing_target(db: StateDatabase) -> None:
    fill_session(db)
    db.create_session("there", "cli")
    before = db.get_session("there")
    with pytest.raises(Conflict):
        db.rows.copy_session("s", "there", without=("title",))
    with pytest.raises(NotFound):
        db.rows.copy_session("nowhere", "copy")
    with pytest.raises(InvalidInput):
        db.rows.copy_session("s", "copy", no_such_column=1)
    assert db.get_session("there") == before
    assert db.get_session("copy") is None


@pytest.mark.requirement("compaction:rows")
def test_belongings_match_rows_deleted_with_session(db: StateDatabase) -> None:
    fill_session(db)
    assert db.rows.read_belongings("s") == {}
    db.update_token_counts("s", model="m", input_tokens=5)
    usage = db.admin.get_model_usage("s")
    assert db.rows.read_belongings("s") == ({"session_model_usage": usage} if usage else {})
    db.delete_session("s")
    assert db.rows.read_belongings("s") == {}


@pytest.mark.requirement("compaction:rows")
def test_routing_rows_are_restored_unchanged(db: StateDatabase) -> None:
    if not db.routes.is_available:
        assert db.rows.list_routing_rows("s") == []
        return
    for scope in ("", "elsewhere"):
        db.routes.save_entry("k", ENTRY, scope=scope, expect=None)
    db.routes.save_entry("broken", "no JSON", expect=None)
    rows = db.rows.list_routing_rows("s")
    assert [(row["scope"], row["session_key"]) for row in rows] == [("", "k"), ("elsewhere", "k")]
    db.routes.save_entry("k", ENTRY.replace('"s"', '"t"'), expect=ENTRY)
    assert len(db.rows.list_routing_rows("s")) == len(db.rows.list_routing_rows("t")) == 1
    db.rows.put_routing_row(rows[0])
    assert db.rows.list_routing_rows("s") == rows
    with pytest.raises(InvalidInput):
        db.rows.put_routing_row({**rows[0], "no_such_column": 1})


def test_routing_rows_show_changes_inside_transaction(db: StateDatabase) -> None:
    if not db.routes.is_available:
        return
    elsewhere = ENTRY.replace('"s"', '"t"')
    with suppress(ZeroDivisionError), db.transaction():
        assert db.rows.list_routing_rows("s") == []
        db.routes.save_entry("k", ENTRY, expect=None)
        assert len(db.rows.list_routing_rows("s", "t")) == 1
        raise ZeroDivisionError
    with db.transaction():
        assert db.rows.list_routing_rows("s") == []
        db.routes.save_entry("k", ENTRY, expect=None)
        (row,) = db.rows.list_routing_rows("s")
        db.rows.change_row("gateway_routing", {"session_key": "k"}, {}, {"entry_json": elsewhere})
        assert (db.rows.list_routing_rows("s"), len(db.rows.list_routing_rows("t"))) == ([], 1)
        db.rows.put_routing_row(row)
        assert (db.rows.list_routing_rows("s"), db.rows.list_routing_rows("t")) == ([row], [])
        db.routes.delete_entries({"k": ENTRY})
        assert db.rows.list_routing_rows("s") == []


@pytest.mark.requirement("compaction:rows")
def test_put_session_fields_restores_values(db: StateDatabase) -> None:
    fill_session(db)
    row = dict(db.get_session("s") or {})
    db.end_session("s", "compression")
    db.set_session_title("s", "Trip")
    names = ("ended_at", "end_reason", "title")
    assert db.rows.put_session_fields("s", {name: row[name] for name in names})
    assert db.get_session("s") == row
    assert db.get_revision("s").ended_at is None
    assert not db.rows.put_session_fields("nowhere", {"title": None})


@pytest.mark.requirement("compaction:rows")
@pytest.mark.parametrize("name", ["id", "no_such_column", 'title" = 1 --'])
def test_put_session_fields_rejects_unknown_columns(db: StateDatabase, name: str) -> None:
    fill_session(db)
    with pytest.raises(InvalidInput):
        db.rows.put_session_fields("s", {name: "x"})


@pytest.mark.needs("foreign columns")
def test_session_copy_omits_generated_columns(db: StateDatabase, foreign: ForeignWriter) -> None:
    fill_session(db)
    foreign.add_column("sessions", "shout", "TEXT AS (upper(source)) VIRTUAL")
    db.rows.copy_session("s", "copy", without=("title",))
    row: dict[str, Any] = {**(db.get_session("copy") or {})}
    assert row.pop("shout") == "CLI"
    fields = {**row, "shout": "x", "model": "other"}
    del fields["id"]
    assert db.rows.put_session_fields("copy", fields)
    assert db.get_session("copy") == {**row, "shout": "CLI", "model": "other"}


@pytest.mark.needs("foreign columns")
def test_session_copy_accepts_quoted_column_name(db: StateDatabase, foreign: ForeignWriter) -> None:
    fill_session(db)
    for table in ("sessions", "messages"):
        foreign.add_column(table, 'we ird"q', "TEXT DEFAULT 'd'")
    db.rows.copy_session("s", "copy", without=("title",))
    (made,) = db.rows.copy_messages("s", [db.get_messages("s")[0]["id"]], "copy").ids
    db.replace_messages("s", db.get_messages("copy"))
    for row in (db.get_session("copy"), db.get_message(made), db.get_messages("s")[0]):
        assert dict(row or {})['we ird"q'] == "d"
