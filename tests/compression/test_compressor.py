"""`Compressor`: plans, results in both shapes, and refusals."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from session_core import (
    AsyncCompressor,
    Changed,
    Compressor,
    Conflict,
    InvalidInput,
    Ledger,
    NotFound,
    StateFolder,
)
from session_core.compression import NotCompressed, ranges, summary_message
from tests.compression.conversations import find_faults
from tests.compression.homes import LAST, Chat, append_more, refused, summarize_short

SHAPES = ("in_place", "continuation")


# -- plans -----------------------------------------------------------------------------------


@pytest.mark.requirement("compression:plan")
def test_plan_lists_required_facts(chat: Chat) -> None:
    plan = chat.compressor().plan(chat.session_id, keep_last=LAST)
    brief = plan.brief
    rows = chat.db.get_messages(chat.session_id)
    between = [row["id"] for row in rows if brief.from_id <= row["id"] <= brief.to_id]
    assert len(between) == brief.messages
    assert brief.tokens > brief.target_chars / 4 > 0
    assert len(brief.digest) <= brief.target_chars
    assert brief.must_survive
    assert plan.expires_at == chat.clock.now + 86_400


@pytest.mark.requirement("compression:plan")
def test_plan_leaves_home_unchanged(chat: Chat) -> None:
    before = chat.whole()
    chat.compressor().plan(chat.session_id, keep_last=LAST)
    assert chat.whole() == before


def test_plan_of_unknown_session_raises(chat: Chat) -> None:
    with pytest.raises(NotFound):
        chat.compressor().plan("nobody")


def test_apply_refuses_other_plans(chat: Chat) -> None:
    plan = chat.ledger.add_plan("prune", [], None)
    with pytest.raises(InvalidInput, match="prune"):
        chat.compressor().apply(plan.handle)


def test_apply_refuses_non_text_summary(chat: Chat) -> None:
    before, plan = chat.whole(), chat.compressor().plan(chat.session_id, keep_last=LAST).plan
    summary: Any = b"They looked."
    with pytest.raises(InvalidInput, match="text"):
        chat.compressor().apply(plan, summary)
    assert chat.whole() == before


@pytest.mark.requirement("compression:plan")
def test_plan_expires_after_day(chat: Chat) -> None:
    plan = chat.compressor().plan(chat.session_id, keep_last=LAST)
    chat.clock.now += 86_401
    before = chat.whole()
    with pytest.raises(Conflict, match="expired"):
        chat.compressor().apply(plan.plan, "short")
    assert chat.whole() == before


# -- both shapes -----------------------------------------------------------------------------


@pytest.mark.requirement("compression:commit")
@pytest.mark.parametrize("shape", SHAPES)
def test_compression_keeps_head_summary_and_tail(chat: Chat, shape: Any) -> None:
    old = chat.session_id
    rows = chat.db.get_messages_as_conversation(old)
    plan = chat.compressor().plan(old, shape=shape, keep_last=LAST)
    start = len(chat.db.get_messages(old)) - LAST - plan.brief.messages
    result = chat.compressor().apply(plan.plan, "what was said")
    after = chat.db.get_messages_as_conversation(result.session_id)
    made = len(after) - start - LAST
    assert after[:start] == rows[:start]
    assert after[-LAST:] == rows[-LAST:]
    summaries = [summary_message.parse_summary(message) for message in after[start : start + made]]
    assert [summary.text for summary in summaries if summary] == ["what was said"]
    assert find_faults(after) == []


@pytest.mark.requirement("compression:commit")
@pytest.mark.parametrize("shape", SHAPES)
def test_result_matches_database(chat: Chat, shape: Any) -> None:
    old, before = chat.session_id, chat.db.get_revision(chat.session_id)
    content = chat.db.get_messages(old)[0]["content"]
    result = chat.compressor().compress(old, lambda _: content, shape=shape, keep_last=LAST)
    assert (result.shape, result.old_session_id) == (shape, old)
    assert (result.session_id == old) is (shape == "in_place")
    assert result.tokens_after < result.tokens_before
    assert (result.before, result.after) == (before, chat.db.get_revision(result.session_id))
    assert result.retention.found >= result.retention.kept > 0


@pytest.mark.requirement("compression:commit")
@pytest.mark.parametrize("shape", SHAPES)
def test_compression_keeps_counters_titles_and_search(chat: Chat, shape: Any) -> None:
    chat.compressor().compress(chat.session_id, summarize_short, shape=shape, keep_last=LAST)
    assert chat.db.admin.find_drifted_sessions() == []
    assert chat.db.admin.check_integrity(deep=True) == []
    lines = chat.db.list_sessions().items
    assert [line.id for line in lines] == [chat.session_id]
    hits = chat.db.search("ABC-3", per="message").hits
    assert len([hit for hit in hits if hit.role == "tool"]) == 1


@pytest.mark.requirement("compression:continuation")
def test_continuation_moves_chat(chat: Chat) -> None:
    old = chat.session_id
    chat.db.update_session(old, cwd="/src/shop", git_branch="main", system_prompt="be kind")
    result = chat.compressor().compress(old, summarize_short, shape="continuation", keep_last=LAST)
    parent, child = chat.db.get_session(old), chat.db.get_session(result.session_id)
    assert parent is not None
    assert child is not None
    carried = [
        *("source", "session_key", "chat_id", "user_id", "chat_type", "thread_id"),
        *("display_name", "origin_json", "cwd", "git_branch", "system_prompt", "model"),
    ]
    assert {name: child[name] for name in carried} == {name: parent[name] for name in carried}
    assert (parent["end_reason"], child["ended_at"]) == ("compression", None)
    assert (parent["title"], child["title"]) == ("Trip", "Trip #2")
    assert chat.session_id == result.session_id
    assert chat.db.get_link_kind(result.session_id) == "continuation"
    assert chat.store.get_or_create_session(_source(chat)).session_id == result.session_id


@pytest.mark.requirement("compression:continuation")
@pytest.mark.parametrize("marker", ["_branched_from", "_delegate_from"])
def test_branch_is_compressed_as_continuation(chat: Chat, marker: str) -> None:
    old = chat.session_id
    chat.db.update_session(old, model_config={marker: "x", "temperature": 1})
    result = chat.compressor().compress(old, summarize_short, shape="continuation", keep_last=LAST)
    assert chat.db.get_link_kind(result.session_id) == "continuation"
    row = chat.db.get_session(result.session_id)
    assert row is not None
    assert row["model_config"] == '{"temperature": 1}'


@pytest.mark.needs_files
@pytest.mark.requirement("compression:continuation")
def test_mirror_follows_continuation_before_return(chat: Chat) -> None:
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape="continuation", keep_last=LAST
    )
    folder = chat.db.folder
    assert folder is not None
    assert result.session_id in (folder / "sessions" / "sessions.json").read_text()


@pytest.mark.requirement("compression:commit")
@pytest.mark.parametrize("shape", SHAPES)
def test_hooks_run_before_and_after(chat: Chat, shape: Any) -> None:
    old = chat.session_id
    result = chat.compressor().compress(old, summarize_short, shape=shape, keep_last=LAST)
    in_place = shape == "in_place"
    assert chat.told.calls == [
        ("before", old, in_place),
        ("after", old, result.session_id, in_place, "telegram"),
    ]


@pytest.mark.requirement("compression:commit")
def test_second_compression_is_refused(chat: Chat) -> None:
    compressor = chat.compressor()
    compressor.compress(chat.session_id, summarize_short, keep_last=LAST)
    once = chat.whole()
    with refused("nothing_to_win"):
        compressor.compress(chat.session_id, summarize_short, keep_last=LAST)
    assert chat.whole() == once


@pytest.mark.requirement("compression:plan")
def test_applied_plan_returns_stored_result(chat: Chat) -> None:
    plan = chat.compressor().plan(chat.session_id, keep_last=LAST)
    result = chat.compressor().apply(plan.plan, "what was said")
    once = chat.whole()
    assert chat.compressor().apply(plan.plan, "something else") == result
    assert chat.whole() == once


def test_compressed_parent_is_compressed_at_tip(chat: Chat) -> None:
    old = chat.session_id
    tip = (
        chat.compressor()
        .compress(old, summarize_short, shape="continuation", keep_last=LAST)
        .session_id
    )
    for number in range(30):
        chat.say(f"and then {number} " + "again " * 50)
    assert chat.compressor().compress(old, summarize_short, keep_last=LAST).session_id == tip


@pytest.mark.requirement("compression:commit")
def test_earlier_summary_is_replaced_by_update(chat: Chat) -> None:
    chat.compressor().compress(chat.session_id, lambda _: "first: ABC-1", keep_last=LAST)
    for number in range(30):
        chat.say(f"and then {number} " + "again " * 50)
    chat.compressor().compress(chat.session_id, keep_last=LAST)
    rows = chat.db.get_messages(chat.session_id)
    texts = [text for row in rows if (text := summary_message.parse_summary(row))]
    assert len(texts) == 1
    assert "ABC-1" in texts[0].text


# -- concurrent changes ----------------------------------------------------------------------


@pytest.mark.requirement("compression:guard")
@pytest.mark.parametrize("shape", SHAPES)
def test_messages_after_plan_join_tail(chat: Chat, shape: Any) -> None:
    plan = chat.compressor().plan(chat.session_id, shape=shape, keep_last=LAST)
    chat.say("said meanwhile")
    result = chat.compressor().apply(plan.plan, "what was said")
    assert chat.texts(result.session_id)[-1] == "said meanwhile"


@pytest.mark.requirement("compression:guard")
@pytest.mark.parametrize("change", ["rewind", "edit", "replace", "compact"])
def test_changed_range_needs_new_plan(chat: Chat, change: str) -> None:
    plan = chat.compressor().plan(chat.session_id, keep_last=LAST)
    rows = chat.db.get_messages(chat.session_id)
    if change == "rewind":
        chat.db.rewind_to_message(chat.session_id, rows[8]["id"])
    elif change == "replace":
        chat.db.replace_messages(chat.session_id, [dict(row) for row in rows])
    elif change == "compact":
        chat.db.archive_and_compact(chat.session_id, [dict(row) for row in rows[4:]])
    else:
        sql = "UPDATE messages SET content = 'edited' WHERE id = ?"
        chat.db._write(lambda handle: handle.execute_update(sql, (rows[8]["id"],)))
    before = chat.whole()
    with pytest.raises(Changed):
        chat.compressor().apply(plan.plan, "what was said")
    assert chat.whole() == before


@pytest.mark.requirement("compression:guard")
@pytest.mark.parametrize("shape", SHAPES)
def test_range_changed_during_summary_is_retried(chat: Chat, shape: Any) -> None:
    calls = []

    def slow(request: Any) -> str:
        calls.append(request.brief.messages)
        if len(calls) == 1:
            middle = chat.db.get_messages(chat.session_id)[40]
            chat.db.rewind_to_message(chat.session_id, middle["id"])
        return "what was said"

    chat.compressor().compress(chat.session_id, slow, shape=shape, keep_last=LAST)
    assert len(calls) == 2


@pytest.mark.requirement("compression:guard")
def test_constantly_changing_range_is_given_up(chat: Chat) -> None:
    def restless(_: object) -> str:
        sql = "UPDATE messages SET content = content || '!' WHERE role = 'user'"
        chat.db._write(lambda handle: handle.execute_update(sql))
        return "what was said"

    with refused("changed"):
        chat.compressor().compress(chat.session_id, restless, keep_last=LAST)
    assert chat.db.get_revision(chat.session_id).compacted == 0


@pytest.mark.requirement("compression:guard")
def test_second_compressor_is_refused_during_first(chat: Chat) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(_: object) -> str:
        begun.set()
        go_on.wait(20)
        return "what was said"

    results: list[Any] = []
    first = threading.Thread(
        target=lambda: results.append(
            chat.compressor().compress(chat.session_id, slow, keep_last=LAST)
        )
    )
    first.start()
    try:
        assert begun.wait(20)
        with refused("locked"):
            chat.compressor().compress(chat.session_id, summarize_short, keep_last=LAST)
    finally:
        go_on.set()
        first.join(20)
    assert [result.session_id for result in results] == [chat.session_id]
    assert chat.db.get_compression_lock_holder(chat.session_id) is None


@pytest.mark.requirement("compression:guard")
def test_lost_lock_prevents_commit(chat: Chat) -> None:
    def too_slow(_: object) -> str:
        chat.clock.now += 1000
        assert chat.db.try_acquire_compression_lock(chat.session_id, "another")
        return "what was said"

    before = chat.whole()
    with refused("locked"):
        chat.compressor().compress(chat.session_id, too_slow, keep_last=LAST)
    assert chat.whole() == before
    assert chat.db.get_compression_lock_holder(chat.session_id) == "another"


@pytest.mark.requirement("compression:guard")
def test_messages_after_plan_can_exceed_shape(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = chat.compressor().plan(chat.session_id, keep_last=LAST)
    touched = plan.brief.messages + 2 * LAST
    append_more(chat)
    row_s = {"own": 0.00003, "hermes": 0.00017}[chat.db.kind]
    monkeypatch.setattr(ranges, "MAX_LOCK_S", (touched + 10) * row_s)
    before = chat.whole()
    with refused("too_large"):
        chat.compressor().apply(plan.plan, "what was said")
    assert chat.whole() == before


def test_messages_during_summary_can_change_shape(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(request: Any) -> str:
        row_s = {"own": 0.00003, "hermes": 0.00017}[chat.db.kind]
        monkeypatch.setattr(ranges, "MAX_LOCK_S", (request.brief.messages + 2 * LAST + 10) * row_s)
        append_more(chat)
        return "what was said"

    result = chat.compressor().compress(chat.session_id, slow, keep_last=LAST)
    assert result.shape == "continuation"


@pytest.mark.requirement("compression:plan")
def test_concurrent_apply_happens_once(chat: Chat) -> None:
    plan = chat.compressor().plan(chat.session_id, keep_last=LAST)
    begin = threading.Barrier(4)

    def apply(_: int) -> Any:
        compressor = chat.compressor()
        begin.wait(20)
        return compressor.apply(plan.plan, "what was said")

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(apply, range(4)))
    assert len({result.batch for result in results}) == 1
    assert len(chat.ledger.list_audit_entries().items) == 1


# -- refusals --------------------------------------------------------------------------------


@pytest.mark.requirement("compression:refusals")
def test_ended_session_is_refused(chat: Chat) -> None:
    chat.db.end_session(chat.session_id, "user_exit")
    with refused("ended"):
        chat.compressor().plan(chat.session_id)


@pytest.mark.requirement("compression:refusals")
def test_short_conversation_is_refused(chat: Chat) -> None:
    chat.db.append_message("short", "user", "hello", create={"source": "cli"})
    with refused("nothing_to_win"):
        chat.compressor().plan("short")


@pytest.mark.requirement("compression:refusals")
@pytest.mark.parametrize(
    ("summary", "code"),
    [
        ("", "empty_summary"),
        ("  \n", "empty_summary"),
        ("the key is [REDACTED]", "redacted_summary"),
        ("long " * 100_000, "not_smaller"),
    ],
)
def test_empty_or_longer_summary_is_refused(chat: Chat, summary: str, code: str) -> None:
    plan = chat.compressor().plan(chat.session_id, keep_last=LAST)
    before = chat.whole()
    with refused(code):
        chat.compressor().apply(plan.plan, summary)
    assert chat.whole() == before
    assert chat.compressor().apply(plan.plan, "a better one").session_id == chat.session_id


def test_unknown_shape_is_invalid_input(chat: Chat) -> None:
    for attempt in (chat.compressor().plan, chat.compressor().compress):
        with pytest.raises(InvalidInput, match="in_place"):
            attempt(chat.session_id, shape="weird")


@pytest.mark.needs_files
@pytest.mark.requirement("compression:refusals")
def test_foreign_ledger_is_refused(chat: Chat, tmp_path: Path) -> None:
    (tmp_path / "another").mkdir()
    with (
        Ledger(StateFolder(tmp_path / "another" / "state.db")) as ledger,
        pytest.raises(InvalidInput, match="another home"),
    ):
        Compressor(chat.db, ledger)


@pytest.mark.requirement("compression:refusals")
@pytest.mark.parametrize(
    ("summary", "what"),
    [
        ("", "write one"),
        ("the key is [REDACTED]", r"mark \[REDACTED\]"),
        ("long " * 100_000, r"write at most [\d,]+ characters"),
    ],
)
def test_refusal_names_next_step(chat: Chat, summary: str, what: str) -> None:
    plan = chat.compressor().plan(chat.session_id, keep_last=LAST)
    with pytest.raises(NotCompressed, match=what):
        chat.compressor().apply(plan.plan, summary)


def test_refusal_hints_at_keep_last(chat: Chat) -> None:
    with pytest.raises(NotCompressed, match="keep_last"):
        chat.compressor().plan(chat.session_id, keep_last=1000)


def test_dense_script_shortens_target_length(chat: Chat) -> None:
    for turn in range(60):
        text = f"请看一下第{turn}个文件的配置。我们需要仔细检查数据库的结构并且决定下一步怎么做。"
        chat.db.append_message("cjk", "user", text * 3, create={"source": "cli"})
        chat.db.append_message("cjk", "assistant", f"好的。第{turn}个服务的端口。" * 9)
    compressor = chat.compressor()
    brief = compressor.plan("cjk", keep_last=LAST).brief
    assert 0 < brief.target_chars <= brief.tokens / 2
    result = compressor.compress("cjk", keep_last=LAST)
    assert result.tokens_after < result.tokens_before * 0.7


@pytest.mark.anyio
async def test_async_compressor_matches_sync(chat: Chat) -> None:
    compressor = AsyncCompressor(chat.compressor())
    plan = await compressor.plan(chat.session_id, keep_last=LAST)
    result = await compressor.apply(plan.plan, "what was said")
    await compressor.undo(result.batch)
    assert len(chat.texts()) == 80


def _source(chat: Chat) -> Any:
    origin = chat.entry.origin
    assert origin is not None
    return origin
