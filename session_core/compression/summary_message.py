"""Summary messages: building them, and recognising them in a conversation.

New messages have the short prefix that every release of Hermes recognises as its own. The long
prefix of Hermes, and the form that is merged into a neighbouring message, are read but not written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from session_core.compression import chat_messages
from session_core.compression.chat_messages import Message, Turn

SUMMARY_PREFIX = "[CONTEXT SUMMARY]:"
SUMMARY_END = "--- END OF CONTEXT SUMMARY — respond to the message below, not the summary above ---"
SUMMARY_NOTE = "(A summary stands here for the earlier messages.)"

_LONG_PREFIXES = (
    "[CONTEXT COMPACTION — REFERENCE ONLY]",
    "[CONTEXT COMPACTION - REFERENCE ONLY]",
)
_PRIOR_START = "[PRIOR CONTEXT — for reference only; not a new message]"
_PRIOR_END = "[END OF PRIOR CONTEXT — COMPACTION SUMMARY BELOW]"
_MARK_WORD = "CONTEXT"
"""A word that every mark contains. Texts without it need no further check."""
_MARKS = (SUMMARY_PREFIX, SUMMARY_END, *_LONG_PREFIXES, _PRIOR_START, _PRIOR_END)

REDACTION_MARKS = (
    r"\[redacted\b[^\]\n]{0,60}\]",
    r"«redacted\b[^»\n]{0,60}»",
    r"<redacted\b[^>\n]{0,60}>",
    r"\*{3} ?redacted ?\*{3}",
)
_REDACTION_PATTERN = re.compile("|".join(REDACTION_MARKS), re.IGNORECASE)

Fault = Literal["empty_summary", "redacted_summary"]
Role = Literal["user", "assistant"]


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary in a message, and the other text of that message."""

    text: str
    before: str = ""
    after: str = ""


def parse_summary(message: Message) -> Summary | None:
    """Return the summary in a message, or None. A tool result never contains a summary."""
    content = message.get("content")
    if isinstance(content, str) and _MARK_WORD not in content:
        return None
    text, before = chat_messages.get_text(message).lstrip(), ""
    if _PRIOR_END in text:
        before, _, text = text.partition(_PRIOR_END)
        before, text = before.removeprefix(_PRIOR_START).strip(), text.lstrip()
    body = _strip_start_mark(text)
    if body is None or chat_messages.list_results(message):
        return None
    body, _, after = body.partition(SUMMARY_END)
    return Summary(body.strip(), before, after.strip())


def is_summary(message: Message) -> bool:
    """Return True if a message is only a summary, or the note next to a summary."""
    if message.get("content") == SUMMARY_NOTE:
        return True
    summary = parse_summary(message)
    if summary is None or summary.before or summary.after:
        return False
    return not (chat_messages.list_calls(message) or chat_messages.count_images(message))


def find_possible_summaries(messages: Iterable[Message]) -> list[int]:
    """Return the indexes of messages that may be summaries or notes, by a quick check."""
    contents = [message.get("content") for message in messages]
    return [
        place
        for place, content in enumerate(contents)
        if not isinstance(content, str) or _MARK_WORD in content or content == SUMMARY_NOTE
    ]


def list_summaries(messages: Iterable[Message]) -> list[str]:
    """Return the summaries in a range, oldest first.

    They are updated, not summarized again.
    """
    summaries = (parse_summary(message) for message in messages)
    return [summary.text for summary in summaries if summary is not None and summary.text]


def find_fault(text: str) -> Fault | None:
    """Return the fault that makes a text unusable as a summary, or None."""
    if not clean_summary(text):
        return "empty_summary"
    return "redacted_summary" if find_redaction_mark(text) else None


def find_redaction_mark(text: str) -> str | None:
    """Return the first redaction mark in a text."""
    match = _REDACTION_PATTERN.search(text)
    return match.group() if match else None


def clean_summary(text: str) -> str:
    """Return a summary without summary marks, which a model may repeat."""
    summary = parse_summary({"content": text})
    if summary is not None:
        text = "\n\n".join(filter(None, (summary.before, summary.text, summary.after)))
    return remove_marks(text)


def remove_marks(text: str) -> str:
    """Return a text without the marks of a summary."""
    # Repeated, since the removal of one mark may join the halves of another.
    while _MARK_WORD in text and any(mark in text for mark in _MARKS):
        for mark in _MARKS:
            text = text.replace(mark, "")
    return text.strip()


def build_messages(text: str, before: Turn | None, after: Turn | None) -> list[dict[str, Any]]:
    """Return the one or two messages that hold a summary between two turns.

    The first message of a conversation is from the user, and neighbours never have the same role.
    Tool results count as a user turn, as in the Anthropic API.
    """
    content = f"{SUMMARY_PREFIX}\n{clean_summary(text)}\n\n{SUMMARY_END}"
    return [
        {"role": role, "content": content if has_summary else SUMMARY_NOTE}
        for role, has_summary in _ROLES_BY_NEIGHBOURS[_get_role(before), _get_role(after)]
    ]


_ROLES_BY_NEIGHBOURS: dict[tuple[Role | None, Role | None], tuple[tuple[Role, bool], ...]] = {
    (None, None): (("user", True),),
    (None, "user"): (("user", True), ("assistant", False)),
    (None, "assistant"): (("user", True),),
    ("user", None): (("assistant", True),),
    ("user", "user"): (("assistant", True),),
    ("user", "assistant"): (("assistant", False), ("user", True)),
    ("assistant", None): (("user", True),),
    ("assistant", "user"): (("user", True), ("assistant", False)),
    ("assistant", "assistant"): (("user", True),),
}


def _get_role(turn: Turn | None) -> Role | None:
    if turn in ("user", "tool"):
        return "user"
    return "assistant" if turn == "assistant" else None


def _strip_start_mark(text: str) -> str | None:
    if text.startswith(SUMMARY_PREFIX):
        return text[len(SUMMARY_PREFIX) :]
    if text.startswith(_LONG_PREFIXES):
        # Hermes instructs its model in the rest of that line, in words that differ by release.
        first, line, rest = text.partition("\n")
        return rest if line else first.partition("]")[2]
    return None
