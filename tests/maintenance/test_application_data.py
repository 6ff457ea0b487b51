"""Payloads and state go with their session: into the trash and back, out and in again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from session_core import StateDatabase
from session_core.maintenance.transfer.exporter import ExportRequest
from tests.homes import connect
from tests.maintenance.changed_homes import Changing
from tests.maintenance.homes import NOW
from tests.maintenance.transfer_homes import place

DAY_S = 86_400.0
PAYLOAD = '{ "odd":  "\\u0000 \\ud800 \\u00e9", "n": [1.50, 1e400] }'
STATE = {"key": ["\x00", "\ud800", {"deep": None}], "'": True}


def add_application_session(db: StateDatabase, started_at: float) -> None:
    """Add an ended session with payloads and state."""
    db.create_session("app", "adk", started_at=started_at, chat_id="c")
    for text in ("says one", "says two"):
        db.append_message("app", "user", text, payload_json=PAYLOAD, timestamp=started_at)
    db.state.merge_session_state("app", STATE)
    db.end_session("app", "cli_close")


def read_application_session(db: StateDatabase) -> list[Any]:
    """Return the data of an application in its session."""
    payloads = [row["payload_json"] for row in db.get_messages("app")]
    return [payloads, db.state.read_session_state("app")]


STORED = [[PAYLOAD, PAYLOAD], STATE]


@pytest.mark.needs_files
@pytest.mark.requirement("state:state")
def test_restore_brings_back_application_data(changed: Changing) -> None:
    db = changed.home.db
    add_application_session(db, NOW - 400 * DAY_S)
    with connect(db.path) as connection:
        connection.execute("UPDATE sessions SET ended_at = ?", (NOW - 399 * DAY_S,))
    before = changed.read_everything()
    result = changed.plan_and_apply(ids=("app",))
    assert db.get_session("app") is None
    assert read_application_session(db) == [[], {}]
    changed.restore(result)
    assert read_application_session(db) == STORED
    assert (
        changed.read_everything()["rows"]["ms_session_state"] == before["rows"]["ms_session_state"]
    )
    assert changed.read_everything()["rows"]["messages"] == before["rows"]["messages"]


@pytest.mark.requirement("state:state")
def test_import_brings_back_application_data(home_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "export.jsonl"
    with place(home_path, "own") as home:
        add_application_session(home.db, 1.7e9)
        home.db.state.merge_app_state("app", {"shared": 1})
        home.exporting.write_file(file, ExportRequest(["app"]))
    line = json.loads(file.read_text())
    assert [message["payload_json"] for message in line["messages"]] == [PAYLOAD, PAYLOAD]
    with place(tmp_path / "copy", "own") as copy:
        copy.importing.import_file(file)
        assert read_application_session(copy.db) == STORED
        assert copy.db.state.read_app_state("app") == {}


@pytest.mark.requirement("state:state")
def test_import_into_hermes_reports_application_data(home_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "export.jsonl"
    with place(home_path, "own") as home:
        add_application_session(home.db, 1.7e9)
        home.exporting.write_file(file)
    with place(tmp_path / "copy", 22) as copy:
        result = copy.importing.import_file(file)
        reasons = {item.why for item in result.left_out}
        assert reasons == {"a row of ms_session_state: this home has no such table"}
        assert result.dropped_columns["messages"] == ("payload_json",)
        assert copy.db.message_count("app") == len(STORED[0])


@pytest.mark.needs_files
def test_orphaned_state_is_reported(changed: Changing) -> None:
    db = changed.home.db
    add_application_session(db, NOW - DAY_S)
    with connect(db.path) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        connection.execute("DELETE FROM messages")
        connection.execute("DELETE FROM sessions")
    orphans = db.admin.read_health_facts().orphans
    assert [(orphan.table, orphan.session_id) for orphan in orphans] == [
        ("ms_session_state", "app")
    ]
