"""Undo of a continuation: dropped data, active sessions, and missing sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from session_core import AgentTurn, Changed, Conflict, Ledger, SessionRuntime, StateFolder
from session_core.compression import NotCompressed, UndoResult
from session_core.ledger.types import TrashItem
from tests.compression.homes import CHAT, LAST, Chat, summarize_short
from tests.homes import connect


def test_undo_of_grown_continuation_needs_plan(chat: Chat) -> None:
    before = chat.whole()
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape="continuation", keep_last=LAST
    )
    chat.say("one"), chat.say("two")
    gone_on = chat.whole()
    planned = chat.compressor().undo(result.batch)
    assert (planned.outcome, planned.restored, planned.dropped) == ("planned", 0, 0)
    plan = planned.plan
    assert plan is not None
    assert (plan.sessions, plan.messages) == ((result.session_id,), 2)
    assert chat.whole() == gone_on
    undone = chat.compressor().apply_undo(plan.plan)
    assert undone.session_id == result.old_session_id
    assert chat.whole() == before
    assert chat.compressor().apply_undo(plan.plan) == undone


def test_undo_keeps_dropped_messages_in_trash(chat: Chat) -> None:
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape="continuation", keep_last=LAST
    )
    chat.say("not to be lost")
    plan = chat.compressor().undo(result.batch).plan
    assert plan is not None
    chat.compressor().apply_undo(plan.plan)
    texts = [item.value["content"] for item in read_trash(chat) if item.what == "message"]
    assert texts[-1] == "not to be lost"


@pytest.mark.needs_files
def test_undo_keeps_related_rows_in_trash(chat: Chat) -> None:
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape="continuation", keep_last=LAST
    )
    chat.say("mind this")
    with connect(chat.db.path) as connection:
        connection.execute(
            "CREATE TABLE reactions (sign TEXT, "
            "message INTEGER REFERENCES messages(id) ON DELETE CASCADE)"
        )
        connection.execute("INSERT INTO reactions SELECT '+1', max(id) FROM messages")
    plan = chat.compressor().undo(result.batch).plan
    assert plan is not None
    chat.compressor().apply_undo(plan.plan)
    assert ["+1" in str(item.value) for item in read_trash(chat) if item.what == "beside"] == [True]


def test_undo_plan_detects_later_messages(chat: Chat) -> None:
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape="continuation", keep_last=LAST
    )
    chat.say("one")
    plan = chat.compressor().undo(result.batch).plan
    assert plan is not None
    chat.say("two")
    with pytest.raises(Changed):
        chat.compressor().apply_undo(plan.plan)
    assert chat.texts()[-1] == "two"


def test_undo_drops_whole_continuation_chain(chat: Chat) -> None:
    before, old = chat.whole(), chat.session_id
    first = chat.compressor().compress(old, summarize_short, shape="continuation", keep_last=LAST)
    for number in range(30):
        chat.say(f"and then {number} " + "again " * 50)
    second = chat.compressor().compress(old, summarize_short, shape="continuation", keep_last=LAST)
    plan = chat.compressor().undo(first.batch).plan
    assert plan is not None
    assert plan.sessions == (first.session_id, second.session_id)
    assert plan.messages >= 30
    chat.compressor().apply_undo(plan.plan)
    assert chat.whole() == before


def test_undo_names_and_trashes_delegates(chat: Chat) -> None:
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape="continuation", keep_last=LAST
    )
    marked = {"model_config": {"_delegate_from": result.session_id}}
    chat.db.create_session("helper", "cli", parent_session_id=result.session_id, **marked)
    chat.db.append_message("helper", "user", "do this")
    plan = chat.compressor().undo(result.batch).plan
    assert plan is not None
    assert plan.sessions == (result.session_id, "helper")
    chat.compressor().apply_undo(plan.plan)
    assert chat.db.get_session("helper") is None


@pytest.mark.parametrize("how", ["ended", "reset"])
def test_undo_of_unchanged_continuation_is_lossless(chat: Chat, how: str) -> None:
    old, texts = chat.session_id, chat.texts()
    result = chat.compressor().compress(old, summarize_short, shape="continuation", keep_last=LAST)
    if how == "ended":
        chat.db.end_session(result.session_id, "user_exit")
    else:
        chat.store.reset_session(chat.key)
    elsewhere = chat.session_id
    assert chat.compressor().undo(result.batch).outcome == "applied"
    assert chat.db.get_session(result.session_id) is None
    assert chat.texts(old) == texts
    assert chat.session_id == (old if how == "ended" else elsewhere)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda chat, child: chat.db.set_session_title(child, "My own"), "title"),
        (
            lambda chat, child: chat.db.record_auxiliary_usage(child, "vision", input_tokens=9),
            "session_model_usage",
        ),
        (lambda chat, child: chat.db.set_meta(f"goal:{child}", "ship it"), "goal"),
        (
            lambda chat, _: chat.change(
                "UPDATE messages SET api_content = 'x' WHERE id = (SELECT max(id) FROM messages)"
            ),
            "messages",
        ),
    ],
)
def test_undo_plans_and_keeps_changed_continuation(
    chat: Chat, change: Callable[[Chat, str], object], named: str
) -> None:
    before = chat.whole()
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape="continuation", keep_last=LAST
    )
    change(chat, result.session_id)
    plan = chat.compressor().undo(result.batch).plan
    assert plan is not None
    assert (plan.messages, plan.changed) == (0, (named,))
    chat.compressor().apply_undo(plan.plan)
    assert chat.whole() == before
    kept = [(item.what, str(item.value)) for item in read_trash(chat)]
    tokens = {"title": "My own", "session_model_usage": "vision", "goal": "ship it"}
    assert any(tokens.get(named, "'api_content': 'x'") in value for _, value in kept)


def test_undo_plan_detects_later_changes(chat: Chat) -> None:
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape="continuation", keep_last=LAST
    )
    chat.say("one")
    plan = chat.compressor().undo(result.batch).plan
    assert plan is not None
    chat.db.set_session_title(result.session_id, "My own")
    with pytest.raises(Changed):
        chat.compressor().apply_undo(plan.plan)
    assert chat.db.get_session_title(result.session_id) == "My own"


def test_undo_names_and_keeps_detached_sessions(chat: Chat) -> None:
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape="continuation", keep_last=LAST
    )
    marked = {"model_config": {"_branched_from": result.session_id}}
    chat.db.create_session("branch", "cli", parent_session_id=result.session_id, **marked)
    plan = chat.compressor().undo(result.batch).plan
    assert plan is not None
    assert plan.detached == ("branch",)
    chat.compressor().apply_undo(plan.plan)
    row = chat.db.get_session("branch")
    assert row is not None
    assert row["parent_session_id"] is None
    (kept,) = [item.value for item in read_trash(chat) if item.what == "detached"]
    assert kept["parent_session_id"] == result.session_id


def read_trash(chat: Chat) -> list[TrashItem]:
    """Return the trash of the newest step."""
    sql = "SELECT id FROM steps ORDER BY number DESC"
    newest: str = chat.ledger._file.read(lambda rows: rows.fetch_value(sql))
    return list(chat.ledger.read_trash(newest))


# -- activity --------------------------------------------------------------------------------


@pytest.mark.needs_files
def test_undo_refuses_deleting_open_session(chat: Chat) -> None:
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape="continuation", keep_last=LAST
    )
    chat.lease(result.session_id)
    before = chat.whole()
    with pytest.raises(NotCompressed, match="has this session open; stop it") as refused:
        chat.compressor().undo(result.batch)
    assert refused.value.code == "live"
    assert chat.whole() == before


@pytest.mark.needs_files
def test_undo_detects_activity_during_trash(chat: Chat) -> None:
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape="continuation", keep_last=LAST
    )

    class Slow(Ledger):
        """A ledger in which a session is opened while a step is prepared."""

        def prepare_step(self, *args: Any, **options: Any) -> list[str]:
            """Prepare the step, then open the session."""
            marked = super().prepare_step(*args, **options)
            chat.lease(result.session_id)
            return marked

    before = chat.whole()
    with Slow(StateFolder(chat.db.path, root=chat.state), clock=chat.clock) as ledger:
        chat.ledger, quick = ledger, chat.ledger
        with pytest.raises(NotCompressed, match="has this session open"):
            chat.compressor().undo(result.batch)
        chat.ledger = quick
    assert chat.whole() == before


def test_running_turn_follows_undone_session(chat: Chat) -> None:
    old = chat.session_id
    result = chat.compressor().compress(old, summarize_short, shape="continuation", keep_last=LAST)

    def answer(run: AgentTurn, message: Any) -> str:
        chat.compressor().undo(result.batch)
        run.append("user", message)
        return "done"

    SessionRuntime(chat.store, lambda _: answer).handle(CHAT, "important")
    assert chat.db.get_session(result.session_id) is None
    assert chat.session_id == old
    assert chat.texts(old)[-1] == "important"


# -- missing data ----------------------------------------------------------------------------


def test_undo_of_deleted_continuation_revives_parent(chat: Chat) -> None:
    old, before = chat.session_id, chat.whole()
    result = chat.compressor().compress(old, summarize_short, shape="continuation", keep_last=LAST)
    chat.db.delete_session(result.session_id)
    undone = chat.compressor().undo(result.batch)
    assert undone == UndoResult(old, 80, 0)
    assert chat.whole() == before


def test_undo_without_parent_is_refused(chat: Chat) -> None:
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape="continuation", keep_last=LAST
    )
    chat.say("one")
    chat.db.delete_session(result.old_session_id)
    with pytest.raises(Conflict, match=f"{result.old_session_id} was deleted since"):
        chat.compressor().undo(result.batch)


def test_undo_reports_taken_title(chat: Chat) -> None:
    old = chat.session_id
    result = chat.compressor().compress(old, summarize_short, shape="continuation", keep_last=LAST)
    chat.db.rows.put_session_fields(old, {"title": None})
    chat.db.create_session("third", "cli")
    chat.db.set_session_title("third", "Trip")
    undone = chat.compressor().undo(result.batch)
    assert undone == UndoResult(old, 80, 12, lost_title="Trip")
    assert chat.db.get_session_title(old) is None
    assert chat.db.get_session_title("third") == "Trip"
