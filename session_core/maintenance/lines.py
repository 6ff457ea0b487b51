"""JSON Lines in which one line may be longer than the memory: an object a line, read in parts.

Of each object all members are read whole but one list, whose members come one by one.
"""

from __future__ import annotations

import codecs
import hashlib
import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from session_core.errors import InvalidInput

LARGEST = 256 << 20
"""No value within a list is larger, so that a line that is broken is not read for ever."""

_CHUNK = 1 << 16
_SPACE = " \t\r\n"
_BEHIND = frozenset(" \t\r\n,:]}")


class Line:
    """The line at which a file stands; `members` reads it."""

    def __init__(self, file: BinaryIO, streamed: str) -> None:
        self._file = file
        self._streamed = streamed
        self._text = ""
        self._at = 0
        self._ended = False
        self._bytes = codecs.getincrementaldecoder("utf-8-sig")()
        self._digest = hashlib.sha256()
        self._json = json.JSONDecoder()

    @property
    def digest(self) -> str:
        """What the part that was read so far is known by."""
        return self._digest.hexdigest()

    def is_empty(self) -> bool:
        """Whether there is nothing in it but space."""
        return not self._next()

    def members(self) -> Iterator[tuple[str, Any]]:
        """Yield the members of the object by their names, and those of the one list by its name.

        Raises:
            InvalidInput: the line is no such object.
        """
        try:
            yield from self._members()
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"it is no JSON object that can be read: {_why(error)}") from error

    def skip(self) -> None:
        """Read to the end of the line."""
        self._text, self._at = "", 0
        while not self._ended:
            self._taken(_CHUNK)

    def _members(self) -> Iterator[tuple[str, Any]]:
        for _ in self._separated("{", "}"):
            name = self._value()
            if not isinstance(name, str):
                raise InvalidInput("a name is missing")
            self._take(":")
            if name == self._streamed and self._next() == "[":
                yield from ((name, self._value()) for _ in self._separated("[", "]"))
            else:
                yield name, self._value()
        if self._next():
            raise InvalidInput("something follows the object")

    def _separated(self, begin: str, end: str) -> Iterator[None]:
        """Yield where each member begins."""
        self._take(begin)
        if self._next() == end:
            self._take(end)
            return
        while True:
            yield
            if self._next() != ",":
                self._take(end)
                return
            self._take(",")

    def _take(self, sign: str) -> None:
        if self._next() != sign:
            raise InvalidInput(f"{sign} is missing")
        self._at += 1

    def _next(self) -> str:
        """Return the next sign that is no space, nothing at the end of the line."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _SPACE:
                    return self._text[self._at]
                self._at += 1
            if self._ended:
                return ""
            self._read(_CHUNK)

    def _value(self) -> Any:
        self._next()
        while True:
            is_last = self._ended or len(self._text) - self._at > LARGEST
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except ValueError:
                if is_last:
                    raise
            else:
                # A number may go on behind what was read.
                if is_last or self._text[end : end + 1] in _BEHIND:
                    self._at = end
                    return value
            self._read(max(_CHUNK, len(self._text) - self._at))

    def _read(self, size: int) -> None:
        data = self._taken(size)
        try:
            text = self._bytes.decode(data, self._ended)
        except UnicodeDecodeError as error:
            raise InvalidInput("it is no UTF-8") from error
        self._text, self._at = self._text[self._at :] + text, 0

    def _taken(self, size: int) -> bytes:
        data = self._file.readline(size)
        self._ended = len(data) < size or data[-1:] == b"\n"
        self._digest.update(data)
        return data


def _why(error: Exception) -> str:
    if isinstance(error, InvalidInput):
        return str(error)
    if isinstance(error, json.JSONDecodeError):
        return error.msg[:1].lower() + error.msg[1:]
    return "it is nested too deeply"
