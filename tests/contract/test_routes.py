"""Routing rows: opaque text by scope and key, replaced only if unchanged since the read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from session_core import Conflict, InvalidInput, StateDatabase
from tests.contract.engines import ForeignWriter

pytestmark = pytest.mark.schemas(30)  # a home of schema 16 has no routing table
SCOPE = "somewhere"


def put(db: StateDatabase, key: str, text: str = "{}", expect: str | None = None, **scope: str):
    db.routes.save_entry(key, text, expect=expect, **({"scope": SCOPE} | scope))


def get(db: StateDatabase, key: str) -> str | None:
    return db.routes.get_entry(key, scope=SCOPE)


def test_database_has_routing(db: StateDatabase) -> None:
    assert db.routes.is_available


def test_route_is_returned_as_stored(db: StateDatabase) -> None:
    text = '{"ü": "旅行", "b" : 1}'
    put(db, "k", text)
    assert get(db, "k") == text
    assert db.routes.load_entries(scope=SCOPE) == {"k": text}


def test_unknown_route_returns_none(db: StateDatabase) -> None:
    assert get(db, "k") is None
    assert db.routes.load_entries(scope=SCOPE) == {}
    assert db.routes.list_scopes() == {}


@pytest.mark.requirement("routes:rows")
def test_route_save_replaces_expected_entry(db: StateDatabase) -> None:
    put(db, "k", "1")
    put(db, "k", "2", expect="1")
    assert get(db, "k") == "2"


@pytest.mark.requirement("routes:rows")
@pytest.mark.parametrize("expect", [None, "0", ""])
def test_route_save_conflicts_with_unexpected_entry(db: StateDatabase, expect: str | None) -> None:
    put(db, "k", "1")
    with pytest.raises(Conflict):
        put(db, "k", "2", expect=expect)
    assert get(db, "k") == "1"


def test_route_save_conflicts_with_deleted_entry(db: StateDatabase) -> None:
    with pytest.raises(Conflict):
        put(db, "k", "2", expect="1")
    assert get(db, "k") is None


@pytest.mark.requirement("routes:rows")
def test_route_save_conflicts_with_different_instance(
    db: StateDatabase, other: StateDatabase
) -> None:
    put(db, "k", "1")
    assert get(other, "k") == "1"
    put(other, "k", "2", expect="1")
    with pytest.raises(Conflict):
        put(db, "k", "3", expect="1")


@pytest.mark.requirement("routes:scopes")
def test_route_scopes_are_isolated(db: StateDatabase) -> None:
    put(db, "k", "1")
    put(db, "k", "2", scope="elsewhere")
    put(db, "k", "3", scope="")
    assert get(db, "k") == "1"
    assert db.routes.get_entry("k") == "3"
    db.routes.delete_entries({"k": "1"}, scope=SCOPE)
    assert db.routes.get_entry("k", scope="elsewhere") == "2"


@pytest.mark.requirement("routes:scopes")
def test_route_scopes_list_newest_first_with_counts(
    db: StateDatabase, foreign: ForeignWriter
) -> None:
    for scope, keys, at in (("old", "ab", 1.0), ("new", "a", 3.0), ("middle", "abc", 2.0)):
        for key in keys:
            put(db, key, scope=scope)
        foreign.update_rows("gateway_routing", {"scope": scope}, updated_at=at)
    assert list(db.routes.list_scopes().items()) == [("new", 1), ("middle", 3), ("old", 2)]


@pytest.mark.requirement("routes:rows")
def test_route_delete_requires_unchanged_entry(db: StateDatabase) -> None:
    for key in "abc":
        put(db, key, "1")
    put(db, "b", "2", expect="1")
    removed = db.routes.delete_entries({"a": "1", "b": "1", "gone": "1"}, scope=SCOPE)
    assert removed == ["a"]
    assert db.routes.load_entries(scope=SCOPE) == {"b": "2", "c": "1"}


def test_route_update_keeps_position(db: StateDatabase) -> None:
    for key in "cab":
        put(db, key, "1")
    put(db, "c", "2", expect="1")
    assert list(db.routes.load_entries(scope=SCOPE)) == ["c", "a", "b"]


@pytest.mark.requirement("routes:rows")
def test_routes_and_sessions_change_atomically(db: StateDatabase) -> None:
    db.create_session("s1", "cli")
    put(db, "k", "1")

    def step() -> None:
        with db.transaction():
            put(db, "k", "2", expect="1")
            db.end_session("s1", "session_reset")
            put(db, "k", "3", expect="1")

    with pytest.raises(Conflict):
        step()
    row = db.get_session("s1")
    assert row is not None
    assert (get(db, "k"), row["end_reason"]) == ("1", None)


KEYS = (
    "plain",
    '"quoted"',
    "back\\slash",
    "ümlaut",
    "旅行",
    "🚀",
    "tab\t",
    "line\n",
    "\x01",
    "\x7f",
)


@pytest.mark.requirement("routes:dump")
def test_route_dump_returns_json_object_members(db: StateDatabase) -> None:
    for number, key in enumerate(KEYS):
        put(db, key, json.dumps({"number": number}))
    put(db, "broken", "{")
    put(db, "_note", "{}")
    put(db, "elsewhere", "{}", scope="elsewhere")
    page = db.routes.dump_entries(scope=SCOPE)
    loaded: dict[str, Any] = json.loads("{" + ",".join(page.items) + "}")
    assert page.next_cursor is None
    assert loaded == {key: {"number": number} for number, key in enumerate(KEYS)}
    assert list(loaded) == list(KEYS)


@pytest.mark.requirement("routes:dump")
def test_route_dump_omits_excluded_keys(db: StateDatabase) -> None:
    for key in KEYS:
        put(db, key)
    page = db.routes.dump_entries(scope=SCOPE, without=[*KEYS[::2], "unknown"])
    assert list(json.loads("{" + ",".join(page.items) + "}")) == list(KEYS[1::2])


@pytest.mark.parametrize("limit", [1, 2, 6, 7, 8])
def test_route_dump_returns_pages(db: StateDatabase, limit: int) -> None:
    for number in range(7):
        put(db, f"k{number}")
        put(db, f"k{number}", scope="elsewhere")
    members: list[str] = []
    cursor = None
    while True:
        page = db.routes.dump_entries(scope=SCOPE, without=["k2", "k3"], limit=limit, cursor=cursor)
        members += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    assert members == [f'"k{number}": {{}}' for number in (0, 1, 4, 5, 6)]


def test_route_dump_rejects_cursor_of_different_scope(db: StateDatabase) -> None:
    put(db, "k")
    cursor = db.routes.dump_entries(scope=SCOPE, limit=1).next_cursor
    with pytest.raises(InvalidInput):
        db.routes.dump_entries(scope="elsewhere", limit=1, cursor=cursor)


# The newest session of a chat


def add(db: StateDatabase, session_id: str, at: float, ended: str | None = None, **fields: Any):
    given = {"source": "telegram", "session_key": "k", "started_at": at, **fields}
    said = given.pop("said", True)
    db.create_session(session_id, **given)
    if said:
        db.append_message(session_id, "user", "x")
    if ended:
        db.end_session(session_id, ended)


def find(db: StateDatabase, **peer: Any) -> str | None:
    row = db.routes.find_latest_session(**({"source": "telegram", "session_key": "k"} | peer))
    return None if row is None else row["id"]


@pytest.mark.requirement("routes:peer")
def test_find_latest_session_returns_newest_start(db: StateDatabase) -> None:
    add(db, "newest", 30.0, "session_reset")
    add(db, "older", 20.0)
    add(db, "others", 40.0, session_key="another")
    add(db, "elsewhere", 50.0, source="discord")
    assert find(db) == "newest"
    assert find(db, session_key="unknown") is None


@pytest.mark.requirement("routes:peer")
def test_find_latest_session_skips_empty_or_abandoned(db: StateDatabase) -> None:
    add(db, "older", 20.0)
    add(db, "left", 30.0, "session_switch")
    add(db, "empty", 40.0, said=False)
    assert find(db) == "older"


@pytest.mark.requirement("routes:peer")
def test_find_latest_session_matches_complete_peer(db: StateDatabase) -> None:
    peer = {"user_id": "7", "chat_id": "-100", "chat_type": "group", "thread_id": "5"}
    add(db, "s1", 1.0, session_key="an older key", **peer)
    assert find(db, **peer) == "s1"
    for name in peer:
        assert find(db, **(peer | {name: "another"})) is None
    assert find(db, **(peer | {"thread_id": None})) is None


def test_find_latest_session_rejects_empty_peer(db: StateDatabase) -> None:
    add(db, "s1", 1.0, session_key=None)
    assert find(db, session_key=None) is None
    assert find(db) is None


@pytest.mark.requirement("routes:peer")
def test_find_latest_session_prefers_session_key(db: StateDatabase) -> None:
    add(db, "by_key", 1.0)
    add(db, "by_peer", 2.0, session_key="another", chat_id="42")
    assert find(db, chat_id="42") == "by_key"


@pytest.mark.requirement("routes:peer")
def test_find_latest_session_walks_older_sessions(db: StateDatabase) -> None:
    for number in range(3):
        add(db, f"s{number}", 1.0)
    assert (find(db), find(db, older_than="s2"), find(db, older_than="s0")) == ("s2", "s1", None)
    assert find(db, older_than="unknown") is None


@pytest.mark.requirement("routes:peer")
def test_find_latest_session_filters_by_end(db: StateDatabase) -> None:
    add(db, "lives", 1.0)
    add(db, "closed", 2.0, "agent_close")
    add(db, "idle", 3.0, "idle")
    assert find(db, ended_as=["agent_close"]) == "closed"
    assert find(db, ended_as=[]) == "lives"
