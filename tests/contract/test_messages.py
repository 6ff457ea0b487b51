"""Messages: what goes in comes out, and flags are right after every kind of change."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from session_core import (
    AppendResult,
    Conflict,
    InvalidInput,
    MessageRow,
    NotFound,
    Revision,
    StateDatabase,
    Unsupported,
)
from tests.contract.engines import has_column, require_column

Open = Callable[[], StateDatabase]
CALLS = [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}]


@pytest.fixture
def session(db: StateDatabase) -> str:
    return db.create_session("s", "cli")


def contents(db: StateDatabase, *, everything: bool = False) -> list[Any]:
    return [message["content"] for message in db.get_messages("s", include_inactive=everything)]


def append(db: StateDatabase, *texts: str, role: str = "user") -> list[int]:
    return [db.append_message("s", role, text) for text in texts]


def flags(db: StateDatabase) -> list[tuple[Any, int, int]]:
    """Return the text and the two flags of every row, in order."""
    rows = db.get_messages("s", include_inactive=True)
    return [(row["content"], row["active"], row.get("compacted", 0)) for row in rows]


def get(db: StateDatabase, message_id: int) -> MessageRow:
    message = db.get_message(message_id)
    assert message is not None
    return message


def counters(db: StateDatabase) -> tuple[int, int]:
    row = db.get_session("s")
    assert row is not None
    return row["message_count"], row["tool_call_count"]


# -- what goes in comes out ------------------------------------------------------------------


@pytest.mark.requirement("messages:content")
@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("hello", "hello"),
        ("", ""),
        (None, None),
        ("数据库 قاعدة 데이터 🚀", "数据库 قاعدة 데이터 🚀"),
        ("half \ud83d of it", "half \ufffd of it"),
        ("nul \x00 inside", "nul \x00 inside"),
        ([{"type": "text", "text": "日本"}], [{"type": "text", "text": "日本"}]),
        ({"type": "text", "text": "x"}, {"type": "text", "text": "x"}),
        ([], []),
        ({}, {}),
        (["a", 1, None, True], ["a", 1, None, True]),
        (("a", "b"), ["a", "b"]),
        (b"\x00\xff raw", b"\x00\xff raw"),
        (123, 123),
        (0, 0),
        (2**70, 2**70),
        (-1.5, -1.5),
        (True, True),
        (False, False),
        ("\x00json:not json", "\x00json:not json"),
        ('\x00json:[{"type": "text"}]', '\x00json:[{"type": "text"}]'),
        ("x" * 1_000_000, "x" * 1_000_000),
    ],
)
def test_content_reads_as_it_was_given(
    db: StateDatabase, reopen: Open, session: str, given: Any, read: Any
) -> None:
    message_id = db.append_message(session, "user", given)
    again = reopen()
    assert get(again, message_id)["content"] == read
    assert type(get(again, message_id)["content"]) is type(read)
    assert contents(again) == [read]
    assert [row["content"] for row in again.read_window(session).messages] == [read]


@pytest.mark.requirement("messages:columns")
def test_every_column_reads_as_it_was_given(db: StateDatabase, session: str) -> None:
    given: dict[str, Any] = {
        "tool_call_id": "c0",
        "tool_name": "read",
        "effect_disposition": "none",
        "token_count": 7,
        "finish_reason": "stop",
        "reasoning": "because",
        "reasoning_content": "since",
        "platform_message_id": "p1",
        "api_content": "as sent",
        "timestamp": 5.5,
        "observed": 1,
        "tool_calls": CALLS,
    }
    as_json = {
        name: json.dumps([{"text": name}])
        for name in ("reasoning_details", "codex_reasoning_items", "codex_message_items")
    }
    decoded: dict[str, Any] = {name: json.loads(text) for name, text in as_json.items()}
    message = dict(get(db, db.append_message(session, "assistant", "x", **given, **decoded)))
    expected = {name: value for name, value in {**given, **as_json}.items() if name in message}
    assert {name: message[name] for name in expected} == expected
    assert (message["role"], message["active"], message["session_id"]) == ("assistant", 1, "s")


OPENAI: dict[str, Any] = {"role": "tool", "tool_call_id": "c1", "content": "12 files"}


@pytest.mark.requirement("messages:columns")
@pytest.mark.parametrize("role", ["tool", "function"])
def test_openai_name_is_the_tool_name(db: StateDatabase, session: str, role: str) -> None:
    given = {**OPENAI, "role": role, "name": "list_files"}
    both = {**given, "tool_name": "list_files"}
    several = db.append_messages(session, [given, both])
    single = db.append_message(session, role, "12 files", name="list_files", tool_call_id="c1")
    for message_id in (*several.ids, single):
        message = get(db, message_id)
        names = ("role", "tool_name", "tool_call_id", "content")
        assert [message[name] for name in names] == [role, "list_files", "c1", "12 files"]  # type: ignore[literal-required]
    assert [hit.message_id for hit in db.search("list_files").hits]


def test_empty_annotations_are_ignored(db: StateDatabase, session: str) -> None:
    message = {"role": "assistant", "content": "x", "refusal": None, "annotations": []}
    db.append_messages(session, [message])
    assert db.get_messages(session)[0]["content"] == "x"
    with pytest.raises(InvalidInput, match="annotations"):
        db.append_messages(session, [message | {"annotations": [{"type": "url_citation"}]}])


@pytest.mark.requirement("messages:columns")
def test_private_keys_are_ignored(db: StateDatabase, session: str) -> None:
    markers = {"_flushed": True, "_at": datetime.now(timezone.utc), "_of": {"a": 1}, "__": "x"}
    message = get(db, db.append_messages(session, [{**OPENAI, **markers}]).ids[0])
    assert message["content"] == "12 files"
    assert markers.keys().isdisjoint(message)


@pytest.mark.requirement("messages:columns")
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"nmae": "list_files"}, "unknown column 'nmae' of a message; valid are .*tool_name"),
        ({"role": "user", "name": "alice"}, "name is the name of a tool, and the role is 'user'"),
        ({"name": "list_files", "tool_name": "read"}, "name is 'list_files' and tool_name is not"),
        ({"name": 5}, "name must be the name of a tool, got 5"),
    ],
)
def test_unknown_keys_are_refused_by_name(
    db: StateDatabase, session: str, wrong: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidInput, match=why):
        db.append_messages(session, [{**OPENAI, **wrong}])
    assert contents(db) == []


def test_a_json_column_is_taken_as_text_too(db: StateDatabase, session: str) -> None:
    message = get(db, db.append_message(session, "assistant", "x", tool_calls=json.dumps(CALLS)))
    assert message["tool_calls"] == CALLS
    assert counters(db) == (1, 1)


@pytest.mark.parametrize("nothing", [None, [], "", {}])
def test_no_tool_calls_are_none(db: StateDatabase, session: str, nothing: Any) -> None:
    message = get(db, db.append_message(session, "assistant", "x", tool_calls=nothing))
    assert not message["tool_calls"]
    assert counters(db) == (1, 0)


@pytest.mark.parametrize(
    ("given", "count"), [("5", 0), ('"abc"', 0), ("[{", 0), (7, 0), (CALLS[0], 1), (CALLS * 3, 3)]
)
def test_tool_calls_of_any_shape_are_counted_as_a_recount_does(
    db: StateDatabase, session: str, given: Any, count: int
) -> None:
    db.append_message(session, "assistant", "x", tool_calls=given)
    assert counters(db) == (1, count)
    assert db.recount_session(session) is False


@pytest.mark.requirement("messages:counters")
@pytest.mark.parametrize("role", ["user", "tool", "system", "invented"])
def test_tool_calls_of_any_role_are_counted_as_a_recount_does(
    db: StateDatabase, session: str, role: str
) -> None:
    db.append_message(session, role, "x", tool_calls=CALLS)
    assert counters(db) == (1, len(CALLS))
    assert db.recount_session(session) is False


@pytest.mark.requirement("messages:columns")
def test_empty_reasoning_is_not_no_reasoning(db: StateDatabase, session: str) -> None:
    empty = db.append_message(session, "assistant", "x", reasoning_content="")
    none = db.append_message(session, "assistant", "x", reasoning_content=None)
    assert get(db, empty)["reasoning_content"] == ""
    assert get(db, none)["reasoning_content"] is None
    told = db.get_messages_as_conversation(session)
    assert ["reasoning_content" in message for message in told] == [True, False]


@pytest.mark.requirement("messages:counters")
def test_rows_of_any_role_are_kept(db: StateDatabase, session: str) -> None:
    for role in ("user", "assistant", "tool", "system", "session_meta", "invented"):
        db.append_message(session, role)
    assert [row["role"] for row in db.get_messages(session)][-2:] == ["session_meta", "invented"]
    assert counters(db) == (6, 0)


def test_a_row_that_was_read_can_be_appended_elsewhere(db: StateDatabase, session: str) -> None:
    parts = [{"type": "text", "text": "x"}]
    db.append_message(session, "assistant", parts, tool_calls=CALLS, timestamp=5.0)
    db.create_session("t", "cli")
    (copied,) = db.append_messages("t", db.get_messages(session)).ids
    first, second = db.get_messages(session)[0], get(db, copied)
    for row in (first, second):
        for name in ("id", "session_id", "display_order"):
            row.pop(name, None)  # type: ignore[misc]
    assert first == second


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (5, 5.0),
        (5.25, 5.25),
        (-1.0, -1.0),
        (0, 0.0),
        (datetime.fromtimestamp(1e9, timezone.utc), 1e9),
        (datetime.fromtimestamp(1e9, timezone(timedelta(hours=5))), 1e9),
        ("2001-09-09T01:46:40+00:00", 1e9),
    ],
)
def test_a_time_may_be_seconds_a_datetime_or_iso(
    db: StateDatabase, session: str, given: Any, stored: float
) -> None:
    message = get(db, db.append_message(session, "user", "x", timestamp=given))
    assert message["timestamp"] == stored


def test_a_time_that_is_not_given_is_now(db: StateDatabase, session: str) -> None:
    before = time.time()
    message = get(db, db.append_message(session, "user", "x"))
    assert before <= message["timestamp"] <= time.time()


def test_messages_of_one_batch_stand_in_order_of_time_too(db: StateDatabase, session: str) -> None:
    db.append_messages(session, [{"role": "user", "content": str(n)} for n in range(50)])
    times = [row["timestamp"] for row in db.get_messages(session)]
    assert times == sorted(set(times))


@pytest.mark.requirement("messages:columns")
@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "bogus": 1},
        {"role": "user", "rowid": 5},
        {"role": "user", "ACTIVE": 0},
        {"role": "user", 'x") VALUES (1); --': 1},
        {"role": ""},
        {"role": None},
        {"role": 5},
        {},
        "text",
        None,
        {"role": "user", "timestamp": "tomorrow"},
        {"role": "user", "timestamp": float("nan")},
        {"role": "user", "timestamp": float("inf")},
        {"role": "user", "timestamp": [5]},
        {"role": "user", "timestamp": 10**400},
        {"role": "user", "timestamp": datetime(1, 1, 1)},  # noqa: DTZ001 -- a local time
        {"role": "user", "content": {1, 2}},
        {"role": "user", "content": [object()]},
        {"role": "user", "content": float("nan")},
        {"role": "user", "content": float("-inf")},
        {"role": "user", "content": [{"type": "text", "score": float("nan")}]},
        {"role": "user", "tool_calls": [{"id": float("inf")}]},
        {"role": "user", "token_count": 2**70},
        {"role": "user", "tool_name": object()},
        {"role": "user", "tool_calls": [object()]},
    ],
)
def test_a_message_that_makes_no_sense_is_invalid_and_changes_nothing(
    db: StateDatabase, session: str, message: Any
) -> None:
    before = db.get_revision(session)
    with pytest.raises(InvalidInput):
        db.append_messages(session, [{"role": "user", "content": "good"}, message])
    assert db.get_revision(session) == before
    assert (contents(db), counters(db)) == ([], (0, 0))


def test_columns_of_the_verbs_are_not_set_by_a_message(db: StateDatabase, session: str) -> None:
    first = db.append_message(session, "user", "x")
    forged: dict[str, Any] = {"id": first, "active": 0, "compacted": 1}
    message = get(db, db.append_message(session, "user", "y", **forged))
    assert message["id"] != first
    assert message["active"] == 1
    assert counters(db) == (2, 0)


@pytest.mark.requirement("messages:content")
def test_half_characters_inside_parts_break_nothing_later(db: StateDatabase, session: str) -> None:
    parts = [{"type": "text", "text": "half \ud83d"}]
    db.append_messages(session, [{"role": "user", "content": parts}] * 3000)
    db.append_message(session, "user", "after")
    assert contents(db)[-1] == "after"
    assert db.list_sessions().items[0].preview.startswith("half")


# -- append ----------------------------------------------------------------------------------


@pytest.mark.requirement("messages:counters")
def test_an_append_is_its_id_with_the_revisions(db: StateDatabase, session: str) -> None:
    first = db.append_message(session, "user", "x")
    second = db.append_message(session, "assistant", "y", tool_calls=CALLS * 3)
    assert isinstance(first, AppendResult)
    assert isinstance(first, int)
    assert first.before == Revision(0, 0, 0, 0, None)
    assert first.after == second.before == Revision(int(first), 1, 0, 0, None)
    assert second.after == Revision(int(second), 2, 0, 0, None) == db.get_revision(session)
    assert counters(db) == (2, 3)


def test_many_are_appended_in_one_step(db: StateDatabase, session: str) -> None:
    done = db.append_messages(session, ({"role": "user", "content": str(n)} for n in range(5)))
    assert list(done.ids) == sorted(set(done.ids))
    assert [row["id"] for row in db.get_messages(session)] == list(done.ids)
    assert done.after == db.get_revision(session) == Revision(done.ids[-1], 5, 0, 0, None)


def test_none_are_appended_without_a_change(db: StateDatabase, session: str) -> None:
    done = db.append_messages(session, [])
    assert (done.ids, done.before, done.after) == (
        (),
        db.get_revision(session),
        db.get_revision(session),
    )


@pytest.mark.requirement("messages:chain")
def test_an_append_chain_is_continuous_across_instances(
    db: StateDatabase, other: StateDatabase, session: str
) -> None:
    last = db.get_revision(session)
    for turn in range(12):
        done = (db, other)[turn % 2 if turn < 6 else turn // 3 % 2].append_message(
            session, "user", str(turn)
        )
        assert done.before == last
        last = done.after
    assert db.get_revision(session) == other.get_revision(session) == last


def test_an_append_to_an_ended_session_says_that_it_has_ended(
    db: StateDatabase, session: str
) -> None:
    db.append_message(session, "user", "x")
    db.end_session(session, "cli_close")
    row = db.get_session(session)
    assert row is not None
    done = db.append_message(session, "user", "y")
    assert done.before.ended_at == done.after.ended_at == row["ended_at"]


def test_an_append_with_the_expected_revision_succeeds(db: StateDatabase, session: str) -> None:
    expected = db.append_message(session, "user", "x").after
    assert db.append_message(session, "user", "y", expect=expected).before == expected
    lazily = db.append_message(
        "t", "user", "x", create={"source": "cli"}, expect=Revision(0, 0, 0, 0, None)
    )
    assert lazily.after.live == 1


@pytest.mark.requirement("messages:expect")
def test_an_append_after_a_foreign_change_is_a_conflict(
    db: StateDatabase, other: StateDatabase, session: str
) -> None:
    expected = db.append_message(session, "user", "x").after
    other.append_message(session, "user", "foreign")
    with pytest.raises(Conflict):
        db.append_message(session, "user", "y", expect=expected)
    assert contents(db) == ["x", "foreign"]
    assert counters(db) == (2, 0)


@pytest.mark.requirement("messages:platform")
def test_a_platform_message_is_known_again(db: StateDatabase, session: str) -> None:
    db.append_message(session, "user", "x", platform_message_id="p1")
    db.append_message(session, "user", "y", message_id="p2")
    assert db.has_platform_message_id(session, "p1")
    assert db.has_platform_message_id(session, "p2")
    assert not db.has_platform_message_id(session, "p3")
    assert not db.has_platform_message_id("t", "p1")
    told = db.get_messages_as_conversation(session)
    assert [message["message_id"] for message in told] == ["p1", "p2"]


@pytest.mark.requirement("messages:order")
def test_rows_are_read_in_order_of_ids_and_in_parts(db: StateDatabase, session: str) -> None:
    for number, at in enumerate((50.0, 10.0, 40.0, 20.0, 30.0)):
        db.append_message(session, "user", str(number), timestamp=at)
    assert contents(db) == ["0", "1", "2", "3", "4"]
    part = db.get_messages(session, limit=2, offset=1)
    assert [row["content"] for row in part] == ["1", "2"]
    assert db.get_messages(session, limit=2, offset=9) == []


def test_a_message_that_is_not_there_is_none(db: StateDatabase, session: str) -> None:
    assert db.get_message(1) is None
    assert db.get_messages("nobody") == []
    assert db.get_messages_as_conversation("nobody") == []


def test_rows_are_counted_whatever_their_flags(db: StateDatabase, session: str) -> None:
    ids = append(db, "a", "b", "c")
    db.create_session("t", "cli")
    db.append_message("t", "user", "x")
    db.rewind_to_message(session, ids[1])
    assert (db.message_count(session), db.message_count("t"), db.message_count()) == (3, 1, 4)
    assert db.message_count("nobody") == 0


# -- flags -----------------------------------------------------------------------------------


@pytest.mark.requirement("messages:flags")
def test_a_rewind_takes_back_a_message_and_all_after_it(db: StateDatabase, session: str) -> None:
    ids = append(db, "a", "b", "c", "d")
    before = db.get_revision(session)
    done = db.rewind_to_message(session, ids[2])
    assert (done.target["id"], done.target["content"]) == (ids[2], "c")
    assert (done.rewound, done.last_id) == (2, ids[1])
    assert flags(db) == [("a", 1, 0), ("b", 1, 0), ("c", 0, 0), ("d", 0, 0)]
    assert db.get_revision(session) == before._replace(live=2, rewinds=1)
    assert counters(db) == (4, 0), "a rewind leaves the counter alone"


def test_a_rewind_of_all_leaves_no_last_message(db: StateDatabase, session: str) -> None:
    ids = append(db, "a", "b")
    assert db.rewind_to_message(session, ids[0]).last_id is None


def test_only_a_message_of_the_user_is_rewound_to(db: StateDatabase, session: str) -> None:
    (user,) = append(db, "a")
    (assistant,) = append(db, "b", role="assistant")
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


def test_a_rewind_to_a_message_that_is_taken_back_takes_back_what_came_after_it(
    db: StateDatabase, session: str
) -> None:
    first, _ = append(db, "a", "b")
    db.rewind_to_message(session, first)
    append(db, "c")
    assert db.rewind_to_message(session, first).rewound == 1
    assert contents(db) == []
    assert db.rewind_to_message(session, first).rewound == 0
    assert db.get_revision(session).rewinds == 3


def test_reasoning_is_kept_of_every_role_where_hermes_keeps_it_of_the_assistant_alone(
    db: StateDatabase, session: str
) -> None:
    db.replace_messages(session, [{"role": "user", "content": "x", "reasoning": "because"}])
    assert db.get_messages(session)[0]["reasoning"] == "because"


def test_the_last_activity_is_that_of_the_newest_message_of_a_batch(
    db: StateDatabase, session: str, strange: Callable[..., int]
) -> None:
    if not has_column(db, "last_activity_at"):
        strange("ALTER TABLE sessions ADD COLUMN last_activity_at REAL")
    batch = [{"role": "user", "content": "x", "timestamp": at} for at in (5.0, 9.0, 7.0)]
    db.append_messages(session, batch)
    assert dict(db.get_session(session) or {})["last_activity_at"] == 9.0


def test_a_row_is_put_back_without_what_its_table_computes(
    db: StateDatabase, session: str, strange: Callable[..., int]
) -> None:
    strange("ALTER TABLE messages ADD COLUMN shout TEXT AS (upper(content)) VIRTUAL")
    append(db, "a")
    db.replace_messages(session, db.get_messages(session))
    assert [dict(row)["shout"] for row in db.get_messages(session)] == ["A"]


def test_what_was_rewound_comes_back(db: StateDatabase, session: str) -> None:
    ids = append(db, "a", "b", "c")
    db.rewind_to_message(session, ids[1])
    rewound = db.get_revision(session)
    assert db.restore_rewound(session, ids[2]) == 1
    assert db.restore_rewound(session, ids[0]) == 1
    assert db.restore_rewound(session, ids[0]) == 0
    assert contents(db) == ["a", "b", "c"]
    assert db.get_revision(session) == rewound._replace(live=3)


@pytest.mark.requirement("messages:flags")
def test_a_restore_after_a_compaction_leaves_compacted_rows_compacted(
    db: StateDatabase, session: str
) -> None:
    ids = append(db, "a", "b", "c")
    db.rewind_to_message(session, ids[2])
    with require_column(db, "compacted"):
        db.archive_and_compact(session, [{"role": "user", "content": "summary"}])
        assert db.restore_rewound(session, ids[0]) == 1
        assert flags(db) == [("a", 0, 1), ("b", 0, 1), ("c", 1, 0), ("summary", 1, 0)]
        assert counters(db) == (2, 0)


def test_a_part_of_what_was_rewound_leaves_the_counters_as_they_were(
    db: StateDatabase, session: str
) -> None:
    ids = append(db, "a", "b", "c")
    db.rewind_to_message(session, ids[1])
    db.restore_rewound(session, ids[2])
    assert counters(db) == (3, 0)


@pytest.mark.requirement("messages:flags")
def test_a_compaction_flags_live_rows_and_appends_in_their_place(
    db: StateDatabase, session: str
) -> None:
    ids = append(db, "a", "b", "c")
    db.rewind_to_message(session, ids[2])
    before = db.get_revision(session)
    with require_column(db, "compacted"):
        done = db.archive_and_compact(
            session,
            [
                {"role": "user", "content": "summary"},
                {"role": "assistant", "content": "", "tool_calls": CALLS},
            ],
        )
        assert flags(db) == [("a", 0, 1), ("b", 0, 1), ("c", 0, 0), ("summary", 1, 0), ("", 1, 0)]
        assert min(done.ids) > max(ids)
        assert done.before == before
        assert done.after == db.get_revision(session) == Revision(done.ids[-1], 2, 2, 1, None)
        assert counters(db) == (2, 1)


def test_compacting_twice_keeps_what_was_compacted_first(db: StateDatabase, session: str) -> None:
    append(db, "a", "b")
    with require_column(db, "compacted"):
        for summary in ("one", "two"):
            db.archive_and_compact(session, [{"role": "user", "content": summary}])
        assert flags(db) == [("a", 0, 1), ("b", 0, 1), ("one", 0, 1), ("two", 1, 0)]
        assert db.get_revision(session)[1:3] == (1, 3)


def test_a_refused_compaction_changes_nothing(db: StateDatabase, session: str) -> None:
    append(db, "a", "b")
    before = db.get_revision(session)
    with pytest.raises(InvalidInput if has_column(db, "compacted") else Unsupported):
        db.archive_and_compact(session, [{"role": "user", "content": "s", "bogus": 1}])
    assert (db.get_revision(session), contents(db)) == (before, ["a", "b"])


@pytest.mark.requirement("messages:replace")
def test_replacing_deletes_every_row(db: StateDatabase, session: str) -> None:
    ids = append(db, "a", "b", "c")
    db.rewind_to_message(session, ids[1])
    done = db.replace_messages(session, [{"role": "user", "content": "new", "tool_calls": CALLS}])
    assert flags(db) == [("new", 1, 0)]
    assert min(done.ids) > max(ids)
    assert done.before == Revision(ids[-1], 1, 0, 1, None)
    assert done.after == db.get_revision(session) == Revision(done.ids[0], 1, 0, 1, None)
    assert counters(db) == (1, 1)


@pytest.mark.requirement("messages:replace")
def test_replacing_live_rows_keeps_the_others(db: StateDatabase, session: str) -> None:
    ids = append(db, "a", "b", "c")
    db.rewind_to_message(session, ids[1])
    db.replace_messages(session, [{"role": "user", "content": "new"}], active_only=True)
    assert flags(db) == [("b", 0, 0), ("c", 0, 0), ("new", 1, 0)]
    assert counters(db) == (1, 0)


def test_replacing_by_the_same_rows_is_a_change(db: StateDatabase, session: str) -> None:
    append(db, "a", "b")
    before = db.get_revision(session)
    rows = db.get_messages(session)
    db.replace_messages(session, rows)
    assert contents(db) == ["a", "b"]
    assert [row["timestamp"] for row in db.get_messages(session)] == [
        row["timestamp"] for row in rows
    ]
    assert db.get_revision(session) != before


@pytest.mark.requirement("messages:replace")
def test_clearing_deletes_every_row(db: StateDatabase, session: str) -> None:
    ids = append(db, "a", "b", "c")
    db.rewind_to_message(session, ids[1])
    assert db.clear_messages(session) == 3
    assert (flags(db), counters(db)) == ([], (0, 0))
    assert db.get_revision(session) == Revision(0, 0, 0, 1, None)
    assert db.append_message(session, "user", "d") > ids[-1], "an id is never used twice"


def test_messages_are_found_by_their_ids_those_that_are_there(db: StateDatabase) -> None:
    db.create_session("s", source="cli")
    first, *_, last = (db.append_message("s", "user", f"text {n}") for n in range(4))
    found = db.find_messages([last, 10**6, first, first, -1])
    assert found == {each: db.get_message(each) for each in (first, last)}
    assert db.find_messages([]) == {}
