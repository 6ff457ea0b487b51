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

from mcp_serve.redaction.redaction import find_spans
from mcp_serve.render import to_text
from session_core import MessageRow, extract_plain_text

_MAX_DEPTH = 50
_VALUE_SEPARATORS = re.compile(r"[\s\"'\\=:,]+")
_WORD = re.compile(r"[^\s\"'\\=:,]{6,}")
_WORDS = re.compile(r"\S+")
_MIN_PIECE_CHARS = 6
"""Shorter values are of no secret that is known."""


def flatten_message(row: MessageRow) -> tuple[str, list[tuple[int, int]]]:
    """Return what a message says, as a search has it, and from where to where secrets are."""
    whole, ends = _split_values(_find_call_secrets(row))
    lines: list[str] = []
    found: list[tuple[int, int]] = []
    length = 0
    for piece in _list_pieces(row):
        line = " ".join(piece.split())
        start = length + 1 if lines else 0
        lines.append(line)
        length = start + len(line)
        if piece != line:
            found += [(start + begin, start + end) for begin, end in _find_folded_spans(piece)]
        if len(line) >= _MIN_PIECE_CHARS and _escape_json(piece) in whole:
            found.append((start, length))
        elif ends:
            words = _WORD.finditer(line)
            found += [(start + it.start(), start + it.end()) for it in words if it[0] in ends]
    shown = " ".join(lines)
    return shown, sorted([*found, *find_spans(shown)])


def _find_folded_spans(piece: str) -> list[tuple[int, int]]:
    """Return where secrets of a text are in it as one line, which has no wrapped ones any more."""
    secrets = find_spans(piece)
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


def _split_values(secrets: Iterable[str]) -> tuple[set[str], set[str]]:
    """Return what may be the value in secrets that have a name beside it, as JSON has it.

    It is all of an argument, or the word behind the name, where it ends the secret.
    """
    whole: set[str] = set()
    ends: set[str] = set()
    for secret in secrets:
        parts = [part for part in _VALUE_SEPARATORS.split(secret) if len(part) >= _MIN_PIECE_CHARS]
        whole.update((secret, *parts, *secret.split('"')))
        ends.update(parts[-1:])
    return whole, ends


def list_secrets(row: MessageRow) -> set[str]:
    """Return the secrets that stand in a message, each as it stands there."""
    shown, found = flatten_message(row)
    return {shown[start:stop] for start, stop in found} | _find_call_secrets(row)


def _list_pieces(row: MessageRow) -> list[str]:
    pieces = [extract_plain_text(row["content"]), to_text(row.get("tool_name") or "")]
    for call in _decode_calls(row):
        pieces += _list_values(call)
    return [piece for piece in pieces if piece.strip()]


def _find_call_secrets(row: MessageRow) -> set[str]:
    written = (json.dumps(call, ensure_ascii=False) for call in _decode_calls(row))
    return {text[start:stop] for text in written for start, stop in find_spans(text)}


def _decode_calls(row: MessageRow) -> Iterator[Any]:
    """Yield the calls of a message as the name and the decoded arguments of each."""
    calls = row.get("tool_calls")
    for call in calls if isinstance(calls, list) else [calls] if calls else []:
        inner = call.get("function") if isinstance(call, Mapping) else None
        said = inner if isinstance(inner, Mapping) else call
        if not isinstance(said, Mapping):
            yield said
            continue
        rest = {key: value for key, value in said.items() if key != "arguments"}
        yield {**rest, "arguments": _decode_arguments(said.get("arguments"))}


def _decode_arguments(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _list_values(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, (Mapping, list)):
        if depth < _MAX_DEPTH:
            for each in value.values() if isinstance(value, Mapping) else value:
                yield from _list_values(each, depth + 1)
    elif value is not None and not isinstance(value, bool):
        yield to_text(value)


def _escape_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


"""Shorter pieces tell nothing."""

_LONG_VALUE_CHARS = 12
"""A value that is longer is no part of another word by chance."""

_PIECE_CHARS = 9
"""So many characters of a long value in a row are taken out wherever they stand."""

_MAX_VALUE_CHARS = 10_000
"""So much of a value is known by its pieces; no text that is made of messages quotes more."""

_SUMMARY_MARK = "(secret)"
_SUMMARY_SEPARATORS = re.compile(r"[\s=:@\"'`\\/]+")
_SUMMARY_WORD = re.compile(r"[^\s=:@\"'`\\/()\[\]{}<>,;…]{6,}")


def make_summary_cleaner(messages: Sequence[MessageRow]) -> Callable[[str], str]:
    """Return what takes the secrets of messages out of a text that is made of them."""
    values = sorted(_summary_values(messages), key=len, reverse=True)
    within = "\n".join(values)
    short = [value for value in values if len(value) < _LONG_VALUE_CHARS]
    pieces = {
        value[at : at + _PIECE_CHARS]
        for value in values[: len(values) - len(short)]
        for at in range(min(len(value), _MAX_VALUE_CHARS) - _PIECE_CHARS + 1)
    }

    def mark_piece(word: re.Match[str]) -> str:
        piece = word[0].rstrip(".")
        return _SUMMARY_MARK if _is_made_up(piece) and piece in within else word[0]

    def cleaned(text: str) -> str:
        shown = _mark_spans(text, _find_pieces(text, pieces)) if pieces else text
        for value in short:
            if value in shown:
                shown = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", _SUMMARY_MARK, shown)
        shown = _SUMMARY_WORD.sub(mark_piece, shown) if within else shown
        return _mark_spans(shown, find_spans(shown))

    return cleaned


def make_noop_cleaner(messages: Sequence[MessageRow]) -> Callable[[str], str]:
    """Return what leaves a text as it is, where nothing is to be redacted."""
    del messages
    return str


def _find_pieces(text: str, pieces: Collection[str]) -> list[tuple[int, int]]:
    """Return where pieces of values are in a text; those that overlap are one."""
    places: list[tuple[int, int]] = []
    for at in range(len(text) - _PIECE_CHARS + 1):
        if text[at : at + _PIECE_CHARS] in pieces:
            start = places.pop()[0] if places and at <= places[-1][1] else at
            places.append((start, at + _PIECE_CHARS))
    return places


def _mark_spans(text: str, places: Sequence[tuple[int, int]]) -> str:
    for start, stop in reversed(places):
        text = text[:start] + _SUMMARY_MARK + text[stop:]
    return text


def _summary_values(messages: Iterable[MessageRow]) -> set[str]:
    """Return the secrets without the names beside them: what is no plain word, or stands last."""
    found = set()
    for secret in {secret for row in messages for secret in list_secrets(row)}:
        parts = [
            part for part in _SUMMARY_SEPARATORS.split(secret) if len(part) >= _MIN_PIECE_CHARS
        ]
        found |= {part for part in parts if part is parts[-1] or _is_made_up(part)}
    return found


def _is_made_up(piece: str) -> bool:
    """Whether a piece of a secret is no plain word, which may stand anywhere."""
    return len(piece) >= _MIN_PIECE_CHARS and not (
        piece.isalpha() and (piece.islower() or piece.istitle())
    )
