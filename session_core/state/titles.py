"""Valid titles, and the numbers of the titles of one lineage."""

from __future__ import annotations

import re
from collections.abc import Iterable

from session_core.errors import InvalidInput
from session_core.state import validation

MAX_TITLE_LENGTH = 100

_PREFIX_LENGTH = 80
_REMOVED_CHARS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffc"
    "\ufff9-\ufffb]"
)
_NUMBER_SUFFIX = re.compile(r" #(\d+)$")


def clean_title(title: str | None) -> str | None:
    """Return the stored form of a title, or None if it is empty.

    Control characters are removed, and spaces are single.

    Raises:
        InvalidInput: it is not text, or the result is longer than 100 characters.
    """
    validation.check_text("title", title)
    if not title:
        return None
    text = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in title)
    text = " ".join(_REMOVED_CHARS.sub("", text).split())
    if len(text) > MAX_TITLE_LENGTH:
        raise InvalidInput(
            f"title must have at most {MAX_TITLE_LENGTH} characters, got {len(text)}"
        )
    return text or None


def strip_number(title: str) -> str:
    """Return a title without its lineage number: "Trip #2" becomes "Trip"."""
    return _NUMBER_SUFFIX.sub("", title)


def make_lineage_prefix(base: str) -> str:
    """Return the common prefix of all titles of the lineage of `base`."""
    return base[:_PREFIX_LENGTH]


def is_numbered_title(title: str, base: str) -> bool:
    """Return True if a title is `base` with a number.

    `base` may be shortened to make room for the number.
    """
    suffix = _NUMBER_SUFFIX.search(title)
    return suffix is not None and title == _add_suffix(base, suffix[0])


def choose_next_title(base: str, titles: Iterable[str]) -> str:
    """Return the next free title of the lineage of `base`."""
    base, titles = strip_number(base), set(titles)
    numbers = [number for title in titles if (number := _parse_number(base, title)) is not None]
    if not numbers:
        return base
    # The base is cut to make room, so a title can be taken although its number is free.
    number = max(numbers) + 1
    while (title := _add_number(base, number)) in titles:
        number += 1
    return title


def _add_number(base: str, number: int) -> str:
    return _add_suffix(base, f" #{number}")


def _add_suffix(base: str, suffix: str) -> str:
    return base[: MAX_TITLE_LENGTH - len(suffix)].rstrip() + suffix


def _parse_number(base: str, title: str) -> int | None:
    if title == base:
        return 1
    match = _NUMBER_SUFFIX.search(title)
    return int(match[1]) if match and title[: match.start()] == base else None
