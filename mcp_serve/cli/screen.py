"""Plain text fitted to a terminal; styles only if the stream is a terminal."""

from __future__ import annotations

import os
import unicodedata
from typing import TextIO

from mcp_serve.cli.output import clean_text

DEFAULT_WIDTH = 80
"""The width for a file or a pipe."""

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"
_MIN_WIDTH = 8
_TIME_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))


class Screen:
    """A writer of lines that fit the stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._styled = stream.isatty() and not os.environ.get("NO_COLOR")
        self.width = _find_stream_width(stream)

    def write_line(self, text: str = "") -> None:
        """Write one line, cut to the width."""
        self._write_raw(truncate_text(clean_text(text), self.width).rstrip())

    def write_uncut(self, text: str) -> None:
        """Write one line without cutting it, for paths and commands."""
        self._write_raw(clean_text(text))

    def write_secret(self, text: str) -> None:
        """Write one line without redaction, for a token that the user needs."""
        self._write_raw(text)

    def write_dim(self, text: str) -> None:
        """Write one dim line, cut to the width."""
        self._write_raw(self._style_text(DIM, truncate_text(clean_text(text), self.width)))

    def write_heading(self, text: str, right: str = "") -> None:
        """Write an empty line and a bold title, with a text at the right margin."""
        self.write_line()
        self.write_both_sides(text, right, style=BOLD)

    def write_both_sides(self, left: str, right: str, *, style: str = "") -> None:
        """Write a wrapped text at the left and a short one at the right margin."""
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
        """Write a wrapped text next to its head, in at most `lines` lines."""
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
        columns = os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 0
    except (OSError, ValueError):
        columns = 0
    return columns or DEFAULT_WIDTH


def measure_width(text: str) -> int:
    """Return the width of a text in terminal columns."""
    return sum(_measure_char(char) for char in text)


def truncate_text(text: str, room: int) -> str:
    """Return the text, cut to the width with three dots."""
    if measure_width(text) <= room:
        return text
    return _take_columns(text, room - 3).rstrip() + "..."


def format_elapsed(seconds: float) -> str:
    """Return an age as text, such as `3 d`."""
    for size, unit in _TIME_UNITS:
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return "now"


def format_remaining(seconds: float) -> str:
    """Return a remaining time as text, rounded to the nearest unit."""
    unit = next((size for size, _ in _TIME_UNITS if seconds >= size), 0)
    return format_elapsed(seconds + unit / 2)


def format_milliseconds(seconds: float) -> str:
    """Return a duration in milliseconds as text."""
    return f"{seconds * 1000:,.1f} ms"


def _take_whole_words(text: str, room: int) -> str:
    """Return the part that fits; break at a space if the next word fits on a line."""
    head = _take_columns(text, room)
    before, space, _ = head.rpartition(" ")
    word = text[len(before) + 1 :].partition(" ")[0]
    return before if head != text and space and measure_width(word) <= room else head


def _take_columns(text: str, room: int) -> str:
    width = 0
    for at, char in enumerate(text):
        width += _measure_char(char)
        if width > room:
            return text[:at]
    return text


def _measure_char(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
