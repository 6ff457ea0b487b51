"""Checks of arguments, which every engine makes before it reads anything."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

from session_core.errors import InvalidInput

_CONTROL_CHARS = re.compile("[\x00-\x1f\x7f-\x9f]")

_MAX_NUMBER = 2**62
"""A limit plus one must still fit the integers of every engine."""


def check_limit(limit: Any) -> None:
    """Refuse a limit that is not a positive integer."""
    if not isinstance(limit, int) or not 1 <= limit < _MAX_NUMBER:
        raise InvalidInput(f"limit must be an integer >= 1, got {limit!r:.40}")


def check_flag(name: str, flag: Any) -> None:
    """Refuse a flag that is not a boolean."""
    if flag not in (True, False):
        raise InvalidInput(f"{name} must be true or false, got {flag!r:.40}")


def check_text(name: str, text: Any, *, needed: bool = False) -> None:
    """Refuse a value that is not text. None is valid unless `needed`."""
    if not isinstance(text, str) and (needed or text is not None):
        raise InvalidInput(f"{name} must be text, got {text!r:.40}")


def check_name(name: str, text: Any) -> None:
    """Refuse an empty name, which mostly comes from a variable that was never set."""
    check_text(name, text, needed=True)
    if not text:
        raise InvalidInput(f"{name} must not be empty")


def check_line(name: str, text: Any) -> None:
    """Refuse text with control characters, which a terminal obeys. None is valid."""
    check_text(name, text)
    if text is not None and not text.isprintable() and _CONTROL_CHARS.search(text):
        raise InvalidInput(f"{name} must not contain control characters; remove them")


def check_mapping(name: str, value: Any, *needed: str) -> None:
    """Refuse a value that is not a mapping, or lacks one of the `needed` keys."""
    if not isinstance(value, Mapping) or not all(key in value for key in needed):
        keys = f" with {' and '.join(needed)}" if needed else ""
        raise InvalidInput(f"{name} must be a mapping{keys}, got {value!r:.40}")


def check_number(name: str, number: Any, *, needed: bool = False) -> None:
    """Refuse a value that is not a finite number. None is valid unless `needed`."""
    if isinstance(number, int) or (number is None and not needed):
        return
    if not isinstance(number, float) or not isfinite(number):
        raise InvalidInput(f"{name} must be a finite number, got {number!r:.40}")


def check_minimum(name: str, number: Any, least: float) -> None:
    """Refuse a value that is not a number, or is less than `least`."""
    is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
    if not is_number or not number >= least:
        raise InvalidInput(f"{name} must be a number >= {least}, got {number!r:.40}")


def parse_integers(name: str, values: Iterable[int]) -> list[int]:
    """Return a list of integers.

    Raises:
        InvalidInput: it is not a list of integers.
    """
    numbers = (
        None if isinstance(values, bytes) or not isinstance(values, Iterable) else list(values)
    )
    if numbers is None or not all(isinstance(number, int) for number in numbers):
        raise InvalidInput(f"{name} must be a list of integers")
    return numbers


def parse_texts(name: str, values: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return a tuple of texts.

    A single text is refused, not split into its letters.

    Raises:
        InvalidInput: it is not a list of texts.
    """
    if values is None:
        return None
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidInput(f"{name} must be a list, such as [{values!r:.40}]")
    texts = tuple(values)
    if not all(isinstance(text, str) for text in texts):
        raise InvalidInput(f"{name} must be a list of texts")
    return texts


_MAX_FOLDERS = 200
"""Each is a term of one SQL expression, whose depth is limited."""


def parse_folders(name: str, value: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """Return one folder or several as a tuple.

    Raises:
        InvalidInput: it is not text or a list of texts, or there are too many.
    """
    if value is None:
        return None
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        check_text(name, value)
    folders = (value,) if isinstance(value, str) else parse_texts(name, value) or ()
    if len(folders) > _MAX_FOLDERS:
        raise InvalidInput(f"{name} must have at most {_MAX_FOLDERS} folders, got {len(folders):,}")
    return folders
