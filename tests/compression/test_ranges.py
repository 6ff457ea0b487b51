"""Choice of the range: thresholds, protected ends, whole pairs, and reasons for a refusal."""

from __future__ import annotations

from typing import Any

import pytest

from session_core.compression.ranges import (
    CompressionLimits,
    MessageRange,
    Refusal,
    choose_range,
    list_cuts,
)
from session_core.compression.rebuild import RebuiltMessages, rebuild_messages
from session_core.compression.summary_message import SUMMARY_END, SUMMARY_PREFIX, list_summaries
from session_core.errors import InvalidInput
from tests.compression.conversations import (
    MERGED,
    Messages,
    make_call_message,
    make_result_messages,
)

OURS = f"{SUMMARY_PREFIX}\nwhat was\n\n{SUMMARY_END}"


def say(role: str, tokens: int = 100) -> dict[str, Any]:
    """Return a message with this many tokens."""
    return {"role": role, "content": "abcd" * (tokens - 4)}


def make_conversation(turns: int, tokens: int = 100) -> Messages:
    """Return alternating messages of user and assistant with these weights."""
    return [say(role, tokens) for _ in range(turns) for role in ("user", "assistant")]


def choose_bounds(messages: Messages, limits: CompressionLimits) -> tuple[int, int] | str:
    """Return the range, or the reason for a refusal."""
    message_range = choose_range(messages, limits)
    return (
        (message_range.start, message_range.end)
        if isinstance(message_range, MessageRange)
        else message_range.reason
    )


# A tail of 500 tokens, 750 at most.
SMALL = CompressionLimits(context_tokens=2942, protect_last=0)
NOTHING_NEW = "there are no unprotected messages after the last summary"
ALL_PROTECTED = "all messages are protected: the beginning, the end, or a call with its results"
TOO_LIGHT = "the unprotected messages are not longer than a summary"


@pytest.mark.parametrize(
    ("limits", "tokens"),
    [
        (CompressionLimits(64_000), 54_400),
        (CompressionLimits(65_536), 64_000),
        (CompressionLimits(128_000), 96_000),
        (CompressionLimits(200_000), 150_000),
        (CompressionLimits(262_144), 196_608),
        (CompressionLimits(512_000), 256_000),
        (CompressionLimits(1_000_000), 500_000),
        (CompressionLimits(200_000, max_tokens=65_536), 100_848),
        (CompressionLimits(200_000, threshold=0.9), 180_000),
        (CompressionLimits(32_000), 27_200),
    ],
)
def test_threshold_matches_hermes(limits: CompressionLimits, tokens: int) -> None:
    assert limits.threshold_tokens == tokens


def test_max_tokens_over_context_is_ignored() -> None:
    assert CompressionLimits(32_000, max_tokens=32_000).threshold_tokens == 27_200


@pytest.mark.parametrize(
    ("range_tokens", "tokens"),
    [(2_000, 1_000), (8_000, 2_000), (30_000, 6_000), (90_000, 10_000)],
)
def test_summary_tokens_scale_with_range(range_tokens: int, tokens: int) -> None:
    assert CompressionLimits().summary_tokens(range_tokens) == tokens


def test_summary_tokens_are_limited_by_context() -> None:
    assert CompressionLimits(64_000).summary_tokens(90_000) == 3_200


@pytest.mark.parametrize(
    "wrong",
    [
        {"context_tokens": 0},
        {"protect_first": -1},
        {"protect_last": -1},
        {"keep_last": -1},
        {"keep_last": "3"},
        {"keep_last": 2.5},
        {"max_tokens": -1},
        {"threshold": 0},
        {"threshold": 1.5},
        {"target_ratio": 0},
    ],
)
def test_invalid_limits_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        CompressionLimits(**wrong)


def test_range_excludes_head_and_tail() -> None:
    assert SMALL.tail_tokens == 500
    message_range = choose_range([say("system"), *make_conversation(10)], SMALL)
    assert message_range == MessageRange(start=4, end=16, tokens=1200, total=2100)


def test_leading_markers_are_not_head() -> None:
    messages = [say("session_meta"), say("system"), *make_conversation(10)]
    assert choose_bounds(messages, SMALL) == (5, 17)


def test_tail_may_overshoot_by_half() -> None:
    edge = [*make_conversation(8), say("user", 350), *make_conversation(2)[1:], say("user")]
    assert choose_bounds(edge, SMALL) == (3, 16)
    over = [*make_conversation(8), say("user", 351), *make_conversation(2)[1:], say("user")]
    assert choose_bounds(over, SMALL) == (3, 17)


def test_tail_keeps_eight_messages_of_any_size() -> None:
    heavy = make_conversation(20, tokens=600)
    assert choose_bounds(heavy, CompressionLimits(2942, protect_last=5)) == (3, 35)
    assert choose_bounds(heavy, CompressionLimits(2942, protect_last=20)) == (3, 32)


@pytest.mark.parametrize(("keep", "end"), [(0, 18), (1, 18), (2, 18), (3, 17), (10, 10)])
def test_keep_last_counts_messages(keep: int, end: int) -> None:
    assert choose_bounds(make_conversation(10), CompressionLimits(keep_last=keep)) == (3, end)


@pytest.mark.parametrize("shape", ["openai", "anthropic"])
def test_range_ends_before_call_in_tail(shape: Any) -> None:
    results = [("a", "abcd" * 100), ("b", "abcd" * 100)]
    messages = [
        *make_conversation(4),
        make_call_message(shape, ["a", "b"], None),
        *make_result_messages(shape, results),
        *make_conversation(2),
    ]
    assert choose_bounds(messages, SMALL) == (3, 8)


def test_head_includes_results_of_calls() -> None:
    results = make_result_messages("openai", [("a", "x"), ("b", "y")])
    messages = [
        say("user"),
        make_call_message("openai", ["a", "b"], None),
        *results,
        *make_conversation(10),
    ]
    assert choose_bounds(messages, CompressionLimits(keep_last=2)) == (4, 22)
    assert choose_bounds(messages, CompressionLimits(keep_last=2, protect_first=1)) == (1, 22)


def test_late_result_keeps_call() -> None:
    late = make_result_messages("openai", [("a", "x")])
    messages = [
        *make_conversation(3),
        make_call_message("openai", ["a"], None),
        *make_conversation(3),
        *late,
        *make_conversation(2),
    ]
    assert choose_bounds(messages, CompressionLimits(keep_last=6)) == (3, 6)


def test_cuts_between_pairs_and_orphan_results() -> None:
    twice = [
        make_call_message("openai", ["x"], None),
        *make_result_messages("openai", [("x", "1")]),
    ]
    early = make_result_messages("openai", [("y", "1")])
    messages = [
        *early,
        *early,
        *twice,
        say("user"),
        *twice,
        make_call_message("openai", ["y"], None),
    ]
    assert [place for place, may in enumerate(list_cuts(messages)) if not may] == [3, 6]


def test_adjacent_results_belong_to_call() -> None:
    results = make_result_messages("openai", [(None, "1"), ("other", "2")])
    marker = {"role": "session_meta"}
    messages = [make_call_message("openai", ["x"], None), marker, *results, say("user"), *results]
    assert list_cuts(messages) == [True, False, False, False, True, True, True, True]


def test_combined_results_keep_every_call() -> None:
    first, second = (
        make_call_message("anthropic", ["x"], None),
        make_call_message("anthropic", ["y"], None),
    )
    answers = make_result_messages("anthropic", [("x", "1"), ("y", "2")])
    assert list_cuts([first, say("user"), second, *answers]) == [True, False, False, False, True]


def test_results_with_user_text_keep_call() -> None:
    (mixed,) = make_result_messages("anthropic", [("x", "1")])
    mixed["content"].append({"type": "text", "text": "go on"})
    messages = [make_call_message("anthropic", ["x"], None), mixed, say("assistant")]
    assert list_cuts(messages) == [True, False, True, True]


def test_short_conversation_has_no_range() -> None:
    assert choose_bounds([], CompressionLimits()) == ALL_PROTECTED
    assert choose_bounds(make_conversation(10), CompressionLimits()) == ALL_PROTECTED
    assert choose_bounds([say("user", 90_000)], CompressionLimits()) == ALL_PROTECTED


@pytest.mark.parametrize(("tokens", "expected"), [(40, TOO_LIGHT), (80, (1, 2))])
def test_small_range_is_refused(tokens: int, expected: Any) -> None:
    messages = [say("user", 3000), say("assistant", tokens), *make_conversation(3)[1:]]
    assert (
        choose_bounds(messages, CompressionLimits(2942, protect_first=1, protect_last=0))
        == expected
    )


def test_no_range_without_new_messages() -> None:
    compressed = [say("system"), *make_conversation(1), {"role": "user", "content": OURS}]
    tail = make_conversation(3)[1:]
    assert choose_bounds([*compressed, *tail], SMALL) == NOTHING_NEW
    assert choose_bounds([*compressed, *tail, *make_conversation(1)], SMALL) == (1, 6)


@pytest.mark.parametrize("limits", [SMALL, CompressionLimits(keep_last=8)])
def test_tail_starts_after_summary(limits: CompressionLimits) -> None:
    messages = [*make_conversation(6), {"role": "user", "content": OURS}, *make_conversation(3)[2:]]
    assert choose_bounds(messages, limits) == NOTHING_NEW


def test_no_range_before_last_summary() -> None:
    """The last request is before the summary, and the last answer is long."""
    limits = CompressionLimits(context_tokens=100, protect_first=3, protect_last=0)
    messages = [say("user", 10), say("assistant", 500), say("user", 10)]
    for name in "ab":
        messages.append(make_call_message("openai", [name], None))
        messages += make_result_messages("openai", [(name, "fix the parser in src/app.py")])
    messages.append(say("assistant", 500))
    assert choose_bounds(messages, limits) == (3, 7)
    rebuilt = rebuild_messages(messages, 3, 7, "Done: the parser.")
    assert isinstance(rebuilt, RebuiltMessages)
    assert choose_bounds(rebuilt.messages, limits) == TOO_LIGHT


def test_merged_summary_joins_range() -> None:
    messages = [
        say("system"),
        *make_conversation(2),
        {"role": "user", "content": MERGED},
        *make_conversation(6)[1:],
    ]
    assert choose_bounds(messages, SMALL) == (1, 12)


def test_long_run_is_compressed_after_request() -> None:
    run = [
        make_call_message("openai", ["x"], None, "abcd" * 100),
        *make_result_messages("openai", [("x", "ab" * 200)]),
    ]
    messages = [*make_conversation(3), say("user"), *run * 9]
    message_range = choose_range(messages, SMALL)
    assert isinstance(message_range, MessageRange)
    assert (message_range.start, message_range.end) == (7, 19)
    assert message_range.tokens >= SMALL.tail_tokens


def test_range_precedes_request_with_short_run() -> None:
    run = [
        make_call_message("openai", ["x"], None, "abcd" * 100),
        *make_result_messages("openai", [("x", "ab" * 200)]),
    ]
    messages = [*make_conversation(3), say("user"), *run * 4]
    assert choose_bounds(messages, SMALL) == (3, 6)


def test_single_request_is_compressible_repeatedly() -> None:
    run = [
        make_call_message("openai", ["x"], None, "abcd" * 100),
        *make_result_messages("openai", [("x", "ab" * 200)]),
    ]
    messages = [say("user"), *run * 10]
    for _ in range(5):
        message_range = choose_range(messages, SMALL)
        assert isinstance(message_range, MessageRange)
        rebuilt = rebuild_messages(messages, message_range.start, message_range.end, "what was")
        assert isinstance(rebuilt, RebuiltMessages)
        assert isinstance(choose_range(rebuilt.messages, SMALL), Refusal)
        assert rebuilt.messages[0] is messages[0]
        assert list_summaries(rebuilt.messages) == ["what was"]
        messages = [*map(dict, rebuilt.messages), *run * 5]
        messages[0] = rebuilt.messages[0]  # type: ignore[call-overload]


def test_short_run_after_only_request_is_compressed() -> None:
    run = [
        make_call_message("openai", ["x"], None, "abcd" * 100),
        *make_result_messages("openai", [("x", "ab" * 200)]),
    ]
    messages = [say("user"), *run * 4]
    assert choose_bounds(messages, CompressionLimits(2942, protect_first=0, protect_last=0)) == (
        1,
        3,
    )


@pytest.mark.parametrize(("unanswered", "expected"), [(7, (3, 11)), (12, (12, 19))])
def test_unanswered_group_is_compressed_around_answer(
    unanswered: int, expected: tuple[int, int]
) -> None:
    messages = [*make_conversation(6), *(say("user") for _ in range(unanswered))]
    assert choose_bounds(messages, SMALL) == expected


def test_messages_are_estimated_once() -> None:
    seen: list[Any] = []

    def count(message: Any) -> int:
        seen.append(id(message))
        return 100

    messages = make_conversation(10)
    assert isinstance(choose_range(messages, SMALL, count), MessageRange)
    assert sorted(map(seen.count, map(id, messages))) == [1] * 20
