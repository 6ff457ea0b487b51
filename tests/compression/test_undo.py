"""Undo restores everything, and later messages are kept or listed."""

from __future__ import annotations

from typing import Any

import pytest

from session_core import Conflict, InvalidInput, NotFound
from session_core.compression import NotCompressed, locks
from tests.compression.homes import LAST, Chat, summarize_short

SHAPES = ("in_place", "continuation")


@pytest.mark.requirement("compression:undo")
@pytest.mark.parametrize("shape", SHAPES)
def test_undo_restores_previous_state(chat: Chat, shape: Any) -> None:
    before = chat.whole()
    chat.clock.now += 5
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape=shape, keep_last=LAST
    )
    chat.clock.now += 5
    undone = chat.compressor().undo(result.batch)
    assert (undone.outcome, undone.session_id) == ("applied", result.old_session_id)
    assert chat.whole() == before
    assert chat.db.get_session(result.session_id) is None or shape == "in_place"
    for session_id in (result.session_id, result.old_session_id):
        assert chat.db.get_compression_lock_holder(session_id) is None


@pytest.mark.requirement("compression:undo")
def test_in_place_undo_keeps_later_messages(chat: Chat) -> None:
    texts, row = chat.texts(), chat.db.get_session(chat.session_id)
    result = chat.compressor().compress(chat.session_id, summarize_short, keep_last=LAST)
    chat.say("said since")
    chat.compressor().undo(result.batch)
    assert chat.texts() == [*texts, "said since"]
    now = chat.db.get_session(chat.session_id)
    assert row is not None
    assert now is not None
    assert now["message_count"] == row["message_count"] + 1


@pytest.mark.requirement("compression:undo")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("counters", [(7, 3), (None, None)])
def test_undo_restores_drifted_or_missing_counters(
    chat: Chat, shape: Any, counters: tuple[Any, Any]
) -> None:
    names = ("message_count", "tool_call_count")
    chat.db.rows.put_session_fields(chat.session_id, dict(zip(names, counters, strict=True)))
    before = chat.whole()
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape=shape, keep_last=LAST
    )
    chat.compressor().undo(result.batch)
    assert chat.whole() == before


@pytest.mark.parametrize("kind", ["hermes, null flags"], indirect=True)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("flags", ["active = NULL", "compacted = 1"])
def test_undo_restores_odd_flags(chat: Chat, shape: Any, flags: str) -> None:
    chat.change(f"UPDATE messages SET {flags} WHERE id % 2")  # noqa: S608 -- of this test
    before = chat.whole()
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape=shape, keep_last=LAST
    )
    chat.compressor().undo(result.batch)
    assert chat.whole() == before


@pytest.mark.needs_files
@pytest.mark.parametrize("shape", SHAPES)
def test_undo_restores_unknown_columns(chat: Chat, shape: Any) -> None:
    for table in ("messages", "sessions"):
        chat.change(f"ALTER TABLE {table} ADD COLUMN strange")
        chat.change(f"UPDATE {table} SET strange = x'00ff'")  # noqa: S608 -- of this test
    before = chat.whole()
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape=shape, keep_last=LAST
    )
    row: dict[str, Any] = {**(chat.db.get_session(result.session_id) or {})}
    assert row["strange"] == b"\x00\xff"
    chat.compressor().undo(result.batch)
    assert chat.whole() == before


# -- in place --------------------------------------------------------------------------------


@pytest.mark.requirement("compression:undo")
def test_undo_moves_edits_to_originals(chat: Chat) -> None:
    originals = chat.db.get_messages(chat.session_id)
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape="in_place", keep_last=LAST
    )
    copy = chat.db.get_messages(chat.session_id)[-1]["id"]
    chat.change("UPDATE messages SET api_content = 'as sent', observed = 1 WHERE id = ?", copy)
    chat.compressor().undo(result.batch)
    changed = {"api_content": "as sent", "observed": 1}
    assert chat.db.get_messages(chat.session_id) == [*originals[:-1], {**originals[-1], **changed}]
    assert chat.db.admin.check_integrity(deep=True) == []


def test_edited_copy_is_searchable_after_undo(chat: Chat) -> None:
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape="in_place", keep_last=LAST
    )
    copy = next(row for row in chat.db.get_messages(chat.session_id)[::-1] if row["role"] == "user")
    chat.db.search("bring the index up to date")
    chat.change("UPDATE messages SET content = 'quokka' WHERE id = ?", copy["id"])
    chat.compressor().undo(result.batch)
    (hit,) = chat.db.search("quokka", per="message").hits
    assert hit.message_id < copy["id"]


def test_undo_keeps_later_rewind(chat: Chat) -> None:
    texts = chat.texts()
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape="in_place", keep_last=LAST
    )
    users = [row for row in chat.db.get_messages(chat.session_id) if row["role"] == "user"]
    chat.db.rewind_to_message(chat.session_id, users[-1]["id"])
    chat.compressor().undo(result.batch)
    assert chat.texts() == texts[:-4]
    rows = chat.db.get_messages(chat.session_id, include_inactive=True)
    assert [(row["active"], row["compacted"]) for row in rows[-4:]] == [(0, 0)] * 4


def test_undo_rewinds_originals_of_rewound_summary(chat: Chat) -> None:
    texts = chat.texts()
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape="in_place", keep_last=LAST
    )
    first = chat.db.get_messages(chat.session_id)[0]["id"]
    chat.db.rewind_to_message(chat.session_id, first)
    chat.compressor().undo(result.batch)
    assert chat.texts() == []
    assert chat.db.restore_rewound(chat.session_id, first) == len(texts)
    assert chat.texts() == texts


def test_undo_does_not_duplicate_replaced_messages(chat: Chat) -> None:
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape="in_place", keep_last=LAST
    )
    chat.db.replace_messages(chat.session_id, [{"role": "user", "content": "afresh"}])
    with pytest.raises(Conflict, match="were deleted since"):
        chat.compressor().undo(result.batch)
    assert chat.texts() == ["afresh"]


def test_undo_reports_deleted_session(chat: Chat) -> None:
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape="in_place", keep_last=LAST
    )
    chat.db.delete_session(result.session_id)
    with pytest.raises(Conflict, match="was deleted since"):
        chat.compressor().undo(result.batch)


@pytest.mark.requirement("compression:undo")
def test_undo_requires_latest_compression_first(chat: Chat) -> None:
    before = chat.texts()
    first = chat.compressor().compress(chat.session_id, summarize_short, keep_last=LAST)
    added_texts = [f"and then {number} " + "again " * 50 for number in range(30)]
    for text in added_texts:
        chat.say(text)
    second = chat.compressor().compress(chat.session_id, summarize_short, keep_last=LAST)
    with pytest.raises(Conflict, match="compressed again since; undo that first"):
        chat.compressor().undo(first.batch)
    chat.compressor().undo(second.batch)
    chat.compressor().undo(first.batch)
    assert chat.texts() == [*before, *added_texts]


@pytest.mark.requirement("compression:undo")
def test_undo_twice_is_refused(chat: Chat) -> None:
    result = chat.compressor().compress(chat.session_id, summarize_short, keep_last=LAST)
    chat.compressor().undo(result.batch)
    once = chat.whole()
    with pytest.raises(Conflict, match="undone already"):
        chat.compressor().undo(result.batch)
    assert chat.whole() == once


def test_undo_refuses_other_batches(chat: Chat) -> None:
    with pytest.raises(NotFound):
        chat.compressor().undo("b-nothing")
    with pytest.raises(InvalidInput, match="not a compression"):
        chat.compressor().undo(chat.ledger.add_batch("prune").id)


def test_session_is_compressible_after_undo(chat: Chat) -> None:
    for shape in SHAPES:
        result = chat.compressor().compress(
            chat.session_id, summarize_short, shape=shape, keep_last=LAST
        )
        chat.compressor().undo(result.batch)
    assert chat.compressor().compress(chat.session_id, summarize_short, keep_last=LAST)


def test_undo_leaves_no_marks(chat: Chat) -> None:
    result = chat.compressor().compress(chat.session_id, summarize_short, keep_last=LAST)
    chat.compressor().undo(result.batch)
    keys = chat.db._read(lambda handle: handle.fetch_tuples("SELECT key FROM state_meta"))
    assert [key for (key,) in keys if "done" in key] == []


def test_compression_and_undo_are_audited(chat: Chat) -> None:
    result = chat.compressor().compress(
        chat.session_id, summarize_short, keep_last=LAST, client="someone"
    )
    chat.compressor().undo(result.batch)
    lines = chat.ledger.list_audit_entries().items
    assert [line.client for line in lines] == ["library", "someone"]
    assert all(result.session_id in line.what for line in lines)


@pytest.mark.parametrize("shape", SHAPES)
def test_undo_refused_during_compression(
    chat: Chat, shape: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "LOCK_TIMEOUT_S", 0.0)
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape=shape, keep_last=LAST
    )
    for session_id in {result.session_id, result.old_session_id}:
        assert chat.db.try_acquire_compression_lock(session_id, "another")
        before = chat.whole()
        with pytest.raises(NotCompressed, match="another") as refused:
            chat.compressor().undo(result.batch)
        assert refused.value.code == "locked"
        assert chat.whole() == before
        chat.db.release_compression_lock(session_id, "another")
    assert chat.compressor().undo(result.batch).outcome == "applied"


def test_concurrent_undo_error_names_batch(chat: Chat) -> None:
    result = chat.compressor().compress(chat.session_id, summarize_short, keep_last=LAST)
    (step,) = chat.ledger.list_steps(result.batch)
    undoing = chat.ledger.add_batch("undo").id
    chat.ledger.prepare_step("s-one", undoing, (), undoes=step.id)
    with pytest.raises(Conflict, match=f"batch {result.batch}"):
        chat.ledger.prepare_step("s-two", undoing, (), undoes=step.id)


@pytest.mark.requirement("state:state")
@pytest.mark.parametrize("kind", ["own"], indirect=True)
def test_continuation_carries_payloads_and_state(chat: Chat) -> None:
    old = chat.session_id
    for row in chat.db.get_messages(old):
        chat.db.sdk.update_message(row["id"], payload_json=[row["id"]])
    chat.db.state.merge_session_state(old, {"key": 1})
    before = chat.whole()
    result = chat.compressor().compress(old, summarize_short, shape="continuation", keep_last=LAST)
    payloads = [row["payload_json"] for row in chat.db.get_messages(result.session_id)]
    assert payloads[-LAST:] == [f"[{row['id']}]" for row in chat.db.get_messages(old)][-LAST:]
    assert chat.db.state.read_session_state(result.session_id) == {"key": 1}
    assert chat.compressor().undo(result.batch).outcome == "applied"
    assert chat.whole() == before


@pytest.mark.parametrize("kind", ["own"], indirect=True)
def test_changed_state_makes_undo_plan(chat: Chat) -> None:
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape="continuation", keep_last=LAST
    )
    chat.db.state.merge_session_state(result.session_id, {"key": 2})
    plan = chat.compressor().undo(result.batch).plan
    assert plan is not None
    assert plan.changed == ("ms_session_state",)
