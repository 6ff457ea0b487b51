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
from session_core.types import RawText, RowImages

MAX_LINE_BYTES = 256 << 20
"""No value within a list is larger, so that a line that is broken is not read for ever."""

_CHUNK_BYTES = 1 << 16
_WHITESPACE = " \t\r\n"
_VALUE_ENDS = frozenset(" \t\r\n,:]}")


class JsonLine:
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
        return not self._find_next_sign()

    def iter_members(self) -> Iterator[tuple[str, Any]]:
        """Yield the members of the object by their names, and those of the one list by its name.

        Raises:
            InvalidInput: the line is no such object.
        """
        try:
            yield from self._iter_object()
        except (ValueError, RecursionError) as error:
            raise InvalidInput(
                f"it is no JSON object that can be read: {_describe_error(error)}"
            ) from error

    def skip_rest(self) -> None:
        """Read to the end of the line."""
        self._text, self._at = "", 0
        while not self._ended:
            self._take_bytes(_CHUNK_BYTES)

    def _iter_object(self) -> Iterator[tuple[str, Any]]:
        for _ in self._iter_separated("{", "}"):
            name = self._read_value()
            if not isinstance(name, str):
                raise InvalidInput("a name is missing")
            self._expect_sign(":")
            if name == self._streamed and self._find_next_sign() == "[":
                yield from ((name, self._read_value()) for _ in self._iter_separated("[", "]"))
            else:
                yield name, self._read_value()
        if self._find_next_sign():
            raise InvalidInput("something follows the object")

    def _iter_separated(self, begin: str, end: str) -> Iterator[None]:
        """Yield where each member begins."""
        self._expect_sign(begin)
        if self._find_next_sign() == end:
            self._expect_sign(end)
            return
        while True:
            yield
            if self._find_next_sign() != ",":
                self._expect_sign(end)
                return
            self._expect_sign(",")

    def _expect_sign(self, sign: str) -> None:
        if self._find_next_sign() != sign:
            raise InvalidInput(f"{sign} is missing")
        self._at += 1

    def _find_next_sign(self) -> str:
        """Return the next sign that is no space, nothing at the end of the line."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _WHITESPACE:
                    return self._text[self._at]
                self._at += 1
            if self._ended:
                return ""
            self._read_more(_CHUNK_BYTES)

    def _read_value(self) -> Any:
        self._find_next_sign()
        while True:
            is_last = self._ended or len(self._text) - self._at > MAX_LINE_BYTES
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except ValueError:
                if is_last:
                    raise
            else:
                # A number may go on behind what was read.
                if is_last or self._text[end : end + 1] in _VALUE_ENDS:
                    self._at = end
                    return value
            self._read_more(max(_CHUNK_BYTES, len(self._text) - self._at))

    def _read_more(self, size: int) -> None:
        data = self._take_bytes(size)
        try:
            text = self._bytes.decode(data, self._ended)
        except UnicodeDecodeError as error:
            raise InvalidInput("it is no UTF-8") from error
        self._text, self._at = self._text[self._at :] + text, 0

    def _take_bytes(self, size: int) -> bytes:
        data = self._file.readline(size)
        self._ended = len(data) < size or data[-1:] == b"\n"
        self._digest.update(data)
        return data


def _describe_error(error: Exception) -> str:
    if isinstance(error, InvalidInput):
        return str(error)
    if isinstance(error, json.JSONDecodeError):
        return error.msg[:1].lower() + error.msg[1:]
    return "it is nested too deeply"


FORMAT_VERSION = 1

FORMAT_KEY = "mcp_sessions"
"""The key of what no column of a session is."""

MESSAGES_KEY = "messages"

EXCLUDED_TABLES = frozenset({"compression_locks", "session_turn_leases"})
"""Tables that say who is at work in a session just now; they are not carried."""

_OWN_TABLES = frozenset({"sessions", MESSAGES_KEY})

_BYTES, _RAW, _REAL = "$bytes", "$raw", "$real"
_JSON_COLUMN = "tool_calls"


def encode_value(column: str, value: Any) -> Any:
    """Return what stands in an export for a stored value."""
    if isinstance(value, str):
        return _parse_exact_json(column, value)
    if isinstance(value, bytes):
        return {_BYTES: b64encode(value).decode()}
    if isinstance(value, RawText):
        return {_RAW: b64encode(value.stored).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {_REAL: str(value)}
    return value


def decode_value(column: str, value: Any) -> Any:
    """Return what is stored for a value of an export, also one of Hermes.

    Raises:
        InvalidInput: it is none.
    """
    if isinstance(value, str):
        return content.clean_text(value)
    if isinstance(value, dict) and len(value) == 1:
        key, inside = next(iter(value.items()))
        if key in _EXACT_DECODERS and isinstance(inside, str):
            return _decode_exact(key, inside)
    if isinstance(value, (list, dict)):
        return content.encode_content(value) if column == "content" else content.dump_json(value)
    return int(value) if isinstance(value, bool) else value


def encode_row(columns: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """Return a row as it stands in an export."""
    return {name: encode_value(name, value) for name, value in zip(columns, values, strict=True)}


def encode_table(image: RowImages) -> dict[str, Any]:
    """Return the rows of another table as they stand in an export."""
    rows = [[encode_value("", value) for value in each] for each in image.rows]
    return {"table": image.table, "columns": image.columns, "rows": rows, "shared": image.shared}


def decode_images(carried: Any) -> list[RowImages]:
    """Return the rows of other tables that an export carries.

    Raises:
        InvalidInput: they are not what `table` has made.
    """
    try:
        found = [
            RowImages(
                str(each["table"]),
                tuple(map(str, each["columns"])),
                tuple(
                    tuple(decode_value("", value) for value in values) for values in each["rows"]
                ),
                bool(each["shared"]),
            )
            for each in carried["tables"]
        ]
    except (KeyError, TypeError) as error:
        raise InvalidInput(f"{FORMAT_KEY} is not what an export has there") from error
    for image in found:
        _check_image(image)
    return found


def encode_json(value: Any) -> str:
    """Return the JSON of a value that stands in an export."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _check_image(image: RowImages) -> None:
    """Refuse what no export has: rows that come otherwise or not at all, and rows of no shape."""
    if image.table in _OWN_TABLES | EXCLUDED_TABLES:
        raise InvalidInput(f"{FORMAT_KEY} has rows of {image.table}, which no export has there")
    width = len(image.columns)
    if len(set(image.columns)) < width or any(len(row) != width for row in image.rows):
        raise InvalidInput(f"{FORMAT_KEY} has rows of {image.table} that do not fit their columns")


def _parse_exact_json(column: str, value: str) -> Any:
    """Return the JSON that a text is, where storing that makes the same text again."""
    if column == "content" and value.startswith(content.JSON_MARKER):
        decoded = content.decode_content(value)
    elif column == _JSON_COLUMN:
        decoded = content.decode_json(value)
    else:
        return value
    try:
        same = isinstance(decoded, (list, dict)) and decode_value(column, decoded) == value
    except InvalidInput:
        return value
    return decoded if same else value


def _decode_exact(key: str, inside: str) -> Any:
    try:
        return _EXACT_DECODERS[key](inside)
    except (Error, ValueError) as error:
        raise InvalidInput(f"{key} has a value that is none") from error


_EXACT_DECODERS: Mapping[str, Callable[[str], Any]] = {
    _BYTES: lambda inside: b64decode(inside, validate=True),
    _RAW: lambda inside: RawText(b64decode(inside, validate=True)),
    _REAL: float,
}
