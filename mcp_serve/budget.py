"""How much fits: the size of an answer is the length of its text half."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

DEFAULT = 20_000
LEAST = 1_000
MOST = 40_000

_ENOUGH = 40
"""Fewer characters than that of a text are not worth a page."""


def render(data: Any) -> str:
    """Return the text half of an answer: compact JSON, every script as it is."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def size(data: Any) -> int:
    """Return how many characters something takes in an answer."""
    return len(render(data))


def fit(
    fetch: Callable[[int], dict[str, Any]], rows: str, limit: int, room: int = DEFAULT
) -> dict[str, Any]:
    """Return the longest answer that fits, asked for again with fewer rows where it does not.

    One row is returned in any case: nobody could go on without it.
    """
    answer = fetch(limit)
    while size(answer) > room and len(answer[rows]) > 1:
        answer = fetch(_fitting(answer[rows], room - (size(answer) - size(answer[rows]))))
    return answer


def _fitting(rows: Sequence[Any], room: int) -> int:
    """Return how many of the rows fit, at least one and always fewer than there are."""
    count, left = 0, room - 2
    for row in rows[:-1]:
        left -= size(row) + 1
        if left < 0:
            break
        count += 1
    return max(count, 1)


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
