"""JSON Lines in which one line may be longer than the memory: an object a line, read in parts.

Of each object all members are read whole but one list, whose members come one by one.

How rows stand in an export: readable where that says the same, and exact in any case.

One session is one line: its columns, `messages` at the end, and before those under `mcp_sessions`
what other tables have of it. Content and calls of tools are JSON as in exports of Hermes, but only
where storing that makes the same text again. What JSON has no value for is an object of one key.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import math
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from session_core.errors import InvalidInput
from session_core.state import content
from session_core.types import Images, Raw

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


VERSION = 1

OURS = "mcp_sessions"
"""The key of what no column of a session is."""

MESSAGES = "messages"

OF_OTHERS = frozenset({"compression_locks", "session_turn_leases"})
"""Tables that say who is at work in a session just now; they are not carried."""

_OWN = frozenset({"sessions", MESSAGES})

_BYTES, _RAW, _REAL = "$bytes", "$raw", "$real"
_JSON = "tool_calls"


def said(column: str, value: Any) -> Any:
    """Return what stands in an export for a stored value."""
    if isinstance(value, str):
        return _readable(column, value)
    if isinstance(value, bytes):
        return {_BYTES: b64encode(value).decode()}
    if isinstance(value, Raw):
        return {_RAW: b64encode(value.stored).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {_REAL: str(value)}
    return value


def stored(column: str, value: Any) -> Any:
    """Return what is stored for a value of an export, also one of Hermes.

    Raises:
        InvalidInput: it is none.
    """
    if isinstance(value, str):
        return content.clean_text(value)
    if isinstance(value, dict) and len(value) == 1:
        key, inside = next(iter(value.items()))
        if key in _EXACT and isinstance(inside, str):
            return _exact(key, inside)
    if isinstance(value, (list, dict)):
        return content.encode(value) if column == "content" else content.dump(value)
    return int(value) if isinstance(value, bool) else value


def row(columns: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """Return a row as it stands in an export."""
    return {name: said(name, value) for name, value in zip(columns, values, strict=True)}


def table(image: Images) -> dict[str, Any]:
    """Return the rows of another table as they stand in an export."""
    rows = [[said("", value) for value in each] for each in image.rows]
    return {"table": image.table, "columns": image.columns, "rows": rows, "shared": image.shared}


def images(carried: Any) -> list[Images]:
    """Return the rows of other tables that an export carries.

    Raises:
        InvalidInput: they are not what `table` has made.
    """
    try:
        found = [
            Images(
                str(each["table"]),
                tuple(map(str, each["columns"])),
                tuple(tuple(stored("", value) for value in values) for values in each["rows"]),
                bool(each["shared"]),
            )
            for each in carried["tables"]
        ]
    except (KeyError, TypeError) as error:
        raise InvalidInput(f"{OURS} is not what an export has there") from error
    for image in found:
        _check(image)
    return found


def text(value: Any) -> str:
    """Return the JSON of a value that stands in an export."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _check(image: Images) -> None:
    """Refuse what no export has: rows that come otherwise or not at all, and rows of no shape."""
    if image.table in _OWN | OF_OTHERS:
        raise InvalidInput(f"{OURS} has rows of {image.table}, which no export has there")
    width = len(image.columns)
    if len(set(image.columns)) < width or any(len(row) != width for row in image.rows):
        raise InvalidInput(f"{OURS} has rows of {image.table} that do not fit their columns")


def _readable(column: str, value: str) -> Any:
    """Return the JSON that a text is, where storing that makes the same text again."""
    if column == "content" and value.startswith(content.MARKER):
        decoded = content.decode(value)
    elif column == _JSON:
        decoded = content.decode_json(value)
    else:
        return value
    try:
        same = isinstance(decoded, (list, dict)) and stored(column, decoded) == value
    except InvalidInput:
        return value
    return decoded if same else value


def _exact(key: str, inside: str) -> Any:
    try:
        return _EXACT[key](inside)
    except (Error, ValueError) as error:
        raise InvalidInput(f"{key} has a value that is none") from error


_EXACT: Mapping[str, Callable[[str], Any]] = {
    _BYTES: lambda inside: b64decode(inside, validate=True),
    _RAW: lambda inside: Raw(b64decode(inside, validate=True)),
    _REAL: float,
}
