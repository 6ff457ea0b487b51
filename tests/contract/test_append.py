"""Appended messages: stored values are returned unchanged, and a chain of revisions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from session_core import Conflict, InvalidInput, Revision, StateDatabase
from session_core.types import AppendResult
from tests.contract.engines import ForeignWriter, has_column
from tests.contract.message_rows import CALLS, get, list_contents, read_counters

Open = Callable[[], StateDatabase]


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


def test_append_keeps_reasoning_of_every_role(db: StateDatabase, session: str) -> None:
    db.replace_messages(session, [{"role": "user", "content": "x", "reasoning": "because"}])
    assert db.get_messages(session)[0]["reasoning"] == "because"


@pytest.mark.schemas(16, 30)
@pytest.mark.needs("foreign columns")
def test_append_batch_sets_last_activity_from_newest(
    db: StateDatabase, session: str, foreign: ForeignWriter
) -> None:
    if not has_column(db, "last_activity_at"):
        foreign.add_column("sessions", "last_activity_at", "REAL")
    batch = [{"role": "user", "content": "x", "timestamp": at} for at in (5.0, 9.0, 7.0)]
    db.append_messages(session, batch)
    assert dict(db.get_session(session) or {})["last_activity_at"] == 9.0
