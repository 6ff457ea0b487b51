"""Which range is chosen: thresholds, protected ends, whole pairs, and why nothing."""

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
from tests.compression.conversations import MERGED, Messages, answered, called

OURS = f"{SUMMARY_PREFIX}\nwhat was\n\n{SUMMARY_END}"


def say(role: str, tokens: int = 100) -> dict[str, Any]:
    """A message that weighs so much."""
    return {"role": role, "content": "abcd" * (tokens - 4)}


def make_conversation(turns: int, tokens: int = 100) -> Messages:
    """User and assistant in turn, each of that weight."""
    return [say(role, tokens) for _ in range(turns) for role in ("user", "assistant")]


def choose_bounds(messages: Messages, limits: CompressionLimits) -> tuple[int, int] | str:
    """The range, or why there is none."""
    found = choose_range(messages, limits)
    return (found.start, found.end) if isinstance(found, MessageRange) else found.reason


# A tail of 500 tokens, 750 at most.
SMALL = CompressionLimits(context_tokens=2942, protect_last=0)
NOTHING_NEW = "since the last summary nothing was said that is not protected"
ALL_PROTECTED = "all of it is protected: the beginning, the end, or a call with its results"
TOO_LIGHT = "what is left to summarise is no longer than a summary of it"


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
def test_the_threshold_is_that_of_hermes(limits: CompressionLimits, tokens: int) -> None:
    assert limits.threshold_tokens == tokens


def test_output_that_would_fill_the_window_is_not_subtracted() -> None:
    assert CompressionLimits(32_000, max_tokens=32_000).threshold_tokens == 27_200


@pytest.mark.parametrize(
    ("range_tokens", "tokens"),
    [(2_000, 1_000), (8_000, 2_000), (30_000, 6_000), (90_000, 10_000)],
)
def test_a_summary_is_a_fifth_of_its_range_and_never_over_half(
    range_tokens: int, tokens: int
) -> None:
    assert CompressionLimits().summary_tokens(range_tokens) == tokens


def test_a_summary_is_at_most_a_twentieth_of_the_context() -> None:
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
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        CompressionLimits(**wrong)


def test_head_and_tail_are_protected() -> None:
    assert SMALL.tail_tokens == 500
    found = choose_range([say("system"), *make_conversation(10)], SMALL)
    assert found == MessageRange(start=4, end=16, tokens=1200, total=2100)


def test_markers_before_the_first_turn_do_not_count_as_head() -> None:
    messages = [say("session_meta"), say("system"), *make_conversation(10)]
    assert choose_bounds(messages, SMALL) == (5, 17)


def test_a_message_on_the_edge_is_kept_where_the_tail_stays_under_one_and_a_half() -> None:
    edge = [*make_conversation(8), say("user", 350), *make_conversation(2)[1:], say("user")]
    assert choose_bounds(edge, SMALL) == (3, 16)
    over = [*make_conversation(8), say("user", 351), *make_conversation(2)[1:], say("user")]
    assert choose_bounds(over, SMALL) == (3, 17)


def test_up_to_eight_messages_are_kept_whatever_they_weigh() -> None:
    heavy = make_conversation(20, tokens=600)
    assert choose_bounds(heavy, CompressionLimits(2942, protect_last=5)) == (3, 35)
    assert choose_bounds(heavy, CompressionLimits(2942, protect_last=20)) == (3, 32)


@pytest.mark.parametrize(("keep", "end"), [(0, 18), (1, 18), (2, 18), (3, 17), (10, 10)])
def test_keep_last_counts_messages_beside_the_last_of_both(keep: int, end: int) -> None:
    assert choose_bounds(make_conversation(10), CompressionLimits(keep_last=keep)) == (3, end)


@pytest.mark.parametrize("shape", ["openai", "anthropic"])
def test_a_range_ends_before_the_call_whose_results_are_kept(shape: Any) -> None:
    results = [("a", "abcd" * 100), ("b", "abcd" * 100)]
    messages = [
        *make_conversation(4),
        called(shape, ["a", "b"], None),
        *answered(shape, results),
        *make_conversation(2),
    ]
    assert choose_bounds(messages, SMALL) == (3, 8)


def test_a_head_ends_behind_the_results_of_its_call() -> None:
    results = answered("openai", [("a", "x"), ("b", "y")])
    messages = [say("user"), called("openai", ["a", "b"], None), *results, *make_conversation(10)]
    assert choose_bounds(messages, CompressionLimits(keep_last=2)) == (4, 22)
    assert choose_bounds(messages, CompressionLimits(keep_last=2, protect_first=1)) == (1, 22)


def test_a_late_result_holds_its_call() -> None:
    late = answered("openai", [("a", "x")])
    messages = [
        *make_conversation(3),
        called("openai", ["a"], None),
        *make_conversation(3),
        *late,
        *make_conversation(2),
    ]
    assert choose_bounds(messages, CompressionLimits(keep_last=6)) == (3, 6)


def test_one_may_cut_between_pairs_and_around_results_of_nobody() -> None:
    twice = [called("openai", ["x"], None), *answered("openai", [("x", "1")])]
    early = answered("openai", [("y", "1")])
    messages = [*early, *early, *twice, say("user"), *twice, called("openai", ["y"], None)]
    assert [place for place, may in enumerate(list_cuts(messages)) if not may] == [3, 6]


def test_results_right_behind_a_call_belong_to_it_whatever_their_ids() -> None:
    results = answered("openai", [(None, "1"), ("other", "2")])
    marker = {"role": "session_meta"}
    messages = [called("openai", ["x"], None), marker, *results, say("user"), *results]
    assert list_cuts(messages) == [True, False, False, False, True, True, True, True]


def test_results_in_one_message_hold_each_of_their_calls() -> None:
    first, second = called("anthropic", ["x"], None), called("anthropic", ["y"], None)
    both = answered("anthropic", [("x", "1"), ("y", "2")])
    assert list_cuts([first, say("user"), second, *both]) == [True, False, False, False, True]


def test_results_with_words_of_the_user_belong_to_their_call() -> None:
    (mixed,) = answered("anthropic", [("x", "1")])
    mixed["content"].append({"type": "text", "text": "go on"})
    messages = [called("anthropic", ["x"], None), mixed, say("assistant")]
    assert list_cuts(messages) == [True, False, True, True]


def test_a_short_conversation_has_nothing_to_win() -> None:
    assert choose_bounds([], CompressionLimits()) == ALL_PROTECTED
    assert choose_bounds(make_conversation(10), CompressionLimits()) == ALL_PROTECTED
    assert choose_bounds([say("user", 90_000)], CompressionLimits()) == ALL_PROTECTED


@pytest.mark.parametrize(("tokens", "expected"), [(40, TOO_LIGHT), (80, (1, 2))])
def test_a_range_lighter_than_any_summary_is_not_worth_it(tokens: int, expected: Any) -> None:
    messages = [say("user", 3000), say("assistant", tokens), *make_conversation(3)[1:]]
    assert (
        choose_bounds(messages, CompressionLimits(2942, protect_first=1, protect_last=0))
        == expected
    )


def test_behind_a_summary_one_waits_for_something_new() -> None:
    compressed = [say("system"), *make_conversation(1), {"role": "user", "content": OURS}]
    tail = make_conversation(3)[1:]
    assert choose_bounds([*compressed, *tail], SMALL) == NOTHING_NEW
    assert choose_bounds([*compressed, *tail, *make_conversation(1)], SMALL) == (1, 6)


@pytest.mark.parametrize("limits", [SMALL, CompressionLimits(keep_last=8)])
def test_the_end_that_is_kept_begins_behind_the_summary(limits: CompressionLimits) -> None:
    messages = [*make_conversation(6), {"role": "user", "content": OURS}, *make_conversation(3)[2:]]
    assert choose_bounds(messages, limits) == NOTHING_NEW


def test_a_merged_summary_is_part_of_the_range_and_ends_the_protection_of_the_head() -> None:
    messages = [
        say("system"),
        *make_conversation(2),
        {"role": "user", "content": MERGED},
        *make_conversation(6)[1:],
    ]
    assert choose_bounds(messages, SMALL) == (1, 12)


def test_a_long_run_after_the_last_request_is_compressed_behind_it() -> None:
    run = [called("openai", ["x"], None, "abcd" * 100), *answered("openai", [("x", "ab" * 200)])]
    messages = [*make_conversation(3), say("user"), *run * 9]
    found = choose_range(messages, SMALL)
    assert isinstance(found, MessageRange)
    assert (found.start, found.end) == (7, 19)
    assert found.tokens >= SMALL.tail_tokens


def test_what_is_before_the_last_request_goes_first_where_little_is_behind_it() -> None:
    run = [called("openai", ["x"], None, "abcd" * 100), *answered("openai", [("x", "ab" * 200)])]
    messages = [*make_conversation(3), say("user"), *run * 4]
    assert choose_bounds(messages, SMALL) == (3, 6)


def test_a_worker_with_one_request_can_be_compressed_again_and_again() -> None:
    run = [called("openai", ["x"], None, "abcd" * 100), *answered("openai", [("x", "ab" * 200)])]
    messages = [say("user"), *run * 10]
    for _ in range(5):
        found = choose_range(messages, SMALL)
        assert isinstance(found, MessageRange)
        done = rebuild_messages(messages, found.start, found.end, "what was")
        assert isinstance(done, RebuiltMessages)
        assert isinstance(choose_range(done.messages, SMALL), Refusal)
        assert done.messages[0] is messages[0]
        assert list_summaries(done.messages) == ["what was"]
        messages = [*map(dict, done.messages), *run * 5]
        messages[0] = done.messages[0]  # type: ignore[call-overload]


def test_little_behind_the_only_request_is_compressed_too() -> None:
    run = [called("openai", ["x"], None, "abcd" * 100), *answered("openai", [("x", "ab" * 200)])]
    messages = [say("user"), *run * 4]
    assert choose_bounds(messages, CompressionLimits(2942, protect_first=0, protect_last=0)) == (
        1,
        3,
    )


@pytest.mark.parametrize(("unanswered", "expected"), [(7, (3, 11)), (12, (12, 19))])
def test_a_group_that_gets_no_answer_is_compressed_around_the_last_answer(
    unanswered: int, expected: tuple[int, int]
) -> None:
    messages = [*make_conversation(6), *(say("user") for _ in range(unanswered))]
    assert choose_bounds(messages, SMALL) == expected


def test_each_message_is_estimated_once() -> None:
    seen: list[Any] = []

    def count(message: Any) -> int:
        seen.append(id(message))
        return 100

    messages = make_conversation(10)
    assert isinstance(choose_range(messages, SMALL, count), MessageRange)
    assert sorted(map(seen.count, map(id, messages))) == [1] * 20
