"""Properties of every conversation: nothing is split, grown, changed or compressed twice."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session_core.compression import chat_messages, summary_message
from session_core.compression.ranges import CompressionLimits, MessageRange, Refusal, choose_range
from session_core.compression.rebuild import RebuiltMessages, condense_messages, rebuild_messages
from tests.compression.conversations import (
    TEXTS,
    Messages,
    conversations,
    find_faults,
    get_side,
    limits,
    match_results,
    result_ids,
    tidy,
)
from tests.thorough import mark_thorough

FEW_EXAMPLES = 40
MANY_EXAMPLES = 200
SHORT = "Done: the parser. Open: the tests."


def holds_for(*strategies: Any) -> Callable[[Callable[..., None]], Callable[[int], None]]:
    """Test a property with few examples, and in the thorough step with many."""

    def decorate(check: Callable[..., None]) -> Callable[[int], None]:
        counts = (FEW_EXAMPLES, MANY_EXAMPLES)
        runs = {
            n: settings(max_examples=n, deadline=None)(given(*strategies)(check)) for n in counts
        }

        @pytest.mark.parametrize("examples", [FEW_EXAMPLES, mark_thorough(MANY_EXAMPLES)])
        def run(examples: int) -> None:
            runs[examples]()

        run.__name__ = check.__name__
        return run

    return decorate


def compress(
    messages: Messages, within: CompressionLimits
) -> tuple[MessageRange, RebuiltMessages] | None:
    """Return the range and the new messages, or None if one of them is refused."""
    message_range = choose_range(messages, within)
    if isinstance(message_range, Refusal):
        return None
    rebuilt = rebuild_messages(messages, message_range.start, message_range.end, SHORT)
    return (message_range, rebuilt) if isinstance(rebuilt, RebuiltMessages) else None


def find_last(messages: Messages, role: str) -> int | None:
    """Return the last message of the user or the assistant, without summaries and results."""
    indexes = [
        index
        for index, message in enumerate(messages)
        if message.get("role") == role
        and not summary_message.is_summary(message)
        and not (role == "user" and result_ids(message))
    ]
    return indexes[-1] if indexes else None


@holds_for(conversations(), limits())
def test_calls_and_results_stay_together(messages: Messages, within: CompressionLimits) -> None:
    message_range = choose_range(messages, within)
    if isinstance(message_range, Refusal):
        return
    inside = range(message_range.start, message_range.end)
    for call, result in match_results(messages):
        assert (call in inside) == (result in inside)
        assert not (call < message_range.start and result >= message_range.end)


@holds_for(conversations(), limits())
def test_last_user_and_assistant_messages_stay(
    messages: Messages, within: CompressionLimits
) -> None:
    message_range = choose_range(messages, within)
    if isinstance(message_range, Refusal):
        return
    for role in ("user", "assistant"):
        assert find_last(messages, role) not in range(message_range.start, message_range.end)


@holds_for(tidy(), limits())
def test_valid_conversation_stays_valid(messages: Messages, within: CompressionLimits) -> None:
    assert find_faults(messages) == []
    outcome = compress(messages, within)
    if outcome is not None:
        assert find_faults(outcome[1].messages) == []


@holds_for(conversations(), limits())
def test_compression_adds_no_faults(messages: Messages, within: CompressionLimits) -> None:
    outcome = compress(messages, within)
    if outcome is None:
        return
    message_range, rebuilt = outcome
    kept = find_faults(messages[: message_range.start]) + find_faults(messages[message_range.end :])
    for fault in find_faults(rebuilt.messages):
        assert fault in {*kept, *find_faults(messages)}
    new = slice(
        message_range.start - 1 if message_range.start else 0,
        message_range.start + len(rebuilt.summary) + 1,
    )
    sides = [get_side(message) for message in rebuilt.messages[new]]
    assert all(a is None or a != b for a, b in pairwise(sides))


@holds_for(conversations(), limits())
def test_kept_messages_are_verbatim(messages: Messages, within: CompressionLimits) -> None:
    before = deepcopy(messages)
    outcome = compress(messages, within)
    assert messages == before
    if outcome is None:
        return
    message_range, rebuilt = outcome
    behind = message_range.start + len(rebuilt.summary)
    assert list(rebuilt.messages[: message_range.start]) == before[: message_range.start]
    assert list(rebuilt.messages[behind:]) == before[message_range.end :]


@holds_for(conversations(), limits())
def test_compression_reduces_tokens(messages: Messages, within: CompressionLimits) -> None:
    outcome = compress(messages, within)
    if outcome is None:
        return
    message_range, rebuilt = outcome
    assert (
        rebuilt.tokens_before
        == message_range.total
        == sum(map(chat_messages.estimate_tokens, messages))
    )
    assert rebuilt.tokens_after == sum(map(chat_messages.estimate_tokens, rebuilt.messages))
    assert rebuilt.tokens_after < rebuilt.tokens_before


@holds_for(conversations(), limits())
def test_repeated_compression_is_idempotent(messages: Messages, within: CompressionLimits) -> None:
    outcome = compress(messages, within)
    if outcome is not None:
        again = choose_range(outcome[1].messages, within)
        assert isinstance(again, Refusal)
        assert again.code == "nothing_to_win"


@holds_for(conversations(), limits())
def test_compression_is_deterministic(messages: Messages, within: CompressionLimits) -> None:
    assert compress(messages, within) == compress(deepcopy(messages), within)


@holds_for(tidy(shape="openai"), tidy(shape="openai"), limits(), TEXTS)
def test_later_compression_updates_summary(
    messages: Messages, more: Messages, within: CompressionLimits, text: str
) -> None:
    outcome = compress(messages, within)
    if outcome is None or summary_message.find_fault(text):
        return
    grown: list[Any] = [*outcome[1].messages, *(m for m in more if m["role"] != "system")]
    message_range = choose_range(grown, within)
    if isinstance(message_range, Refusal):
        return
    assert summary_message.list_summaries(grown[message_range.start : message_range.end]) in (
        [SHORT],
        [],
    )
    rebuilt = rebuild_messages(grown, message_range.start, message_range.end, text)
    if isinstance(rebuilt, RebuiltMessages):
        assert "does not begin with the user" not in find_faults(rebuilt.messages)
        assert not any(fault.startswith("two of") for fault in find_faults(rebuilt.messages))


@holds_for(conversations())
def test_condensed_messages_are_shorter_copies(messages: Messages) -> None:
    before = deepcopy(messages)
    read = condense_messages(messages)
    assert messages == before
    assert [message["role"] for message in read] == [message["role"] for message in messages]
    assert match_results(read) == match_results(messages)
    for short, whole in zip(read, messages, strict=True):
        assert chat_messages.estimate_tokens(short) <= chat_messages.estimate_tokens(whole)


@holds_for(st.text(max_size=200), st.sampled_from((None, "user", "assistant", "tool")))
def test_summary_round_trips_through_message(text: str, beside: Any) -> None:
    if summary_message.find_fault(text):
        return
    built = summary_message.build_messages(text, None, beside)
    assert all(map(summary_message.is_summary, built))
    assert summary_message.list_summaries(built) == [text.strip()]
