"""The range of a conversation to summarize, and the shape of its compression.

A range never separates a call from its results, and never contains the last user message, the last
assistant message, or the protected beginning and end. After a summary there is no range until
unprotected messages were added, so that a second compression changes nothing.

The shape depends on the size of the session and on the agents that may be using it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, get_args

from session_core import activity, processes
from session_core.compression import chat_messages, summary_message
from session_core.compression.chat_messages import Message, TokenEstimator, Turn
from session_core.errors import InvalidInput
from session_core.routing.session_store import SessionStore
from session_core.state.protocol import StateDatabase
from session_core.types import MessageRow, SessionRow

_MIN_THRESHOLD_TOKENS = 64_000
_SMALL_CONTEXT_TOKENS = 512_000
_SMALL_CONTEXT_THRESHOLD = 0.75
_TINY_CONTEXT_THRESHOLD = 0.85
_TAIL_OVERSHOOT = 1.5
_MIN_TAIL_MESSAGES = 8
_SUMMARY_RATIO = 0.20
_SUMMARY_CONTEXT_SHARE = 0.05
_SUMMARY_TOKENS_RANGE = (2_000, 10_000)


@dataclass(frozen=True, slots=True)
class CompressionLimits:
    """The protected messages, and the size from which a conversation is compressed.

    The protected end has about `tail_tokens`, and at least the smaller of `protect_last` and eight
    messages. `keep_last` replaces both with a number of messages.
    """

    context_tokens: int = 200_000
    threshold: float = 0.50
    max_tokens: int = 0
    target_ratio: float = 0.20
    protect_first: int = 3
    protect_last: int = 20
    keep_last: int | None = None

    def __post_init__(self) -> None:
        counts = (self.max_tokens, self.protect_first, self.protect_last, self.keep_last or 0)
        numbers = all(isinstance(count, int) for count in (self.context_tokens, *counts))
        if not numbers or self.context_tokens < 1 or min(counts) < 0:
            raise InvalidInput("context_tokens must be an integer >= 1, and other limits >= 0")
        if not (0 < self.threshold <= 1 and 0 < self.target_ratio <= 1):
            raise InvalidInput("threshold and target_ratio must be above 0 and at most 1")

    @property
    def threshold_tokens(self) -> int:
        """The number of tokens from which a conversation is compressed."""
        window = self.context_tokens - self.max_tokens
        if window <= 0:
            window = self.context_tokens
        small = self.context_tokens < _SMALL_CONTEXT_TOKENS
        share = max(self.threshold, _SMALL_CONTEXT_THRESHOLD) if small else self.threshold
        threshold = max(int(window * share), _MIN_THRESHOLD_TOKENS)
        if threshold < window:
            return threshold
        return max(1, int(window * _TINY_CONTEXT_THRESHOLD))

    @property
    def tail_tokens(self) -> int:
        """The number of tokens of the protected end."""
        return int(self.threshold_tokens * self.target_ratio)

    def summary_tokens(self, range_tokens: int) -> int:
        """Return the maximum length of the summary of a range, at most half of the range."""
        least, most = _SUMMARY_TOKENS_RANGE
        tokens = min(max(int(range_tokens * _SUMMARY_RATIO), least), most)
        return min(tokens, int(self.context_tokens * _SUMMARY_CONTEXT_SHARE), range_tokens // 2)


@dataclass(frozen=True, slots=True)
class MessageRange:
    """A range `messages[start:end]` to summarize, with `tokens` of the `total` tokens."""

    start: int
    end: int
    tokens: int
    total: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """A code and a text for the user that explain why nothing is done."""

    code: str
    reason: str


def choose_range(
    messages: Sequence[Message],
    limits: CompressionLimits | None = None,
    estimate: TokenEstimator = chat_messages.estimate_tokens,
) -> MessageRange | Refusal:
    """Return the range to summarize, or the reason for a refusal."""
    limits = limits or CompressionLimits()
    outline = _Outline(messages, estimate)
    end = outline.find_cut_before(_find_tail_start(outline, limits))
    start = outline.find_cut_after(_find_head_end(outline, limits, end))
    if outline.count_new_tokens(outline.find_summary_end(0, end), end) <= outline.least:
        return Refusal(
            "nothing_to_win", _NOTHING_NEW_REASON if outline.summaries else _ALL_PROTECTED_REASON
        )
    start, end = _exclude_last_messages(outline, limits, start, end)
    if start >= end:
        return Refusal("nothing_to_win", _ALL_PROTECTED_REASON)
    # A range before the last summary would become a second summary.
    begin = max(start, outline.find_summary_end(0, outline.size))
    if begin >= end or outline.count_new_tokens(begin, end) <= outline.least:
        return Refusal("nothing_to_win", _TOO_LIGHT_REASON)
    weights = outline.weights
    return MessageRange(start, end, weights[end] - weights[start], weights[-1])


def list_cuts(messages: Sequence[Message]) -> list[bool]:
    """Return for each position, from 0 to the number of messages, whether a range may begin there.

    A result belongs to the nearest earlier call with its id, at any distance. Results directly
    after a call belong to that call, with any id.
    """
    return _find_cuts(messages, [chat_messages.get_turn(message) for message in messages])


def _find_cuts(messages: Sequence[Message], turns: Sequence[Turn]) -> list[bool]:
    # Differences: their running sum is the number of pairs that a cut at a position separates.
    crossing = [0] * (len(messages) + 2)
    index_by_id: dict[str, int] = {}
    last_call: int | None = None
    for index, (message, turn) in enumerate(zip(messages, turns, strict=True)):
        result_ids = chat_messages.list_result_ids(message)
        call_indexes = [index_by_id[call_id] for call_id in result_ids if call_id in index_by_id]
        if result_ids and last_call is not None:
            call_indexes.append(last_call)
        if call_indexes:
            crossing[min(call_indexes) + 1] += 1
            crossing[index + 1] -= 1
        if turn == "assistant":
            call_ids = chat_messages.list_call_ids(message)
            for ids in call_ids:
                index_by_id.update(dict.fromkeys(ids, index))
            last_call = index if call_ids else None
        elif turn in ("user", "system"):
            last_call = None
    return [open_spans == 0 for open_spans in accumulate(crossing[:-1])]


_NOTHING_NEW_REASON = "there are no unprotected messages after the last summary"
_ALL_PROTECTED_REASON = (
    "all messages are protected: the beginning, the end, or a call with its results"
)
_TOO_LIGHT_REASON = "the unprotected messages are not longer than a summary"


class _Outline:
    """The properties of messages that determine a range, computed once."""

    __slots__ = ("_fresh", "cuts", "least", "size", "summaries", "turns", "weights", "whole")

    def __init__(self, messages: Sequence[Message], estimate: TokenEstimator) -> None:
        self.size = len(messages)
        self.turns: list[Turn] = [chat_messages.get_turn(message) for message in messages]
        self.cuts = _find_cuts(messages, self.turns)
        candidates = summary_message.find_possible_summaries(messages)
        # A message may contain a summary next to its own text; only pure summaries are left out.
        self.whole = frozenset(i for i in candidates if summary_message.is_summary(messages[i]))
        self.summaries = [i for i in candidates if summary_message.parse_summary(messages[i])]
        tokens = [estimate(message) for message in messages]
        self.weights = [0, *accumulate(tokens)]
        for index in self.whole:
            tokens[index] = 0
        self._fresh = [0, *accumulate(tokens)]
        self.least = sum(map(estimate, summary_message.build_messages(".", None, "user")))

    def count_new_tokens(self, start: int, end: int) -> int:
        """Return the number of tokens of a range without the summaries in it."""
        return self._fresh[end] - self._fresh[start]

    def find_summary_end(self, start: int, end: int) -> int:
        """Return the position after the last summary of a range, or its start."""
        return max((i + 1 for i in self.whole if start <= i < end), default=start)

    def find_cut_before(self, index: int) -> int:
        """Return the last possible cut at or before `index`."""
        return next(i for i in range(index, -1, -1) if self.cuts[i])

    def find_cut_after(self, index: int) -> int:
        """Return the first possible cut at or after `index`."""
        return next(i for i in range(index, self.size + 1) if self.cuts[i])

    def find_last_message(self, turn: Turn, end: int) -> int | None:
        """Return the index of the last message of a turn that is not a summary.

        Return None if that message is not before `end`.
        """
        positions = range(self.size - 1, -1, -1)
        index = next((i for i in positions if self.turns[i] == turn and i not in self.whole), end)
        return index if index < end else None


def _find_tail_start(outline: _Outline, limits: CompressionLimits) -> int:
    """Return the start of the protected end, which is after the last summary."""
    size = outline.size
    earliest = outline.find_summary_end(0, size)
    if limits.keep_last is not None:
        return max(size - limits.keep_last, earliest)
    min_messages = min(limits.protect_last, _MIN_TAIL_MESSAGES)
    budget, max_tokens = limits.tail_tokens, int(limits.tail_tokens * _TAIL_OVERSHOOT)
    for start in range(size, earliest, -1):
        kept = outline.weights[size] - outline.weights[start]
        kept_with_next = outline.weights[size] - outline.weights[start - 1]
        if size - start >= min_messages and (kept >= budget or kept_with_next > max_tokens):
            return start
    return earliest


def _find_head_end(outline: _Outline, limits: CompressionLimits, end: int) -> int:
    """Return the end of the protected beginning.

    If there is a summary, only system messages are protected.
    """
    lead = next(
        (i for i, turn in enumerate(outline.turns) if turn not in ("system", "other")),
        outline.size,
    )
    if any(index < end for index in outline.summaries):
        return lead
    return min(lead + limits.protect_first, outline.size)


def _exclude_last_messages(
    outline: _Outline, limits: CompressionLimits, start: int, end: int
) -> tuple[int, int]:
    """Exclude the last user and assistant messages from a range.

    The range ends before them, or begins after them if it is still worth compressing there, because
    otherwise a long run of tools after one request would grow without bound. The choice must not
    depend on the messages before them, so that it stays the same after those have become a summary.
    """
    anchors = (outline.find_last_message("user", end), outline.find_last_message("assistant", end))
    inside = [index for index in anchors if index is not None and start <= index]
    if not inside:
        return start, end
    before = outline.find_cut_before(min(inside))
    after = outline.find_cut_after(max(inside) + 1)
    if before <= start or outline.count_new_tokens(after, end) >= limits.tail_tokens:
        return after, end
    return start, before


Shape = Literal["in_place", "continuation"]
RequestedShape = Literal["auto", "in_place", "continuation"]

MAX_LOCK_S = 0.5
"""Maximum estimated time to hold the write lock for a compression in place."""


def check_shape(shape: str) -> None:
    """Raise `InvalidInput` unless a shape exists.

    Raises:
        InvalidInput: the shape does not exist.
    """
    if shape not in get_args(RequestedShape):
        raise InvalidInput(
            f"shape must be one of {', '.join(get_args(RequestedShape))}, got {shape!r}"
        )


def choose_shape(
    db: StateDatabase,
    row: SessionRow,
    rows: list[MessageRow],
    part: tuple[int, int],
    *,
    requested: RequestedShape,
    routed: bool,
    now: float,
) -> Shape | Refusal:
    """Return the shape in which the range `part` can be compressed, or a refusal."""
    touched_rows = len(rows) - part[0] + len(rows) - part[1]
    fits = touched_rows * db.admin.get_capabilities().flag_s < MAX_LOCK_S
    possible = fits and "compacted" in rows[0]
    if possible and requested != "continuation":
        return "in_place"
    if requested == "in_place":
        reason = (
            f"{_explain_too_large(touched_rows)}: use continuation, or keep less with keep_last"
        )
        return Refusal("too_large", reason if "compacted" in rows[0] else _OLD_HOME_REASON)
    # Hermes never counts the child of such a session as its continuation.
    if row.get("source") == "tool":
        return Refusal("tool", _NO_CONTINUATION_REASON)
    activity_text = describe_active_agent(db, row, get_last_timestamp(rows), routed=routed, now=now)
    if activity_text is None:
        return "continuation"
    if requested == "continuation" and possible:
        return Refusal(
            "live", f"{activity_text}; it would continue in the ended session; use in_place"
        )
    size_reason = f", and {_explain_too_large(touched_rows)}" if "compacted" in rows[0] else ""
    return Refusal("live", f"{activity_text}{size_reason}: stop it, then try again")


def describe_active_agent(
    db: StateDatabase, row: SessionRow, active_at: Any, *, routed: bool, now: float
) -> str | None:
    """Return a description of the agent that may be using a session, or None."""
    return activity.load_home_activity(db, now).describe_active_user(
        row["id"], active_at, routed=routed
    )


def get_last_timestamp(rows: list[MessageRow]) -> float | None:
    """Return the time of the last message that has a time, or None."""
    times = (processes.parse_number(row["timestamp"]) for row in reversed(rows))
    return next((time for time in times if time is not None), None)


def find_chat_key(store: SessionStore | None, row: SessionRow) -> str | None:
    """Return the key of the chat that is in a session, or None."""
    if store is None:
        return None
    key = row.get("session_key")
    # The chat that the row names comes first: the other look-up reads every route.
    entry = store.get(key) if key else None
    if entry is None or entry.session_id != row["id"]:
        entry = store.lookup_by_session_id(row["id"])
    return None if entry is None else entry.session_key


_NO_CONTINUATION_REASON = "a session of a tool cannot be continued in another session; use in_place"

_OLD_HOME_REASON = "this home is older than compression in place; use continuation"


def _explain_too_large(rows: int) -> str:
    return (
        f"in place it would write {rows:,} rows and hold the write lock for half a second or more"
    )
