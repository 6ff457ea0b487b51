"""Search: pages and cursors."""

from __future__ import annotations

from typing import Any

import pytest

from session_core import InvalidInput, StateDatabase
from tests.contract.engines import ForeignWriter
from tests.contract.searching import add_message_text, list_message_ids, search_message_ids


@pytest.mark.requirement("search:pages")
@pytest.mark.parametrize("per", ["message", "conversation"])
@pytest.mark.parametrize("mode", ["words", "substring"])
def test_search_pages_contain_every_hit_once(db: StateDatabase, per: Any, mode: Any) -> None:
    expected: list[Any] = []
    for number in range(25):
        messages = [{"role": "user", "content": f"ledger {number} {turn}"} for turn in range(4)]
        added = db.append_messages(f"s{number}", messages, create={"source": "cli"}).ids
        expected += list(added) if per == "message" else [f"s{number}"]
    seen: list[Any] = []
    cursor = None
    for _ in range(100):
        result = db.search("ledger", mode=mode, per=per, limit=7, cursor=cursor)
        seen += [hit.message_id if per == "message" else hit.session_id for hit in result.hits]
        cursor = result.next_cursor
        if cursor is None:
            break
    assert sorted(seen) == sorted(expected)


@pytest.mark.parametrize(
    ("query", "mode", "other"),
    [('"alpha beta"', "words", "beta alpha"), (": so", "substring", "so many")],
)
def test_search_finds_rare_phrase_of_session(
    db: StateDatabase, query: str, mode: Any, other: str
) -> None:
    first = add_message_text(db, "s", "alpha beta: so")
    # These have the words too, and are newer.
    db.append_messages("s", [{"role": "user", "content": other} for _ in range(310)])
    (hit,) = db.search(query, mode=mode).hits
    assert hit.message_id == first


def test_search_page_ignores_later_messages(db: StateDatabase) -> None:
    for number in range(10):
        add_message_text(db, f"s{number}", "ledger")
    first = db.search("ledger", limit=5)
    add_message_text(db, "later", "ledger")
    second = db.search("ledger", limit=10, cursor=first.next_cursor)
    assert {hit.session_id for hit in [*first.hits, *second.hits]} == {
        f"s{number}" for number in range(10)
    }


@pytest.mark.parametrize("change", [{"mode": "substring"}, {"per": "message"}, {"since": 1.0}])
def test_search_rejects_cursor_of_different_query(db: StateDatabase, change: Any) -> None:
    for number in range(3):
        add_message_text(db, f"s{number}", "ledger")
    cursor = db.search("ledger", limit=1).next_cursor
    assert cursor is not None
    with pytest.raises(InvalidInput, match="different query"):
        db.search("ledger", cursor=cursor, **change)
    with pytest.raises(InvalidInput, match="different query"):
        db.search("other", cursor=cursor)
    with pytest.raises(InvalidInput, match="malformed"):
        db.search("ledger", cursor="nonsense")


@pytest.mark.requirement("search:pages")
@pytest.mark.parametrize("name", ["source", "roles"])
def test_search_cursor_ignores_filter_order(db: StateDatabase, name: str) -> None:
    message_ids = [add_message_text(db, f"s{number}", "ledger") for number in range(3)]
    values = ["cli", "user", "telegram"]
    first = db.search("ledger", limit=1, **{name: values})
    again = {name: [*reversed(values), "cli"]}
    second = db.search("ledger", cursor=first.next_cursor, **again)
    found = list_message_ids(first) + list_message_ids(second)
    assert sorted(found) == message_ids


@pytest.mark.requirement("search:pages")
@pytest.mark.parametrize("odd", [0, -1, -4000, -(2**63), 2**62, 2**63 - 1])
def test_search_pages_support_extreme_message_ids(
    db: StateDatabase, foreign: ForeignWriter, odd: int
) -> None:
    add_message_text(db, "one", "nothing")
    row = {"session_id": "one", "role": "user", "content": "the ledger 数据库", "timestamp": 5.0}
    for message_id in (odd, 77):
        foreign.insert_row("messages", id=message_id, **row)
    for query in ("ledger", "led*", "数据", "what is the ledger for?", "nowhere ledger"):
        assert search_message_ids(db, query) == {odd, 77}, query
    assert search_message_ids(db, "edge", mode="substring") == {odd, 77}
    first = db.search("ledger", per="message", limit=1, session="one")
    second = db.search("ledger", per="message", session="one", cursor=first.next_cursor)
    assert list_message_ids(first) + list_message_ids(second) == sorted((odd, 77), reverse=True)


@pytest.mark.requirement("search:pages")
@pytest.mark.parametrize("order", ["newest", "oldest"])
@pytest.mark.parametrize("per", ["message", "conversation"])
def test_search_pages_follow_order(db: StateDatabase, order: Any, per: Any) -> None:
    expected: list[int] = []
    for number in range(9):
        texts = ["ledger " * (9 - number), "nothing", "the ledger"]
        messages = [{"role": "user", "content": text} for text in texts]
        first, _, last = db.append_messages(f"s{number}", messages, create={"source": "cli"}).ids
        expected += [first, last] if per == "message" else [first if order == "oldest" else last]
    seen: list[int] = []
    cursor = None
    for _ in range(20):
        page = db.search("ledger", order=order, per=per, limit=4, cursor=cursor)
        seen += list_message_ids(page)
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == sorted(expected, reverse=order == "newest")
