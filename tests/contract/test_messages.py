"""Messages: order, and flags and counters that are right after every change."""

from __future__ import annotations

import pytest

from session_core import InvalidInput, NotFound, Revision, StateDatabase
from tests.contract.engines import ForeignWriter
from tests.contract.message_rows import CALLS, append_text, list_contents, list_flags, read_counters


@pytest.mark.requirement("messages:platform")
def test_platform_message_id_is_recognized(db: StateDatabase, session: str) -> None:
    db.append_message(session, "user", "x", platform_message_id="p1")
    db.append_message(session, "user", "y", message_id="p2")
    assert db.has_platform_message_id(session, "p1")
    assert db.has_platform_message_id(session, "p2")
    assert not db.has_platform_message_id(session, "p3")
    assert not db.has_platform_message_id("t", "p1")
    conversation = db.get_messages_as_conversation(session)
    assert [message["message_id"] for message in conversation] == ["p1", "p2"]


@pytest.mark.requirement("messages:order")
def test_get_messages_orders_by_id_and_pages(db: StateDatabase, session: str) -> None:
    for number, at in enumerate((50.0, 10.0, 40.0, 20.0, 30.0)):
        db.append_message(session, "user", str(number), timestamp=at)
    assert list_contents(db) == ["0", "1", "2", "3", "4"]
    part = db.get_messages(session, limit=2, offset=1)
    assert [row["content"] for row in part] == ["1", "2"]
    assert db.get_messages(session, limit=2, offset=9) == []


def test_get_message_returns_none_for_missing_id(db: StateDatabase, session: str) -> None:
    assert db.get_message(1) is None
    assert db.get_messages("nobody") == []
    assert db.get_messages_as_conversation("nobody") == []


def test_recent_user_messages_are_newest_first(db: StateDatabase, session: str) -> None:
    append_text(db, "first", "second")
    append_text(db, "answer", role="assistant")
    third = append_text(db, "third")[0]
    recent = db.sdk.list_recent_user_messages(session)
    assert [row["content"] for row in recent] == ["third", "second", "first"]
    assert [row["content"] for row in db.sdk.list_recent_user_messages(session, limit=1)] == [
        "third"
    ]
    db.rewind_to_message(session, third)
    assert [row["content"] for row in db.sdk.list_recent_user_messages(session, 1)] == ["second"]
    rewound = db.sdk.list_recent_user_messages(session, 1, include_inactive=True)
    assert [(row["id"], row["content"]) for row in rewound] == [(third, "third")]


def test_archived_messages_are_noticed(db: StateDatabase, session: str) -> None:
    append_text(db, "a")
    last = append_text(db, "b")[0]
    assert not db.sdk.has_archived_messages(session)
    db.rewind_to_message(session, last)
    assert db.sdk.has_archived_messages(session)


def test_message_count_ignores_flags(db: StateDatabase, session: str) -> None:
    ids = append_text(db, "a", "b", "c")
    db.create_session("t", "cli")
    db.append_message("t", "user", "x")
    db.rewind_to_message(session, ids[1])
    assert (db.message_count(session), db.message_count("t"), db.message_count()) == (3, 1, 4)
    assert db.message_count("nobody") == 0


@pytest.mark.requirement("messages:flags")
def test_rewind_deactivates_message_and_later_messages(db: StateDatabase, session: str) -> None:
    ids = append_text(db, "a", "b", "c", "d")
    before = db.get_revision(session)
    rewound = db.rewind_to_message(session, ids[2])
    assert (rewound.target["id"], rewound.target["content"]) == (ids[2], "c")
    assert (rewound.rewound, rewound.last_id) == (2, ids[1])
    assert list_flags(db) == [("a", 1, 0), ("b", 1, 0), ("c", 0, 0), ("d", 0, 0)]
    assert db.get_revision(session) == before._replace(live=2, rewinds=1)
    assert read_counters(db) == (4, 0), "a rewind leaves the counter alone"


def test_rewind_to_first_message_clears_last_id(db: StateDatabase, session: str) -> None:
    ids = append_text(db, "a", "b")
    assert db.rewind_to_message(session, ids[0]).last_id is None


def test_rewind_requires_user_message(db: StateDatabase, session: str) -> None:
    (user,) = append_text(db, "a")
    (assistant,) = append_text(db, "b", role="assistant")
    before = db.get_revision(session)
    with pytest.raises(InvalidInput):
        db.rewind_to_message(session, assistant)
    with pytest.raises(NotFound):
        db.rewind_to_message(session, 999)
    db.create_session("t", "cli")
    with pytest.raises(NotFound):
        db.rewind_to_message("t", user)
    assert db.get_revision(session) == before
    db.rewind_to_message(session, user)
    assert db.get_revision(session).rewinds == 1


def test_rewind_to_rewound_message_deactivates_later_messages(
    db: StateDatabase, session: str
) -> None:
    first, _ = append_text(db, "a", "b")
    db.rewind_to_message(session, first)
    append_text(db, "c")
    assert db.rewind_to_message(session, first).rewound == 1
    assert list_contents(db) == []
    assert db.rewind_to_message(session, first).rewound == 0
    assert db.get_revision(session).rewinds == 3


@pytest.mark.needs("foreign columns")
def test_put_images_omits_generated_message_columns(
    db: StateDatabase, session: str, foreign: ForeignWriter
) -> None:
    foreign.add_column("messages", "shout", "TEXT AS (upper(content)) VIRTUAL")
    append_text(db, "a")
    db.replace_messages(session, db.get_messages(session))
    assert [dict(row)["shout"] for row in db.get_messages(session)] == ["A"]


def test_restore_rewound_reactivates_messages(db: StateDatabase, session: str) -> None:
    ids = append_text(db, "a", "b", "c")
    db.rewind_to_message(session, ids[1])
    rewound = db.get_revision(session)
    assert db.restore_rewound(session, ids[2]) == 1
    assert db.restore_rewound(session, ids[0]) == 1
    assert db.restore_rewound(session, ids[0]) == 0
    assert list_contents(db) == ["a", "b", "c"]
    assert db.get_revision(session) == rewound._replace(live=3)


def test_partial_restore_keeps_counters(db: StateDatabase, session: str) -> None:
    ids = append_text(db, "a", "b", "c")
    db.rewind_to_message(session, ids[1])
    db.restore_rewound(session, ids[2])
    assert read_counters(db) == (3, 0)


@pytest.mark.requirement("messages:replace")
def test_replace_messages_deletes_every_message(db: StateDatabase, session: str) -> None:
    ids = append_text(db, "a", "b", "c")
    db.rewind_to_message(session, ids[1])
    result = db.replace_messages(session, [{"role": "user", "content": "new", "tool_calls": CALLS}])
    assert list_flags(db) == [("new", 1, 0)]
    assert min(result.ids) > max(ids)
    assert result.before == Revision(ids[-1], 1, 0, 1, None)
    assert result.after == db.get_revision(session) == Revision(result.ids[0], 1, 0, 1, None)
    assert read_counters(db) == (1, 1)


@pytest.mark.requirement("messages:replace")
def test_replace_messages_active_only_keeps_inactive_messages(
    db: StateDatabase, session: str
) -> None:
    ids = append_text(db, "a", "b", "c")
    db.rewind_to_message(session, ids[1])
    db.replace_messages(session, [{"role": "user", "content": "new"}], active_only=True)
    assert list_flags(db) == [("b", 0, 0), ("c", 0, 0), ("new", 1, 0)]
    assert read_counters(db) == (1, 0)


def test_replace_messages_with_same_rows_changes_revision(db: StateDatabase, session: str) -> None:
    append_text(db, "a", "b")
    before = db.get_revision(session)
    rows = db.get_messages(session)
    db.replace_messages(session, rows)
    assert list_contents(db) == ["a", "b"]
    assert [row["timestamp"] for row in db.get_messages(session)] == [
        row["timestamp"] for row in rows
    ]
    assert db.get_revision(session) != before


@pytest.mark.requirement("messages:replace")
def test_clear_messages_deletes_every_message(db: StateDatabase, session: str) -> None:
    ids = append_text(db, "a", "b", "c")
    db.rewind_to_message(session, ids[1])
    assert db.clear_messages(session) == 3
    assert (list_flags(db), read_counters(db)) == ([], (0, 0))
    assert db.get_revision(session) == Revision(0, 0, 0, 1, None)
    assert db.append_message(session, "user", "d") > ids[-1], "an id is never used twice"


def test_find_messages_omits_missing_ids(db: StateDatabase) -> None:
    db.create_session("s", source="cli")
    first, *_, last = (db.append_message("s", "user", f"text {n}") for n in range(4))
    rows = db.find_messages([last, 10**6, first, first, -1])
    assert rows == {each: db.get_message(each) for each in (first, last)}
    assert db.find_messages([]) == {}
