"""Fit answers into their size limit, which counts the characters of their JSON text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pydantic_core import to_json

from session_core import InvalidInput

T = TypeVar("T")

DEFAULT_CHARS = 20_000
MIN_CHARS = 1_000
MAX_CHARS = 40_000

# A shorter piece of a text is not worth a page.
_MIN_CUT_CHARS = 40


def render_json(data: Any) -> str:
    """Return data as compact JSON without escaping other scripts."""
    return to_json(data).decode()


def count_chars(data: Any) -> int:
    """Return the number of characters that data takes in an answer."""
    return len(render_json(data))


def fit_answer(
    fetch: Callable[[int], dict[str, Any]], rows: str, limit: int, room: int = DEFAULT_CHARS
) -> dict[str, Any]:
    """Return the longest answer that fits, fetched again with fewer rows if necessary.

    Raises:
        InvalidInput: a single row does not fit.
    """
    answer = fetch(limit)
    while count_chars(answer) > room and len(answer[rows]) > 1:
        other_chars = count_chars(answer) - count_chars(answer[rows])
        answer = fetch(max(len(take_fitting_rows(answer[rows][:-1], room - other_chars)), 1))
    if count_chars(answer) > room:
        raise InvalidInput(
            f"one row of {rows} with its cursor takes {count_chars(answer):,} characters, "
            f"more than the limit of {room:,}; pass shorter arguments"
        )
    return answer


def take_fitting_rows(rows: Sequence[T], room: int) -> list[T]:
    """Return the first rows that fit."""
    remaining = room - 2
    for count, row in enumerate(rows):
        remaining -= count_chars(row) + 1
        if remaining < 0:
            return list(rows[:count])
    return list(rows)


def cut_text(text: str, room: int) -> str:
    """Return the longest beginning of a text that takes at most `room` characters in an answer."""
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
