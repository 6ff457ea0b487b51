"""The searchable text of messages, and its words in the form of the index.

Words are folded as in all searches of the library. Runs of scripts without spaces are split into
overlapping pairs and a last single character, so that a pair is one look-up.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from typing import Any

from session_core.state import query, search_text
from session_core.state.query import Leaf
from session_core.transcripts.decoding import decode_json
from session_core.transcripts.format import Message

_MAX_DEPTH = 16
_BLANK = 32
_RUN = re.compile(f"[{search_text.SPACELESS_CHARS}]+")
_WORD = re.compile("[a-z0-9\x80-\U0010ffff]+")


def build_text(message: Message) -> str:
    """Return the searchable text of a message: text, tool names, and values of tool calls."""
    if not message.tool_calls and not message.tool_name:
        return message.text
    texts = [message.text, message.tool_name or ""]
    for call in message.tool_calls:
        texts.append(call.name)
        _collect_values(_decode_arguments(call.arguments), texts, 0)
    return "\n".join(text for text in texts if text)


def build_words(text: str) -> str:
    """Return the words of a text for the index, with ASCII separators only."""
    folded = search_text.fold_text(text)
    if folded.isascii():
        return folded
    return _RUN.sub(_pair_run, search_text.blank_separators(folded))


def build_expression(leaf: Leaf) -> str | None:
    """Return the FTS5 phrase of a query leaf, or None if it has no word."""
    folded = search_text.blank_separators(search_text.fold_text(leaf.text))
    # A run of a script without spaces is a piece of its own, also in the middle of a word.
    pieces = _WORD.findall(_RUN.sub(lambda run: f" {run[0]} ", folded))
    if not pieces:
        return None
    *first, last = pieces
    words = [word for piece in first for word in _split_piece(piece, is_last=False)]
    words += _split_piece(last, is_last=True)
    is_lone = len(last) == 1 and search_text.has_spaceless(last)
    # The index has pairs, so a lone character is the beginning of one.
    prefix = is_lone or (leaf.prefix and not search_text.has_spaceless(last))
    return query.quote_fts_string(" ".join(words)) + (" *" if prefix else "")


def _split_piece(piece: str, *, is_last: bool) -> Iterator[str]:
    """Yield the words of a piece. The last run may continue in a matching text."""
    if not search_text.has_spaceless(piece):
        yield piece
        return
    yield from (piece[at : at + 2] for at in range(len(piece) - 1))
    if not is_last or len(piece) == 1:
        yield piece[-1]


def _pair_run(run: re.Match[str]) -> str:
    # A loop over characters would take as long as the whole insert of such a text.
    chars = array("I", run[0].encode("utf-32-le"))
    pairs = array("I", (_BLANK,)) * (3 * len(chars) + 1)
    pairs[1::3] = chars
    pairs[2:-3:3] = chars[1:]
    return pairs.tobytes().decode("utf-32-le")


def _decode_arguments(arguments: str) -> Any:
    try:
        return decode_json(arguments.encode())
    except ValueError:
        return arguments


def _collect_values(value: Any, texts: list[str], depth: int) -> None:
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, dict | list) and depth < _MAX_DEPTH:
        for item in value.values() if isinstance(value, dict) else value:
            _collect_values(item, texts, depth + 1)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        texts.append(str(value))
