"""Texts that are made of messages, without the secrets of those.

A value may be a secret only beside the name that says so, and a summary may have taken it from
there, or a piece of it. What stands in its place is no mark, which no summary may hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence

from mcp_serve import whole
from mcp_serve.redaction import spans
from session_core import MessageRow

_LEAST = 6
"""Shorter pieces tell nothing."""

_LONG = 12
"""A value that is longer is no part of another word by chance."""

_PIECE = 9
"""So many characters of a long value in a row are taken out wherever they stand."""

_MOST = 10_000
"""So much of a value is known by its pieces; no text that is made of messages quotes more."""

_HERE = "(secret)"
_SEAM = re.compile(r"[\s=:@\"'`\\/]+")
_WORD = re.compile(r"[^\s=:@\"'`\\/()\[\]{}<>,;…]{6,}")


def clean(messages: Sequence[MessageRow]) -> Callable[[str], str]:
    """Return what takes the secrets of messages out of a text that is made of them."""
    values = sorted(_values(messages), key=len, reverse=True)
    within = "\n".join(values)
    short = [value for value in values if len(value) < _LONG]
    pieces = {
        value[at : at + _PIECE]
        for value in values[: len(values) - len(short)]
        for at in range(min(len(value), _MOST) - _PIECE + 1)
    }

    def mark_piece(word: re.Match[str]) -> str:
        piece = word[0].rstrip(".")
        return _HERE if _is_made_up(piece) and piece in within else word[0]

    def cleaned(text: str) -> str:
        shown = _mark(text, _find_pieces(text, pieces)) if pieces else text
        for value in short:
            if value in shown:
                shown = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", _HERE, shown)
        shown = _WORD.sub(mark_piece, shown) if within else shown
        return _mark(shown, spans(shown))

    return cleaned


def keep(messages: Sequence[MessageRow]) -> Callable[[str], str]:
    """Return what leaves a text as it is, where nothing is to be redacted."""
    del messages
    return str


def _find_pieces(text: str, pieces: Collection[str]) -> list[tuple[int, int]]:
    """Return where pieces of values are in a text; those that overlap are one."""
    places: list[tuple[int, int]] = []
    for at in range(len(text) - _PIECE + 1):
        if text[at : at + _PIECE] in pieces:
            start = places.pop()[0] if places and at <= places[-1][1] else at
            places.append((start, at + _PIECE))
    return places


def _mark(text: str, places: Sequence[tuple[int, int]]) -> str:
    for start, stop in reversed(places):
        text = text[:start] + _HERE + text[stop:]
    return text


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
