"""What is not said to a model again: memory that was recalled for one call, and reviews.

Hermes has stored both beside the conversation: blocks of recalled memory inside of what was said,
and turns in which the agent was to learn from the conversation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

_TAG = re.compile(r"<(/?)\s*memory-context\s*>", re.IGNORECASE)
_NOTE = re.compile(
    r"\[System note:\s*The following is recalled memory context,\s*NOT new user input\."
    r"\s*Treat as (?:informational background data|authoritative reference data[^\]]*)\.\]\s*",
    re.IGNORECASE,
)
_REVIEWS = tuple(
    f"Review the conversation above and {task}"
    for task in ("update the skill library", "consider saving to memory")
)


def said(text: str) -> str:
    """Return what was said, without the memory that was recalled into it."""
    return _TAG.sub("", _NOTE.sub("", _outside_blocks(text))).strip()


def without_reviews(messages: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Leave out where the agent was told to review the conversation, and what it replied."""
    reviewed = False
    for message in messages:
        is_reply = reviewed and message["role"] == "assistant"
        reviewed = _is_review(message)
        if not reviewed and not is_reply:
            yield message


def _outside_blocks(text: str) -> str:
    """Return a text without its blocks; of several that are open the first one counts."""
    kept: list[str] = []
    end, opened = 0, -1
    for tag in _TAG.finditer(text):
        if not tag[1]:
            opened = tag.start() if opened < 0 else opened
        elif opened >= 0:
            kept.append(text[end:opened])
            end, opened = tag.end(), -1
    return "".join((*kept, text[end:]))


def _is_review(message: dict[str, Any]) -> bool:
    content = message["content"]
    by_others = message["role"] in ("user", "system")
    return by_others and isinstance(content, str) and content.lstrip().startswith(_REVIEWS)
