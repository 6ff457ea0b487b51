"""Which range of a conversation may be summarised, or why none.

Never between a call and its results. The last message of the user and that of the assistant are
never in it, nor the protected beginning and end. Behind a summary of ours there is nothing to do
until something was said that is not protected: running it twice is the same as once.

In which of the two shapes a session may be compressed, given who else is there.
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
from session_core.routing.store import SessionStore
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
    """What is protected, and from how many tokens on a conversation is compressed.

    The end that is kept weighs `tail_tokens`; up to eight of `protect_last` messages are kept
    whatever they weigh. `keep_last` is a number of messages instead of both.
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
            raise InvalidInput("limits are counts: context_tokens from 1, the others from 0")
        if not (0 < self.threshold <= 1 and 0 < self.target_ratio <= 1):
            raise InvalidInput("threshold and target_ratio lie between 0 and 1")

    @property
    def threshold_tokens(self) -> int:
        """From how many tokens on a conversation is compressed."""
        window = self.context_tokens - self.max_tokens
        if window <= 0:
            window = self.context_tokens
        small = self.context_tokens < _SMALL_CONTEXT_TOKENS
        share = max(self.threshold, _SMALL_CONTEXT_THRESHOLD) if small else self.threshold
        wanted = max(int(window * share), _MIN_THRESHOLD_TOKENS)
        if wanted < window:
            return wanted
        return max(1, int(window * _TINY_CONTEXT_THRESHOLD))

    @property
    def tail_tokens(self) -> int:
        """How much of the end is kept as it is."""
        return int(self.threshold_tokens * self.target_ratio)

    def summary_tokens(self, range_tokens: int) -> int:
        """Return how long the summary of a range may be: never over half of it."""
        least, most = _SUMMARY_TOKENS_RANGE
        wanted = min(max(int(range_tokens * _SUMMARY_RATIO), least), most)
        return min(wanted, int(self.context_tokens * _SUMMARY_CONTEXT_SHARE), range_tokens // 2)


@dataclass(frozen=True, slots=True)
class MessageRange:
    """`messages[start:end]` may be summarised; it weighs `tokens` of the `total`."""

    start: int
    end: int
    tokens: int
    total: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing is done: a code, and a reason for a person."""

    code: str
    reason: str


def choose_range(
    messages: Sequence[Message],
    limits: CompressionLimits | None = None,
    estimate: TokenEstimator = chat_messages.estimate_tokens,
) -> MessageRange | Refusal:
    """Return the range that may be summarised, or why there is none."""
    limits = limits or CompressionLimits()
    outline = _Outline(messages, estimate)
    end = outline.find_cut_before(_find_tail_start(outline, limits))
    start = outline.find_cut_after(_find_head_end(outline, limits, end))
    if outline.weigh_without_summaries(outline.find_summary_end(0, end), end) <= outline.least:
        return Refusal(
            "nothing_to_win", _NOTHING_NEW_REASON if outline.summaries else _ALL_PROTECTED_REASON
        )
    start, end = _exclude_anchors(outline, limits, start, end)
    if start >= end:
        return Refusal("nothing_to_win", _ALL_PROTECTED_REASON)
    if outline.weigh_without_summaries(outline.find_summary_end(start, end), end) <= outline.least:
        return Refusal("nothing_to_win", _TOO_LIGHT_REASON)
    weights = outline.weights
    return MessageRange(start, end, weights[end] - weights[start], weights[-1])


def list_cuts(messages: Sequence[Message]) -> list[bool]:
    """Return for each place, from before the first to behind the last, whether one may cut there.

    A result belongs to the nearest call before it with its id, however late it comes, and results
    right behind a call belong to it whatever their ids.
    """
    return _find_cuts(messages, [chat_messages.get_turn(message) for message in messages])


def _find_cuts(messages: Sequence[Message], turns: Sequence[Turn]) -> list[bool]:
    crossing = [0] * (len(messages) + 2)
    called: dict[str, int] = {}
    block: int | None = None
    for index, (message, turn) in enumerate(zip(messages, turns, strict=True)):
        answered = chat_messages.list_result_ids(message)
        since = [called[it] for it in answered if it in called]
        if answered and block is not None:
            since.append(block)
        if since:
            crossing[min(since) + 1] += 1
            crossing[index + 1] -= 1
        if turn == "assistant":
            found = chat_messages.list_call_ids(message)
            for ids in found:
                called.update(dict.fromkeys(ids, index))
            block = index if found else None
        elif turn in ("user", "system"):
            block = None
    return [open_spans == 0 for open_spans in accumulate(crossing[:-1])]


_NOTHING_NEW_REASON = "since the last summary nothing was said that is not protected"
_ALL_PROTECTED_REASON = "all of it is protected: the beginning, the end, or a call with its results"
_TOO_LIGHT_REASON = "what is left to summarise is no longer than a summary of it"


class _Outline:
    """What boundaries depend on, found once for each message."""

    __slots__ = ("_fresh", "cuts", "least", "size", "summaries", "turns", "weights", "whole")

    def __init__(self, messages: Sequence[Message], estimate: TokenEstimator) -> None:
        self.size = len(messages)
        self.turns: list[Turn] = [chat_messages.get_turn(message) for message in messages]
        self.cuts = _find_cuts(messages, self.turns)
        near = summary_message.find_possible_summaries(messages)
        # A message may hold a summary beside its own words; only one that is nothing else is old.
        self.whole = frozenset(i for i in near if summary_message.is_summary(messages[i]))
        self.summaries = [i for i in near if summary_message.parse_summary(messages[i])]
        each = [estimate(message) for message in messages]
        self.weights = [0, *accumulate(each)]
        for old in self.whole:
            each[old] = 0
        self._fresh = [0, *accumulate(each)]
        self.least = sum(map(estimate, summary_message.build_messages(".", None, "user")))

    def weigh_without_summaries(self, start: int, end: int) -> int:
        """Return what a range weighs without the summaries in it."""
        return self._fresh[end] - self._fresh[start]

    def find_summary_end(self, start: int, end: int) -> int:
        """Return the place behind the last summary of a range, or its start."""
        return max((i + 1 for i in self.whole if start <= i < end), default=start)

    def find_cut_before(self, index: int) -> int:
        """Return the last place at or before `index` where one may cut."""
        return next(i for i in range(index, -1, -1) if self.cuts[i])

    def find_cut_after(self, index: int) -> int:
        """Return the first place at or behind `index` where one may cut."""
        return next(i for i in range(index, self.size + 1) if self.cuts[i])

    def find_last_message(self, turn: Turn, end: int) -> int | None:
        """Return the last message of that turn which is no summary, where it is before `end`."""
        at = range(self.size - 1, -1, -1)
        found = next((i for i in at if self.turns[i] == turn and i not in self.whole), end)
        return found if found < end else None


def _find_tail_start(outline: _Outline, limits: CompressionLimits) -> int:
    """Return where the end begins that is kept: behind the last summary at the earliest."""
    size = outline.size
    first = outline.find_summary_end(0, size)
    if limits.keep_last is not None:
        return max(size - limits.keep_last, first)
    least = min(limits.protect_last, _MIN_TAIL_MESSAGES)
    budget, most = limits.tail_tokens, int(limits.tail_tokens * _TAIL_OVERSHOOT)
    for start in range(size, first, -1):
        kept = outline.weights[size] - outline.weights[start]
        more = outline.weights[size] - outline.weights[start - 1]
        if size - start >= least and (kept >= budget or more > most):
            return start
    return first


def _find_head_end(outline: _Outline, limits: CompressionLimits, end: int) -> int:
    """Return where the beginning ends that is kept: once there is a summary, it says the rest."""
    lead = next(
        (i for i, turn in enumerate(outline.turns) if turn not in ("system", "other")),
        outline.size,
    )
    if any(index < end for index in outline.summaries):
        return lead
    return min(lead + limits.protect_first, outline.size)


def _exclude_anchors(
    outline: _Outline, limits: CompressionLimits, start: int, end: int
) -> tuple[int, int]:
    """Leave the last messages of user and assistant out: the range is before or behind them.

    Behind them where that is worth it, since a long run of tools after one request must not grow
    for ever. Which of the two must not depend on what is before them, so that it stays the same
    when that has become a summary.
    """
    found = (outline.find_last_message("user", end), outline.find_last_message("assistant", end))
    inside = [index for index in found if index is not None and start <= index]
    if not inside:
        return start, end
    before = outline.find_cut_before(min(inside))
    behind = outline.find_cut_after(max(inside) + 1)
    if before <= start or outline.weigh_without_summaries(behind, end) >= limits.tail_tokens:
        return behind, end
    return start, before


Shape = Literal["in_place", "continuation"]
RequestedShape = Literal["auto", "in_place", "continuation"]

MAX_LOCK_S = 0.5
"""In place only where the write lock is held for less than this, by estimate."""

_SECONDS_PER_ROW = {"hermes": 0.00017, "own": 0.00003}
"""What a flagged or added row costs; the triggers of Hermes index it twice."""


def check_shape(wanted: str) -> None:
    """Make sure that this is a shape.

    Raises:
        InvalidInput: it is none.
    """
    if wanted not in get_args(RequestedShape):
        raise InvalidInput(f"shape is {wanted!r}; one of {', '.join(get_args(RequestedShape))}")


def choose_shape(
    db: StateDatabase,
    row: SessionRow,
    rows: list[MessageRow],
    part: tuple[int, int],
    *,
    wanted: RequestedShape,
    routed: bool,
    now: float,
) -> Shape | Refusal:
    """Return the shape in which `rows[start:end]` may be compressed, or why in none."""
    touched = len(rows) - part[0] + len(rows) - part[1]
    fits = touched * _SECONDS_PER_ROW.get(db.kind, _SECONDS_PER_ROW["hermes"]) < MAX_LOCK_S
    possible = fits and "compacted" in rows[0]
    if possible and wanted != "continuation":
        return "in_place"
    if wanted == "in_place":
        large = f"{_explain_too_large(touched)}: use continuation, or keep less with keep_last"
        return Refusal("too_large", large if "compacted" in rows[0] else _OLD_HOME_REASON)
    if row.get("source") == "tool":
        return Refusal("tool", _NO_CONTINUATION_REASON)
    at_work = find_activity(db, row, get_last_timestamp(rows), routed=routed, now=now)
    if at_work is None:
        return "continuation"
    if wanted == "continuation" and possible:
        return Refusal("live", f"{at_work}; it would go on in the ended session: use in_place")
    no_room = f", and {_explain_too_large(touched)}" if "compacted" in rows[0] else ""
    return Refusal("live", f"{at_work}{no_room}: stop it, then try again")


def find_activity(
    db: StateDatabase, row: SessionRow, active_at: Any, *, routed: bool, now: float
) -> str | None:
    """Return who may be at work in a session just now, if anybody."""
    return activity.load_home_activity(db, now).describe_active_user(
        row["id"], active_at, routed=routed
    )


def get_last_timestamp(rows: list[MessageRow]) -> float | None:
    """Return the time of the last message that has one."""
    times = (processes.parse_number(row["timestamp"]) for row in reversed(rows))
    return next((time for time in times if time is not None), None)


def find_route(store: SessionStore | None, row: SessionRow) -> str | None:
    """Return the key of the chat that is in a session."""
    if store is None:
        return None
    key = row.get("session_key")
    entry = store.get(key) if key else None
    if entry is None or entry.session_id != row["id"]:
        entry = store.lookup_by_session_id(row["id"])
    return None if entry is None else entry.session_key


_NO_CONTINUATION_REASON = (
    "nobody would take another session for what continues one of a tool: use in_place"
)

_OLD_HOME_REASON = "this home is older than compression in place: use continuation"


def _explain_too_large(rows: int) -> str:
    return f"in place it would hold the write lock over {rows:,} rows, for half a second or more"
