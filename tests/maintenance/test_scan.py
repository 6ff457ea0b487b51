"""The scan of a file to import: broken lines, missing values, chat state, order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from session_core.maintenance.types import SkippedItem
from tests.homes import connect
from tests.maintenance.import_lines import (
    list_reasons,
    make_line,
    make_line_with_table,
    make_table,
    write_lines,
)
from tests.maintenance.transfer_homes import CHAT_STATE, Place, differences, fill_oddly, place, rows


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


def test_import_stopped_during_scan_resumes(fresh: Place, file: Path):
    write_lines(file, *(make_line(f"s{number}") for number in range(9)))
    asked: list[bool] = []

    def stop() -> bool:
        asked.append(True)
        return len(asked) > 3

    result = fresh.importing.import_file(file, stop=stop)
    assert (result.outcome, result.sessions, fresh.db.admin.list_inventory()) == ("partial", 0, [])
    assert fresh.importing.import_file(file, stop=lambda: False).sessions == 9


@pytest.mark.parametrize("name", ["id", "title"])
def test_import_refuses_control_characters(fresh: Place, file: Path, name: str):
    hostile = make_line("a") | {name: "x\x1b]0;owned\x07"}
    answer = fresh.importing.import_file(write_lines(file, hostile, make_line("b")))
    (only,) = answer.broken
    assert only.why.startswith(f"{name} must not contain control characters")
    assert answer.ids == ("b",)
