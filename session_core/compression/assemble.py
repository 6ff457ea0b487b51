"""The new list of messages: what is before a range, its summary, and what is behind it.

What is kept is kept word for word, results without their call and calls without results included:
those were there before, whoever sends them mends them, and none is made here. A summary that
would not be shorter than what it replaces is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from session_core.compression import boundaries, shapes, summaries, tokens
from session_core.compression.boundaries import Refused
from session_core.compression.shapes import Message, Turn
from session_core.compression.tokens import Estimate
from session_core.errors import InvalidInput

_FAULTS = {
    "empty_summary": "the summary is empty; write one",
    "redacted_summary": "the summary holds the redaction mark {mark}, which would take the place "
    "of a fact: write what it stands for, or say it without the mark",
}


@dataclass(frozen=True, slots=True)
class Assembled:
    """The new list, the one or two new messages in it, and what it weighed and weighs."""

    messages: tuple[Message, ...]
    summary: tuple[dict[str, Any], ...]
    tokens_before: int
    tokens_after: int


def assemble(
    messages: Sequence[Message],
    start: int,
    end: int,
    text: str,
    estimate: Estimate = tokens.estimate,
) -> Assembled | Refused:
    """Return the list in which `text` stands for `messages[start:end]`, or why there is none.

    Raises:
        InvalidInput: that is no range of these messages.
    """
    if not 0 <= start < end <= len(messages):
        raise InvalidInput(f"no range of {len(messages)} messages: {start} to {end}")
    fault = summaries.fault(text)
    if fault is not None:
        return Refused(fault, _FAULTS[fault].format(mark=summaries.redaction(text)))
    may_cut = boundaries.cuts(messages)
    if not (may_cut[start] and may_cut[end]):
        return Refused("split_pair", "the range would part a call from its results; plan it again")
    head, tail = messages[:start], messages[end:]
    summary = summaries.build(text, _nearest(reversed(head)), _nearest(tail))
    replaced, added = _weight(messages[start:end], estimate), _weight(summary, estimate)
    if added >= replaced:
        return Refused(
            "not_smaller", f"the summary weighs {added} tokens, what it would replace {replaced}"
        )
    before = replaced + _weight(head, estimate) + _weight(tail, estimate)
    return Assembled(
        messages=(*head, *summary, *tail),
        summary=tuple(summary),
        tokens_before=before,
        tokens_after=before - replaced + added,
    )


def _nearest(messages: Iterable[Message]) -> Turn | None:
    """Return whose turn is beside the summary; what is nobody's turn does not count."""
    turns = map(shapes.turn, messages)
    return next((turn for turn in turns if turn not in ("system", "other")), None)


def _weight(messages: Iterable[Message], estimate: Estimate) -> int:
    return sum(map(estimate, messages))
