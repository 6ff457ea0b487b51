"""The two search indexes of a Hermes home: their coverage, and lookups in them.

The coverage is inspected, never derived from a version: a layout can be older or newer than its
schema. The word index has a run of Han as one word, the trigram index has no text shorter than
three characters, and both have multi-part content and tool arguments as ASCII-escaped JSON. So a
short piece is looked up by the trigrams that begin with it, and an escaped piece by its codes. The
matches are a superset, to be verified on decoded text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from session_core.state import query as queries
from session_core.state import search_text, sql_blocks
from session_core.state.query import And, Leaf, Node, Not, Or
from session_core.state.sqlite import fts
from session_core.state.sqlite.connection import Connection

SQL = sql_blocks.load_blocks("search")

INDEX_BROKEN_KEY = "search_index_broken"
"""Set in `seen` after an index could not be read: all rows are then read one by one."""

_SUBSTR_LIMIT = re.compile(r"substr\s*\((?:[^()]|\([^()]*\))*,\s*1\s*,\s*(\d+)\s*\)", re.IGNORECASE)
"""Matches how a trigger, or the view of an index, truncates a text."""

_CUT_ROWS_SQL = (
    "coalesce(m.role = 'tool'"
    " AND (length(CAST(m.content AS BLOB)) > {} OR instr(m.content, char(0))), 0)"
)


def find_index_end(handle: Connection) -> int:
    """Return the last id of the word index, or EMPTY_MARK if it is missing or has holes."""
    if handle.seen.get(INDEX_BROKEN_KEY) or not handle.has_column("messages_fts_docsize"):
        return fts.EMPTY_MARK
    index_end = handle.seen.get("word_index_end")
    if index_end is None:
        end = None if _is_rebuilding(handle) else handle.fetch_value(SQL["get_word_index_end"])
        index_end = handle.seen["word_index_end"] = fts.EMPTY_MARK if end is None else end
    return int(index_end)


def _is_rebuilding(handle: Connection) -> bool:
    """Return True if the index has holes that Hermes has not filled yet."""
    if not handle.has_column("state_meta"):
        return False
    # Hermes records its progress in `state_meta` while it fills the index.
    marks = dict(handle.fetch_tuples(SQL["list_marks"]))
    if marks.get("fts_stale") not in (None, "", "0"):
        return True
    try:
        high, done = (
            int(marks.get(f"fts_rebuild_{key}") or -1) for key in ("high_water", "progress")
        )
    except ValueError:
        return True
    return high > done


def has_trigrams(handle: Connection) -> bool:
    """Return True if there is a trigram index."""
    return handle.has_column("messages_fts_trigram")


def has_partial_trigrams(handle: Connection) -> bool:
    """Return True if the trigram index leaves rows out, as in newer homes.

    It lacks tool results, tool arguments and internal sessions.
    """
    partial = handle.seen.get("partial_trigrams")
    if partial is None:
        partial = handle.seen["partial_trigrams"] = bool(
            handle.fetch_value(SQL["has_partial_trigrams"])
        )
    return bool(partial) and handle.has_column("messages_fts_trigram_docsize")


def build_cut_condition(handle: Connection) -> str | None:
    """Return a condition on rows of which only the beginning is indexed, or None."""
    # Newer homes truncate tool results, and SQLite truncates at the marker of multi-part content.
    if "cut_rows" not in handle.seen:
        lengths = _SUBSTR_LIMIT.findall(handle.fetch_value(SQL["get_indexed_text"]) or "")
        longest = min(map(int, lengths), default=None)
        handle.seen["cut_rows"] = None if longest is None else _CUT_ROWS_SQL.format(longest)
    condition: str | None = handle.seen["cut_rows"]
    return condition


WORDS, TRIGRAMS = "list_word_ids", "list_trigram_ids"

MULTI_PART_MATCH = 'content : ^ "json"'
"""Matches rows that begin with the marker of multi-part content, or with the word json."""

GRAM_LENGTH = 3
_CODED_ROW_MATCH = '("json" OR "function")'
"""Matches all rows with multi-part content or tool calls."""

_UNICODE_ESCAPE = re.compile(r"\\u([0-9a-f]{4})")
_ESCAPE_BEFORE_WORD = re.compile(r"\\(u[0-9a-fA-F]{4})(?=[0-9A-Za-z])")
_LEADING_NON_WORD = re.compile(r"^[\W_]+(?=.)")
_GLUED_CACHE_KEY = "glued_codes"
_MAX_NEWER_ROWS = 2000
_MAX_GRAMS = 400
_CREATE_WORD_VOCABULARY = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS temp.ms_words USING fts5vocab(main, messages_fts, row)"
)
_CREATE_TRIGRAM_VOCABULARY = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS temp.ms_vocabulary"
    " USING fts5vocab(main, messages_fts_trigram, row)"
)


@dataclass(frozen=True, slots=True)
class Lookup:
    """A statement that lists ids, newest first, and its match expression."""

    block: str
    match: str


def find_word_matches(handle: Connection, matches: Sequence[str]) -> set[str]:
    """Return the expressions for which the word index has a message."""
    rows = handle.fetch_tuples(SQL["find_word_matches"], (json.dumps(matches),))
    return {match for (match,) in rows}


def build_word_match(leaf: Leaf) -> str | None:
    """Build the expression of a leaf for the word index, or return None for spaceless scripts."""
    if search_text.has_spaceless(leaf.text):
        return None
    star = "*" if leaf.prefix else ""
    forms = [
        queries.quote_fts_string(form) + star for form in search_text.list_spellings(leaf.text)
    ]
    return forms[0] if len(forms) == 1 else f"({' OR '.join(forms)})"


def build_inner_match(node: Node) -> str | None:
    """Build the expression of a node for the trigram index, or return None for short words."""

    def build_gram(leaf: Leaf) -> str | None:
        return queries.quote_fts_string(leaf.text) if len(leaf.text) >= GRAM_LENGTH else None

    return queries.build_match_expression(_drop_not(node), build_gram)


def build_lookups(handle: Connection, node: Node, *, coded: bool) -> list[Lookup]:
    """Return lookups that together find every match, or an empty list if they would miss matches.

    Without `coded`, words next to JSON escapes may be missed.
    """
    positive = _drop_not(node)
    match = queries.build_match_expression(positive, build_word_match)
    if match is not None:
        hidden = _build_hidden_match(handle, positive) if coded else None
        return [Lookup(WORDS, one) for one in (match, hidden) if one is not None]
    if isinstance(positive, Leaf):
        return _build_spaceless_lookups(handle, positive)
    parts = [build_lookups(handle, part, coded=coded) for part in getattr(positive, "parts", ())]
    if isinstance(positive, Or):
        return [lookup for part in parts for lookup in part] if all(parts) else []
    # Long pieces are rarer than short ones.
    return max(
        filter(None, parts), key=lambda part: min(len(one.match) for one in part), default=[]
    )


def build_substring_lookups(handle: Connection, needle: str) -> list[Lookup]:
    """Build the lookups of a substring: plain, and in JSON encoded once and twice."""
    lookups: list[Lookup] = []
    for spelling in search_text.list_spellings(needle):
        match = _build_trigram_match(handle, spelling)
        if match is None:
            return []
        lookups += [Lookup(TRIGRAMS, match)] if match else []
        lookups += [
            Lookup(TRIGRAMS, queries.quote_fts_string(encoding))
            for encoding in _iter_encodings(spelling)
        ]
        escaped = _build_escaped_phrase(spelling)
        lookups += [Lookup(WORDS, escaped)] if escaped else []
    return lookups


def _build_spaceless_lookups(handle: Connection, leaf: Leaf) -> list[Lookup]:
    run = max(search_text.find_spaceless_runs(leaf.text), key=len, default="")
    if not run or not has_trigrams(handle):
        return []
    lookups = build_substring_lookups(handle, run)
    return [*lookups, Lookup(WORDS, queries.quote_fts_string(run) + "*")] if lookups else []


def _drop_not(node: Node) -> Node:
    if not isinstance(node, (And, Or)):
        return node
    parts = tuple(_drop_not(part) for part in node.parts if not isinstance(part, Not))
    return parts[0] if len(parts) == 1 else type(node)(parts)


def _build_hidden_match(handle: Connection, node: Node) -> str | None:
    """Build an expression for words that JSON hides.

    Return None if JSON hides no word of the node.
    """
    hidden: dict[Leaf, str] = {}
    glue = _list_escape_prefixes(handle)
    leaves = [leaf for leaf in set(queries.iter_leaves(node)) if build_word_match(leaf) is not None]
    probes = [_build_glued_match(_take_first_word(leaf), glue) for leaf in leaves]
    found = find_word_matches(handle, probes)
    for leaf, probe in zip(leaves, probes, strict=True):
        if probe in found:
            hidden[leaf] = f"({build_word_match(leaf)} OR {_build_glued_match(leaf, glue)})"
    if not hidden:
        return None
    match = queries.build_match_expression(
        node, lambda leaf: hidden.get(leaf) or build_word_match(leaf)
    )
    return None if match is None else f"({match} AND {_CODED_ROW_MATCH})"


def _take_first_word(leaf: Leaf) -> Leaf:
    """Return the first word of a leaf, since JSON hides no other word."""
    words = leaf.words if leaf.text.isascii() else ()
    return Leaf(words[0]) if len(words) > 1 else leaf


def _build_glued_match(leaf: Leaf, glue: Sequence[str]) -> str:
    """Build the expression of a leaf with the escapes that JSON adds to it."""
    # An escaped character before a word is part of the word in the index, as `n` or `u201c`. Text
    # that is not ASCII is a row of codes, in the case as typed. A private-use character, which only
    # the index takes for a letter, is a word of its own if it is not escaped.
    text = _LEADING_NON_WORD.sub("", leaf.text)
    if text.isascii():
        prefixes = glue if leaf.text.isascii() else ("", *glue)
        phrases, star = [f"{prefix}{text}" for prefix in prefixes], "*" if leaf.prefix else ""
    else:
        forms = dict.fromkeys((text, text.lower(), text.upper(), text.capitalize()))
        prefixes = ("", *glue) if text[0].isascii() else ("",)
        phrases, star = (
            [f"{prefix}{_escape_words(form)}" for form in forms for prefix in prefixes],
            "*",
        )
    return f"({' OR '.join(queries.quote_fts_string(phrase) + star for phrase in phrases)})"


def _escape_words(text: str) -> str:
    return _UNICODE_ESCAPE.sub(r" u\1", json.dumps(text)[1:-1]).strip()


def _list_escape_prefixes(handle: Connection) -> list[str]:
    """Return the prefixes that escapes add to words in this index."""
    end = find_index_end(handle)
    last, codes = handle.kept.get(_GLUED_CACHE_KEY, (None, set()))
    # Reading the vocabulary is slow, so a few new rows are scanned for codes instead.
    if last is None or end - last >= _MAX_NEWER_ROWS:
        # A table of the temp schema, which a read-only connection can create too.
        handle.execute_update(_CREATE_WORD_VOCABULARY)
        codes = {code for (code,) in handle.fetch_tuples(SQL["list_glued_codes"])}
    elif end > last:
        newer = handle.fetch_tuples(SQL["list_escaped"], (last, end))
        codes |= {
            code.lower()
            for row in newer
            for text in row
            for code in _ESCAPE_BEFORE_WORD.findall(text)
        }
    handle.kept[_GLUED_CACHE_KEY] = end, codes
    return ["n", "t", "r", "b", "f", *sorted(codes)]


def _build_trigram_match(handle: Connection, needle: str) -> str | None:
    """Build the expression of a substring.

    Return an empty text if it has no match, and None if it has too many.
    """
    if len(needle) >= GRAM_LENGTH:
        return queries.quote_fts_string(needle)
    lowered = needle.lower()
    handle.execute_update(_CREATE_TRIGRAM_VOCABULARY)
    rows = handle.fetch_tuples(
        "SELECT term FROM temp.ms_vocabulary WHERE term >= ? AND term < ? LIMIT ?",
        (lowered, lowered + "\U0010ffff", _MAX_GRAMS),
    )
    # With so many trigrams the lookup would be slower than reading rows.
    if len(rows) == _MAX_GRAMS:
        return None
    return " OR ".join(queries.quote_fts_string(term) for (term,) in rows)


def _iter_encodings(needle: str) -> Iterator[str]:
    """Yield the spellings of a substring in JSON inside JSON, if they differ from it."""
    encoded = json.dumps(needle)[1:-1]
    # Some encoders also escape a slash.
    encodings = (encoded, encoded.replace("/", "\\/"))
    for text in dict.fromkeys(
        (*encodings, *(json.dumps(encoding)[1:-1] for encoding in encodings))
    ):
        if text != needle:
            yield text


def _build_escaped_phrase(text: str) -> str | None:
    """Build the expression of an escaped substring, or return None if nothing is escaped."""
    escaped = json.dumps(text)[1:-1]
    if _UNICODE_ESCAPE.sub("", escaped):
        return None
    return (
        queries.quote_fts_string(" ".join(f"u{code}" for code in _UNICODE_ESCAPE.findall(escaped)))
        + "*"
    )
