"""Plain text that fits a terminal, in any script; bold, dim and colours only where it is one."""

from __future__ import annotations

import os
import unicodedata
from typing import TextIO

from mcp_serve.cli.output import clean_text

DEFAULT_WIDTH = 80
"""How wide a page is that goes into a file or a pipe."""

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"
_MIN_WIDTH = 8
_TIME_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))


class Screen:
    """Writes lines that fit."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._styled = stream.isatty() and not os.environ.get("NO_COLOR")
        self.width = _find_stream_width(stream)

    def write_line(self, text: str = "") -> None:
        """Write one line, cut where it would not fit."""
        self._write_raw(truncate_text(clean_text(text), self.width).rstrip())

    def write_uncut(self, text: str) -> None:
        """Write one line, however long: a path must not be cut."""
        self._write_raw(clean_text(text))

    def write_secret(self, text: str) -> None:
        """Write one line with a secret that is handed out here, which is left in it."""
        self._write_raw(text)

    def write_dim(self, text: str) -> None:
        """Write one line of less weight."""
        self._write_raw(self._style_text(DIM, truncate_text(clean_text(text), self.width)))

    def write_heading(self, text: str, right: str = "") -> None:
        """Begin a part: an empty line, a bold title, something at the right margin."""
        self.write_line()
        self.write_both_sides(text, right, style=BOLD)

    def write_both_sides(self, left: str, right: str, *, style: str = "") -> None:
        """Write a text at the left, in as many lines as it takes, and one at the right margin."""
        left, right = clean_text(left), clean_text(right)
        first = _take_whole_words(left, max(self.width - len(right) - 2, _MIN_WIDTH))
        gap = " " * (self.width - measure_width(first) - len(right))
        self._write_raw(
            (self._style_text(style, first) + gap + self._style_text(DIM, right)).rstrip()
        )
        rest = left[len(first) :].lstrip()
        if rest:
            self.write_block("  ", rest, style=style)

    def write_block(
        self, head: str, text: str, *, lines: int | None = None, style: str = ""
    ) -> None:
        """Write a text beside its head, in as many lines as it takes, or in at most so many."""
        head, rest = clean_text(head), clean_text(" ".join(text.split()))
        room = max(self.width - measure_width(head), _MIN_WIDTH)
        before = self._style_text(style, head)
        while lines != 1:
            part = _take_whole_words(rest, room)
            self._write_raw((before + part).rstrip())
            before, rest = " " * measure_width(head), rest[len(part) :].lstrip()
            lines = None if lines is None else lines - 1
            if not rest:
                return
        self._write_raw((before + truncate_text(rest, room)).rstrip())

    def _style_text(self, code: str, text: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self._styled and code and text else text

    def _write_raw(self, text: str) -> None:
        self._stream.write(text + "\n")


def _find_stream_width(stream: TextIO) -> int:
    try:
        asked = os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 0
    except (OSError, ValueError):
        asked = 0
    return asked or DEFAULT_WIDTH


def measure_width(text: str) -> int:
    """Return how many columns a text takes in a terminal."""
    return sum(_measure_char(char) for char in text)


def truncate_text(text: str, room: int) -> str:
    """Return the text, or as much of it as fits, with three dots."""
    if measure_width(text) <= room:
        return text
    return _take_columns(text, room - 3).rstrip() + "..."


def format_elapsed(seconds: float) -> str:
    """Return a short word for how long ago something was."""
    for size, unit in _TIME_UNITS:
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return "now"


def format_remaining(seconds: float) -> str:
    """Return a short word for in how long something is: to the nearest unit, as 30 days are."""
    unit = next((size for size, _ in _TIME_UNITS if seconds >= size), 0)
    return format_elapsed(seconds + unit / 2)


def format_milliseconds(seconds: float) -> str:
    """Return how long something took, as it stands at the right margin."""
    return f"{seconds * 1000:,.1f} ms"


def _take_whole_words(text: str, room: int) -> str:
    """Return what fits, up to the last space where the word behind that fits into a line."""
    head = _take_columns(text, room)
    before, space, _ = head.rpartition(" ")
    word = text[len(before) + 1 :].partition(" ")[0]
    return before if head != text and space and measure_width(word) <= room else head


def _take_columns(text: str, room: int) -> str:
    taken = 0
    for at, char in enumerate(text):
        taken += _measure_char(char)
        if taken > room:
            return text[:at]
    return text


def _measure_char(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
