"""What holds for every conversation: nothing is split, grown, changed or done twice."""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from session_core.compression import chat_messages, summary_message
from session_core.compression.ranges import CompressionLimits, MessageRange, Refusal, choose_range
from session_core.compression.rebuild import RebuiltMessages, condense_messages, rebuild_messages
from tests.compression.conversations import (
    TEXTS,
    Messages,
    conversations,
    faults,
    limits,
    pairs,
    result_ids,
    side,
    tidy,
)

MANY = settings(max_examples=100, deadline=None)
SHORT = "Done: the parser. Open: the tests."


def compress(
    messages: Messages, within: CompressionLimits
) -> tuple[MessageRange, RebuiltMessages] | None:
    """The range and the new list, or None where one of them is refused."""
    chosen = choose_range(messages, within)
    if isinstance(chosen, Refusal):
        return None
    done = rebuild_messages(messages, chosen.start, chosen.end, SHORT)
    return (chosen, done) if isinstance(done, RebuiltMessages) else None


def find_last(messages: Messages, role: str) -> int | None:
    """The last message that a user or the assistant said, summaries and results left out."""
    said = [
        index
        for index, message in enumerate(messages)
        if message.get("role") == role
        and not summary_message.is_summary(message)
        and not (role == "user" and result_ids(message))
    ]
    return said[-1] if said else None


@MANY
@given(conversations(), limits())
def test_calls_and_results_stay_together(messages: Messages, within: CompressionLimits) -> None:
    chosen = choose_range(messages, within)
    if isinstance(chosen, Refusal):
        return
    inside = range(chosen.start, chosen.end)
    for call, result in pairs(messages):
        assert (call in inside) == (result in inside)
        assert not (call < chosen.start and result >= chosen.end)


@MANY
@given(conversations(), limits())
def test_last_user_and_assistant_messages_stay(
    messages: Messages, within: CompressionLimits
) -> None:
    chosen = choose_range(messages, within)
    if isinstance(chosen, Refusal):
        return
    for role in ("user", "assistant"):
        assert find_last(messages, role) not in range(chosen.start, chosen.end)


@MANY
@given(tidy(), limits())
def test_valid_conversation_stays_valid(messages: Messages, within: CompressionLimits) -> None:
    assert faults(messages) == []
    found = compress(messages, within)
    if found is not None:
        assert faults(found[1].messages) == []


@MANY
@given(conversations(), limits())
def test_compression_adds_no_faults(messages: Messages, within: CompressionLimits) -> None:
    found = compress(messages, within)
    if found is None:
        return
    chosen, done = found
    kept = faults(messages[: chosen.start]) + faults(messages[chosen.end :])
    for fault in faults(done.messages):
        assert fault in {*kept, *faults(messages)}
    new = slice(chosen.start - 1 if chosen.start else 0, chosen.start + len(done.summary) + 1)
    sides = [side(message) for message in done.messages[new]]
    assert all(a is None or a != b for a, b in pairwise(sides))


@MANY
@given(conversations(), limits())
def test_kept_messages_are_verbatim(messages: Messages, within: CompressionLimits) -> None:
    before = deepcopy(messages)
    found = compress(messages, within)
    assert messages == before
    if found is None:
        return
    chosen, done = found
    behind = chosen.start + len(done.summary)
    assert list(done.messages[: chosen.start]) == before[: chosen.start]
    assert list(done.messages[behind:]) == before[chosen.end :]


@MANY
@given(conversations(), limits())
def test_compression_reduces_tokens(messages: Messages, within: CompressionLimits) -> None:
    found = compress(messages, within)
    if found is None:
        return
    chosen, done = found
    assert done.tokens_before == chosen.total == sum(map(chat_messages.estimate_tokens, messages))
    assert done.tokens_after == sum(map(chat_messages.estimate_tokens, done.messages))
    assert done.tokens_after < done.tokens_before


@MANY
@given(conversations(), limits())
def test_repeated_compression_is_idempotent(messages: Messages, within: CompressionLimits) -> None:
    found = compress(messages, within)
    if found is not None:
        again = choose_range(found[1].messages, within)
        assert isinstance(again, Refusal)
        assert again.code == "nothing_to_win"


@MANY
@given(conversations(), limits())
def test_compression_is_deterministic(messages: Messages, within: CompressionLimits) -> None:
    assert compress(messages, within) == compress(deepcopy(messages), within)


@MANY
@given(tidy(shape="openai"), tidy(shape="openai"), limits(), TEXTS)
def test_later_compression_updates_summary(
    messages: Messages, more: Messages, within: CompressionLimits, text: str
) -> None:
    found = compress(messages, within)
    if found is None or summary_message.find_fault(text):
        return
    grown: list[Any] = [*found[1].messages, *(m for m in more if m["role"] != "system")]
    chosen = choose_range(grown, within)
    if isinstance(chosen, Refusal):
        return
    assert summary_message.list_summaries(grown[chosen.start : chosen.end]) in ([SHORT], [])
    done = rebuild_messages(grown, chosen.start, chosen.end, text)
    if isinstance(done, RebuiltMessages):
        assert "does not begin with the user" not in faults(done.messages)
        assert not any(fault.startswith("two of") for fault in faults(done.messages))


@MANY
@given(conversations())
def test_condensed_messages_are_shorter_copies(messages: Messages) -> None:
    before = deepcopy(messages)
    read = condense_messages(messages)
    assert messages == before
    assert [message["role"] for message in read] == [message["role"] for message in messages]
    assert pairs(read) == pairs(messages)
    for short, whole in zip(read, messages, strict=True):
        assert chat_messages.estimate_tokens(short) <= chat_messages.estimate_tokens(whole)


@MANY
@given(st.text(max_size=200), st.sampled_from((None, "user", "assistant", "tool")))
def test_summary_round_trips_through_message(text: str, beside: Any) -> None:
    if summary_message.find_fault(text):
        return
    built = summary_message.build_messages(text, None, beside)
    assert all(map(summary_message.is_summary, built))
    assert summary_message.list_summaries(built) == [text.strip()]
