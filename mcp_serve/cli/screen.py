"""Plain text that fits a terminal, in any script; bold, dim and colours only where it is one."""

from __future__ import annotations

import os
import unicodedata
from typing import TextIO

from mcp_serve.cli.output import clean

WIDTH = 80
"""How wide a page is that goes into a file or a pipe."""

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"
_LEAST = 8
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))


class Screen:
    """Writes lines that fit."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._styled = stream.isatty() and not os.environ.get("NO_COLOR")
        self.width = _width_of(stream)

    def line(self, text: str = "") -> None:
        """Write one line, cut where it would not fit."""
        self._write(fit(clean(text), self.width).rstrip())

    def whole(self, text: str) -> None:
        """Write one line, however long: a path must not be cut."""
        self._write(clean(text))

    def secret(self, text: str) -> None:
        """Write one line with a secret that is handed out here, which is left in it."""
        self._write(text)

    def dim(self, text: str) -> None:
        """Write one line of less weight."""
        self._write(self._style(DIM, fit(clean(text), self.width)))

    def heading(self, text: str, right: str = "") -> None:
        """Begin a part: an empty line, a bold title, something at the right margin."""
        self.line()
        self.sides(text, right, style=BOLD)

    def sides(self, left: str, right: str, *, style: str = "") -> None:
        """Write a text at the left, in as many lines as it takes, and one at the right margin."""
        left, right = clean(left), clean(right)
        first = _until_break(left, max(self.width - len(right) - 2, _LEAST))
        gap = " " * (self.width - columns(first) - len(right))
        self._write((self._style(style, first) + gap + self._style(DIM, right)).rstrip())
        rest = left[len(first) :].lstrip()
        if rest:
            self.block("  ", rest, style=style)

    def block(self, head: str, text: str, *, lines: int | None = None, style: str = "") -> None:
        """Write a text beside its head, in as many lines as it takes, or in at most so many."""
        head, rest = clean(head), clean(" ".join(text.split()))
        room = max(self.width - columns(head), _LEAST)
        before = self._style(style, head)
        while lines != 1:
            part = _until_break(rest, room)
            self._write((before + part).rstrip())
            before, rest = " " * columns(head), rest[len(part) :].lstrip()
            lines = None if lines is None else lines - 1
            if not rest:
                return
        self._write((before + fit(rest, room)).rstrip())

    def _style(self, code: str, text: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self._styled and code and text else text

    def _write(self, text: str) -> None:
        self._stream.write(text + "\n")


def _width_of(stream: TextIO) -> int:
    try:
        asked = os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 0
    except (OSError, ValueError):
        asked = 0
    return asked or WIDTH


def columns(text: str) -> int:
    """Return how many columns a text takes in a terminal."""
    return sum(_width(char) for char in text)


def fit(text: str, room: int) -> str:
    """Return the text, or as much of it as fits, with three dots."""
    if columns(text) <= room:
        return text
    return _head(text, room - 3).rstrip() + "..."


def ago(seconds: float) -> str:
    """Return a short word for how long ago something was."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return "now"


def ahead(seconds: float) -> str:
    """Return a short word for in how long something is: to the nearest unit, as 30 days are."""
    unit = next((size for size, _ in _UNITS if seconds >= size), 0)
    return ago(seconds + unit / 2)


def milliseconds(seconds: float) -> str:
    """Return how long something took, as it stands at the right margin."""
    return f"{seconds * 1000:,.1f} ms"


def _until_break(text: str, room: int) -> str:
    """Return what fits, up to the last space where the word behind that fits into a line."""
    head = _head(text, room)
    before, space, _ = head.rpartition(" ")
    word = text[len(before) + 1 :].partition(" ")[0]
    return before if head != text and space and columns(word) <= room else head


def _head(text: str, room: int) -> str:
    taken = 0
    for at, char in enumerate(text):
        taken += _width(char)
        if taken > room:
            return text[:at]
    return text


def _width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
