r"""Text as it is stored: PostgreSQL refuses a NUL, and a column of text holds no bytes.

A NUL becomes ``\x1a0`` and ``\x1a`` itself ``\x1a1``. Bytes are ``\x1ab`` and their digits, text
that is not UTF-8 ``\x1ar`` and its digits. Other text is stored as it is, for the database and for
people.
"""

from __future__ import annotations

from typing import Any

from psycopg.adapt import Loader
from psycopg.types.numeric import IntDumper
from psycopg.types.string import StrDumper

from session_core.types import RawText

_ESCAPE = "\x1a"


def encode_text(text: str) -> str:
    """Return a text as it is stored."""
    if _ESCAPE in text:
        text = text.replace(_ESCAPE, "\x1a1")
    return text.replace("\0", "\x1a0") if "\0" in text else text


def encode_bytes(value: bytes) -> str:
    """Return bytes as they are stored in a column of text."""
    return f"{_ESCAPE}b{value.hex()}"


def encode_raw_text(text: RawText) -> str:
    """Return text that is not UTF-8 as it is stored."""
    return f"{_ESCAPE}r{text.stored.hex()}"


def decode_text(stored: str) -> str | bytes | RawText:
    """Return the value of a stored text."""
    if _ESCAPE not in stored:
        return stored
    if stored.startswith("\x1ab"):
        return bytes.fromhex(stored[2:])
    if stored.startswith("\x1ar"):
        return RawText(bytes.fromhex(stored[2:]))
    return stored.replace("\x1a0", "\0").replace("\x1a1", _ESCAPE)


class TextDumper(StrDumper):
    """Stores any text."""

    def dump(self, obj: str) -> Any:
        """Return the stored form of a text."""
        return super().dump(encode_text(obj))


class BytesDumper(StrDumper):
    """Stores bytes as text."""

    def dump(self, obj: Any) -> Any:
        """Return the stored form of bytes."""
        return super().dump(encode_bytes(bytes(obj)))


class RawTextDumper(StrDumper):
    """Stores text that is not UTF-8."""

    def dump(self, obj: Any) -> Any:
        """Return the stored form of the text."""
        return super().dump(encode_raw_text(obj))


class RawBytesDumper(StrDumper):
    """Stores the bytes of text that is not UTF-8."""

    def dump(self, obj: Any) -> Any:
        """Return the stored form of the text."""
        return super().dump(encode_raw_text(RawText(bytes(obj))))


class FlagDumper(IntDumper):
    """Stores a flag as 0 or 1."""

    def dump(self, obj: Any) -> Any:
        """Return the digit of a flag."""
        return super().dump(int(obj))

    def quote(self, obj: Any) -> Any:
        """Return the digit of a flag for a statement."""
        return super().quote(int(obj))


class TextLoader(Loader):
    """Reads stored text."""

    def load(self, data: Any) -> Any:
        """Return the value of a stored text."""
        return decode_text(bytes(data).decode())
