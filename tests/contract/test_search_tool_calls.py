"""Search of tool calls: values are found and shown, names of arguments and ids only found."""

from __future__ import annotations

from typing import Any

import pytest

from session_core import StateDatabase
from tests.contract.searching import add_message_text, list_message_ids, search_message_ids

CALLED = {
    "id": "call_Qx7-Zt9",
    "call_id": "call_Qx7-Zt9",
    "response_item_id": "fc_00aB",
    "type": "function",
    "function": {
        "name": "run_query",
        "arguments": '{"path": "orders.sql", "note": "first\\nsecond \\u5927\\u962a"}',
    },
}

OTHER_IDS = dict.fromkeys(("id", "call_id", "response_item_id"), "call_other")


@pytest.mark.requirement("search:calls")
@pytest.mark.parametrize("query", ["run_query", "orders.sql", "大阪", "second"])
def test_search_finds_tool_call_by_name_arguments(db: StateDatabase, query: str) -> None:
    message_id = add_message_text(db, "one", None, "assistant", tool_calls=[CALLED])
    assert list_message_ids(db.search(query)) == [message_id]


@pytest.mark.requirement("search:calls")
@pytest.mark.parametrize("query", ["call_Qx7-Zt9", "CALL_qx7*", "Zt9", "fc_00aB", "look Qx7"])
def test_search_finds_tool_call_by_hidden_ids(db: StateDatabase, query: str) -> None:
    add_message_text(
        db, "other", "We look and call.", "assistant", tool_calls=[{**CALLED, **OTHER_IDS}]
    )
    message_id = add_message_text(db, "one", "We look.", "assistant", tool_calls=[CALLED])
    long = add_message_text(db, "one", "We look here. " * 50, "assistant", tool_calls=[CALLED])
    first, second = sorted(db.search(query, per="message").hits, key=lambda hit: hit.message_id)
    assert (first.message_id, second.message_id) == (message_id, long)
    assert first.snippet == "We look. run_query orders.sql first second 大阪"
    assert second.snippet.startswith("We look here. We look here. ")


@pytest.mark.requirement("search:calls")
@pytest.mark.parametrize("needle", ["l_Qx7-Z", "00ab", "c_0"])
def test_search_finds_part_of_tool_call_id(db: StateDatabase, needle: str) -> None:
    add_message_text(db, "other", "We look.", "assistant", tool_calls=[{**CALLED, **OTHER_IDS}])
    message_id = add_message_text(db, "one", "We look.", "assistant", tool_calls=[CALLED])
    assert search_message_ids(db, needle, mode="substring") == {message_id}


BROWSED = '{"ferry_deadline": true, "stops": [{"pier_number": 7}], "note": "book it"}'


@pytest.mark.parametrize("query", ["ferry_deadline", '"ferry deadline"', "pier_number", "ferr*"])
def test_search_finds_tool_call_by_argument_names(db: StateDatabase, query: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "browse", "arguments": BROWSED}}
    message_id = add_message_text(db, "one", None, "assistant", tool_calls=[call])
    add_message_text(db, "other", None, "assistant", tool_calls=[CALLED])
    (hit,) = db.search(query, per="message").hits
    assert (hit.message_id, hit.snippet) == (message_id, "browse 7 book it")
    assert search_message_ids(db, "rry_dead", mode="substring") == {message_id}


@pytest.mark.parametrize("query", ["book", "browse", "toolu_01Aq9", "ferry_deadline"])
def test_search_snippet_shows_unusual_tool_call(db: StateDatabase, query: str) -> None:
    done = {"note": "book it", "ferry_deadline": True}
    call = {"type": "tool_use", "id": "toolu_01Aq9", "name": "browse", "input": done}
    flat = {"type": "function_call", "call_id": "toolu_01Aq9", "name": "browse"}
    said = '{"note": "book it", "ferry_deadline": true}'
    add_message_text(db, "one", None, "assistant", tool_calls=[call])
    add_message_text(db, "one", None, "assistant", tool_calls=[{**flat, "arguments": said}])
    hits = db.search(query, per="message").hits
    assert [hit.snippet for hit in hits] == ["browse book it"] * 2


def make_nested(depth: int) -> Any:
    value: Any = "wombat"
    for _ in range(depth):
        value = {"type": "tool_result", "content": [value]}
    return value


def make_tool_calls(arguments: str) -> dict[str, Any]:
    return {"tool_calls": [{"id": "c1", "function": {"name": "x", "arguments": arguments}}]}


ENDLESS = {
    "content": {"content": make_nested(300)},
    "list": {"content": [[make_nested(30)] * 2]},
    "broken": make_tool_calls('{"a":' + "[" * 1000),
    "whole": make_tool_calls("[" * 900 + "1" + "]" * 900),
    "ids": {"tool_calls": '[{"id": ' + "[" * 900 + "]" * 900 + ', "name": "x"}]'},
    "halves": make_tool_calls("[" * 900 + r'"\ud83d"' + "]" * 900),
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_search_finds_text_beside_deep_nesting(db: StateDatabase, kind: str) -> None:
    cursor = db.read_changes().cursor
    message_id = add_message_text(db, "one", "the wombat of Lisbon")
    deep = {
        add_message_text(db, name, **{"content": "Lisbon", **ENDLESS[kind]})
        for name in ("one", "deep")
    }
    told = {message_id} if "content" in ENDLESS[kind] else {message_id, *deep}
    assert (
        search_message_ids(db, "Lisbon") == search_message_ids(db, "isbo", mode="substring") == told
    )
    assert {line.id for line in db.list_sessions(limit=9).items} == {"one", "deep"}
    assert [event.type for event in db.read_changes(cursor).events].count("message") == 3


@pytest.mark.parametrize("mode", ["words", "substring"])
def test_search_snippet_contains_no_surrogates(db: StateDatabase, mode: Any) -> None:
    add_message_text(
        db, "one", None, "assistant", **make_tool_calls(r'{"text": "ferry at noon \ud83d"}')
    )
    (hit,) = db.search("ferry", mode=mode).hits
    assert ascii(hit.snippet) == ascii("x ferry at noon \ufffd")
