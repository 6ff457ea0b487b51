"""The export format: a streaming JSON Lines reader, and the encoding of rows.

The reader loads the members of an object whole, except one list, whose items are read one by one,
so that a line may be larger than the memory.

A session is one line: its columns, the rows of other tables under `mcp_sessions`, and `messages` at
the end. Content and tool calls are JSON as in exports of Hermes, but only if storing that gives the
same text again. A value without an equivalent in JSON is an object with one key.
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
"""The most bytes of one value in a list, so that reading a broken line ends."""

_CHUNK_BYTES = 1 << 16
_WHITESPACE = " \t\r\n"
_VALUE_ENDS = frozenset(" \t\r\n,:]}")


class JsonLine:
    """The line at the current position of a file, which `iter_members` reads."""

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
        """The digest of the bytes that were read so far."""
        return self._digest.hexdigest()

    def is_empty(self) -> bool:
        """Return True if the line has only whitespace."""
        return not self._find_next_sign()

    def iter_members(self) -> Iterator[tuple[str, Any]]:
        """Yield the members of the object by name, and the items of the streamed list by its name.

        Raises:
            InvalidInput: the line is not such an object.
        """
        try:
            yield from self._iter_object()
        except (ValueError, RecursionError) as error:
            raise InvalidInput(
                f"it is not a readable JSON object: {_describe_error(error)}"
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
            # Only this list may be longer than the memory.
            if name == self._streamed and self._find_next_sign() == "[":
                yield from ((name, self._read_value()) for _ in self._iter_separated("[", "]"))
            else:
                yield name, self._read_value()
        if self._find_next_sign():
            raise InvalidInput("something follows the object")

    def _iter_separated(self, begin: str, end: str) -> Iterator[None]:
        """Yield once at the start of each item of a list or an object."""
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
        """Return the next character that is not whitespace, or "" at the end of the line."""
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
                # A number may continue after the part that was read.
                if is_last or self._text[end : end + 1] in _VALUE_ENDS:
                    self._at = end
                    return value
            # Double the text each time: decoding it again from the start stays linear overall.
            self._read_more(max(_CHUNK_BYTES, len(self._text) - self._at))

    def _read_more(self, size: int) -> None:
        data = self._take_bytes(size)
        try:
            text = self._bytes.decode(data, self._ended)
        except UnicodeDecodeError as error:
            raise InvalidInput("it is not UTF-8") from error
        self._text, self._at = self._text[self._at :] + text, 0

    def _take_bytes(self, size: int) -> bytes:
        data = self._file.readline(size)
        # The last line of a file may have no line break.
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
"""The key of the data that is in no column of a session."""

MESSAGES_KEY = "messages"

EXCLUDED_TABLES = frozenset({"compression_locks", "session_turn_leases"})
"""Tables with the current users of a session; they are not exported."""

_OWN_TABLES = frozenset({"sessions", MESSAGES_KEY})

_BYTES, _RAW, _REAL = "$bytes", "$raw", "$real"
_JSON_COLUMN = "tool_calls"


def encode_value(column: str, value: Any) -> Any:
    """Return the exported form of a stored value."""
    if isinstance(value, str):
        return _parse_exact_json(column, value)
    if isinstance(value, bytes):
        return {_BYTES: b64encode(value).decode()}
    if isinstance(value, RawText):
        return {_RAW: b64encode(value.stored).decode()}
    # JSON has no infinity.
    if isinstance(value, float) and not math.isfinite(value):
        return {_REAL: str(value)}
    return value


def decode_value(column: str, value: Any) -> Any:
    """Return the stored form of a value that this library or Hermes has exported.

    Raises:
        InvalidInput: the value is not valid.
    """
    if isinstance(value, str):
        # JSON can hold a lone surrogate, which no database accepts.
        return content.clean_text(value)
    if isinstance(value, dict) and len(value) == 1:
        key, text = next(iter(value.items()))
        if key in _EXACT_DECODERS and isinstance(text, str):
            return _decode_exact(key, text)
    if isinstance(value, (list, dict)):
        return content.encode_content(value) if column == "content" else content.dump_json(value)
    # SQLite has no booleans.
    return int(value) if isinstance(value, bool) else value


def encode_row(columns: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """Return the exported form of a row."""
    return {name: encode_value(name, value) for name, value in zip(columns, values, strict=True)}


def encode_table(image: RowImages) -> dict[str, Any]:
    """Return the exported form of the rows of another table."""
    rows = [[encode_value("", value) for value in row] for row in image.rows]
    return {"table": image.table, "columns": image.columns, "rows": rows, "shared": image.shared}


def decode_images(exported: Any) -> list[RowImages]:
    """Return the rows of other tables in an export.

    Raises:
        InvalidInput: they do not have the form that `encode_table` produces.
    """
    try:
        images = [
            RowImages(
                str(table["table"]),
                tuple(map(str, table["columns"])),
                tuple(
                    tuple(decode_value("", value) for value in values) for values in table["rows"]
                ),
                bool(table["shared"]),
            )
            for table in exported["tables"]
        ]
    except (KeyError, TypeError) as error:
        raise InvalidInput(f"{FORMAT_KEY} does not have the form of an export") from error
    for image in images:
        _check_image(image)
    return images


def encode_json(value: Any) -> str:
    """Return the JSON text of an exported value."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _check_image(image: RowImages) -> None:
    """Refuse rows of excluded tables, and rows with a wrong number of values."""
    if image.table in _OWN_TABLES | EXCLUDED_TABLES:
        raise InvalidInput(f"{FORMAT_KEY} has rows of {image.table}, which exports exclude")
    width = len(image.columns)
    # The columns become a part of SQL.
    if len(set(image.columns)) < width or any(len(row) != width for row in image.rows):
        raise InvalidInput(f"{FORMAT_KEY} has rows of {image.table} that do not fit their columns")


def _parse_exact_json(column: str, value: str) -> Any:
    """Return a text as JSON if storing that gives the same text again."""
    if column == "content" and value.startswith(content.JSON_MARKER):
        decoded = content.decode_content(value)
    elif column == _JSON_COLUMN:
        decoded = content.decode_json(value)
    else:
        return value
    try:
        is_exact = isinstance(decoded, (list, dict)) and decode_value(column, decoded) == value
    except InvalidInput:
        return value
    return decoded if is_exact else value


def _decode_exact(key: str, text: str) -> Any:
    try:
        return _EXACT_DECODERS[key](text)
    except (Error, ValueError) as error:
        raise InvalidInput(f"{key} has an invalid value") from error


_EXACT_DECODERS: Mapping[str, Callable[[str], Any]] = {
    _BYTES: lambda inside: b64decode(inside, validate=True),
    _RAW: lambda inside: RawText(b64decode(inside, validate=True)),
    _REAL: float,
}
