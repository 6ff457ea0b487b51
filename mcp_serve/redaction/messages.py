"""All that a message says, in one line, and where secrets lie in it.

A search finds the values in tool calls as well, cut out of what says what they are: a value that is
a secret only beside its name is one here too.

Texts that are made of messages, without the secrets of those.

A value may be a secret only beside the name that says so, and a summary may have taken it from
there, or a piece of it. What stands in its place is no mark, which no summary may hold.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from mcp_serve.redaction.redaction import spans
from mcp_serve.render import textual
from session_core import MessageRow, plain_text

_DEPTH = 50
_AROUND = re.compile(r"[\s\"'\\=:,]+")
_WORD = re.compile(r"[^\s\"'\\=:,]{6,}")
_WORDS = re.compile(r"\S+")
_LEAST = 6
"""Shorter values are of no secret that is known."""


def text_of(row: MessageRow) -> tuple[str, list[tuple[int, int]]]:
    """Return what a message says, as a search has it, and from where to where secrets are."""
    whole, ends = _told(_secrets_of_calls(row))
    lines: list[str] = []
    found: list[tuple[int, int]] = []
    length = 0
    for piece in _pieces(row):
        line = " ".join(piece.split())
        start = length + 1 if lines else 0
        lines.append(line)
        length = start + len(line)
        if piece != line:
            found += [(start + begin, start + end) for begin, end in _folded(piece)]
        if len(line) >= _LEAST and _inner(piece) in whole:
            found.append((start, length))
        elif ends:
            words = _WORD.finditer(line)
            found += [(start + it.start(), start + it.end()) for it in words if it[0] in ends]
    shown = " ".join(lines)
    return shown, sorted([*found, *spans(shown)])


def _folded(piece: str) -> list[tuple[int, int]]:
    """Return where secrets of a text are in it as one line, which has no wrapped ones any more."""
    secrets = spans(piece)
    if not secrets:
        return []
    words, places, length = [], [], 0
    for word in _WORDS.finditer(piece):
        words.append(word.start())
        places.append(length)
        length += len(word[0]) + 1

    def place(at: int) -> int:
        word = bisect_right(words, at) - 1
        return places[word] + at - words[word]

    return [(place(start), place(stop - 1) + 1) for start, stop in secrets]


def _told(secrets: Iterable[str]) -> tuple[set[str], set[str]]:
    """Return what may be the value in secrets that have a name beside it, as JSON has it.

    It is all of an argument, or the word behind the name, where it ends the secret.
    """
    whole: set[str] = set()
    ends: set[str] = set()
    for secret in secrets:
        parts = [part for part in _AROUND.split(secret) if len(part) >= _LEAST]
        whole.update((secret, *parts, *secret.split('"')))
        ends.update(parts[-1:])
    return whole, ends


def secrets(row: MessageRow) -> set[str]:
    """Return the secrets that stand in a message, each as it stands there."""
    shown, found = text_of(row)
    return {shown[start:stop] for start, stop in found} | _secrets_of_calls(row)


def _pieces(row: MessageRow) -> list[str]:
    pieces = [plain_text(row["content"]), textual(row.get("tool_name") or "")]
    for call in _calls(row):
        pieces += _values(call)
    return [piece for piece in pieces if piece.strip()]


def _secrets_of_calls(row: MessageRow) -> set[str]:
    written = (json.dumps(call, ensure_ascii=False) for call in _calls(row))
    return {text[start:stop] for text in written for start, stop in spans(text)}


def _calls(row: MessageRow) -> Iterator[Any]:
    """Yield the calls of a message as the name and the decoded arguments of each."""
    calls = row.get("tool_calls")
    for call in calls if isinstance(calls, list) else [calls] if calls else []:
        inner = call.get("function") if isinstance(call, Mapping) else None
        said = inner if isinstance(inner, Mapping) else call
        if not isinstance(said, Mapping):
            yield said
            continue
        rest = {key: value for key, value in said.items() if key != "arguments"}
        yield {**rest, "arguments": _decoded(said.get("arguments"))}


def _decoded(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _values(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, (Mapping, list)):
        if depth < _DEPTH:
            for each in value.values() if isinstance(value, Mapping) else value:
                yield from _values(each, depth + 1)
    elif value is not None and not isinstance(value, bool):
        yield textual(value)


def _inner(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


"""Shorter pieces tell nothing."""

_LONG = 12
"""A value that is longer is no part of another word by chance."""

_PIECE = 9
"""So many characters of a long value in a row are taken out wherever they stand."""

_MOST = 10_000
"""So much of a value is known by its pieces; no text that is made of messages quotes more."""

_HERE = "(secret)"
_SEAM = re.compile(r"[\s=:@\"'`\\/]+")
_SUMMARY_WORD = re.compile(r"[^\s=:@\"'`\\/()\[\]{}<>,;…]{6,}")


def clean(messages: Sequence[MessageRow]) -> Callable[[str], str]:
    """Return what takes the secrets of messages out of a text that is made of them."""
    values = sorted(_summary_values(messages), key=len, reverse=True)
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
        shown = _SUMMARY_WORD.sub(mark_piece, shown) if within else shown
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


def _summary_values(messages: Iterable[MessageRow]) -> set[str]:
    """Return the secrets without the names beside them: what is no plain word, or stands last."""
    found = set()
    for secret in {secret for row in messages for secret in secrets(row)}:
        parts = [part for part in _SEAM.split(secret) if len(part) >= _LEAST]
        found |= {part for part in parts if part is parts[-1] or _is_made_up(part)}
    return found


def _is_made_up(piece: str) -> bool:
    """Whether a piece of a secret is no plain word, which may stand anywhere."""
    return len(piece) >= _LEAST and not (piece.isalpha() and (piece.islower() or piece.istitle()))
