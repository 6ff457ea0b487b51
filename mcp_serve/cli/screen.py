"""Plain text for a terminal of 80 columns, in any script; bold and dim only where it is one."""

from __future__ import annotations

import unicodedata
from typing import TextIO

WIDTH = 80

_BOLD, _DIM = "1", "2"
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))


class Screen:
    """Writes lines that fit."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._styled = stream.isatty()

    def line(self, text: str = "") -> None:
        """Write one line, cut where it would not fit."""
        self._write(fit(text, WIDTH).rstrip())

    def whole(self, text: str) -> None:
        """Write one line, however long: a path must not be cut."""
        self._write(text)

    def dim(self, text: str) -> None:
        """Write one line of less weight."""
        self._write(self._style(_DIM, fit(text, WIDTH)))

    def heading(self, text: str, right: str = "") -> None:
        """Begin a part: an empty line, a bold title, something at the right margin."""
        self.line()
        self.sides(text, right, style=_BOLD)

    def sides(self, left: str, right: str, *, style: str = "") -> None:
        """Write a text at the left and one at the right margin."""
        left = fit(left, WIDTH - len(right) - 2)
        gap = " " * (WIDTH - columns(left) - len(right))
        self._write((self._style(style, left) + gap + self._style(_DIM, right)).rstrip())

    def block(self, head: str, text: str, *, lines: int) -> None:
        """Write a text beside its head, in at most so many lines."""
        rest = " ".join(text.split())
        room = WIDTH - columns(head)
        for number in range(lines):
            last = number == lines - 1
            part = fit(rest, room) if last else _until_break(rest, room)
            self._write((head if number == 0 else " " * columns(head)) + part)
            rest = rest[len(part) :].lstrip()
            if last or not rest:
                return

    def _style(self, code: str, text: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self._styled and code and text else text

    def _write(self, text: str) -> None:
        self._stream.write(text + "\n")


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


def _until_break(text: str, room: int) -> str:
    """Return what fits, up to the last space in it where there is one."""
    head = _head(text, room)
    space = head.rfind(" ")
    return head if head == text or space <= room // 2 else head[:space]


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
