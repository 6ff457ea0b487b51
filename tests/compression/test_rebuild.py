"""The rebuilt messages: kept messages are unchanged, and useless summaries are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from session_core.compression import chat_messages
from session_core.compression.ranges import Refusal
from session_core.compression.rebuild import RebuiltMessages, rebuild_messages
from session_core.compression.summary_message import SUMMARY_END, SUMMARY_NOTE, SUMMARY_PREFIX
from session_core.errors import InvalidInput
from tests.compression.conversations import find_faults, make_call_message, make_result_messages

TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "go " * 200},
    make_call_message("openai", ["a", "b"], None),
    *make_result_messages("openai", [("a", "one " * 200), ("b", "two " * 200)]),
    {"role": "assistant", "content": "done " * 200},
    {"role": "user", "content": "and now?"},
    {"role": "assistant", "content": "nothing"},
]


def test_summary_replaces_range() -> None:
    rebuilt = rebuild_messages(TALK, 1, 6, "went")
    assert isinstance(rebuilt, RebuiltMessages)
    said = {"role": "user", "content": f"{SUMMARY_PREFIX}\nwent\n\n{SUMMARY_END}"}
    note = {"role": "assistant", "content": SUMMARY_NOTE}
    assert list(rebuilt.messages) == [TALK[0], said, note, *TALK[6:]]
    assert rebuilt.summary == (said, note)
    assert find_faults(rebuilt.messages) == []
    assert rebuilt.tokens_before == sum(map(chat_messages.estimate_tokens, TALK))
    assert rebuilt.tokens_after == sum(map(chat_messages.estimate_tokens, rebuilt.messages))


def test_markers_are_not_neighbours() -> None:
    marker = {"role": "session_meta", "content": None}
    rebuilt = rebuild_messages([TALK[1], marker, *TALK[2:6], marker, *TALK[6:]], 2, 6, "went")
    assert isinstance(rebuilt, RebuiltMessages)
    assert [message["role"] for message in rebuilt.summary] == ["assistant"]


@pytest.mark.parametrize(("start", "end"), [(1, 3), (1, 4), (3, 6), (4, 6)])
def test_range_splitting_call_is_refused(start: int, end: int) -> None:
    refused = rebuild_messages(TALK, start, end, "went")
    assert isinstance(refused, Refusal)
    assert refused.code == "split_pair"


def test_larger_summary_is_refused() -> None:
    refused = rebuild_messages(TALK, 1, 2, "go " * 200)
    assert isinstance(refused, Refusal)
    assert refused.code == "not_smaller"
    assert isinstance(rebuild_messages(TALK, 1, 2, "go " * 150), RebuiltMessages)


def test_size_uses_given_estimate() -> None:
    def one_each(_message: Mapping[str, Any]) -> int:
        return 1

    refused = rebuild_messages(TALK, 6, 8, "short", one_each)
    assert isinstance(refused, RebuiltMessages)
    assert (refused.tokens_before, refused.tokens_after) == (8, 7)
    assert isinstance(rebuild_messages(TALK, 6, 7, "short", one_each), Refusal)


@pytest.mark.parametrize(
    ("text", "code"),
    [(" ", "empty_summary"), ("key: [REDACTED]", "redacted_summary")],
)
def test_unusable_summary_text_is_refused(text: str, code: str) -> None:
    refused = rebuild_messages(TALK, 1, 6, text)
    assert isinstance(refused, Refusal)
    assert refused.code == code


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (3, 3), (4, 2), (0, 9)])
def test_invalid_range_raises(start: int, end: int) -> None:
    with pytest.raises(InvalidInput, match="within 8 messages"):
        rebuild_messages(TALK, start, end, "went")


def test_orphan_results_keep_their_place() -> None:
    stray = {"role": "tool", "tool_call_id": "gone", "content": "x"}
    talk = [stray, *TALK, stray]
    rebuilt = rebuild_messages(talk, 2, 7, "went")
    assert isinstance(rebuilt, RebuiltMessages)
    assert rebuilt.messages[0] is stray
    assert rebuilt.messages[-1] is stray
