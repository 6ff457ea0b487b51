"""How much fits: the size of an answer is the length of its text half."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pydantic_core import to_json

from session_core import InvalidInput

T = TypeVar("T")

DEFAULT_CHARS = 20_000
MIN_CHARS = 1_000
MAX_CHARS = 40_000

_MIN_CUT_CHARS = 40
"""Fewer characters than that of a text are not worth a page."""


def render_json(data: Any) -> str:
    """Return the text half of an answer: compact JSON, every script as it is."""
    return to_json(data).decode()


def count_chars(data: Any) -> int:
    """Return how many characters something takes in an answer."""
    return len(render_json(data))


def fit_answer(
    fetch: Callable[[int], dict[str, Any]], rows: str, limit: int, room: int = DEFAULT_CHARS
) -> dict[str, Any]:
    """Return the longest answer that fits, asked for again with fewer rows where it does not.

    Raises:
        InvalidInput: not even one row does, behind which nobody could go on.
    """
    answer = fetch(limit)
    while count_chars(answer) > room and len(answer[rows]) > 1:
        beside = count_chars(answer) - count_chars(answer[rows])
        answer = fetch(max(len(take_fitting_rows(answer[rows][:-1], room - beside)), 1))
    if count_chars(answer) > room:
        raise InvalidInput(
            f"one of the {rows} and the cursor behind it take {count_chars(answer):,} "
            "characters, and an "
            f"answer has {room:,}; ask with shorter arguments"
        )
    return answer


def take_fitting_rows(rows: Sequence[T], room: int) -> list[T]:
    """Return as many of the first rows as fit."""
    left = room - 2
    for count, row in enumerate(rows):
        left -= count_chars(row) + 1
        if left < 0:
            return list(rows[:count])
    return list(rows)


def cut_text(text: str, room: int) -> str:
    """Return the beginning of a text that takes at most so many characters in an answer."""
    if count_chars(text) - 2 <= room:
        return text
    low, high = 0, min(len(text), max(room, 0))
    while low < high:
        middle = (low + high + 1) // 2
        if count_chars(text[:middle]) - 2 <= room:
            low = middle
        else:
            high = middle - 1
    return text[: max(low, min(_MIN_CUT_CHARS, len(text)))]
