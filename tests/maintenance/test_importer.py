"""Imports: equal to the export, next to existing data. One bad line does not stop the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB
from session_core.errors import NotFound
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import StateFolder
from session_core.maintenance.home_context import HomeContext
from session_core.maintenance.transfer.exporter import ExportRequest
from session_core.maintenance.transfer.import_results import (
    ImportedSession,
    ImportPreview,
    ImportResult,
)
from session_core.maintenance.transfer.importer import Importer
from session_core.maintenance.types import SkippedItem
from tests.maintenance.homes import Home
from tests.maintenance.import_lines import list_reasons, make_line, write_lines
from tests.maintenance.transfer_homes import Place, differences, fill_oddly, place, rows
from tests.thorough import take_main_kinds

KINDS = ("own", 16, 22, 26, 30)


@pytest.mark.requirement("maintenance:import")
@pytest.mark.parametrize("kind", take_main_kinds(KINDS), ids=str)
@pytest.mark.parametrize("to_own", [True, False], ids=["to a home of our own", "to an equal one"])
def test_imported_home_equals_exported(home_path: Path, file: Path, kind: Any, to_own: bool):
    with place(home_path, kind) as home:
        fill_oddly(home.path)
        before = rows(home.path)
        count = home.exporting.write_file(file)
    with place(home_path.with_name("copy"), "own" if to_own else kind) as copy:
        result = copy.importing.import_file(file)
        assert (result.sessions, result.messages) == (count.sessions, count.messages)
        assert (result.skipped, result.broken, result.left_out) == ((), (), ())
        assert differences(before, rows(copy.path)) == []
        assert copy.db.search("deploy").hits
        assert copy.db.admin.check_integrity(deep=True) == []
        new = {"sessions": ("of_the_future",), "messages": ("of_the_future",)}
        assert {name: result.dropped_columns[name][-1:] for name in new} == new


@pytest.mark.needs_files
@pytest.mark.requirement("maintenance:import")
def test_realistic_home_imports_without_missing_parent(full: Home, home_path: Path, file: Path):
    before = rows(full.db.path)
    with place(full.folder, "own") as home:
        home.exporting.write_file(file)
    with place(home_path, "own") as copy:
        result = copy.importing.import_file(file)
        found = differences(before, rows(copy.path))
    gone = {(item.id, item.why) for item in result.left_out}
    assert gone == {("fatherless", "parent_session_id: the row that it refers to is gone")}
    assert [item for item in found if item[2] != "missing"] == [
        ("sessions", (b"fatherless",), "parent_session_id", b"nobody", None)
    ]
    there = {key for (key,) in before["sessions"]}
    missing = [before[item[0]][item[1]]["session_id"] for item in found if item[2] == "missing"]
    assert not there.intersection(missing)


@pytest.mark.requirement("maintenance:import")
def test_deleted_sessions_are_reimported_exactly(home_path: Path, file: Path):
    with place(home_path, "own") as home:
        fill_oddly(home.path)
        before = rows(home.path)
        home.exporting.write_file(file, ExportRequest(["odd", "of_a"]))
        home.db.delete_sessions(["odd"])
        result = home.importing.import_file(file)
        assert result.skipped == (SkippedItem("of_a", "it exists already"),)
        assert differences(before, rows(home.path)) == []


@pytest.mark.requirement("maintenance:import")
def test_hermes_export_is_imported(fresh: Place, file: Path):
    parts = [{"type": "text", "text": "a wombat"}]
    calls = [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]
    messages = [
        {"id": 5, "role": "user", "content": parts, "timestamp": 1.0, "active": 1, "compacted": 0},
        {"id": 9, "role": "assistant", "content": "", "tool_calls": calls, "timestamp": 2.0},
    ]
    result = fresh.importing.import_file(
        write_lines(
            file, make_line("s", session_key="k", chat_id="1", archived=1) | {"messages": messages}
        )
    )
    assert (result.sessions, result.messages, result.broken) == (1, 2, ())
    found = fresh.db.get_messages("s")
    assert [item["id"] for item in found] == [5, 9]
    assert (found[0]["content"], found[1]["tool_calls"]) == (parts, calls)
    row = fresh.db.get_session("s")
    assert row is not None
    assert (row["session_key"], row["chat_id"], row["archived"]) == (None, None, 1)


def test_message_flags_are_imported(fresh: Place, file: Path):
    flags = [(1, 0), (0, 0), (0, 1), (1, 1)]
    messages = [
        {"id": number, "role": "user", "content": "x", "timestamp": 1.0, "active": active,
         "compacted": compacted}
        for number, (active, compacted) in enumerate(flags, 1)
    ]  # fmt: skip
    fresh.importing.import_file(write_lines(file, make_line("s") | {"messages": messages}))
    found = fresh.db.get_messages("s", include_inactive=True)
    assert [(item["active"], item["compacted"]) for item in found] == flags


@pytest.mark.requirement("maintenance:import")
def test_taken_title_is_left_out(fresh: Place, file: Path):
    fresh.db.create_session("here", "cli")
    fresh.db.set_session_title("here", "Trip")
    result = fresh.importing.import_file(
        write_lines(
            file,
            make_line("a", title="Trip"),
            make_line("b", title="Work"),
            make_line("c", title="Work"),
        )
    )
    assert result.sessions == 3
    assert result.left_out == (
        SkippedItem("a", "title: another row has it now"),
        SkippedItem("c", "title: another row has it now"),
    )
    titles = {item.id: item.title for item in fresh.db.admin.list_inventory()}
    assert titles == {"here": "Trip", "a": None, "b": "Work", "c": None}


def test_session_is_reimported_under_existing_parent(fresh: Place, file: Path):
    fresh.importing.import_file(
        write_lines(file, make_line("a"), make_line("b", parent_session_id="a"))
    )
    fresh.db.delete_sessions(["b"])
    result = fresh.importing.import_file(file)
    assert (result.sessions, result.left_out) == (1, ())
    assert {item.id: item.parent_id for item in fresh.db.admin.list_inventory()} == {
        "a": None,
        "b": "a",
    }


@pytest.mark.requirement("maintenance:import")
def test_existing_session_is_skipped(fresh: Place, file: Path):
    fresh.db.append_message("a", "user", "mine", create={"source": "cli"})
    result = fresh.importing.import_file(
        write_lines(file, make_line("a", 3), make_line("b"), make_line("b", 2))
    )
    assert result.skipped == (
        SkippedItem("b", "line 3 has it once more, after line 2"),
        SkippedItem("a", "it exists already"),
    )
    assert (list_reasons(fresh, "a"), list_reasons(fresh, "b")) == (["mine"], ["b 1"])


def test_import_is_in_audit_log(fresh: Place, file: Path):
    fresh.importing.import_file(write_lines(file, make_line("a", 2), "broken"))
    (entry,) = fresh.ledger.list_audit_entries().items
    assert (entry.what, entry.client) == ("import", "test")
    (batch,) = fresh.ledger.list_batches().items
    counts = {"sessions": 1, "messages": 2, "skipped": 0, "broken": 1, "batch": batch.id}
    assert entry.counts == counts


def test_missing_file_raises_empty_imports_nothing(fresh: Place, file: Path):
    with pytest.raises(NotFound):
        fresh.importing.import_file(file)
    file.write_bytes(b"")
    assert fresh.importing.import_file(file) == ImportResult("applied", 0, 0, (), (), (), {}, ())


def test_import_creates_own_home(tmp_path: Path, file: Path):
    write_lines(file, make_line("a", 3))
    folder = tmp_path / "new"
    folder.mkdir()
    with SessionDB(folder / "state.db") as db, Ledger(StateFolder(db.path)) as ledger:
        assert Importer(HomeContext(db, ledger), "test").import_file(file).messages == 3
        assert db.kind == "own"


@pytest.mark.requirement("maintenance:import")
def test_preview_lists_all_refusals(fresh: Place, file: Path):
    fresh.db.create_session("here", "cli")
    fresh.db.set_session_title("here", "Trip")
    fresh.db.append_message("here", "user", "mine")
    write_lines(
        file,
        make_line("a", title="Trip"),
        make_line("b", title="Work", parent_session_id="gone"),
        make_line("c", title="Work", of_the_future=1),
        make_line("d") | {"messages": [{"content": "of nobody"}, *make_line("d")["messages"]]},
        {"id": "e", "messages": []},
        make_line("f", parent_session_id="here"),
    )
    found = fresh.importing.preview_file(file)
    result = fresh.importing.import_file(file)
    assert {session.id for session in found.sessions} == set(result.ids) == set("abcdf")
    assert sum(session.messages for session in found.sessions) == result.messages == 5
    assert sorted(found.left_out, key=str) == sorted(result.left_out, key=str)
    assert len(found.left_out) == 5
    assert (found.broken, found.dropped_columns) == (result.broken, result.dropped_columns)
    assert found.dropped_columns == {"sessions": ("of_the_future",)}


@pytest.mark.requirement("maintenance:arrivals")
def test_preview_lists_imported_and_skipped(fresh: Place, file: Path):
    fresh.db.append_message("there", "user", "mine", create={"source": "cli"})
    write_lines(
        file,
        make_line("new", 3, title="The plan"),
        make_line("there"),
        "no json",
        make_line("new", 9),
        make_line("child", parent_session_id="there"),
        make_line("grandchild", 0, parent_session_id="child"),
    )
    found = fresh.importing.preview_file(file)
    assert found.sessions == (
        ImportedSession("new", "The plan", 3),
        ImportedSession("child", None, 1),
        ImportedSession("grandchild", None, 0),
    )
    assert [(item.id, item.why) for item in found.skipped] == [
        ("new", "line 4 has it once more, after line 1"),
        ("there", "it exists already"),
    ]
    assert [line.line for line in found.broken] == [3]
    assert [item.id for item in found.left_out] == ["child"]
    assert fresh.db.get_session("new") is None


@pytest.mark.requirement("maintenance:arrivals")
def test_preview_matches_import(fresh: Place, file: Path):
    write_lines(
        file,
        make_line("a", 2),
        make_line("b", parent_session_id="a"),
        make_line("c", parent_session_id="x"),
    )
    read: list[tuple[int, int]] = []
    reports = fresh.importing.preview_file(file, progress=lambda *at: read.append(at))
    assert (len(read), read[-1]) == (3, (file.stat().st_size,) * 2)
    result = fresh.importing.import_file(file)
    assert {session.id for session in reports.sessions} == set(result.ids)
    assert sum(session.messages for session in reports.sessions) == result.messages
    assert fresh.importing.preview_file(file).sessions == ()


def test_preview_of_missing_file_raises(fresh: Place, file: Path):
    with pytest.raises(NotFound):
        fresh.importing.preview_file(file)
    file.write_text("")
    assert fresh.importing.preview_file(file) == ImportPreview((), (), (), ())
