"""Compaction: flags, summaries, restoring, and the compression lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from session_core import Conflict, InvalidInput, NotFound, Revision, StateDatabase, Unsupported
from tests.contract.engines import ForeignWriter, has_column, require_column
from tests.contract.message_rows import append_text, list_contents, list_flags, read_counters

pytestmark = pytest.mark.schemas(16, 30)

PARTS = [{"type": "text", "text": "a part"}, {"type": "image_url", "image_url": {"url": "x"}}]
CALLS = [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
SUMMARY = {"role": "user", "content": "what was said", "timestamp": 3.5}


def fill_session(db: StateDatabase) -> list[int]:
    """Append six messages of every shape, the first of which is the head."""
    rows: list[dict[str, Any]] = [
        {"role": "user", "content": "head"},
        {"role": "assistant", "content": "", "tool_calls": CALLS},
        {"role": "tool", "content": "found", "tool_call_id": "c1", "tool_name": "look"},
        {"role": "assistant", "content": PARTS, "reasoning": "because"},
        {"role": "user", "content": "tail", "platform_message_id": "p1"},
        {"role": "assistant", "content": "last", "tool_calls": CALLS, "finish_reason": "stop"},
    ]
    timed = [{**row, "timestamp": float(place)} for place, row in enumerate(rows)]
    return list(db.append_messages("s", timed, create={"source": "cli"}).ids)


def list_rows(db: StateDatabase, session_id: str = "s") -> list[dict[str, Any]]:
    return [dict(row) for row in db.get_messages(session_id, include_inactive=True)]


def drop_ids(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k not in ("id", "session_id")} for row in rows]


def compact_session(db: StateDatabase) -> tuple[list[int], tuple[int, ...]]:
    ids = fill_session(db)
    return ids, db.rows.compact_messages("s", ids[1:4], [SUMMARY], carry=ids[4:]).ids


@pytest.mark.requirement("compaction:in-place")
def test_compaction_puts_summary_at_replaced_position(db: StateDatabase) -> None:
    with require_column(db, "compacted"):
        compact_session(db)
        live = [row["content"] for row in db.get_messages("s")]
        assert live == ["head", "what was said", "tail", "last"]


@pytest.mark.requirement("compaction:in-place")
def test_compaction_copies_carried_messages_except_id(db: StateDatabase) -> None:
    with require_column(db, "compacted"):
        ids = fill_session(db)
        before = list_rows(db)
        made = db.rows.compact_messages("s", ids[1:4], [SUMMARY], carry=ids[4:]).ids
        after = {row["id"]: row for row in list_rows(db)}
        copies = [after[each] for each in made[1:]]
        assert drop_ids(copies) == drop_ids(before[4:])


@pytest.mark.requirement("compaction:in-place")
def test_compaction_changes_only_flags_of_originals(db: StateDatabase) -> None:
    with require_column(db, "compacted"):
        ids = fill_session(db)
        before = list_rows(db)
        db.rows.compact_messages("s", ids[1:4], [SUMMARY], carry=ids[4:])
        expected = [{**row, "active": 0, "compacted": 1} for row in before[1:]]
        assert list_rows(db)[:6] == [before[0], *expected]


@pytest.mark.requirement("compaction:in-place")
def test_compaction_updates_counters_and_revision(db: StateDatabase) -> None:
    with require_column(db, "compacted"):
        ids = fill_session(db)
        compacted = db.rows.compact_messages("s", ids[1:4], [SUMMARY], carry=ids[4:])
        row = db.get_session("s") or {}
        assert (row["message_count"], row["tool_call_count"]) == (4, 1)
        assert db.admin.find_drifted_sessions() == []
        assert (compacted.before.live, compacted.after.live, compacted.after.compacted) == (6, 4, 5)
        assert compacted.after == db.get_revision("s")


@pytest.mark.requirement("compaction:in-place")
def test_compacted_message_is_found_once(db: StateDatabase) -> None:
    with require_column(db, "compacted"):
        compact_session(db)
        for word in ("tail", "found"):
            assert len(db.search(word, per="message").hits) == 1


@pytest.mark.requirement("compaction:in-place")
def test_carried_messages_are_not_reported(db: StateDatabase) -> None:
    with require_column(db, "compacted"):
        ids = fill_session(db)
        cursor = db.read_changes().cursor
        db.rows.compact_messages("s", ids[1:4], [SUMMARY], carry=ids[4:])
        assert [event.text for event in db.read_changes(cursor).events] == ["what was said"]


@pytest.mark.requirement("compaction:in-place")
@pytest.mark.parametrize("change", ["rewound", "compacted", "elsewhere", "unknown"])
def test_compaction_of_inactive_message_conflicts(db: StateDatabase, change: str) -> None:
    with require_column(db, "compacted"):
        if not has_column(db, "compacted"):
            raise Unsupported
        ids = fill_session(db)
        if change == "rewound":
            db.rewind_to_message("s", ids[4])
        elif change == "compacted":
            db.archive_and_compact("s", [])
        elif change == "elsewhere":
            ids[4] = db.append_message("t", "user", "x", create={"source": "cli"})
        else:
            ids[4] = 10**6
        before = list_rows(db)
        with pytest.raises(Conflict):
            db.rows.compact_messages("s", ids[1:4], [SUMMARY], carry=ids[4:])
        assert list_rows(db) == before


@pytest.mark.requirement("compaction:undo")
def test_restore_compacted_brings_messages_back(db: StateDatabase) -> None:
    with require_column(db, "compacted"):
        ids = fill_session(db)
        before, row = list_rows(db), db.get_session("s")
        made = db.rows.compact_messages("s", ids[1:4], [SUMMARY], carry=ids[4:]).ids
        restored = db.rows.restore_compacted("s", ids[1:], drop=made)
        assert (list_rows(db), db.get_session("s")) == (before, row)
        assert restored.after == db.get_revision("s")
        assert db.search("what was said", per="message").hits == []
        assert db.admin.check_integrity(deep=True) == []


@pytest.mark.requirement("compaction:undo")
def test_restore_compacted_keeps_later_messages(db: StateDatabase) -> None:
    with require_column(db, "compacted"):
        ids, made = compact_session(db)
        db.append_message("s", "user", "since")
        db.rows.restore_compacted("s", ids[1:], drop=made)
        live = [row["content"] for row in db.get_messages("s")]
        assert live == ["head", "", "found", PARTS, "tail", "last", "since"]


def test_restore_compacted_applies_changes_of_copy(db: StateDatabase) -> None:
    with require_column(db, "compacted"):
        ids, made = compact_session(db)
        db.rewind_to_message("s", made[1])
        copies = dict(zip(ids[4:], made[1:], strict=True))
        db.rows.restore_compacted("s", ids[1:], copies=copies, drop=made)
        assert [row["content"] for row in db.get_messages("s")] == ["head", "", "found", PARTS]
        flags = [(row["id"], row["active"], row["compacted"]) for row in list_rows(db)[4:]]
        assert flags == [(ids[4], 0, 0), (ids[5], 0, 0)]
        assert db.restore_rewound("s", ids[4]) == 2
        assert [hit.message_id for hit in db.search("tail", per="message").hits] == [ids[4]]
        assert db.admin.check_integrity(deep=True) == []


def test_restore_compacted_restores_odd_flags(db: StateDatabase) -> None:
    with require_column(db, "compacted"):
        ids, made = compact_session(db)
        db.rows.restore_compacted("s", ids[1:], flags={ids[2]: (1, 1), ids[3]: (0, 0)}, drop=made)
        flags = [(row["active"], row["compacted"]) for row in list_rows(db)]
        assert flags == [(1, 0), (1, 0), (1, 1), (0, 0), (1, 0), (1, 0)]


@pytest.mark.requirement("compaction:undo")
@pytest.mark.parametrize("gone", ["original", "stand-in"])
def test_restore_compacted_conflicts_after_change(db: StateDatabase, gone: str) -> None:
    with require_column(db, "compacted"):
        ids, made = compact_session(db)
        if gone == "original":
            ids[1] = made[0]
        before = list_rows(db)
        with pytest.raises(Conflict):
            db.rows.restore_compacted(
                "s", ids[1:], drop=[*made[1:], 10**6] if gone != "original" else []
            )
        assert list_rows(db) == before


@pytest.mark.requirement("compaction:copies")
def test_copy_messages_appends_to_target_session(db: StateDatabase) -> None:
    ids = fill_session(db)
    db.create_session("child", "cli", parent_session_id="s")
    db.append_message("child", "user", "first")
    copied = db.rows.copy_messages("s", ids[3:], "child")
    assert drop_ids(list_rows(db, "child"))[1:] == drop_ids(list_rows(db))[3:]
    row = db.get_session("child") or {}
    assert (row["message_count"], row["tool_call_count"]) == (4, 1)
    assert copied.after == db.get_revision("child")
    assert len(db.get_messages("s")) == 6


@pytest.mark.requirement("compaction:copies")
def test_copy_messages_rejects_unknown_target(db: StateDatabase) -> None:
    ids = fill_session(db)
    with pytest.raises(NotFound):
        db.rows.copy_messages("s", ids, "nowhere")
    with pytest.raises(Conflict):
        db.rows.copy_messages("s", [*ids, 10**6], "s")
    assert len(list_rows(db)) == 6


# -- the lock --------------------------------------------------------------------------------


@pytest.mark.requirement("compaction:lock")
def test_compression_lock_is_exclusive_until_release(
    db: StateDatabase, other: StateDatabase
) -> None:
    db.create_session("s", "cli")
    assert db.try_acquire_compression_lock("s", "one")
    assert not other.try_acquire_compression_lock("s", "two")
    assert other.get_compression_lock_holder("s") == "one"
    other.release_compression_lock("s", "two")
    assert other.get_compression_lock_holder("s") == "one"
    db.release_compression_lock("s", "one")
    assert other.get_compression_lock_holder("s") is None
    assert other.try_acquire_compression_lock("s", "two")


@pytest.mark.requirement("compaction:lock")
def test_expired_compression_lock_can_be_taken(db: StateDatabase, other: StateDatabase) -> None:
    db.create_session("s", "cli")
    assert db.try_acquire_compression_lock("s", "one", -1.0)
    assert db.get_compression_lock_holder("s") is None
    assert not db.refresh_compression_lock("s", "one")
    assert other.try_acquire_compression_lock("s", "two")
    assert not db.refresh_compression_lock("s", "one")
    assert other.refresh_compression_lock("s", "two")


@pytest.mark.requirement("compaction:lock")
def test_compression_lock_covers_single_session(db: StateDatabase) -> None:
    assert db.try_acquire_compression_lock("s", "one")
    assert db.try_acquire_compression_lock("t", "two")


def test_search_finds_restored_message_by_changed_text(
    db: StateDatabase, foreign: ForeignWriter, reopen: Callable[[], StateDatabase]
) -> None:
    db.create_session("s", "cli")
    ids = [db.append_message("s", "user", f"said{number}") for number in range(4)]
    with require_column(db, "compacted"):
        made = db.rows.compact_messages("s", ids[:3], [], carry=ids[3:]).ids
        reopened = reopen()
        foreign.update_rows("messages", {"id": made[0]}, content="wombat")
        reopened.rows.restore_compacted("s", ids, copies={ids[3]: made[0]}, drop=made)
        hits = reopened.search("wombat", per="message").hits
        assert [hit.message_id for hit in hits] == [ids[3]]


@pytest.mark.parametrize("names", [("", "me"), ("s", "")])
def test_compression_lock_requires_holder_name(db: StateDatabase, names: tuple[str, str]) -> None:
    db.create_session("s", "cli")
    for take in (db.try_acquire_compression_lock, db.refresh_compression_lock):
        with pytest.raises(InvalidInput, match="must not be empty"):
            take(*names)
    assert db.admin.list_claims() == []


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


def test_second_compaction_keeps_earlier_compacted_messages(
    db: StateDatabase, session: str
) -> None:
    append_text(db, "a", "b")
    with require_column(db, "compacted"):
        for summary in ("one", "two"):
            db.archive_and_compact(session, [{"role": "user", "content": summary}])
        assert list_flags(db) == [("a", 0, 1), ("b", 0, 1), ("one", 0, 1), ("two", 1, 0)]
        assert db.get_revision(session)[1:3] == (1, 3)


def test_rejected_compaction_leaves_session_unchanged(db: StateDatabase, session: str) -> None:
    append_text(db, "a", "b")
    before = db.get_revision(session)
    with pytest.raises(InvalidInput if has_column(db, "compacted") else Unsupported):
        db.archive_and_compact(session, [{"role": "user", "content": "s", "bogus": 1}])
    assert (db.get_revision(session), list_contents(db)) == (before, ["a", "b"])
