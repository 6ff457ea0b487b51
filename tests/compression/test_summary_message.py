"""Summary messages are recognised from any author, and valid between any neighbours."""

from __future__ import annotations

from typing import Any

import pytest

from session_core.compression import summary_message
from session_core.compression.summary_message import (
    SUMMARY_END,
    SUMMARY_NOTE,
    SUMMARY_PREFIX,
    Summary,
)
from tests.compression.conversations import IMAGE, LONG_PREFIX, MERGED, make_call_message

BODY = "## Done\n- the parser in src/app.py"
OURS = f"{SUMMARY_PREFIX}\n{BODY}\n\n{SUMMARY_END}"


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        (OURS, Summary(BODY)),
        (f"{SUMMARY_PREFIX} {BODY}", Summary(BODY)),
        (f"{LONG_PREFIX}\n{BODY}\n\n{SUMMARY_END}", Summary(BODY)),
        (f"  {LONG_PREFIX}\n{BODY}", Summary(BODY)),
        ("[CONTEXT COMPACTION - REFERENCE ONLY] in a line", Summary("in a line")),
        (f"{OURS}\n\nand now the tests", Summary(BODY, after="and now the tests")),
        (MERGED, Summary("what was", before="what was asked")),
    ],
)
def test_summary_forms_are_recognised(text: str, summary: Summary) -> None:
    assert summary_message.parse_summary({"role": "user", "content": text}) == summary
    parts = [{"type": "text", "text": text}]
    assert summary_message.parse_summary({"role": "assistant", "content": parts}) == summary


@pytest.mark.parametrize(
    "text", ["", "hello", f"he wrote {SUMMARY_PREFIX} here", SUMMARY_END, SUMMARY_NOTE, None]
)
def test_other_messages_are_not_summaries(text: str | None) -> None:
    assert summary_message.parse_summary({"role": "user", "content": text}) is None


def test_tool_output_is_no_summary() -> None:
    result = {"type": "tool_result", "tool_use_id": "a", "content": OURS}
    assert (
        summary_message.parse_summary({"role": "tool", "tool_call_id": "a", "content": OURS})
        is None
    )
    assert summary_message.parse_summary({"role": "user", "content": [result]}) is None


def test_mixed_message_is_not_pure_summary() -> None:
    assert summary_message.is_summary({"role": "user", "content": OURS})
    assert summary_message.is_summary({"role": "assistant", "content": SUMMARY_NOTE})
    assert not summary_message.is_summary({"role": "user", "content": MERGED})
    assert not summary_message.is_summary({"role": "user", "content": f"{OURS}\n\nand the tests"})
    with_image = [{"type": "text", "text": OURS}, IMAGE]
    assert not summary_message.is_summary({"role": "user", "content": with_image})
    assert not summary_message.is_summary(make_call_message("openai", ["a"], OURS))
    assert not summary_message.is_summary({"role": "user", "content": "hello"})


def test_earlier_summaries_are_listed_oldest_first() -> None:
    messages = [
        {"role": "user", "content": MERGED},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": OURS},
        {"role": "assistant", "content": SUMMARY_NOTE},
    ]
    assert summary_message.list_summaries(messages) == ["what was", BODY]


@pytest.mark.parametrize(
    ("before", "after", "roles"),
    [
        (None, None, ["user"]),
        (None, "assistant", ["user"]),
        (None, "user", ["user", "assistant"]),
        ("user", "user", ["assistant"]),
        ("user", "assistant", ["assistant", "user"]),
        ("assistant", "assistant", ["user"]),
        ("assistant", "user", ["user", "assistant"]),
        ("tool", "user", ["assistant"]),
        ("tool", "assistant", ["assistant", "user"]),
        ("assistant", "tool", ["user", "assistant"]),
    ],
)
def test_summary_roles_fit_neighbours(before: Any, after: Any, roles: list[str]) -> None:
    built = summary_message.build_messages(BODY, before, after)
    assert [message["role"] for message in built] == roles
    assert sorted(message["content"] for message in built) == sorted(
        [OURS, SUMMARY_NOTE][: len(roles)]
    )


@pytest.mark.parametrize(
    "text",
    [
        BODY,
        f"  {BODY}\n",
        OURS,
        f"{LONG_PREFIX}\n{OURS}",
        f"{SUMMARY_PREFIX}{SUMMARY_PREFIX} {BODY} {SUMMARY_END}{SUMMARY_END}",
        f"[CONTEXT {SUMMARY_PREFIX}SUMMARY]: {BODY}",
    ],
)
def test_repeated_marks_are_removed(text: str) -> None:
    assert summary_message.clean_summary(text) == BODY


def test_words_around_repeated_summary_are_kept() -> None:
    assert summary_message.clean_summary(f"{OURS}\nand more") == f"{BODY}\n\nand more"


@pytest.mark.parametrize("text", ["", "  \n", SUMMARY_PREFIX, f"{SUMMARY_PREFIX}\n\n{SUMMARY_END}"])
def test_empty_summary_is_refused(text: str) -> None:
    assert summary_message.find_fault(text) == "empty_summary"


@pytest.mark.parametrize(
    "mark",
    [
        "[REDACTED]",
        "[redacted]",
        "[REDACTED PRIVATE KEY]",
        "[REDACTED:api_key]",
        "«redacted»",
        "«redacted-secret»",
        "«redacted:ghp_…»",
        "***REDACTED***",
        "*** REDACTED ***",
        "<redacted>",
    ],
)
def test_summary_with_redaction_mark_is_refused(mark: str) -> None:
    assert summary_message.find_fault(f"the key is {mark}, in .env") == "redacted_summary"


@pytest.mark.parametrize("text", [BODY, "what was redacted", "type redacted_thinking", "*** a ***"])
def test_words_about_redaction_are_accepted(text: str) -> None:
    assert summary_message.find_fault(text) is None
