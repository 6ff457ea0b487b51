"""How much fits: the size of an answer is the length of its text half."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pydantic_core import to_json

from session_core import InvalidInput

T = TypeVar("T")

DEFAULT = 20_000
LEAST = 1_000
MOST = 40_000

_ENOUGH = 40
"""Fewer characters than that of a text are not worth a page."""


def render(data: Any) -> str:
    """Return the text half of an answer: compact JSON, every script as it is."""
    return to_json(data).decode()


def size(data: Any) -> int:
    """Return how many characters something takes in an answer."""
    return len(render(data))


def fit(
    fetch: Callable[[int], dict[str, Any]], rows: str, limit: int, room: int = DEFAULT
) -> dict[str, Any]:
    """Return the longest answer that fits, asked for again with fewer rows where it does not.

    Raises:
        InvalidInput: not even one row does, behind which nobody could go on.
    """
    answer = fetch(limit)
    while size(answer) > room and len(answer[rows]) > 1:
        beside = size(answer) - size(answer[rows])
        answer = fetch(max(len(first(answer[rows][:-1], room - beside)), 1))
    if size(answer) > room:
        raise InvalidInput(
            f"one of the {rows} and the cursor behind it take {size(answer):,} characters, and an "
            f"answer has {room:,}; ask with shorter arguments"
        )
    return answer


def first(rows: Sequence[T], room: int) -> list[T]:
    """Return as many of the first rows as fit."""
    left = room - 2
    for count, row in enumerate(rows):
        left -= size(row) + 1
        if left < 0:
            return list(rows[:count])
    return list(rows)


def cut(text: str, room: int) -> str:
    """Return the beginning of a text that takes at most so many characters in an answer."""
    if size(text) - 2 <= room:
        return text
    low, high = 0, min(len(text), max(room, 0))
    while low < high:
        middle = (low + high + 1) // 2
        if size(text[:middle]) - 2 <= room:
            low = middle
        else:
            high = middle - 1
    return text[: max(low, min(_ENOUGH, len(text)))]
