"""Changes and look-ups of single messages and sessions, for interfaces of agent SDKs."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from session_core import Conflict, InvalidInput, NotFound, SessionFilter, StateDatabase, Unsupported
from tests.contract.engines import has_column

CALLS = [{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
PAYLOAD = '{ "type":"reasoning",  "text":"caf\\u00e9 \\u0000 \\ud800", "n": 1e400, "deep": [[]]}'
MISSING = 1 << 40


def counters(db: StateDatabase, session_id: str = "s") -> tuple[int, int]:
    row = db.get_session(session_id) or {}
    return row["message_count"], row["tool_call_count"]


def live_texts(db: StateDatabase, session_id: str = "s") -> list[object]:
    return [row["content"] for row in db.get_messages(session_id)]


def found_texts(db: StateDatabase, query: str) -> list[str]:
    return [hit.snippet for hit in db.search(query, per="message").hits]


@pytest.fixture
def payloads(db: StateDatabase) -> bool:
    """Return True if the home stores payloads."""
    return db.admin.get_capabilities().payloads


@pytest.mark.schemas(16, 30)
def test_pop_hides_and_returns_newest(db: StateDatabase, session: str) -> None:
    db.append_message(session, "user", "question")
    db.append_message(session, "assistant", "zebra", tool_calls=CALLS)
    before = db.get_revision(session)
    assert counters(db) == (2, 1)
    popped = db.sdk.pop_message(session)
    assert popped is not None
    assert (popped["content"], popped["tool_calls"]) == ("zebra", CALLS)
    assert live_texts(db) == ["question"]
    assert counters(db) == (1, 0)
    after = db.get_revision(session)
    assert (after.live, after.rewinds) == (1, before.rewinds + 1)
    assert found_texts(db, "zebra") == []
    assert db.restore_rewound(session, popped["id"]) == 1
    assert counters(db) == (2, 1)
    assert len(found_texts(db, "zebra")) == 1


def test_pop_empties_session_in_order(db: StateDatabase, session: str) -> None:
    db.append_messages(session, [{"role": "user", "content": text} for text in "abc"])
    popped = [db.sdk.pop_message(session) for _ in range(4)]
    assert [row and row["content"] for row in popped] == ["c", "b", "a", None]
    assert counters(db) == (0, 0)
    db.append_message(session, "user", "d")
    assert live_texts(db) == ["d"]


def test_pop_after_compaction_keeps_original(db: StateDatabase, session: str) -> None:
    ids = db.append_messages(session, [{"role": "user", "content": text} for text in "abc"]).ids
    db.rows.compact_messages(session, ids[:2], [{"role": "user", "content": "sum"}], carry=ids[2:])
    popped = db.sdk.pop_message(session)
    assert popped is not None
    assert popped["content"] == "c"
    assert live_texts(db) == ["sum"]
    assert counters(db) == (1, 0)


def test_delete_messages_corrects_counters(db: StateDatabase, session: str) -> None:
    ids = db.append_messages(
        session,
        [
            {"role": "user", "content": "keep"},
            {"role": "assistant", "content": "giraffe", "tool_calls": CALLS},
            {"role": "tool", "content": "rewound", "tool_call_id": "call_1"},
        ],
    ).ids
    other = db.append_message("t", "user", "elsewhere", create={"source": "cli"})
    db.sdk.pop_message(session)
    before = db.get_revision(session)
    assert db.sdk.delete_messages(session, [ids[1], ids[2], ids[2], other, MISSING]) == 2
    assert counters(db) == (1, 0)
    assert db.get_revision(session) != before
    assert live_texts(db) == ["keep"]
    assert found_texts(db, "giraffe") == []
    assert db.message_count() == 2
    assert db.sdk.delete_messages(session, ids[1:]) == 0
    assert db.sdk.delete_messages(session, []) == 0


@pytest.mark.schemas(16, 30)
def test_update_changes_text_and_revision(db: StateDatabase, session: str) -> None:
    message_id = db.append_message(session, "assistant", "old walrus", tool_calls=CALLS)
    row = db.get_message(message_id) or {}
    before = db.get_revision(session)
    parts = [{"type": "text", "text": "new ocelot"}]
    after = db.sdk.update_message(
        message_id, content=parts, tool_calls=None, platform_message_id="p1"
    )
    assert after == db.get_revision(session) != before
    changed = db.get_message(message_id) or {}
    assert changed == {
        **row,
        "content": parts,
        "tool_calls": None,
        "platform_message_id": "p1",
    }
    assert counters(db) == (1, 0)
    assert found_texts(db, "walrus") == []
    assert len(found_texts(db, "ocelot")) == 1
    db.sdk.update_message(message_id, tool_calls=CALLS * 2)
    assert counters(db) == (1, 2)


def test_stale_writer_notices_update(db: StateDatabase, other: StateDatabase, session: str) -> None:
    after = db.append_message(session, "user", "first").after
    other.sdk.update_message(int(db.get_messages(session)[0]["id"]), content="edited")
    with pytest.raises(Conflict):
        db.append_message(session, "user", "second", expect=after)
    assert live_texts(db) == ["edited"]


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"timestamp": 1.0},
        {"session_id": "t"},
        {"active": 0},
        {"role": ""},
        {"role": None},
        {"no_such": 1},
        {"name": "x"},
        {"content": object()},
    ],
)
def test_update_refuses_invalid_columns(
    db: StateDatabase, session: str, columns: dict[str, object]
) -> None:
    message_id = db.append_message(session, "user", "as it was")
    before = db.get_revision(session)
    with pytest.raises(InvalidInput):
        db.sdk.update_message(message_id, **columns)
    assert db.get_revision(session) == before


def test_changes_report_unknown_ids(db: StateDatabase, session: str) -> None:
    for change in (
        lambda: db.sdk.pop_message("nobody"),
        lambda: db.sdk.delete_messages("nobody", [1]),
        lambda: db.sdk.update_message(MISSING, content="x"),
    ):
        with pytest.raises(NotFound):
            change()
    for refused in (["1"], "12", None):
        with pytest.raises(InvalidInput):
            db.sdk.delete_messages(session, refused)  # type: ignore[arg-type]


@pytest.mark.requirement("state:payloads")
@pytest.mark.schemas(16, 30)
def test_payload_is_stored_exactly(db: StateDatabase, session: str, payloads: bool) -> None:
    if not payloads:
        with pytest.raises(Unsupported, match="payload_json"):
            db.append_message(session, "user", "seen", payload_json=PAYLOAD)
        assert live_texts(db) == []
        return
    message_id = db.append_message(session, "user", "seen capybara", payload_json=PAYLOAD)
    assert db.get_messages(session)[0]["payload_json"] == PAYLOAD
    assert (db.get_message(message_id) or {})["payload_json"] == PAYLOAD
    assert db.read_window(session).messages[0]["payload_json"] == PAYLOAD
    assert len(found_texts(db, "capybara")) == 1
    assert found_texts(db, "reasoning") == []
    assert "payload_json" not in db.get_messages_as_conversation(session)[0]


def test_payload_value_becomes_json(db: StateDatabase, session: str, payloads: bool) -> None:
    value = {"b": ["\x00", "\ud800", "\U0001f980", 1 << 70, -0.0, None, {}], "a": True}
    message = {"role": "user", "content": None, "payload_json": value}
    if not payloads:
        with pytest.raises(Unsupported, match="payload_json"):
            db.append_messages(session, [message])
        return
    message_id = db.append_messages(session, [message, {**message, "payload_json": []}]).ids[0]
    stored = [str(row["payload_json"]) for row in db.get_messages(session)]
    assert [json.loads(text) for text in stored] == [value, []]
    db.sdk.update_message(message_id, payload_json=None)
    assert (db.get_message(message_id) or {})["payload_json"] is None
    db.sdk.update_message(message_id, payload_json=PAYLOAD)
    assert (db.get_message(message_id) or {})["payload_json"] == PAYLOAD


@pytest.mark.parametrize("payload", ["not json", "\ud800", "[" * 100_000, object(), float("nan")])
def test_payload_without_json_is_refused(db: StateDatabase, session: str, payload: object) -> None:
    with pytest.raises(InvalidInput):
        db.append_message(session, "user", "x", payload_json=payload)
    assert live_texts(db) == []


def test_payload_goes_with_copied_messages(db: StateDatabase, session: str, payloads: bool) -> None:
    if not payloads:
        return
    ids = [
        int(db.append_message(session, "user", text, payload_json=[text])) for text in ("a", "b")
    ]
    db.rows.compact_messages(session, ids[:1], [{"role": "user", "content": "sum"}], carry=ids[1:])
    db.create_session("t", "cli")
    db.rows.copy_messages(session, ids[:1], "t")
    assert [row["payload_json"] for row in db.get_messages(session)] == [None, '["b"]']
    assert [row["payload_json"] for row in db.get_messages("t")] == ['["a"]']


def test_get_sessions_keeps_given_order(db: StateDatabase) -> None:
    ids = [f"s\x00{number}'é\U0001f980" for number in range(1200)]
    with db.transaction():
        for session_id in ids:
            db.create_session(session_id, "cli")
    wanted = [*reversed(ids), "nobody", ids[0]]
    assert list(db.sdk.get_sessions(wanted)) == [*reversed(ids)]
    assert db.sdk.get_sessions(ids[:1]) == {ids[0]: db.get_session(ids[0])}
    assert db.sdk.get_sessions([]) == {}
    with pytest.raises(InvalidInput):
        db.sdk.get_sessions("s")


def test_platform_message_is_found_by_id(db: StateDatabase, session: str) -> None:
    ids = [
        int(db.append_message(session, "user", text, platform_message_id=key))
        for text, key in (("a", "p'1"), ("b", "p\x002"), ("c", "p3"), ("d", "p3"))
    ]
    db.append_message("t", "user", "x", create={"source": "cli"}, platform_message_id="p'1")
    db.sdk.pop_message(session)
    platform_messages = db.sdk.find_platform_messages(
        session, ["p3", "p\x002", "p'1", "none", "p3"]
    )
    assert {key: row["id"] for key, row in platform_messages.items()} == {
        "p3": ids[2],
        "p\x002": ids[1],
        "p'1": ids[0],
    }
    db.sdk.pop_message(session)
    assert db.sdk.find_platform_messages(session, ["p3"])["p3"]["id"] == ids[3]
    assert db.sdk.find_platform_messages("nobody", ["p3"]) == {}


@pytest.mark.schemas(16, 30)
def test_platform_session_is_found_by_chat(db: StateDatabase) -> None:
    for number, (source, chat, user) in enumerate(
        [("adk", "c1", "u1"), ("adk", "c1", "u2"), ("claude", "c1", "u1"), ("adk", "c2", "u1")]
    ):
        fields = {"chat_id": chat, "user_id": user, "started_at": float(number)}
        db.create_session(f"s{number}", source, **fields)
    ids = [row["id"] for row in db.sdk.find_platform_sessions("adk", "c1")]
    assert ids == (["s1", "s0"] if has_column(db, "chat_id") else [])
    ids = [row["id"] for row in db.sdk.find_platform_sessions("adk", "c1", user_id="u1")]
    assert ids == (["s0"] if has_column(db, "chat_id") else [])
    assert db.sdk.find_platform_sessions("adk", "c1", thread_id="none") == []
    for refused in ((None, "c1"), ("adk", 7)):
        with pytest.raises(InvalidInput):
            db.sdk.find_platform_sessions(*refused)  # type: ignore[arg-type]


@pytest.mark.schemas(16, 30)
def test_summary_has_inherited_user_and_chat(db: StateDatabase, continued: str) -> None:
    expected = ("u1", "c1") if has_column(db, "chat_id") else ("u1", None)
    (line,) = db.list_sessions(SessionFilter(user_id="u1")).items
    assert (line.id, line.user_id, line.chat_id) == (continued, *expected)
    line = db.summarize_session("root")
    assert (line.user_id, line.chat_id, line.model) == (*expected, "m")


@pytest.mark.schemas(16, 30)
def test_appended_message_reaches_tip(db: StateDatabase, continued: str) -> None:
    create = {"source": "sdk", "user_id": "u2"}
    for session_id, created in (("root", False), (continued, False), ("new", True), ("new", False)):
        message = {"role": "user", "content": session_id}
        result = db.sdk.append_to_tip(session_id, [message], create=create)
        assert (result.created, result.after.live) == (created, result.before.live + 1)
    assert live_texts(db, continued) == ["root", continued]
    assert live_texts(db, "new") == ["new", "new"]
    assert (db.get_session("new") or {})["user_id"] == "u2"
    with pytest.raises(NotFound):
        db.sdk.append_to_tip("nobody", [{"role": "user", "content": "lost"}])
    with pytest.raises(InvalidInput, match="role"):
        db.sdk.append_to_tip("root", [{"content": "nobody says it"}], create=create)
    assert db.sdk.append_to_tip("empty", [], create=create).ids == ()
    assert db.get_session("empty") is None


@pytest.mark.schemas(16, 30)
def test_tip_payloads_are_newest_live(db: StateDatabase, continued: str, payloads: bool) -> None:
    ids = db.append_messages(
        continued,
        [
            {"role": "user", "content": str(number)}
            | ({"payload_json": str(number)} if payloads and number != 2 else {})
            for number in range(5)
        ],
    ).ids
    popped = db.sdk.pop_message(continued)
    assert popped is not None
    rows = [
        (message_id, str(number) if payloads and number != 2 else None)
        for number, message_id in enumerate(ids[:4])
    ]
    for session_id in ("root", continued):
        assert db.sdk.read_tip_payloads(session_id) == rows
        assert db.sdk.read_tip_payloads(session_id, 3) == rows[1:]
        assert db.sdk.read_tip_payloads(session_id, 9) == rows
    assert db.sdk.read_tip_payloads("nobody") == []
    for refused in (0, -1, "1"):
        with pytest.raises(InvalidInput, match="limit"):
            db.sdk.read_tip_payloads("root", refused)  # type: ignore[arg-type]


@pytest.mark.parametrize("first", [1, 3])
def test_payloads_of_compacted_messages_are_listed(
    db: StateDatabase, session: str, payloads: bool, first: int
) -> None:
    if not payloads:
        assert db.sdk.list_payloads(session) == []
        return
    ids = db.append_messages(
        session,
        [
            {"role": "user", "content": "x", "payload_json": f'"{number}"'}
            | ({"platform_message_id": f"p{number}"} if number % 2 else {})
            for number in range(10)
        ],
    ).ids
    db.append_message(session, "user", "without a payload")
    stored = [f'"{number}"' for number in range(10)]
    check_payloads(db, session, stored)
    summary = {"role": "user", "content": "sum"}
    db.rows.compact_messages(session, ids[first:6], [summary], carry=ids[6:])
    check_payloads(db, session, stored)
    db.append_message(session, "user", "y", payload_json='"later"')
    db.append_message(session, "user", "z", payload_json='"popped"')
    db.sdk.pop_message(session)
    check_payloads(db, session, [*stored, '"later"'])


def check_payloads(db: StateDatabase, session_id: str, stored: list[str]) -> None:
    assert db.sdk.list_payloads(session_id) == stored
    for count in range(1, len(stored) + 2):
        assert db.sdk.list_payloads(session_id, count) == stored[-count:]


@pytest.fixture
def continued(db: StateDatabase) -> str:
    """Return the continuation of a session that has a user and a chat."""
    fields = {"user_id": "u1", "chat_id": "c1", "model": "m"}
    db.create_session("root", "telegram", started_at=1.0, **fields)
    db.end_session("root", "compression")
    db.create_session("mid", "telegram", parent_session_id="root")
    db.end_session("mid", "compression")
    return db.create_session("tip", "telegram", parent_session_id="mid")


def test_read_calls_see_one_snapshot(db: StateDatabase, other: StateDatabase, session: str) -> None:
    db.append_message(session, "user", "x", platform_message_id="p")
    look: Callable[[], object] = lambda: (  # noqa: E731 -- read twice
        db.sdk.get_sessions([session]),
        db.sdk.find_platform_messages(session, ["p"]),
        db.sdk.find_platform_sessions("cli", "c"),
    )
    with db.snapshot():
        before = look()
        other.sdk.pop_message(session)
        other.update_session(session, chat_id="c")
        assert look() == before
    assert look() != before
