"""The search index: the words of messages as lexemes of our own, in a `tsvector` without positions.

Words are folded and cut as in a home of our own on SQLite. Neighbouring characters of scripts
without spaces are pairs too, so that two of them are found without a list of every text with both.
An entry has no positions: a phrase finds every message with its words, and its text decides.

A trigger queues each message that is stored or changed. A search reads the queued messages itself,
and indexes them first if there are many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from session_core.state import search_text
from session_core.state.query import And, Leaf, Node, Not, Or

if TYPE_CHECKING:
    from session_core.state.postgres.connection import PostgresConnection

_MAX_WORD_LENGTH = 400
"""A lexeme has at most 2,046 bytes. Longer words are cut in the index and in the query."""

_MAX_PART_BYTES = 500_000
"""A `tsvector` has at most a megabyte."""

_BATCH_ROWS = 500
_BATCH_CHARACTERS = 2_000_000

_TAKE_QUEUED = """
SELECT m.id, m.content, m.tool_name, m.tool_calls FROM text_queue AS q
JOIN message_rows AS m ON m.home_id = q.home_id AND m.id = q.message_id
WHERE q.home_id = this_home() ORDER BY m.id DESC LIMIT ? FOR UPDATE OF q SKIP LOCKED
"""
_DELETE_WORDS = "DELETE FROM word_rows WHERE home_id = this_home() AND message_id = ANY(?)"
_DELETE_QUEUED = "DELETE FROM text_queue WHERE home_id = this_home() AND message_id = ANY(?)"
_INSERT_WORDS = (
    "INSERT INTO word_rows (home_id, message_id, part, whole, words)"
    " VALUES (this_home(), ?, ?, ? = 1, array_to_tsvector(?::text[]))"
)


def index_batch(handle: PostgresConnection) -> bool:
    """Index a batch of queued messages in the open transaction.

    Return True if more messages may be queued.
    """
    rows = list(_limit_batch(handle.fetch_tuples(_TAKE_QUEUED, (_BATCH_ROWS,))))
    if not rows:
        return False
    ids = [row[0] for row in rows]
    handle.execute_update(_DELETE_WORDS, (ids,))
    for message_id, *columns in rows:
        for part, whole, lexemes in _split_parts(
            list_lexemes(search_text.build_search_text(*columns))
        ):
            handle.execute_update(_INSERT_WORDS, (message_id, part, whole, lexemes))
    handle.execute_update(_DELETE_QUEUED, (ids,))
    return len(rows) == _BATCH_ROWS


def _limit_batch(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    characters = 0
    for row in rows:
        yield row
        characters += sum(len(value) for value in row[1:] if isinstance(value, (str, bytes)))
        if characters >= _BATCH_CHARACTERS:
            return


def list_lexemes(text: str) -> list[str]:
    """Return the words of a text and the pairs of neighbours in scripts without spaces."""
    words = search_text.split_words(text)
    lexemes = dict.fromkeys(word[:_MAX_WORD_LENGTH] for word in words)
    if not text.isascii():
        lexemes.update(dict.fromkeys(_iter_pairs(words)))
    return list(lexemes)


def _iter_pairs(words: Sequence[str]) -> Iterator[str]:
    for first, second in pairwise(words):
        if search_text.has_spaceless(first) and search_text.has_spaceless(second):
            yield first + second


def _split_parts(lexemes: Sequence[str]) -> Iterator[tuple[int, bool, list[str]]]:
    """Yield the index entries of a message, mostly one, or several if the words do not fit."""
    parts: list[list[str]] = [[]]
    size = 0
    for lexeme in lexemes:
        length = len(lexeme.encode())
        if size + length > _MAX_PART_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(lexeme)
        size += length
    for number, part in enumerate(parts):
        yield number, len(parts) == 1, part


def compose_match(node: Node) -> str | None:
    """Build a `tsquery` that finds every message with the node, or return None."""
    if isinstance(node, Leaf):
        return _compose_leaf(node)
    if isinstance(node, Not):
        return None
    parts = [compose_match(part) for part in node.parts if not isinstance(part, Not)]
    present = [part for part in parts if part is not None]
    if not present or (isinstance(node, Or) and len(present) < len(parts)):
        return None
    operator = " & " if isinstance(node, And) else " | "
    return f"({operator.join(present)})"


def _compose_leaf(leaf: Leaf) -> str | None:
    words = leaf.words
    if not words:
        return None
    pairs = list(_iter_pairs(words))
    # A pair is rarer than its characters.
    paired = {word for pair in pairwise(words) if "".join(pair) in pairs for word in pair}
    lexemes = [word for word in words[:-1] if word not in paired] + pairs
    last = words[-1]
    terms = [_quote_lexeme(lexeme) for lexeme in dict.fromkeys(lexemes)]
    if last not in paired:
        is_open = leaf.prefix or len(last) > _MAX_WORD_LENGTH
        terms.append(_quote_lexeme(last) + (":*" if is_open else ""))
    return f"({' & '.join(terms)})"


def _quote_lexeme(lexeme: str) -> str:
    escaped = lexeme[:_MAX_WORD_LENGTH].replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
