"""Words that the indexes of Hermes hide: in scripts without spaces, and inside encoded JSON.

Its word index has a run of Han as one word, its trigram index nothing shorter than three
characters, and both have multi-part content and arguments of tools as ASCII-escaped JSON. So a
short piece is looked up by the trigrams that begin with it, and an escaped one by its codes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from session_core.state import query as queries
from session_core.state.query import Leaf
from session_core.state.sqlite.handle import Handle

CODED_ROW = '("json" OR "function")'
"""What every row of multi-part content, and every row that calls a tool, has in the word index."""

MULTI_PART = 'content : ^ "json"'
"""What only a row with the marker of multi-part content begins with, or one that says json."""

_CODE = re.compile(r"\\u([0-9a-f]{4})")
_GRAM = 3
_MOST_GRAMS = 400
_VOCABULARY = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS temp.ms_vocabulary"
    " USING fts5vocab(main, messages_fts_trigram, row)"
)


def trigrams(handle: Handle, needle: str) -> str | None:
    """Return what the trigram index is asked for a substring.

    Empty if nothing there can have it, None if it is in too many to ask.
    """
    if len(needle) >= _GRAM:
        return queries.quoted(needle)
    lowered = needle.lower()
    handle.run(_VOCABULARY)
    found = handle.values(
        "SELECT term FROM temp.ms_vocabulary WHERE term >= ? AND term < ? LIMIT ?",
        (lowered, lowered + "\U0010ffff", _MOST_GRAMS),
    )
    if len(found) == _MOST_GRAMS:
        return None
    return " OR ".join(queries.quoted(term) for (term,) in found)


def encodings(needle: str) -> Iterator[str]:
    """Yield a substring as JSON inside JSON has it, where that differs."""
    once = json.dumps(needle)[1:-1]
    twice = json.dumps(once)[1:-1]
    for coded in dict.fromkeys((once, twice)):
        if coded != needle:
            yield coded


def escaped_phrase(text: str) -> str | None:
    """Return what the word index is asked for an escaped piece, None if nothing is escaped."""
    coded = json.dumps(text)[1:-1]
    if _CODE.sub("", coded):
        return None
    return queries.quoted(" ".join(f"u{code}" for code in _CODE.findall(coded))) + "*"


def coded_word(leaf: Leaf) -> str | None:
    """Return what the word index is asked for a leaf inside JSON.

    A line feed or a tab before a word is `n` or `t` there, and part of the word; what is not ASCII
    is a row of codes, with the case as it was typed.
    """
    if leaf.text.isascii():
        star = "*" if leaf.prefix else ""
        forms = [leaf.text, *(f"{escape}{leaf.text}" for escape in "ntrbf")]
        return f"({' OR '.join(queries.quoted(form) + star for form in forms)})"
    forms = [leaf.text, leaf.text.lower(), leaf.text.upper(), leaf.text.capitalize()]
    phrases = [queries.quoted(_as_words(form)) + "*" for form in dict.fromkeys(forms)]
    return f"({' OR '.join(phrases)})"


def inner_word(leaf: Leaf) -> str | None:
    """Return what the trigram index is asked for a word, None if it is too short for it."""
    return queries.quoted(leaf.text) if len(leaf.text) >= _GRAM else None


def _as_words(text: str) -> str:
    return _CODE.sub(r" u\1", json.dumps(text)[1:-1])
