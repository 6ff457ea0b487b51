"""Messages: stored values are returned unchanged, and flags are right after every change."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from session_core import Conflict, InvalidInput, NotFound, Revision, StateDatabase, Unsupported
from session_core.types import AppendResult, MessageRow
from tests.contract.engines import has_column, require_column

Open = Callable[[], StateDatabase]
CALLS = [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}]


@pytest.fixture
def session(db: StateDatabase) -> str:
    return db.create_session("s", "cli")


def list_contents(db: StateDatabase, *, everything: bool = False) -> list[Any]:
    return [message["content"] for message in db.get_messages("s", include_inactive=everything)]


def append_text(db: StateDatabase, *texts: str, role: str = "user") -> list[int]:
    return [db.append_message("s", role, text) for text in texts]


def list_flags(db: StateDatabase) -> list[tuple[Any, int, int]]:
    """Return the text and the two flags of every row, in order."""
    rows = db.get_messages("s", include_inactive=True)
    return [(row["content"], row["active"], row.get("compacted", 0)) for row in rows]


def get(db: StateDatabase, message_id: int) -> MessageRow:
    message = db.get_message(message_id)
    assert message is not None
    return message


def read_counters(db: StateDatabase) -> tuple[int, int]:
    row = db.get_session("s")
    assert row is not None
    return row["message_count"], row["tool_call_count"]


# -- stored values ---------------------------------------------------------------------------


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
def test_append_preserves_message_content(
    db: StateDatabase, reopen: Open, session: str, given: Any, read: Any
) -> None:
    message_id = db.append_message(session, "user", given)
    reopened = reopen()
    assert get(reopened, message_id)["content"] == read
    assert type(get(reopened, message_id)["content"]) is type(read)
    assert list_contents(reopened) == [read]
    assert [row["content"] for row in reopened.read_window(session).messages] == [read]


@pytest.mark.requirement("messages:columns")
def test_append_preserves_every_message_column(db: StateDatabase, session: str) -> None:
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
def test_append_stores_openai_name_as_tool_name(db: StateDatabase, session: str, role: str) -> None:
    given = {**OPENAI, "role": role, "name": "list_files"}
    both = {**given, "tool_name": "list_files"}
    several = db.append_messages(session, [given, both])
    single = db.append_message(session, role, "12 files", name="list_files", tool_call_id="c1")
    for message_id in (*several.ids, single):
        message = get(db, message_id)
        names = ("role", "tool_name", "tool_call_id", "content")
        assert [message[name] for name in names] == [role, "list_files", "c1", "12 files"]  # type: ignore[literal-required]
    assert [hit.message_id for hit in db.search("list_files").hits]


def test_append_ignores_empty_annotations(db: StateDatabase, session: str) -> None:
    message = {"role": "assistant", "content": "x", "refusal": None, "annotations": []}
    db.append_messages(session, [message])
    assert db.get_messages(session)[0]["content"] == "x"
    with pytest.raises(InvalidInput, match="annotations"):
        db.append_messages(session, [message | {"annotations": [{"type": "url_citation"}]}])


@pytest.mark.requirement("messages:columns")
def test_append_ignores_private_keys(db: StateDatabase, session: str) -> None:
    markers = {"_flushed": True, "_at": datetime.now(timezone.utc), "_of": {"a": 1}, "__": "x"}
    message = get(db, db.append_messages(session, [{**OPENAI, **markers}]).ids[0])
    assert message["content"] == "12 files"
    assert markers.keys().isdisjoint(message)


@pytest.mark.requirement("messages:columns")
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"nmae": "list_files"}, "unknown column 'nmae' of a message; valid are .*tool_name"),
        ({"role": "user", "name": "alice"}, "role 'user'"),
        ({"name": "list_files", "tool_name": "read"}, "name is 'list_files' and tool_name differs"),
        ({"name": 5}, "name must be the name of a tool, got 5"),
    ],
)
def test_append_rejects_unknown_keys_by_name(
    db: StateDatabase, session: str, wrong: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidInput, match=why):
        db.append_messages(session, [{**OPENAI, **wrong}])
    assert list_contents(db) == []


def test_append_accepts_json_column_as_text(db: StateDatabase, session: str) -> None:
    message = get(db, db.append_message(session, "assistant", "x", tool_calls=json.dumps(CALLS)))
    assert message["tool_calls"] == CALLS
    assert read_counters(db) == (1, 1)


@pytest.mark.parametrize("nothing", [None, [], "", {}])
def test_append_stores_empty_tool_calls_as_null(
    db: StateDatabase, session: str, nothing: Any
) -> None:
    message = get(db, db.append_message(session, "assistant", "x", tool_calls=nothing))
    assert not message["tool_calls"]
    assert read_counters(db) == (1, 0)


@pytest.mark.parametrize(
    ("given", "count"), [("5", 0), ('"abc"', 0), ("[{", 0), (7, 0), (CALLS[0], 1), (CALLS * 3, 3)]
)
def test_append_counts_tool_calls_of_any_shape(
    db: StateDatabase, session: str, given: Any, count: int
) -> None:
    db.append_message(session, "assistant", "x", tool_calls=given)
    assert read_counters(db) == (1, count)
    assert db.admin.recount_session(session) is False


@pytest.mark.requirement("messages:counters")
@pytest.mark.parametrize("role", ["user", "tool", "system", "invented"])
def test_append_counts_tool_calls_of_any_role(db: StateDatabase, session: str, role: str) -> None:
    db.append_message(session, role, "x", tool_calls=CALLS)
    assert read_counters(db) == (1, len(CALLS))
    assert db.admin.recount_session(session) is False


@pytest.mark.requirement("messages:columns")
def test_append_preserves_empty_reasoning(db: StateDatabase, session: str) -> None:
    empty = db.append_message(session, "assistant", "x", reasoning_content="")
    none = db.append_message(session, "assistant", "x", reasoning_content=None)
    assert get(db, empty)["reasoning_content"] == ""
    assert get(db, none)["reasoning_content"] is None
    conversation = db.get_messages_as_conversation(session)
    assert ["reasoning_content" in message for message in conversation] == [True, False]


@pytest.mark.requirement("messages:counters")
def test_append_stores_messages_of_any_role(db: StateDatabase, session: str) -> None:
    for role in ("user", "assistant", "tool", "system", "session_meta", "invented"):
        db.append_message(session, role)
    assert [row["role"] for row in db.get_messages(session)][-2:] == ["session_meta", "invented"]
    assert read_counters(db) == (6, 0)


def test_append_accepts_row_of_different_session(db: StateDatabase, session: str) -> None:
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
def test_append_accepts_seconds_datetime_or_iso_time(
    db: StateDatabase, session: str, given: Any, stored: float
) -> None:
    message = get(db, db.append_message(session, "user", "x", timestamp=given))
    assert message["timestamp"] == stored


def test_append_defaults_timestamp_to_now(db: StateDatabase, session: str) -> None:
    before = time.time()
    message = get(db, db.append_message(session, "user", "x"))
    assert before <= message["timestamp"] <= time.time()


def test_append_batch_assigns_increasing_timestamps(db: StateDatabase, session: str) -> None:
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
def test_append_rejects_invalid_message_without_changes(
    db: StateDatabase, session: str, message: Any
) -> None:
    before = db.get_revision(session)
    with pytest.raises(InvalidInput):
        db.append_messages(session, [{"role": "user", "content": "good"}, message])
    assert db.get_revision(session) == before
    assert (list_contents(db), read_counters(db)) == ([], (0, 0))


def test_append_rejects_columns_of_dedicated_methods(db: StateDatabase, session: str) -> None:
    first = db.append_message(session, "user", "x")
    forged: dict[str, Any] = {"id": first, "active": 0, "compacted": 1}
    message = get(db, db.append_message(session, "user", "y", **forged))
    assert message["id"] != first
    assert message["active"] == 1
    assert read_counters(db) == (2, 0)


@pytest.mark.requirement("messages:content")
def test_append_replaces_surrogates_inside_content_parts(db: StateDatabase, session: str) -> None:
    parts = [{"type": "text", "text": "half \ud83d"}]
    db.append_messages(session, [{"role": "user", "content": parts}] * 3000)
    db.append_message(session, "user", "after")
    assert list_contents(db)[-1] == "after"
    assert db.list_sessions().items[0].preview.startswith("half")


# -- append ----------------------------------------------------------------------------------


@pytest.mark.requirement("messages:counters")
def test_append_returns_id_with_revisions(db: StateDatabase, session: str) -> None:
    first = db.append_message(session, "user", "x")
    second = db.append_message(session, "assistant", "y", tool_calls=CALLS * 3)
    assert isinstance(first, AppendResult)
    assert isinstance(first, int)
    assert first.before == Revision(0, 0, 0, 0, None)
    assert first.after == second.before == Revision(int(first), 1, 0, 0, None)
    assert second.after == Revision(int(second), 2, 0, 0, None) == db.get_revision(session)
    assert read_counters(db) == (2, 3)


def test_append_messages_adds_batch_in_single_step(db: StateDatabase, session: str) -> None:
    appended = db.append_messages(session, ({"role": "user", "content": str(n)} for n in range(5)))
    assert list(appended.ids) == sorted(set(appended.ids))
    assert [row["id"] for row in db.get_messages(session)] == list(appended.ids)
    assert appended.after == db.get_revision(session) == Revision(appended.ids[-1], 5, 0, 0, None)


def test_append_messages_accepts_empty_batch(db: StateDatabase, session: str) -> None:
    appended = db.append_messages(session, [])
    assert (appended.ids, appended.before, appended.after) == (
        (),
        db.get_revision(session),
        db.get_revision(session),
    )


@pytest.mark.requirement("messages:chain")
def test_append_revisions_chain_across_instances(
    db: StateDatabase, other: StateDatabase, session: str
) -> None:
    last = db.get_revision(session)
    for turn in range(12):
        appended = (db, other)[turn % 2 if turn < 6 else turn // 3 % 2].append_message(
            session, "user", str(turn)
        )
        assert appended.before == last
        last = appended.after
    assert db.get_revision(session) == other.get_revision(session) == last


def test_append_reports_ended_session(db: StateDatabase, session: str) -> None:
    db.append_message(session, "user", "x")
    db.end_session(session, "cli_close")
    row = db.get_session(session)
    assert row is not None
    appended = db.append_message(session, "user", "y")
    assert appended.before.ended_at == appended.after.ended_at == row["ended_at"]


def test_append_succeeds_at_expected_revision(db: StateDatabase, session: str) -> None:
    expected = db.append_message(session, "user", "x").after
    assert db.append_message(session, "user", "y", expect=expected).before == expected
    lazily = db.append_message(
        "t", "user", "x", create={"source": "cli"}, expect=Revision(0, 0, 0, 0, None)
    )
    assert lazily.after.live == 1


@pytest.mark.requirement("messages:expect")
def test_append_conflicts_after_foreign_change(
    db: StateDatabase, other: StateDatabase, session: str
) -> None:
    expected = db.append_message(session, "user", "x").after
    other.append_message(session, "user", "foreign")
    with pytest.raises(Conflict):
        db.append_message(session, "user", "y", expect=expected)
    assert list_contents(db) == ["x", "foreign"]
    assert read_counters(db) == (2, 0)


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


def test_message_count_ignores_flags(db: StateDatabase, session: str) -> None:
    ids = append_text(db, "a", "b", "c")
    db.create_session("t", "cli")
    db.append_message("t", "user", "x")
    db.rewind_to_message(session, ids[1])
    assert (db.message_count(session), db.message_count("t"), db.message_count()) == (3, 1, 4)
    assert db.message_count("nobody") == 0


# -- flags -----------------------------------------------------------------------------------


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


def test_append_keeps_reasoning_of_every_role(db: StateDatabase, session: str) -> None:
    db.replace_messages(session, [{"role": "user", "content": "x", "reasoning": "because"}])
    assert db.get_messages(session)[0]["reasoning"] == "because"


@pytest.mark.schemas(16, 30)
def test_append_batch_sets_last_activity_from_newest(
    db: StateDatabase, session: str, strange: Callable[..., int]
) -> None:
    if not has_column(db, "last_activity_at"):
        strange("ALTER TABLE sessions ADD COLUMN last_activity_at REAL")
    batch = [{"role": "user", "content": "x", "timestamp": at} for at in (5.0, 9.0, 7.0)]
    db.append_messages(session, batch)
    assert dict(db.get_session(session) or {})["last_activity_at"] == 9.0


def test_put_images_omits_generated_message_columns(
    db: StateDatabase, session: str, strange: Callable[..., int]
) -> None:
    strange("ALTER TABLE messages ADD COLUMN shout TEXT AS (upper(content)) VIRTUAL")
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


@pytest.mark.schemas(16, 30)
@pytest.mark.requirement("messages:flags")
def test_restore_rewound_keeps_compacted_messages_compacted(
    db: StateDatabase, session: str
) -> None:
    ids = append_text(db, "a", "b", "c")
    db.rewind_to_message(session, ids[2])
    with require_column(db, "compacted"):
        db.archive_and_compact(session, [{"role": "user", "content": "summary"}])
        assert db.restore_rewound(session, ids[0]) == 1
        assert list_flags(db) == [("a", 0, 1), ("b", 0, 1), ("c", 1, 0), ("summary", 1, 0)]
        assert read_counters(db) == (2, 0)


def test_partial_restore_keeps_counters(db: StateDatabase, session: str) -> None:
    ids = append_text(db, "a", "b", "c")
    db.rewind_to_message(session, ids[1])
    db.restore_rewound(session, ids[2])
    assert read_counters(db) == (3, 0)


@pytest.mark.schemas(16, 30)
@pytest.mark.requirement("messages:flags")
def test_archive_and_compact_replaces_live_messages(db: StateDatabase, session: str) -> None:
    ids = append_text(db, "a", "b", "c")
    db.rewind_to_message(session, ids[2])
    before = db.get_revision(session)
    with require_column(db, "compacted"):
        result = db.archive_and_compact(
            session,
            [
                {"role": "user", "content": "summary"},
                {"role": "assistant", "content": "", "tool_calls": CALLS},
            ],
        )
        assert list_flags(db) == [
            ("a", 0, 1),
            ("b", 0, 1),
            ("c", 0, 0),
            ("summary", 1, 0),
            ("", 1, 0),
        ]
        assert min(result.ids) > max(ids)
        assert result.before == before
        assert result.after == db.get_revision(session) == Revision(result.ids[-1], 2, 2, 1, None)
        assert read_counters(db) == (2, 1)


@pytest.mark.schemas(16, 30)
def test_second_compaction_keeps_earlier_compacted_messages(
    db: StateDatabase, session: str
) -> None:
    append_text(db, "a", "b")
    with require_column(db, "compacted"):
        for summary in ("one", "two"):
            db.archive_and_compact(session, [{"role": "user", "content": summary}])
        assert list_flags(db) == [("a", 0, 1), ("b", 0, 1), ("one", 0, 1), ("two", 1, 0)]
        assert db.get_revision(session)[1:3] == (1, 3)


@pytest.mark.schemas(16, 30)
def test_rejected_compaction_leaves_session_unchanged(db: StateDatabase, session: str) -> None:
    append_text(db, "a", "b")
    before = db.get_revision(session)
    with pytest.raises(InvalidInput if has_column(db, "compacted") else Unsupported):
        db.archive_and_compact(session, [{"role": "user", "content": "s", "bogus": 1}])
    assert (db.get_revision(session), list_contents(db)) == (before, ["a", "b"])


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
