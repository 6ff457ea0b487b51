"""Widths of text in terminal columns: measuring, cutting and wrapping."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.cells import cell_len, chop_cells, set_cell_size

ELLIPSIS = "…"

_LEAST_ROOM = 8
"""The narrowest column that text is wrapped to."""

# Scripts without blanks between words: each character may begin a line.
_UNSPACED = (
    "\u2e80-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uff60"
    "\U00020000-\U0003fffd"
)
_TOKEN_PATTERN = re.compile(rf"\s*(?:[{_UNSPACED}]|[^\s{_UNSPACED}]+)")
_BREAK_PATTERN = re.compile(r".*[/\\_.,:;=&?-]")
"""The part of a long word after which it may be broken, such as a folder of a path."""


def measure_width(text: str) -> int:
    """Return the width of a text in terminal columns."""
    return cell_len(text)


def truncate_text(text: str, room: int) -> str:
    """Return the text, cut to the width with an ellipsis."""
    if cell_len(text) <= room:
        return text
    return set_cell_size(text, max(room - 1, 0)).rstrip() + ELLIPSIS


def wrap_line(line: str, room: int) -> list[str]:
    """Return the lines of a text, wrapped between words.

    The text has no line ends. A word is broken only if it does not fit on a line of its own.
    """
    room = max(room, _LEAST_ROOM)
    lines, current, width = [], "", 0
    for match in _TOKEN_PATTERN.finditer(line.expandtabs()):
        token = match[0]
        if current and width + cell_len(token) > room:
            lines.append(current)
            token, current, width = token.lstrip(), "", 0
        while cell_len(token) > room:
            head = _take_beginning(token, room)
            lines.append(head)
            token = token[len(head) :]
        current += token
        width += cell_len(token)
    return [*lines, current]


def wrap_text(text: str, room: int) -> Iterator[str]:
    """Yield the wrapped lines of each line of a text."""
    for line in text.split("\n"):
        yield from wrap_line(line.rstrip(), room)


def split_first_line(text: str, room: int) -> tuple[str, str]:
    """Return the words of a text that fit on the first line, and the rest."""
    first = wrap_line(text, room)[0]
    return first, text[len(first) :].lstrip()


def _take_beginning(word: str, room: int) -> str:
    """Return the beginning of a word that fits, up to a mark between its parts if it has one."""
    head: str = chop_cells(word, room)[0]
    at_mark = _BREAK_PATTERN.match(head)
    return at_mark[0] if at_mark and cell_len(at_mark[0]) > room // 2 else head
