"""Commit of a continuation: the values that it takes over, and its refusals."""

from __future__ import annotations

from typing import Any

import pytest

from session_core import Changed, Compressor, Hooks, SessionSource, Unsupported, hookimpl
from session_core.compression import NotCompressed, commit
from tests.compression.homes import LAST, Chat, summarize_short

SHAPES = ("in_place", "continuation")
OTHER = SessionSource(platform="discord", chat_id="9", user_id="7", chat_type="dm")


def compress_to_continuation(chat: Chat) -> Any:
    return chat.compressor().compress(
        chat.session_id, summarize_short, shape="continuation", keep_last=LAST
    )


def read_row(chat: Chat, session_id: str) -> dict[str, Any]:
    return {**(chat.db.get_session(session_id) or {})}


def test_continuation_moves_every_chat(chat: Chat) -> None:
    old, other = chat.session_id, chat.store.get_or_create_session(OTHER).session_key
    chat.store.switch_session(other, old)
    before = chat.whole()
    result = compress_to_continuation(chat)
    assert {chat.store.peek_session_id(key) for key in (chat.key, other)} == {result.session_id}
    assert chat.compressor().undo(result.batch).outcome == "applied"
    assert chat.whole() == before


def test_continuation_moves_chat_joining_meanwhile(chat: Chat) -> None:
    other = chat.store.get_or_create_session(OTHER).session_key

    class Guest:
        """Moves another chat into the session just before the change."""

        @hookimpl
        def before_compression(self, session_id: str) -> None:
            chat.store.switch_session(other, session_id)

    result = make_compressor(chat, Guest()).compress(
        chat.session_id, summarize_short, shape="continuation", keep_last=LAST
    )
    assert {chat.store.peek_session_id(key) for key in (chat.key, other)} == {result.session_id}


@pytest.mark.parametrize("kind", ["hermes, without table"], indirect=True)
def test_file_routes_move_after_continuation(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash before the commit would leave a route in the file to a session that never existed."""
    old, before, led_to = chat.session_id, chat.whole(), list[str]()
    mark = chat.db.set_meta

    def last_change(key: str, value: str) -> None:
        led_to.append(chat.session_id)
        mark(key, value)

    with monkeypatch.context() as patch:
        patch.setattr(chat.db, "set_meta", last_change)
        result = compress_to_continuation(chat)
    assert (led_to, chat.session_id) == ([old], result.session_id)
    assert chat.compressor().undo(result.batch).outcome == "applied"
    assert (chat.whole(), chat.session_id) == (before, old)


def test_continuation_copies_shared_columns(chat: Chat) -> None:
    old = chat.session_id
    given = {
        "archived": 1,
        "handoff_state": "pending",
        "handoff_platform": "discord",
        "billing_provider": "someone",
        "billing_mode": "flat",
        "compression_failure_error": "no network",
        "compression_fallback_streak": 1,
        "system_prompt": "be kind",
    }
    own = {"input_tokens": 5, "api_call_count": 7, "rewind_count": 2, "estimated_cost_usd": 1.5}
    chat.db.rows.put_session_fields(old, {**given, **own})
    result = chat.compressor().compress(old, shape="continuation", keep_last=LAST)
    child = read_row(chat, result.session_id)
    assert {name: child[name] for name in given} == given
    assert [child[name] or 0 for name in own] == [0] * len(own)
    assert read_row(chat, old)["handoff_state"] is None
    assert chat.compressor().undo(result.batch)
    assert {name: read_row(chat, old)[name] for name in given} == given


def test_goal_follows_continuation_and_undo(chat: Chat) -> None:
    old = chat.session_id
    chat.db.set_meta(f"goal:{old}", '{"goal": "ship"}')
    before = chat.whole()
    result = compress_to_continuation(chat)
    assert chat.db.get_meta(f"goal:{result.session_id}") == '{"goal": "ship"}'
    assert chat.db.get_meta(f"goal:{old}") is None
    chat.compressor().undo(result.batch)
    assert chat.whole() == before


def test_tool_session_gets_no_continuation(chat: Chat) -> None:
    chat.db.rows.put_session_fields(chat.session_id, {"source": "tool"})
    with pytest.raises(NotCompressed, match="use in_place") as refused:
        compress_to_continuation(chat)
    assert refused.value.code == "tool"
    result = chat.compressor().compress(chat.session_id, summarize_short, keep_last=LAST)
    assert result.shape == "in_place"


def test_no_continuation_with_ambiguous_tip(chat: Chat) -> None:
    old = chat.session_id
    chat.db.create_session("sibling", "telegram", parent_session_id=old)
    chat.db.append_message("sibling", "user", "later", timestamp=4_000_000_000.0)
    before = chat.whole()
    with pytest.raises(NotCompressed, match="use in_place") as refused:
        compress_to_continuation(chat)
    assert refused.value.code == "fork"
    assert chat.whole() == before


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("place", [0, 20])
@pytest.mark.parametrize("again", [4000, 1])
def test_row_changed_before_commit_is_noticed(
    chat: Chat, monkeypatch: pytest.MonkeyPatch, shape: Any, place: int, again: int
) -> None:
    monkeypatch.setattr(commit, "MAX_REREAD_ROWS", again)
    changed = chat.db.get_messages(chat.session_id)[place]["id"]

    class Editor:
        """Edits a message just before a summary replaces it."""

        @hookimpl
        def before_compression(self) -> None:
            chat.change("UPDATE messages SET content = 'edited' WHERE id = ?", changed)

    compressor = make_compressor(chat, Editor())
    planned = compressor.plan(chat.session_id, shape=shape, keep_last=LAST)
    with pytest.raises(Changed):
        compressor.apply(planned.plan, "what was said")
    assert "edited" in chat.texts()
    assert len(chat.texts()) == 80


@pytest.mark.needs_files
@pytest.mark.parametrize("shape", SHAPES)
def test_unique_constraint_violation_is_reported(chat: Chat, shape: Any) -> None:
    table = "messages" if shape == "in_place" else "sessions"
    chat.change(f"ALTER TABLE {table} ADD COLUMN uid")
    chat.change(f"CREATE UNIQUE INDEX uids ON {table} (uid)")
    chat.change(f"UPDATE {table} SET uid = 'u' || id")  # noqa: S608 -- of this test
    before = chat.whole()
    with pytest.raises(Unsupported, match=f"unique index .* {table}.uid"):
        chat.compressor().compress(chat.session_id, summarize_short, shape=shape, keep_last=LAST)
    assert chat.whole() == before


def make_compressor(chat: Chat, plugin: object) -> Compressor:
    """Return a compressor with a plugin."""
    hooks = Hooks()
    hooks.register(plugin)
    return Compressor(chat.db, chat.ledger, store=chat.store, hooks=hooks, clock=chat.clock)
