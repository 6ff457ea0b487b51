"""Texts that are made of messages, without the secrets of those.

A value may be a secret only beside the name that says so, and a summary may have taken it from
there, or a piece of it. What stands in its place is no mark, which no summary may hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from mcp_serve import whole
from mcp_serve.redaction import spans
from session_core import MessageRow

_LEAST = 6
"""Shorter pieces tell nothing."""

_LONG = 12
"""A value that is longer is no part of another word by chance."""

_HERE = "(secret)"
_SEAM = re.compile(r"[\s=:@\"'`\\/]+")
_WORD = re.compile(r"[^\s=:@\"'`\\/()\[\]{}<>,;…]{6,}")


def clean(messages: Sequence[MessageRow]) -> Callable[[str], str]:
    """Return what takes the secrets of messages out of a text that is made of them."""
    values = sorted(_values(messages), key=len, reverse=True)
    within = "\n".join(values)

    def mark_piece(word: re.Match[str]) -> str:
        piece = word[0].rstrip(".")
        return _HERE if _is_made_up(piece) and piece in within else word[0]

    def cleaned(text: str) -> str:
        shown = text
        for value in values:
            if value in shown:
                around = ("", "") if len(value) >= _LONG else (r"(?<!\w)", r"(?!\w)")
                shown = re.sub(re.escape(value).join(around), _HERE, shown)
        shown = _WORD.sub(mark_piece, shown) if within else shown
        for start, stop in reversed(spans(shown)):
            shown = shown[:start] + _HERE + shown[stop:]
        return shown

    return cleaned


def keep(messages: Sequence[MessageRow]) -> Callable[[str], str]:
    """Return what leaves a text as it is, where nothing is to be redacted."""
    del messages
    return str


def _values(messages: Iterable[MessageRow]) -> set[str]:
    """Return the secrets without the names beside them: what is no plain word, or stands last."""
    found = set()
    for secret in {secret for row in messages for secret in whole.secrets(row)}:
        parts = [part for part in _SEAM.split(secret) if len(part) >= _LEAST]
        found |= {part for part in parts if part is parts[-1] or _is_made_up(part)}
    return found


def _is_made_up(piece: str) -> bool:
    """Whether a piece of a secret is no plain word, which may stand anywhere."""
    return len(piece) >= _LEAST and not (piece.isalpha() and (piece.islower() or piece.istitle()))
