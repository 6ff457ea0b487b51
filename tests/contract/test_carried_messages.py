"""Carried messages: a copy without its times is the same message, a repeated message is not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from session_core import StateDatabase
from tests.contract.engines import ForeignWriter, require_column

pytestmark = pytest.mark.schemas(16, 30)

SUMMARY = {"role": "user", "content": "a summary"}
NOTE = {"role": "user", "content": "a note"}
CALL = [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]

Message = dict[str, Any]


@pytest.fixture
def spoken_messages(db: StateDatabase) -> list[Message]:
    """Append eight messages one by one."""
    shapes: list[Message] = [{"role": "user", "content": f"zebra {n}"} for n in range(6)]
    shapes[3] = {"role": "assistant", "content": "zebra 3 ", "tool_calls": CALL}
    shapes[4] = {"role": "tool", "content": "zebra 4", "tool_call_id": "c1"}
    shapes += [{"role": "user", "content": "zebra yes"}, {"role": "assistant", "content": "Done."}]
    for shape in shapes:
        db.append_message("s", shape.pop("role"), create={"source": "cli"}, **shape)
    return [drop_time(row) for row in db.get_messages("s")]


def drop_time(row: Any) -> Message:
    kept = ("role", "content", "tool_calls", "tool_call_id")
    shape = {name: row[name] for name in kept if row.get(name)}
    content = shape.get("content")
    return shape | {"content": content.strip() if isinstance(content, str) else content}


def list_timed_messages(db: StateDatabase) -> list[Message]:
    return [drop_time(row) | {"timestamp": row["timestamp"]} for row in db.get_messages("s")]


def read_feed_texts(db: StateDatabase, cursor: str, **options: Any) -> list[str | None]:
    return [event.text for event in db.read_changes(cursor, **options).events if event.message_id]


def hits(db: StateDatabase, query: str = "zebra") -> list[str]:
    """Return the hits and their rows, with `*` for a live row."""
    found = db.search(query, per="message", status="all", limit=100).hits
    return sorted(
        hit.snippet.removesuffix(" look") + ("" if hit.compacted else "*") for hit in found
    )


def list_texts(rows: Iterable[Any]) -> list[str]:
    return [str(row["content"]).strip() for row in rows]


def shapes(spoken_messages: list[Message], old: list[Message]) -> list[list[Message]]:
    """Return possible summaries, each with the messages that are carried."""
    return [
        [SUMMARY, *spoken_messages[5:]],
        [SUMMARY, *spoken_messages[3:], NOTE],
        [*spoken_messages[:2], SUMMARY, *spoken_messages[6:]],
        [SUMMARY, *old[4:7], spoken_messages[7]],
        [*old[:2], SUMMARY, *old[4:6], *spoken_messages[6:]],
        [
            SUMMARY,
            spoken_messages[3],
            {"role": "tool", "content": "cut short"},
            *spoken_messages[5:],
        ],
    ]


@pytest.mark.requirement("compaction:carried")
@pytest.mark.parametrize("shape", range(6))
def test_carried_messages_without_times_are_found_once(
    db: StateDatabase, spoken_messages: list[Message], shape: int
) -> None:
    cursor = db.read_changes().cursor
    put = shapes(spoken_messages, list_timed_messages(db))[shape]
    with require_column(db, "compacted"):
        db.archive_and_compact("s", put)
        db.append_message("s", "user", "zebra new")
        made = [text for text in list_texts(put) if text not in list_texts(spoken_messages)]
        assert read_feed_texts(db, cursor) == [*made, "zebra new"]
        assert read_feed_texts(db, cursor, limit=1) == made[:1]
        carried = {text for text in list_texts(put) if "zebra" in text}
        expected = [
            text + ("*" if text in carried else "") for text in list_texts(spoken_messages)[:7]
        ]
        assert hits(db) == sorted([*expected, "zebra new*"])


@pytest.mark.parametrize("shape", range(4))
def test_repeatedly_carried_messages_are_found_once(
    db: StateDatabase, spoken_messages: list[Message], shape: int
) -> None:
    with require_column(db, "compacted"):
        db.archive_and_compact("s", shapes(spoken_messages, list_timed_messages(db))[shape])
        for number in range(3):
            db.append_message("s", "user", f"zebra later {number}")
            db.append_message("s", "assistant", "zebra well")
            cursor = db.read_changes().cursor
            db.archive_and_compact("s", [SUMMARY, *map(drop_time, db.get_messages("s")[-3:])])
            assert read_feed_texts(db, cursor) == ["a summary"]
        found_hits = hits(db)
        assert [text for text in found_hits if "well" not in text] == sorted(
            [*list_texts(spoken_messages)[:7], "zebra later 0", "zebra later 1", "zebra later 2*"]
        )
        assert [text for text in found_hits if "well" in text] == [
            "zebra well",
            *["zebra well*"] * 2,
        ]


@pytest.mark.requirement("compaction:carried")
@pytest.mark.parametrize("shape", range(6))
def test_messages_carried_to_continuation_are_found_once(
    db: StateDatabase, spoken_messages: list[Message], shape: int
) -> None:
    cursor = db.read_changes().cursor
    put = shapes(spoken_messages, list_timed_messages(db))[shape]
    db.end_session("s", "compression")
    db.create_session("t", "cli", parent_session_id="s")
    db.replace_messages("t", put)
    db.append_message("t", "user", "zebra new")
    made = [text for text in list_texts(put) if text not in list_texts(spoken_messages)]
    assert read_feed_texts(db, cursor) == [*made, "zebra new"]
    assert hits(db) == sorted(
        f"{text}*" for text in [*list_texts(spoken_messages)[:7], "zebra new"]
    )
    whole = db.get_messages_as_conversation("t", include_ancestors=True)
    assert list_texts(whole) == [*list_texts(spoken_messages), *made, "zebra new"]


@pytest.mark.requirement("compaction:carried")
def test_repeated_text_after_compaction_is_found_twice(
    db: StateDatabase, spoken_messages: list[Message]
) -> None:
    with require_column(db, "compacted"):
        db.archive_and_compact("s", [SUMMARY])
        cursor = db.read_changes().cursor
        db.append_message("s", "user", "zebra yes")
        db.append_messages("s", [NOTE, {"role": "assistant", "content": "Done."}])
        db.append_messages("s", spoken_messages[6:])
        again = ["zebra yes", "a note", "Done.", "zebra yes", "Done."]
        assert read_feed_texts(db, cursor) == again
        assert hits(db, '"zebra yes"') == ["zebra yes", "zebra yes*", "zebra yes*"]
        assert hits(db, "done") == ["Done.", "Done.*", "Done.*"]
        db.archive_and_compact("s", [SUMMARY])
        assert read_feed_texts(db, cursor) == [*again, "a summary"]
        assert hits(db, '"zebra yes"') == ["zebra yes"] * 3
        assert hits(db, "done") == ["Done."] * 3


def test_restored_carried_messages_are_found_unchanged(
    db: StateDatabase, spoken_messages: list[Message]
) -> None:
    with require_column(db, "compacted"):
        ids = db.archive_and_compact("s", [SUMMARY, *spoken_messages[6:]]).ids
        assert hits(db, '"zebra yes"') == ["zebra yes*"]
        db.rewind_to_message("s", ids[1])
        assert hits(db, '"zebra yes"') == ["zebra yes"]


@pytest.mark.requirement("compaction:carried")
def test_same_answer_to_two_questions_found_twice(db: StateDatabase) -> None:
    cursor = db.read_changes().cursor
    done = {"role": "assistant", "content": "Done."}
    for text in ("do this", "do that", "and that"):
        db.append_messages("s", [{"role": "user", "content": text}, done], create={})
    with require_column(db, "compacted"):
        db.archive_and_compact("s", [SUMMARY, {"role": "user", "content": "and that"}, done])
        assert read_feed_texts(db, cursor)[-2:] == ["Done.", "a summary"]
        assert hits(db, "done") == ["Done.", "Done.", "Done.*"]
        db.append_message("s", "user", "go on")
        db.archive_and_compact("s", [SUMMARY])
        assert hits(db, "done") == ["Done."] * 3


def test_duplicate_messages_at_same_time_are_reported(db: StateDatabase) -> None:
    yes = {"role": "user", "content": "yes", "timestamp": 5.0}
    db.append_messages("s", [yes, yes], create={})
    assert list_texts(db.get_messages_as_conversation("s", include_ancestors=True)) == [
        "yes",
        "yes",
    ]


def test_carried_row_is_recognized_by_timed_neighbors(
    db: StateDatabase, spoken_messages: list[Message], foreign: ForeignWriter
) -> None:
    cursor = db.read_changes().cursor
    with require_column(db, "compacted"):
        db.archive_and_compact("s", [SUMMARY, {**NOTE, "timestamp": 1.0}, spoken_messages[-1]])
        foreign.update_rows("messages", {"content": "zebra 0"}, active=1, compacted=0)
        assert read_feed_texts(db, cursor) == ["a summary", "a note"]
