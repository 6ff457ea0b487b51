"""Find secrets in whole messages, and remove them from texts derived from messages.

A value may be a secret only because of the name next to it. Searches and summaries quote such
values without the name.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from mcp_serve.plain_text import to_text
from mcp_serve.redaction.redaction import find_secret_spans
from session_core import extract_plain_text
from session_core.types import MessageRow

_MAX_DEPTH = 50
_VALUE_SEPARATORS = re.compile(r"[\s\"'\\=:,]+")
_WORD = re.compile(r"[^\s\"'\\=:,]{6,}")
_WORDS = re.compile(r"\S+")
# No known kind of secret has a shorter value.
_MIN_PIECE_CHARS = 6


def flatten_and_find_secrets(row: MessageRow) -> tuple[str, list[tuple[int, int]]]:
    """Return a message as the single line that a search sees, and the spans of its secrets."""
    values, ends = _split_values(_find_call_secrets(row))
    lines: list[str] = []
    spans: list[tuple[int, int]] = []
    length = 0
    for piece in _list_message_texts(row):
        line = " ".join(piece.split())
        start = length + 1 if lines else 0
        lines.append(line)
        length = start + len(line)
        if piece != line:
            spans += [(start + begin, start + end) for begin, end in _find_folded_spans(piece)]
        if len(line) >= _MIN_PIECE_CHARS and _escape_json(piece) in values:
            spans.append((start, length))
        elif ends:
            words = _WORD.finditer(line)
            spans += [(start + it.start(), start + it.end()) for it in words if it[0] in ends]
    flat = " ".join(lines)
    return flat, sorted([*spans, *find_secret_spans(flat)])


def _find_folded_spans(piece: str) -> list[tuple[int, int]]:
    """Return the spans of secrets of a text after folding it into one line."""
    # Secrets wrapped over several lines are found before folding.
    secrets = find_secret_spans(piece)
    if not secrets:
        return []
    words, places, length = [], [], 0
    for word in _WORDS.finditer(piece):
        words.append(word.start())
        places.append(length)
        length += len(word[0]) + 1

    def find_place(at: int) -> int:
        word = bisect_right(words, at) - 1
        return places[word] + at - words[word]

    return [(find_place(start), find_place(stop - 1) + 1) for start, stop in secrets]


def _split_values(secrets: Iterable[str]) -> tuple[set[str], set[str]]:
    """Return the possible values in named secrets: whole arguments, and last words."""
    values: set[str] = set()
    ends: set[str] = set()
    for secret in secrets:
        parts = [part for part in _VALUE_SEPARATORS.split(secret) if len(part) >= _MIN_PIECE_CHARS]
        values.update((secret, *parts, *secret.split('"')))
        ends.update(parts[-1:])
    return values, ends


def list_message_secrets(row: MessageRow) -> set[str]:
    """Return the secrets of a message as the message spells them."""
    flat, spans = flatten_and_find_secrets(row)
    return {flat[start:stop] for start, stop in spans} | _find_call_secrets(row)


def _list_message_texts(row: MessageRow) -> list[str]:
    pieces = [extract_plain_text(row["content"]), to_text(row.get("tool_name") or "")]
    for call in _decode_calls(row):
        pieces += _list_argument_texts(call)
    return [piece for piece in pieces if piece.strip()]


def _find_call_secrets(row: MessageRow) -> set[str]:
    calls = (json.dumps(call, ensure_ascii=False) for call in _decode_calls(row))
    return {text[start:stop] for text in calls for start, stop in find_secret_spans(text)}


def _decode_calls(row: MessageRow) -> Iterator[Any]:
    """Yield each tool call with its name and decoded arguments."""
    calls = row.get("tool_calls")
    for call in calls if isinstance(calls, list) else [calls] if calls else []:
        function = call.get("function") if isinstance(call, Mapping) else None
        fields = function if isinstance(function, Mapping) else call
        if not isinstance(fields, Mapping):
            yield fields
            continue
        rest = {key: value for key, value in fields.items() if key != "arguments"}
        yield {**rest, "arguments": _decode_arguments(fields.get("arguments"))}


def _decode_arguments(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _list_argument_texts(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, (Mapping, list)):
        if depth < _MAX_DEPTH:
            for item in value.values() if isinstance(value, Mapping) else value:
                yield from _list_argument_texts(item, depth + 1)
    elif value is not None and not isinstance(value, bool):
        yield to_text(value)


def _escape_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


# A longer value does not occur within another word by chance.
_LONG_VALUE_CHARS = 12

# Any substring of this length of a long value is removed.
_PIECE_CHARS = 9

# Only this much of a value is split into pieces; summaries quote less.
_MAX_VALUE_CHARS = 10_000

# Not the mark of redaction, which summaries must not contain.
_SUMMARY_MARK = "(secret)"
_SUMMARY_SEPARATORS = re.compile(r"[\s=:@\"'`\\/]+")
_SUMMARY_WORD = re.compile(r"[^\s=:@\"'`\\/()\[\]{}<>,;…]{6,}")


def make_summary_cleaner(messages: Sequence[MessageRow]) -> Callable[[str], str]:
    """Return a function that removes the secrets of messages from a text derived from them."""
    values = sorted(_list_summary_values(messages), key=len, reverse=True)
    all_values = "\n".join(values)
    short = [value for value in values if len(value) < _LONG_VALUE_CHARS]
    pieces = {
        value[at : at + _PIECE_CHARS]
        for value in values[: len(values) - len(short)]
        for at in range(min(len(value), _MAX_VALUE_CHARS) - _PIECE_CHARS + 1)
    }

    def mark_piece(word: re.Match[str]) -> str:
        piece = word[0].rstrip(".")
        return _SUMMARY_MARK if _is_random_piece(piece) and piece in all_values else word[0]

    def remove_secrets(text: str) -> str:
        cleaned_text = _mark_spans(text, _find_pieces(text, pieces)) if pieces else text
        for value in short:
            if value in cleaned_text:
                cleaned_text = re.sub(
                    rf"(?<!\w){re.escape(value)}(?!\w)", _SUMMARY_MARK, cleaned_text
                )
        cleaned_text = _SUMMARY_WORD.sub(mark_piece, cleaned_text) if all_values else cleaned_text
        return _mark_spans(cleaned_text, find_secret_spans(cleaned_text))

    return remove_secrets


def make_noop_cleaner(messages: Sequence[MessageRow]) -> Callable[[str], str]:
    """Return a function that leaves text unchanged, for servers without redaction."""
    del messages
    return str


def _find_pieces(text: str, pieces: Collection[str]) -> list[tuple[int, int]]:
    """Return the spans of pieces of values in a text, with overlapping spans merged."""
    spans: list[tuple[int, int]] = []
    for position in range(len(text) - _PIECE_CHARS + 1):
        if text[position : position + _PIECE_CHARS] in pieces:
            start = spans.pop()[0] if spans and position <= spans[-1][1] else position
            spans.append((start, position + _PIECE_CHARS))
    return spans


def _mark_spans(text: str, spans: Sequence[tuple[int, int]]) -> str:
    for start, stop in reversed(spans):
        text = text[:start] + _SUMMARY_MARK + text[stop:]
    return text


def _list_summary_values(messages: Iterable[MessageRow]) -> set[str]:
    """Return the values of secrets without their names: last parts, and parts other than words."""
    values = set()
    for secret in {secret for row in messages for secret in list_message_secrets(row)}:
        parts = [
            part for part in _SUMMARY_SEPARATORS.split(secret) if len(part) >= _MIN_PIECE_CHARS
        ]
        values |= {part for part in parts if part is parts[-1] or _is_random_piece(part)}
    return values


def _is_random_piece(piece: str) -> bool:
    """Return True if a piece of a secret is not an ordinary word."""
    return len(piece) >= _MIN_PIECE_CHARS and not (
        piece.isalpha() and (piece.islower() or piece.istitle())
    )
