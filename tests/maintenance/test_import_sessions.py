"""Imports: equal to the export, next to existing data; one bad line does not stop the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB
from session_core.errors import NotFound
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import StateFolder
from session_core.maintenance.context import HomeContext
from session_core.maintenance.transfer.export import ExportRequest
from session_core.maintenance.transfer.import_sessions import Importer
from session_core.maintenance.transfer.store import MARK_PREFIX
from session_core.maintenance.transfer.types import ImportedSession, ImportPreview, ImportResult
from session_core.maintenance.types import SkippedItem
from session_core.types import RowImages
from tests.homes import add_message, connect, fill_database
from tests.maintenance.carried import CHAT_STATE, Place, differences, fill_oddly, place, rows
from tests.maintenance.homes import Home

KINDS = ("own", 16, 22, 26, 30)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sessions.jsonl"


@pytest.fixture(params=["own", 22], ids=str)
def fresh(home_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    """An empty home."""
    with place(home_path, request.param) as home:
        yield home


def make_line(session_id: str, messages: int = 1, **more: Any) -> dict[str, Any]:
    """Return a session as Hermes exports it."""
    said = [
        {"id": number, "role": "user", "content": f"{session_id} {number}", "timestamp": 5.0}
        for number in range(1, messages + 1)
    ]
    return {"id": session_id, "source": "cli", "started_at": 1.0, "messages": said, **more}


def make_table(name: str, row: dict[str, Any], *, shared: bool = False) -> dict[str, Any]:
    return {"table": name, "columns": [*row], "rows": [[*row.values()]], "shared": shared}


def make_line_with_table(
    session_id: str, name: str, row: dict[str, Any], **more: Any
) -> dict[str, Any]:
    """Return a session with a row of another table."""
    return make_line(session_id) | {
        "mcp_sessions": {"version": 1, "tables": [make_table(name, row, **more)]}
    }


def write_lines(file: Path, *lines: Any) -> Path:
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    file.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return file


def list_reasons(home: Place, session_id: str) -> list[Any]:
    return [
        message["content"] for message in home.db.get_messages(session_id, include_inactive=True)
    ]


@pytest.mark.requirement("maintenance:import")
@pytest.mark.parametrize("kind", KINDS, ids=str)
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


def test_line_order_does_not_matter(home_path: Path, file: Path):
    with place(home_path, "own") as home:
        fill_oddly(home.path)
        before = rows(home.path)
        home.exporting.write_file(file)
    lines = file.read_text(encoding="utf-8").split("\n")[:-1]
    write_lines(file, *reversed(lines))
    with place(home_path.with_name("copy"), "own") as copy:
        assert copy.importing.import_file(file).left_out == ()
        assert differences(before, rows(copy.path)) == []


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


BROKEN = {
    "no json": ('{"id": "x"', "it is not a readable JSON object"),
    "cut": (json.dumps(make_line("x", 3))[:-30], "it is not a readable JSON object"),
    "a list": ("[1, 2]", "{ is missing"),
    "no id": (make_line("") | {"id": None}, "no session id"),
    "no object": (make_line("x") | {"messages": ["said"]}, "not an object"),
    "a lineage": (make_line("x") | {"segments": []}, "lineage in one line"),
    "a number": (make_line("x") | {"message_count": 2**70}, "exceeds 64 bits"),
    "no source": ({"id": "x", "started_at": 1.0}, "it has no source"),
    "no time": ({"id": "x", "source": "cli"}, "no started_at, and no message"),
    "two objects": ('{"id": "x"} {"id": "y"}', "something follows"),
    "too deep": ('{"id": ' + "[" * 100_000, "it is not a readable JSON object"),
    "bytes": (make_line("x") | {"title": {"$bytes": "?"}}, "has an invalid value"),
    "ours": (make_line("x") | {"mcp_sessions": 5}, "does not have the form of an export"),
    "a message beside": (
        make_line_with_table("x", "messages", {"id": 9, "session_id": "x"}),
        "which exports exclude",
    ),
    "a session beside": (
        make_line_with_table("x", "sessions", {"id": "y"}),
        "which exports exclude",
    ),
    "a lock": (
        make_line_with_table("x", "compression_locks", {"session_id": "x"}),
        "which exports exclude",
    ),
    "a short row": (
        make_line("x") | {"mcp_sessions": {"tables": [make_table("t", {"a": 1}) | {"rows": [[]]}]}},
        "do not fit",
    ),
}


@pytest.mark.requirement("maintenance:import")
@pytest.mark.parametrize("kind", BROKEN)
def test_broken_line_is_reported_others_imported(fresh: Place, file: Path, kind: str):
    broken, reason = BROKEN[kind]
    result = fresh.importing.import_file(
        write_lines(file, make_line("a"), "", broken, make_line("b", 1))
    )
    assert [item.id for item in fresh.db.admin.list_inventory()] == ["a", "b"]
    assert [line.line for line in result.broken] == [3]
    assert reason in result.broken[0].why
    assert fresh.db.message_count() == result.messages == 2


FOREIGN = {
    "what the home says of itself": ("state_meta", {"key": "mcp_sessions_home", "value": "x"}),
    "a number": ("sqlite_sequence", {"name": "messages", "seq": 2**63 - 1}),
    "a table that is not known": ("notes", {"id": 1, "text": "planted"}),
    "of another session": ("session_model_usage", {"session_id": "victim", "model": "m"}),
    "of nobody": ("session_model_usage", {"model": "m"}),
}


@pytest.mark.parametrize("shared", [False, True], ids=["its own", "shared"])
@pytest.mark.parametrize("kind", FOREIGN)
def test_rows_without_session_are_refused(fresh: Place, file: Path, kind: str, shared: bool):
    fresh.db.append_message("victim", "user", "mine", create={"source": "cli"})
    name, row = FOREIGN[kind]
    with connect(fresh.path) as connection:
        connection.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT)")
        before = connection.execute(f"SELECT * FROM {name}").fetchall()  # noqa: S608 -- one of these
    result = fresh.importing.import_file(
        write_lines(file, make_line_with_table("a", name, row, shared=shared))
    )
    assert result.left_out == (
        SkippedItem("a", f"a row of {name}: it does not belong to this session"),
    )
    assert (result.sessions, result.messages) == (1, 1)
    with connect(fresh.path, "ro") as connection:
        after = connection.execute(f"SELECT * FROM {name}").fetchall()  # noqa: S608 -- one of these
    assert [item for item in after if item != ("messages", 2)] == [
        item for item in before if item != ("messages", 1)
    ]


def test_only_referenced_rows_are_imported(fresh: Place, file: Path):
    with connect(fresh.path) as connection:
        connection.execute("CREATE TABLE teams (id INTEGER PRIMARY KEY, name TEXT)")
        connection.execute(
            "CREATE TABLE jobs (id INTEGER PRIMARY KEY, session_id TEXT REFERENCES sessions(id), "
            "team INTEGER REFERENCES teams(id))"
        )
    carried = make_line_with_table("a", "jobs", {"id": 1, "session_id": "a", "team": 5})
    carried["mcp_sessions"]["tables"] += [
        make_table("teams", {"id": number, "name": str(number)}, shared=True) for number in (5, 6)
    ]
    result = fresh.importing.import_file(write_lines(file, carried))
    assert result.left_out == (
        SkippedItem("a", "a row of teams: it does not belong to this session"),
    )
    assert [row[0] for row in fresh.db.rows.read_row_images("teams", {}).rows] == [5]
    assert len(fresh.db.rows.read_row_images("jobs", {"team": 5}).rows) == 1


@pytest.mark.parametrize("number", [2**63 - 1, 2**41, 0, -5])
def test_extreme_message_ids_are_replaced(fresh: Place, file: Path, number: int):
    odd = make_line("a", 2)
    odd["messages"][1]["id"] = number
    result = fresh.importing.import_file(write_lines(file, odd))
    assert (result.messages, result.left_out) == (2, ())
    assert list_reasons(fresh, "a") == ["a 1", "a 2"]
    assert fresh.db.append_message("a", "user", "more") < 100


def test_import_continues_no_existing_session(fresh: Place, file: Path):
    fresh.db.append_message("root", "user", "mine", create={"source": "cli"})
    fresh.db.end_session("root", "compression")
    fresh.db.append_message(
        "tip", "user", "x", create={"source": "cli", "parent_session_id": "root"}
    )
    for lines in ([], [make_line("root")]):  # also if the file has another session of that name
        evil = make_line(f"evil{len(lines)}", parent_session_id="root", started_at=9e9)
        result = fresh.importing.import_file(write_lines(file, *lines, evil))
        assert [(item.id, "not part of this file" in item.why) for item in result.left_out] == [
            (evil["id"], True)
        ]
        assert result.sessions == 1
    assert fresh.db.get_compression_tip("root") == "tip"


@pytest.mark.parametrize("as_text", [True, False])
def test_import_adds_no_delegate_to_session(fresh: Place, file: Path, as_text: bool):
    fresh.db.append_message("victim", "user", "mine", create={"source": "cli"})
    marks = ("victim", "boss", "__orphaned__")
    lines = []
    for number, mark in enumerate(marks):
        config = {"_delegate_from": mark, "model": "m"}
        lines.append(
            make_line(f"d{number}", model_config=json.dumps(config) if as_text else config)
        )
    write_lines(file, make_line("boss"), *lines)
    found, result = fresh.importing.preview_file(file), fresh.importing.import_file(file)
    (left,) = result.left_out
    assert (left.id, found.left_out) == ("d0", (left,))
    assert "its delegator exists and is not part of this file" in left.why
    stored = [fresh.db.get_session(f"d{number}") for number in range(3)]
    configs = [json.loads(row["model_config"]) for row in stored if row is not None]
    assert [config["_delegate_from"] for config in configs] == [
        "__orphaned__",
        "boss",
        "__orphaned__",
    ]
    assert {config["model"] for config in configs} == {"m"}


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


def test_invalid_utf8_is_broken_line(fresh: Place, file: Path):
    file.write_bytes(b'{"id": "\xff"}\n' + json.dumps(make_line("a")).encode())
    result = fresh.importing.import_file(file)
    assert [(line.line, "not UTF-8" in line.why) for line in result.broken] == [(1, True)]
    assert result.sessions == 1


def test_windows_file_is_imported(fresh: Place, file: Path):
    text = json.dumps(make_line("a")) + "\r\n\r\n" + json.dumps(make_line("b")) + "\r\n"
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert fresh.importing.import_file(file).sessions == 2


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


@pytest.mark.requirement("maintenance:import")
def test_taken_message_ids_are_renumbered_in_order(fresh: Place, file: Path):
    fill_database(fresh.path, 2, 5)
    result = fresh.importing.import_file(write_lines(file, make_line("a", 20), make_line("b", 3)))
    assert (result.messages, result.left_out) == (23, ())
    assert list_reasons(fresh, "a") == [f"a {number}" for number in range(1, 21)]
    assert list_reasons(fresh, "b") == ["b 1", "b 2", "b 3"]
    assert len(list_reasons(fresh, "fill_0_00000")) == 5


def test_renumbering_keeps_order_across_transactions(fresh: Place, file: Path):
    fresh.db.append_message("first", "user", "has the id 1", create={"source": "cli"})
    with connect(fresh.path) as connection:
        add_message(connection, "first", content="far above", id=5000)
    fresh.importing.import_file(make_long_line(file))
    assert [reason.split()[1] for reason in list_reasons(fresh, "long")] == [
        str(n) for n in range(1, 401)
    ]


def test_long_broken_line_imports_nothing(fresh: Place, file: Path):
    broken = json.loads(make_long_line(file).read_text())
    broken["messages"][-1]["token_count"] = 2**64
    result = fresh.importing.import_file(write_lines(file, broken))
    assert "exceeds 64 bits" in result.broken[0].why
    assert fresh.db.message_count() == 0
    assert fresh.db.get_session("long") is None


@pytest.mark.parametrize("place", range(12))
def test_number_across_chunks_is_read_whole(fresh: Place, file: Path, place: int):
    head = '{"id":"s","source":"cli","system_prompt":"'
    pad = "x" * ((1 << 16) - len(head) - len('","started_at":') - place)
    file.write_text(head + pad + '","started_at":1234567890.5}')
    fresh.importing.import_file(file)
    row = fresh.db.get_session("s")
    assert row is not None
    assert row["started_at"] == 1234567890.5


def test_deleted_message_ids_are_not_reused(fresh: Place, file: Path):
    fill_database(fresh.path, 2, 5)
    fresh.db.delete_session("fill_0_00001")
    fresh.importing.import_file(write_lines(file, make_line("a", 2)))
    assert min(message["id"] for message in fresh.db.get_messages("a")) > 10


def test_messages_without_ids_get_ids(fresh: Place, file: Path):
    messages = [{"role": "user", "content": word, "timestamp": 1.0} for word in "abc"]
    fresh.importing.import_file(write_lines(file, make_line("s") | {"messages": messages}))
    assert list_reasons(fresh, "s") == ["a", "b", "c"]


def test_session_without_messages_is_imported(fresh: Place, file: Path):
    result = fresh.importing.import_file(
        write_lines(file, make_line("a", 0), {**make_line("b"), "messages": None})
    )
    assert (result.sessions, result.messages) == (2, 0)


def test_columns_after_messages_are_read(fresh: Place, file: Path):
    result = fresh.importing.import_file(write_lines(file, make_line("a") | {"title": "Late"}))
    assert result.sessions == 1
    assert fresh.db.get_session_title("a") == "Late"


def test_invalid_message_is_left_out(fresh: Place, file: Path):
    messages = [{"id": 1, "content": "of nobody", "timestamp": 1.0}, *make_line("s")["messages"]]
    messages[1]["id"] = 2
    result = fresh.importing.import_file(write_lines(file, make_line("s") | {"messages": messages}))
    reason = "messages: 1 without a role or a timestamp, the first is message 1"
    assert result.left_out == (SkippedItem("s", reason),)
    assert (list_reasons(fresh, "s"), result.messages) == (["s 1"], 1)


def make_long_line(file: Path, messages: int = 400) -> Path:
    lines = make_line("long", messages)
    for line in lines["messages"]:
        line["content"] += " x" * 1000
    return write_lines(file, lines)


@pytest.mark.requirement("maintenance:import")
def test_long_session_takes_several_transactions(
    fresh: Place, file: Path, monkeypatch: pytest.MonkeyPatch
):
    sizes: list[int] = []
    put = fresh.db.rows.put_images

    def putting(images: Any, **more: Any) -> Any:
        given: list[RowImages] = list(images)
        sizes.append(sum(len(item.rows) for item in given if item.table == "messages"))
        return put(given, **more)

    monkeypatch.setattr(fresh.db.rows, "put_images", putting)
    fresh.importing._writer._batch_size.room = 64_000
    fresh.importing.import_file(make_long_line(file))
    assert sum(sizes) == 400
    assert sizes[0] <= 64_000 / 2200 + 1
    assert fresh.db.get_meta(f"{MARK_PREFIX}long") is None


@pytest.mark.requirement("maintenance:import")
@pytest.mark.parametrize("taken", [False, True], ids=["its own ids", "new ids"])
def test_interrupted_import_resumes(
    fresh: Place, file: Path, monkeypatch: pytest.MonkeyPatch, taken: bool
):  # fmt: skip
    if taken:
        fresh.db.append_message("first", "user", "has the id 1", create={"source": "cli"})
    put, calls = fresh.db.rows.put_images, iter(range(10_000))

    def putting(images: Any, **more: Any) -> Any:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return put(images, **more)

    monkeypatch.setattr(fresh.db.rows, "put_images", putting)
    with pytest.raises(KeyboardInterrupt):
        fresh.importing.import_file(make_long_line(file))
    some = len(list_reasons(fresh, "long"))
    assert 0 < some < 400
    result = fresh.importing.import_file(file)
    assert (result.sessions, result.messages, result.skipped) == (1, 400 - some, ())
    assert [reason.split()[1] for reason in list_reasons(fresh, "long")] == [
        str(n) for n in range(1, 401)
    ]
    assert fresh.db.get_meta(f"{MARK_PREFIX}long") is None
    assert fresh.importing.import_file(file).skipped == (SkippedItem("long", "it exists already"),)


def test_import_resumes_only_same_file(fresh: Place, file: Path, monkeypatch: pytest.MonkeyPatch):
    put, calls = fresh.db.rows.put_images, iter(range(10_000))

    def putting(images: Any, **more: Any) -> Any:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return put(images, **more)

    monkeypatch.setattr(fresh.db.rows, "put_images", putting)
    with pytest.raises(KeyboardInterrupt):
        fresh.importing.import_file(make_long_line(file))
    result = fresh.importing.import_file(make_long_line(file, 300))
    assert result.skipped == (SkippedItem("long", "it exists already"),)


def test_stopped_import_resumes(fresh: Place, file: Path):
    reports: list[tuple[int, int]] = []
    write_lines(file, make_line("a"), make_line("b"), make_line("c"))
    fresh.importing._writer._batch_size.room = 1  # a step for each session
    part = fresh.importing.import_file(
        file, progress=lambda *done: reports.append(done), stop=lambda: len(reports) == 2
    )
    assert (part.outcome, part.sessions, reports) == ("partial", 2, [(1, 3), (2, 3)])
    rest = fresh.importing.import_file(file)
    assert (rest.outcome, rest.sessions, len(rest.skipped)) == ("applied", 1, 2)


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


# -- chat state, missing values, reasons -----------------------------------------------------


@pytest.mark.parametrize("kind", ["own", 16, 22, 26, 30], ids=str)
def test_import_drops_chat_state(home_path: Path, file: Path, kind: Any):
    with place(home_path, kind) as home:
        odd = make_line("a", **dict.fromkeys(CHAT_STATE, "x"), chat_of_the_future="y")
        write_lines(
            file, odd | {"expiry_finalized": 1}, make_line("b", session_key="k", chat_id="")
        )
        found, result = home.importing.preview_file(file), home.importing.import_file(file)
        expected = dict.fromkeys((*CHAT_STATE, "chat_of_the_future"), 1) | {"session_key": 2}
        assert found.chat_state == result.chat_state == expected
        (stored,) = (row for key, row in rows(home.path)["sessions"].items() if key == (b"a",))
        left = {name: stored[name] for name in CHAT_STATE if name in stored}
        assert set(left.values()) <= {None, 0}


def test_import_drops_rows_of_chats(fresh: Place, file: Path):
    delegation = {
        "delegation_id": "d", "origin_session": "agent:main:telegram:dm:7", "state": "completed",
        "parent_session_id": "a", "dispatched_at": 1.0, "updated_at": 1.0,
        "delivery_state": "pending", "result_json": "{}",
    }  # fmt: skip
    with connect(fresh.path) as connection:
        connection.execute("CREATE TABLE inbox (session_id TEXT, chat_id TEXT)")
    carried = make_line_with_table("a", "async_delegations", delegation)
    carried["mcp_sessions"]["tables"].append(
        make_table("inbox", {"session_id": "a", "chat_id": "7"})
    )
    found = fresh.importing.preview_file(write_lines(file, carried))
    result = fresh.importing.import_file(file)
    dropped = {"rows of async_delegations": 1, "rows of inbox": 1}
    assert found.chat_state == result.chat_state == dropped
    assert fresh.db.rows.read_row_images("inbox", {}).rows == ()


def test_missing_start_uses_earliest_message(fresh: Place, file: Path):
    late = make_line("a", 3)
    del late["started_at"]
    for message, at in zip(late["messages"], (9.0, 7.5, float("inf")), strict=True):
        message["timestamp"] = at
    early = {"id": "b", "messages": late.pop("messages"), "source": "cli", "started_at": None}
    late["messages"] = [{**message, "id": None} for message in early["messages"]]
    result = fresh.importing.import_file(write_lines(file, late, early))
    assert (result.sessions, result.broken) == (2, ())
    assert {item.id: item.started_at for item in fresh.db.admin.list_inventory()} == {
        "a": 7.5,
        "b": 7.5,
    }


def test_broken_line_reports_every_reason(fresh: Place, file: Path):
    broken = {
        "title": {"$bytes": "?"}, "message_count": 2**70, "segments": [],
        "messages": ["said", {"role": "user", "token_count": 2**70}, 5, 6],
    }  # fmt: skip
    found = fresh.importing.preview_file(write_lines(file, make_line("a"), broken))
    (only,) = found.broken
    assert only.line == 2
    assert only.why.split("; ") == [
        "$bytes has an invalid value",
        "a number exceeds 64 bits",
        "it is a lineage in one line",
        *("export its sessions one by one", "message 1 is not an object"),
        *("message 2: a number exceeds 64 bits", "and 5 more reasons"),
    ]
    assert fresh.importing.import_file(file).broken == found.broken


def test_broken_lines_are_listed_within_bounds(fresh: Place, file: Path):
    file.write_text("no export\n" * 2_500)
    found, result = fresh.importing.preview_file(file), fresh.importing.import_file(file)
    assert (len(found.broken), found.more_broken) == (1_000, 1_500)
    assert (result.broken, result.more_broken) == (found.broken, 1_500)
    assert [line.line for line in found.broken[:2]] == [1, 2]


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


# -- what would come in --------------------------------------------------------------------


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


def test_import_stopped_during_scan_resumes(fresh: Place, file: Path):
    write_lines(file, *(make_line(f"s{number}") for number in range(9)))
    asked: list[bool] = []

    def stop() -> bool:
        asked.append(True)
        return len(asked) > 3

    result = fresh.importing.import_file(file, stop=stop)
    assert (result.outcome, result.sessions, fresh.db.admin.list_inventory()) == ("partial", 0, [])
    assert fresh.importing.import_file(file, stop=lambda: False).sessions == 9


def test_short_sessions_share_transaction(fresh: Place, file: Path):
    fresh.db.append_message("first", "user", "has the id 1", create={"source": "cli"})
    write_lines(
        file,
        *(make_line(f"s{number}", 2, parent_session_id=f"s{number + 1}") for number in range(9)),
    )
    result = fresh.importing.import_file(file)
    assert (result.sessions, result.messages, len(result.left_out)) == (9, 18, 1)
    assert len(fresh.ledger.list_steps(str(result.batch))) == 1
    assert [list_reasons(fresh, f"s{number}") for number in range(9)] == [
        [f"s{number} 1", f"s{number} 2"] for number in range(9)
    ]


def test_refused_session_blocks_no_other(fresh: Place, file: Path):
    with connect(fresh.path) as connection:
        connection.execute(
            "CREATE TRIGGER picky BEFORE INSERT ON sessions WHEN new.source = 'bad' "
            "BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    bad = make_line("b", source="bad", session_key="k", of_the_future=1)
    result = fresh.importing.import_file(
        write_lines(file, make_line("a", session_key="k"), bad, make_line("c"))
    )
    assert (result.ids, [line.line for line in result.broken]) == (("a", "c"), [2])
    assert (result.messages, result.chat_state["session_key"]) == (2, 2)
    assert fresh.ledger.list_batches().items[0].count == 2


@pytest.mark.parametrize("name", ["id", "title"])
def test_import_refuses_control_characters(fresh: Place, file: Path, name: str):
    hostile = make_line("a") | {name: "x\x1b]0;owned\x07"}
    answer = fresh.importing.import_file(write_lines(file, hostile, make_line("b")))
    (only,) = answer.broken
    assert only.why.startswith(f"{name} must not contain control characters")
    assert answer.ids == ("b",)
