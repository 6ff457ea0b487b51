"""Which range is chosen: thresholds, protected ends, whole pairs, and why nothing."""

from __future__ import annotations

from typing import Any

import pytest

from session_core.compression.ranges import Limits, Range, Refused, choose_range, cuts
from session_core.compression.rebuild import Assembled, assemble
from session_core.compression.summary_message import END, PREFIX, earlier
from session_core.errors import InvalidInput
from tests.compression.conversations import MERGED, Messages, answered, called

OURS = f"{PREFIX}\nwhat was\n\n{END}"


def say(role: str, tokens: int = 100) -> dict[str, Any]:
    """A message that weighs so much."""
    return {"role": role, "content": "abcd" * (tokens - 4)}


def talk(turns: int, tokens: int = 100) -> Messages:
    """User and assistant in turn, each of that weight."""
    return [say(role, tokens) for _ in range(turns) for role in ("user", "assistant")]


def chosen(messages: Messages, limits: Limits) -> tuple[int, int] | str:
    """The range, or why there is none."""
    found = choose_range(messages, limits)
    return (found.start, found.end) if isinstance(found, Range) else found.reason


# A tail of 500 tokens, 750 at most.
SMALL = Limits(context_tokens=2942, protect_last=0)
NOTHING_NEW = "since the last summary nothing was said that is not protected"
ALL_PROTECTED = "all of it is protected: the beginning, the end, or a call with its results"
TOO_LIGHT = "what is left to summarise is no longer than a summary of it"


@pytest.mark.parametrize(
    ("limits", "tokens"),
    [
        (Limits(64_000), 54_400),
        (Limits(65_536), 64_000),
        (Limits(128_000), 96_000),
        (Limits(200_000), 150_000),
        (Limits(262_144), 196_608),
        (Limits(512_000), 256_000),
        (Limits(1_000_000), 500_000),
        (Limits(200_000, max_tokens=65_536), 100_848),
        (Limits(200_000, threshold=0.9), 180_000),
        (Limits(32_000), 27_200),
    ],
)
def test_the_threshold_is_that_of_hermes(limits: Limits, tokens: int) -> None:
    assert limits.threshold_tokens == tokens


def test_output_that_would_fill_the_window_is_not_subtracted() -> None:
    assert Limits(32_000, max_tokens=32_000).threshold_tokens == 27_200


@pytest.mark.parametrize(
    ("range_tokens", "tokens"),
    [(2_000, 1_000), (8_000, 2_000), (30_000, 6_000), (90_000, 10_000)],
)
def test_a_summary_is_a_fifth_of_its_range_and_never_over_half(
    range_tokens: int, tokens: int
) -> None:
    assert Limits().summary_tokens(range_tokens) == tokens


def test_a_summary_is_at_most_a_twentieth_of_the_context() -> None:
    assert Limits(64_000).summary_tokens(90_000) == 3_200


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
        Limits(**wrong)


def test_head_and_tail_are_protected() -> None:
    assert SMALL.tail_tokens == 500
    found = choose_range([say("system"), *talk(10)], SMALL)
    assert found == Range(start=4, end=16, tokens=1200, total=2100)


def test_markers_before_the_first_turn_do_not_count_as_head() -> None:
    messages = [say("session_meta"), say("system"), *talk(10)]
    assert chosen(messages, SMALL) == (5, 17)


def test_a_message_on_the_edge_is_kept_where_the_tail_stays_under_one_and_a_half() -> None:
    edge = [*talk(8), say("user", 350), *talk(2)[1:], say("user")]
    assert chosen(edge, SMALL) == (3, 16)
    over = [*talk(8), say("user", 351), *talk(2)[1:], say("user")]
    assert chosen(over, SMALL) == (3, 17)


def test_up_to_eight_messages_are_kept_whatever_they_weigh() -> None:
    heavy = talk(20, tokens=600)
    assert chosen(heavy, Limits(2942, protect_last=5)) == (3, 35)
    assert chosen(heavy, Limits(2942, protect_last=20)) == (3, 32)


@pytest.mark.parametrize(("keep", "end"), [(0, 18), (1, 18), (2, 18), (3, 17), (10, 10)])
def test_keep_last_counts_messages_beside_the_last_of_both(keep: int, end: int) -> None:
    assert chosen(talk(10), Limits(keep_last=keep)) == (3, end)


@pytest.mark.parametrize("shape", ["openai", "anthropic"])
def test_a_range_ends_before_the_call_whose_results_are_kept(shape: Any) -> None:
    results = [("a", "abcd" * 100), ("b", "abcd" * 100)]
    messages = [*talk(4), called(shape, ["a", "b"], None), *answered(shape, results), *talk(2)]
    assert chosen(messages, SMALL) == (3, 8)


def test_a_head_ends_behind_the_results_of_its_call() -> None:
    results = answered("openai", [("a", "x"), ("b", "y")])
    messages = [say("user"), called("openai", ["a", "b"], None), *results, *talk(10)]
    assert chosen(messages, Limits(keep_last=2)) == (4, 22)
    assert chosen(messages, Limits(keep_last=2, protect_first=1)) == (1, 22)


def test_a_late_result_holds_its_call() -> None:
    late = answered("openai", [("a", "x")])
    messages = [*talk(3), called("openai", ["a"], None), *talk(3), *late, *talk(2)]
    assert chosen(messages, Limits(keep_last=6)) == (3, 6)


def test_one_may_cut_between_pairs_and_around_results_of_nobody() -> None:
    twice = [called("openai", ["x"], None), *answered("openai", [("x", "1")])]
    early = answered("openai", [("y", "1")])
    messages = [*early, *early, *twice, say("user"), *twice, called("openai", ["y"], None)]
    assert [place for place, may in enumerate(cuts(messages)) if not may] == [3, 6]


def test_results_right_behind_a_call_belong_to_it_whatever_their_ids() -> None:
    results = answered("openai", [(None, "1"), ("other", "2")])
    marker = {"role": "session_meta"}
    messages = [called("openai", ["x"], None), marker, *results, say("user"), *results]
    assert cuts(messages) == [True, False, False, False, True, True, True, True]


def test_results_in_one_message_hold_each_of_their_calls() -> None:
    first, second = called("anthropic", ["x"], None), called("anthropic", ["y"], None)
    both = answered("anthropic", [("x", "1"), ("y", "2")])
    assert cuts([first, say("user"), second, *both]) == [True, False, False, False, True]


def test_results_with_words_of_the_user_belong_to_their_call() -> None:
    (mixed,) = answered("anthropic", [("x", "1")])
    mixed["content"].append({"type": "text", "text": "go on"})
    messages = [called("anthropic", ["x"], None), mixed, say("assistant")]
    assert cuts(messages) == [True, False, True, True]


def test_a_short_conversation_has_nothing_to_win() -> None:
    assert chosen([], Limits()) == ALL_PROTECTED
    assert chosen(talk(10), Limits()) == ALL_PROTECTED
    assert chosen([say("user", 90_000)], Limits()) == ALL_PROTECTED


@pytest.mark.parametrize(("tokens", "expected"), [(40, TOO_LIGHT), (80, (1, 2))])
def test_a_range_lighter_than_any_summary_is_not_worth_it(tokens: int, expected: Any) -> None:
    messages = [say("user", 3000), say("assistant", tokens), *talk(3)[1:]]
    assert chosen(messages, Limits(2942, protect_first=1, protect_last=0)) == expected


def test_behind_a_summary_one_waits_for_something_new() -> None:
    compressed = [say("system"), *talk(1), {"role": "user", "content": OURS}]
    tail = talk(3)[1:]
    assert chosen([*compressed, *tail], SMALL) == NOTHING_NEW
    assert chosen([*compressed, *tail, *talk(1)], SMALL) == (1, 6)


@pytest.mark.parametrize("limits", [SMALL, Limits(keep_last=8)])
def test_the_end_that_is_kept_begins_behind_the_summary(limits: Limits) -> None:
    messages = [*talk(6), {"role": "user", "content": OURS}, *talk(3)[2:]]
    assert chosen(messages, limits) == NOTHING_NEW


def test_a_merged_summary_is_part_of_the_range_and_ends_the_protection_of_the_head() -> None:
    messages = [say("system"), *talk(2), {"role": "user", "content": MERGED}, *talk(6)[1:]]
    assert chosen(messages, SMALL) == (1, 12)


def test_a_long_run_after_the_last_request_is_compressed_behind_it() -> None:
    run = [called("openai", ["x"], None, "abcd" * 100), *answered("openai", [("x", "ab" * 200)])]
    messages = [*talk(3), say("user"), *run * 9]
    found = choose_range(messages, SMALL)
    assert isinstance(found, Range)
    assert (found.start, found.end) == (7, 19)
    assert found.tokens >= SMALL.tail_tokens


def test_what_is_before_the_last_request_goes_first_where_little_is_behind_it() -> None:
    run = [called("openai", ["x"], None, "abcd" * 100), *answered("openai", [("x", "ab" * 200)])]
    messages = [*talk(3), say("user"), *run * 4]
    assert chosen(messages, SMALL) == (3, 6)


def test_a_worker_with_one_request_can_be_compressed_again_and_again() -> None:
    run = [called("openai", ["x"], None, "abcd" * 100), *answered("openai", [("x", "ab" * 200)])]
    messages = [say("user"), *run * 10]
    for _ in range(5):
        found = choose_range(messages, SMALL)
        assert isinstance(found, Range)
        done = assemble(messages, found.start, found.end, "what was")
        assert isinstance(done, Assembled)
        assert isinstance(choose_range(done.messages, SMALL), Refused)
        assert done.messages[0] is messages[0]
        assert earlier(done.messages) == ["what was"]
        messages = [*map(dict, done.messages), *run * 5]
        messages[0] = done.messages[0]  # type: ignore[call-overload]


def test_little_behind_the_only_request_is_compressed_too() -> None:
    run = [called("openai", ["x"], None, "abcd" * 100), *answered("openai", [("x", "ab" * 200)])]
    messages = [say("user"), *run * 4]
    assert chosen(messages, Limits(2942, protect_first=0, protect_last=0)) == (1, 3)


@pytest.mark.parametrize(("unanswered", "expected"), [(7, (3, 11)), (12, (12, 19))])
def test_a_group_that_gets_no_answer_is_compressed_around_the_last_answer(
    unanswered: int, expected: tuple[int, int]
) -> None:
    messages = [*talk(6), *(say("user") for _ in range(unanswered))]
    assert chosen(messages, SMALL) == expected


def test_each_message_is_estimated_once() -> None:
    seen: list[Any] = []

    def count(message: Any) -> int:
        seen.append(id(message))
        return 100

    messages = talk(10)
    assert isinstance(choose_range(messages, SMALL, count), Range)
    assert sorted(map(seen.count, map(id, messages))) == [1] * 20
