"""What every engine refuses of arguments before it looks at anything."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

from session_core.errors import InvalidInput

_CONTROL_CHARS = re.compile("[\x00-\x1f\x7f-\x9f]")

_MAX_NUMBER = 2**62
"""One more than a limit is still a number that every engine takes."""


def check_limit(limit: Any) -> None:
    """Refuse what limits a list to nothing."""
    if not isinstance(limit, int) or not 1 <= limit < _MAX_NUMBER:
        raise InvalidInput(f"limit is {limit!r:.40}; it is a whole number of at least 1")


def check_flag(name: str, flag: Any) -> None:
    """Refuse what says neither yes nor no."""
    if flag not in (True, False):
        raise InvalidInput(f"{name} is {flag!r:.40}; it is true or false")


def check_text(name: str, text: Any, *, needed: bool = False) -> None:
    """Refuse what is no text; None is none given."""
    if not isinstance(text, str) and (needed or text is not None):
        raise InvalidInput(f"{name} is {text!r:.40}; it is text")


def check_name(name: str, text: Any) -> None:
    """Refuse an empty name, which is mostly a variable that was never set."""
    check_text(name, text, needed=True)
    if not text:
        raise InvalidInput(f"{name} must not be empty")


def check_line(name: str, text: Any) -> None:
    """Refuse what is no text, or has characters that a terminal obeys; None is none given."""
    check_text(name, text)
    if text is not None and not text.isprintable() and _CONTROL_CHARS.search(text):
        raise InvalidInput(f"{name} must not contain control characters; leave them out")


def check_mapping(name: str, given: Any, *needed: str) -> None:
    """Refuse what is no mapping, or one without what it has to name."""
    if not isinstance(given, Mapping) or not all(key in given for key in needed):
        wanted = f" with {' and '.join(needed)}" if needed else ""
        raise InvalidInput(f"{name} is {given!r:.40}; it is a mapping{wanted}")


def check_number(name: str, number: Any, *, needed: bool = False) -> None:
    """Refuse what is no number, or not a finite one; None is none given."""
    if isinstance(number, int) or (number is None and not needed):
        return
    if not isinstance(number, float) or not isfinite(number):
        raise InvalidInput(f"{name} is {number!r:.40}; it is a finite number")


def check_minimum(name: str, number: Any, least: float) -> None:
    """Refuse what is no number, or too small a one."""
    is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
    if not is_number or not number >= least:
        raise InvalidInput(f"{name} must be a number >= {least}, got {number!r:.40}")


def parse_integers(name: str, given: Iterable[int]) -> list[int]:
    """Return what was given as several whole numbers.

    Raises:
        InvalidInput: it is no list of them.
    """
    found = None if isinstance(given, bytes) or not isinstance(given, Iterable) else list(given)
    if found is None or not all(isinstance(number, int) for number in found):
        raise InvalidInput(f"{name} is a list of whole numbers")
    return found


def parse_texts(name: str, given: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return what was given as several texts; one text alone is not taken for its letters.

    Raises:
        InvalidInput: it is no list of texts.
    """
    if given is None:
        return None
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise InvalidInput(f"{name} is a list, such as [{given!r:.40}]")
    found = tuple(given)
    if not all(isinstance(text, str) for text in found):
        raise InvalidInput(f"{name} is a list of texts")
    return found
