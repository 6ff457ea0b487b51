"""Storing an imported file: ids, owners of rows, transactions, and going on after a stop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from session_core.maintenance.transfer.import_writer import MARK_PREFIX
from session_core.maintenance.types import SkippedItem
from session_core.types import RowImages
from tests.homes import add_message, connect, fill_database
from tests.maintenance.import_lines import (
    list_reasons,
    make_line,
    make_line_with_table,
    make_long_line,
    make_table,
    write_lines,
)
from tests.maintenance.transfer_homes import Place

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


def test_deleted_message_ids_are_not_reused(fresh: Place, file: Path):
    fill_database(fresh.path, 2, 5)
    fresh.db.delete_session("fill_0_00001")
    fresh.importing.import_file(write_lines(file, make_line("a", 2)))
    assert min(message["id"] for message in fresh.db.get_messages("a")) > 10


def test_messages_without_ids_get_ids(fresh: Place, file: Path):
    messages = [{"role": "user", "content": word, "timestamp": 1.0} for word in "abc"]
    fresh.importing.import_file(write_lines(file, make_line("s") | {"messages": messages}))
    assert list_reasons(fresh, "s") == ["a", "b", "c"]


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
    fresh.importing._writer._batch_size.max_bytes = 64_000
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
    fresh.importing._writer._batch_size.max_bytes = 1  # a step for each session
    part = fresh.importing.import_file(
        file, progress=lambda *done: reports.append(done), stop=lambda: len(reports) == 2
    )
    assert (part.outcome, part.sessions, reports) == ("partial", 2, [(1, 3), (2, 3)])
    rest = fresh.importing.import_file(file)
    assert (rest.outcome, rest.sessions, len(rest.skipped)) == ("applied", 1, 2)


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
