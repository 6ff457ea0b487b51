"""Our reads of a home equal those of its Hermes, except for the documented corrections."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from session_core.state.sqlite.session_db import SessionDB
from session_core.state.titles import clean_title
from session_core.types import SessionFilter
from tests.interop.hermes import Hermes, Refused


@pytest.fixture
def ids(theirs: Hermes) -> list[str]:
    return [row[0] for row in theirs.sql("SELECT id FROM sessions ORDER BY id")]


def list_differences(
    keys: Iterable[Any], theirs: dict[Any, Any], ours: Callable[[Any], Any]
) -> dict[Any, Any]:
    """Return the answers of Hermes and ours that differ."""
    both = {key: (theirs[key], ours(key)) for key in keys}
    return {key: pair for key, pair in both.items() if pair[0] != pair[1]}


@pytest.mark.requirement("interop:reads")
def test_session_rows_match_hermes(theirs, ours, ids):
    assert list_differences(ids, theirs.each("get_session", ids), ours.get_session) == {}
    assert ours.get_session("nobody") is None


@pytest.mark.requirement("interop:reads")
@pytest.mark.parametrize("inactive", [False, True])
def test_message_rows_match_hermes(theirs, ours, ids, inactive):
    rows = theirs.each("get_messages", ids, include_inactive=inactive)

    differences = list_differences(
        ids, rows, lambda one: ours.get_messages(one, include_inactive=inactive)
    )

    # Broken tool calls: theirs are an empty list, ours are none.
    assert set(differences) == {"odd"}
    assert [row | {"tool_calls": None} for row in differences["odd"][0]] == differences["odd"][1]


@pytest.mark.parametrize("inactive", [False, True])
def test_conversations_match_hermes(version, theirs, ours, ids, inactive):
    method = "get_messages_as_conversation"
    rows = theirs.each(method, ids, include_inactive=inactive)

    def ours_of(one):
        return apply_corrections(
            version, ours.get_messages_as_conversation(one, include_inactive=inactive)
        )

    assert list_differences(ids, rows, ours_of) == {}


def test_conversation_ancestors_stay_in_conversation(version, theirs, ours, ids):
    rows = theirs.each("get_messages_as_conversation", ids, include_ancestors=True)

    def ours_of(one):
        return apply_corrections(
            version, ours.get_messages_as_conversation(one, include_ancestors=True)
        )

    differences = list_differences(ids, rows, ours_of)
    # Theirs follows every parent link; to a branch, a delegate or in a circle is another matter.
    assert {ours.get_link_kind(one) for one in differences} <= {"branch", "delegate", "other"}
    assert len(ours_of("chain_3")) == 6


def apply_corrections(version: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return Hermes' view of a conversation with the documented corrections."""
    if version == "0.17.0":  # by their times, which are not monotonic
        messages = sorted(messages, key=lambda message: message["timestamp"])
    # Tool calls that cannot be read are an empty list in theirs.
    broken = "\x00json:[broken"
    return [one | {"tool_calls": []} if one["content"] == broken else one for one in messages]


def test_title_resolution_matches_hermes(theirs, ours, ids):
    assert (
        list_differences(ids, theirs.each("get_session_title", ids), ours.get_session_title) == {}
    )
    rows = theirs.sql("SELECT title FROM sessions WHERE title IS NOT NULL")
    titles = [row[0] for row in rows if len(row[0]) < 90] + ["Nothing", "Tri%", "50_"]
    for method in ("get_session_by_title", "resolve_session_by_title", "get_next_title_in_lineage"):
        assert list_differences(titles, theirs.each(method, titles), getattr(ours, method)) == {}, (
            method
        )


def test_next_title_of_long_title_fits(theirs, ours):
    following = theirs.call("get_next_title_in_lineage", "x" * 100)
    with pytest.raises(Refused, match="too long"):
        theirs.call("set_session_title", "cli_work", following)
    assert ours.set_session_title("cli_work", ours.get_next_title_in_lineage("x" * 100))


def test_title_lookup_is_case_sensitive(theirs, ours):
    assert theirs.call("resolve_session_by_title", "holiday") == "chain_3"
    assert ours.resolve_session_by_title("holiday") is None


def test_title_cleaning_matches_hermes(theirs):
    titles = [" a \t b\n", "zero\u200bwidth", "\u202eright", "👩\u200d👩\u200d👧", "\x00\x07bell"]
    titles += ["  ", "\u3000wide\u00a0space", "x" * 100, "x" * 101]
    cleaned = theirs.each("sanitize_title", titles)
    for title in titles:
        if isinstance(cleaned[title], Refused):
            with pytest.raises(ValueError, match="100"):
                clean_title(title)
        else:
            assert clean_title(title) == cleaned[title]


def test_id_prefix_resolution_matches_hermes(theirs, ours, ids):
    prefixes = [*ids, *(one[:6] for one in ids), "cron_job", "_under", "%", "_", "nobody"]
    assert (
        list_differences(
            prefixes, theirs.each("resolve_session_id", prefixes), ours.resolve_session_id
        )
        == {}
    )


def test_tips_match_hermes(theirs, ours, ids):
    assert (
        list_differences(ids, theirs.each("get_compression_tip", ids), ours.get_compression_tip)
        == {}
    )
    assert ours.get_compression_tip("chain_1") == "chain_3"


def test_root_is_start_of_conversation(theirs, ours, ids):
    assert ours.get_conversation_root("chain_3") == "chain_1"
    if not theirs.has("get_conversation_root"):
        return
    differences = list_differences(
        ids, theirs.each("get_conversation_root", ids), ours.get_conversation_root
    )
    # Theirs walks every parent link, also those of branches and delegates and in circles.
    assert not [one for one in differences if ours.get_link_kind(one) == "continuation"]
    assert {ours.get_conversation_root(one) for one in differences} == set(differences)


def test_lineage_never_crosses_delegate(theirs, ours, ids):
    assert ours.get_compression_lineage("chain_2") == ["chain_1", "chain_2", "chain_3"]
    if not theirs.has("get_compression_lineage"):
        return
    answers = theirs.each("get_compression_lineage", ids)
    differences = list_differences(ids, answers, ours.get_compression_lineage)
    # Theirs takes the child that started first: a delegate, or a sibling that was given up.
    assert set(differences) == {"chain_1", "chain_1_helper", "chain_2", "chain_3", "chain_3_stale"}
    assert answers["chain_1"] == ["chain_1", "chain_1_helper"]


def test_counts_match_hermes(theirs, ours, ids):
    assert list_differences(ids, theirs.each("message_count", ids), ours.message_count) == {}
    assert ours.message_count() == theirs.call("message_count")


def test_platform_id_lookup_matches_hermes(theirs, ours):
    if theirs.has("has_platform_message_id"):
        assert theirs.call("has_platform_message_id", "telegram_1", "m1")
    assert ours.has_platform_message_id("telegram_1", "m1")
    assert not ours.has_platform_message_id("telegram_1", "m2")


def test_usage_by_model_matches_stored_rows(theirs, ours, ids):
    if not theirs.sql("SELECT 1 FROM sqlite_master WHERE name = 'session_model_usage'"):
        assert ours.admin.get_model_usage("counted") == []
        return
    columns = [row[1] for row in theirs.sql("PRAGMA table_info(session_model_usage)")]
    for one in ids:
        rows = theirs.sql("SELECT * FROM session_model_usage WHERE session_id = ?", one)
        stored = [dict(zip(columns, row, strict=True)) for row in rows]
        usage = ours.admin.get_model_usage(one)
        assert sorted(usage, key=repr) == sorted(stored, key=repr)


def list_all_lines(db: SessionDB, where: SessionFilter | None = None) -> list[Any]:
    """Return all lines of a list, page by page."""
    lines: list[Any] = []
    cursor = None
    while True:
        page = db.list_sessions(where, limit=7, cursor=cursor)
        lines += page.items
        cursor = page.next_cursor
        if cursor is None:
            return lines


CIRCLES = {"cycle_a", "cycle_b", "own_parent"}
UNLISTED = CIRCLES | {"of_unknown_kind", "orphan_of_live_parent"}
"""What vanishes from their list: parents that go in a circle, children of no known kind."""


@pytest.mark.requirement("interop:reads")
@pytest.mark.parametrize("archived", [False, True])
def test_list_lines_match_hermes(theirs, ours, archived):
    only = {"archived_only": True} if archived else {}
    rows = theirs.call("list_sessions_rich", limit=500, order_by_last_active=True, **only)
    lines = list_all_lines(ours, SessionFilter(status="archived") if archived else None)

    assert {line.id for line in lines} - UNLISTED == {row["id"] for row in rows}
    assert archived or {line.id for line in lines} >= UNLISTED
    mine = {line.id: line for line in lines}
    for row in rows:
        line = mine[row["id"]]
        assert (line.title, line.source) == (row["title"], row["source"])
        assert line.started_at == row["started_at"]
        assert (line.ended_at, line.end_reason) == (row["ended_at"], row["end_reason"])


def test_list_starts_with_newest_message(theirs, ours):
    last = dict(theirs.sql("SELECT session_id, max(timestamp) FROM messages GROUP BY 1"))
    started = dict(theirs.sql("SELECT id, started_at FROM sessions"))
    times = [last.get(line.id, started[line.id]) for line in list_all_lines(ours)]
    assert times == sorted(times, reverse=True)


def test_previews_match_hermes(theirs, ours):
    rows = theirs.call("list_sessions_rich", limit=500, order_by_last_active=True)
    mine = {line.id: line.preview for line in list_all_lines(ours)}
    found = {row["id"]: (row["preview"], mine[row["id"]]) for row in rows}
    wrong = {one: pair for one, pair in found.items() if not is_same_preview(*pair)}
    # Theirs has nothing for content in parts, and trusts times, which say nothing of the order.
    assert set(wrong) == {"odd", "only_parts", "parts"}
    assert wrong["odd"] == ("an odd role follows", "")
    assert wrong["only_parts"][1].startswith("what is on this wombat photo")


def is_same_preview(theirs: str, ours: str) -> bool:
    """Return True if a preview equals that of Hermes. Ours may be longer."""
    begin = theirs.removesuffix("...")
    return ours.startswith(begin) if begin else ours == ""


def test_list_counts_rows_not_drifted_counter(theirs, ours):
    rows = theirs.sql("SELECT session_id, count(*) FROM messages WHERE active = 1 GROUP BY 1")
    counted = dict(rows)
    for line in list_all_lines(ours):
        assert line.messages == counted.get(line.id, 0)
    assert theirs.call("get_session", "drifted")["message_count"] == 0


def test_conversation_hides_internal_prompts_like_hermes(version, theirs, ours):
    review = "Review the conversation above and {}"
    for place, text in enumerate(
        (
            review.format("update the skill library. Be active"),
            review.format("consider saving to memory if appropriate"),
            review.format("tell me a joke"),
            "<memory-context>a secret</memory-context> do it ",
            "<MEMORY-CONTEXT> never closed",
            "a </ memory-context > b",
        )
    ):
        for role in ("user", "assistant", "system", "tool"):
            name = f"told_{place}_{role}"
            theirs.call("create_session", name, "cli")
            for each in ((role, text), ("assistant", "reply"), ("user", "go on")):
                theirs.call("append_message", name, *each)
    names = [row[0] for row in theirs.sql("SELECT id FROM sessions WHERE id LIKE 'told_%'")]
    rows = theirs.each("get_messages_as_conversation", names)
    if version == "0.19.0":
        assert list_differences(names, rows, ours.get_messages_as_conversation) == {}
    else:  # before, a review was returned again
        assert {
            one[:6] for one in list_differences(names, rows, ours.get_messages_as_conversation)
        } <= {
            "told_0",
            "told_1",
        }
