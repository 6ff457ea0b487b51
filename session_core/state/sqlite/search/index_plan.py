"""The lookups of a query in the index of a home, and the rows that the index does not cover.

A plan is a few lookups whose union holds every match up to `covered_to`. Rows above that are read
one by one, and so are rows that are only partly indexed. Matches of a Hermes index are verified on
decoded text. Our own index holds decoded text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from session_core.state import query as queries
from session_core.state import search_text, sql_blocks
from session_core.state.query import Leaf, Node
from session_core.state.sqlite import fts
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.search import hermes_indexes
from session_core.state.sqlite.search.hermes_indexes import TRIGRAMS, WORDS, Lookup

SQL = sql_blocks.load_blocks("search")

_OWN_BLOCK = "list_own_ids"
_SHORT_LENGTH = 3
_FOUND_SQL = "EXISTS (SELECT 1 FROM messages_fts WHERE messages_fts MATCH :{} AND rowid = m.id)"


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """Lookups that together find every match up to `covered_to`.

    Without an index there are none.
    """

    lookups: tuple[Lookup, ...] = ()
    covered_to: int = fts.EMPTY_MARK
    verify: bool = True
    dense: bool = False
    """True if a lookup is slow because of many matches. The newest rows are read before it."""
    loose: bool = False
    """True if many listed messages may not match, since a lookup has only words of a text."""


@dataclass(frozen=True, slots=True)
class UnindexedRows:
    """Rows that an index lacks or has only in part."""

    rows: str
    """The condition on these rows."""
    known: str = ""
    """The condition on the rows that the lookups find anyway."""
    values: dict[str, Any] = field(default_factory=dict)
    """The values of both conditions."""

    @property
    def unknown_condition(self) -> str:
        """The condition on the rows that the lookups do not find."""
        return f"({self.rows}) AND NOT ({self.known})" if self.known else self.rows


def make_plan(handle: Connection, node: Node, *, coded: bool = True) -> IndexPlan:
    """Plan the search for a node.

    Without `coded`, words next to JSON escapes may be missed.
    """
    dense = any(
        leaf.prefix and len(leaf.text) < _SHORT_LENGTH for leaf in queries.iter_leaves(node)
    )
    if _has_own_index(handle):
        match = handle.compose_match(node)
        own_lookups = () if match is None else (Lookup(_OWN_BLOCK, match),)
        return IndexPlan(
            own_lookups,
            fts.find_high_mark(handle),
            verify=handle.queues_texts,
            dense=dense,
            loose=has_loose_lookup(handle, node),
        )
    end = hermes_indexes.find_index_end(handle)
    if end == fts.EMPTY_MARK:
        return IndexPlan()
    lookups = tuple(dict.fromkeys(hermes_indexes.build_lookups(handle, node, coded=coded)))
    return IndexPlan(
        lookups, end if lookups else fts.EMPTY_MARK, dense=dense or _has_short_piece(node)
    )


def has_loose_lookup(handle: Connection, node: Node) -> bool:
    """Return True if the index of the home has no positions, and a node has a phrase."""
    return handle.queues_texts and any(len(leaf.words) > 1 for leaf in queries.iter_leaves(node))


def find_indexed(handle: Connection, leaves: Sequence[Leaf]) -> set[Leaf]:
    """Return the words that the word index has."""
    if _has_own_index(handle):
        matches = {leaf: handle.compose_match(leaf) or "" for leaf in leaves}
        rows = handle.fetch_tuples(SQL["find_own_matches"], (json.dumps([*matches.values()]),))
        found = {match for (match,) in rows}
    elif hermes_indexes.find_index_end(handle) == fts.EMPTY_MARK:
        return set()
    else:
        words = {leaf: hermes_indexes.build_word_match(leaf) for leaf in leaves}
        matches = {leaf: match for leaf, match in words.items() if match is not None}
        found = hermes_indexes.find_word_matches(handle, [*matches.values()])
    return {leaf for leaf, match in matches.items() if match in found}


def plan_substring_search(handle: Connection, needle: str) -> IndexPlan:
    """Plan the search for a substring.

    A home of our own is searched for words that begin with the substring.
    """
    if _has_own_index(handle):
        return _plan_prefix_search(handle, Leaf(needle, prefix=True))
    end = hermes_indexes.find_index_end(handle)
    if end == fts.EMPTY_MARK or not hermes_indexes.has_trigrams(handle):
        return IndexPlan()
    lookups = tuple(hermes_indexes.build_substring_lookups(handle, needle))
    dense = len(needle) < hermes_indexes.GRAM_LENGTH
    return IndexPlan(lookups, end if lookups else fts.EMPTY_MARK, dense=dense)


def plan_trigram_search(handle: Connection, node: Node) -> IndexPlan | None:
    """Plan the search of a Hermes home for words inside a longer run, by its trigram index.

    Return None if the index cannot be used.
    """
    # The tokenizer of Hermes sees no word boundaries between Han characters.
    end, match = hermes_indexes.find_index_end(handle), hermes_indexes.build_inner_match(node)
    if fts.is_own_index(handle) or end == fts.EMPTY_MARK or match is None:
        return None
    if not hermes_indexes.has_trigrams(handle):
        return None
    return IndexPlan((Lookup(TRIGRAMS, match),), end)


def plan_multi_part_search(handle: Connection, plan: IndexPlan) -> tuple[IndexPlan, str] | None:
    """Plan the search of multi-part rows.

    Return the plan and the condition on these rows, or None if the trigram index is not used.
    """
    if not _has_trigram_lookup(plan):
        return None
    # The trigram index stops at the marker, so it has no text of these rows. The word index has
    # the beginning of the marker.
    condition, cut = MULTI_PART_SQL, hermes_indexes.build_cut_condition(handle)
    if cut is not None:
        condition += f" AND NOT ({cut})"
    lookup = Lookup(WORDS, hermes_indexes.MULTI_PART_MATCH)
    return IndexPlan((lookup,), hermes_indexes.find_index_end(handle)), condition


def find_unindexed_rows(handle: Connection, plan: IndexPlan) -> UnindexedRows | None:
    """Return the rows that the lookups cannot find, or None if they find all rows."""
    if not plan.lookups or fts.is_own_index(handle):
        return None
    trigrams = _has_trigram_lookup(plan)
    partial = NO_TRIGRAMS_SQL if trigrams and hermes_indexes.has_partial_trigrams(handle) else None
    rows = " OR ".join(filter(None, (partial, hermes_indexes.build_cut_condition(handle))))
    if not rows or trigrams or plan.dense:
        return UnindexedRows(rows) if rows else None
    matches = {f"found_{number}": lookup.match for number, lookup in enumerate(plan.lookups)}
    known = " OR ".join(("m.id > :covered_to", *map(_FOUND_SQL.format, matches)))
    return UnindexedRows(rows, known, {**matches, "covered_to": plan.covered_to})


def find_glued_rows(handle: Connection, plan: IndexPlan, needle: str) -> UnindexedRows | None:
    """Return the rows that may have a word in a longer run and that the trigrams lack."""
    rows = find_unindexed_rows(handle, plan)
    if rows is None or not needle.isascii():
        return rows
    return UnindexedRows(
        f"({rows.rows}) AND coalesce({GLUED_SQL}, 0)", values={"glued": f"%{needle}%"}
    )


def has_inner_words(handle: Connection, needle: str) -> bool:
    """Return True if a folded needle may lie inside a word, which our index does not find."""
    return _has_own_index(handle) and search_text.is_word_char(needle[0])


def get_gram_length(handle: Connection) -> int:
    """Return the length of spaceless text that one lookup needs."""
    return 2 if fts.is_own_index(handle) else hermes_indexes.GRAM_LENGTH


def _has_own_index(handle: Connection) -> bool:
    """Return True if the home has our index and it can be read."""
    return fts.is_own_index(handle) and not handle.seen.get(hermes_indexes.INDEX_BROKEN_KEY)


def _plan_prefix_search(handle: Connection, leaf: Leaf) -> IndexPlan:
    if not leaf.words:
        return IndexPlan()
    match = handle.compose_match(leaf) or ""
    loose = leaf.words != [search_text.fold_text(leaf.text)]
    return IndexPlan((Lookup(_OWN_BLOCK, match),), fts.find_high_mark(handle), loose=loose)


def _has_short_piece(node: Node) -> bool:
    """Return True if a piece is so short that the trigrams with its beginning must be listed."""
    return any(
        len(run) < hermes_indexes.GRAM_LENGTH
        for leaf in queries.iter_leaves(node)
        for run in search_text.find_spaceless_runs(leaf.text)
    )


def _has_trigram_lookup(plan: IndexPlan) -> bool:
    return any(lookup.block == TRIGRAMS for lookup in plan.lookups)


NO_TRIGRAMS_SQL = (
    "m.tool_calls IS NOT NULL OR NOT EXISTS"
    " (SELECT 1 FROM messages_fts_trigram_docsize d WHERE d.id = m.id)"
)
"""The condition on rows that a newer trigram index lacks or has only in part."""

MULTI_PART_SQL = "coalesce(m.content, '') <> '' AND unicode(m.content) IS NULL"
"""The condition on rows with the marker of multi-part content."""

GLUED_SQL = " OR ".join(
    f"m.{column} LIKE :glued AND length(CAST(m.{column} AS BLOB)) <> length(m.{column})"
    for column in ("content", "tool_calls", "tool_name")
)
"""The condition on rows that may have an ASCII word next to a character of another script."""

_TOOL_NAME_SQL = "length(CAST(m.tool_name AS BLOB)) <> length(m.tool_name)"
"""The condition on tool names that are not plain ASCII, which are rare enough to be read."""

_LIKE_SIEVE_SQL = f"""
m.content LIKE :sieve OR length(CAST(m.content AS BLOB)) <> length(m.content)
OR m.tool_calls LIKE :sieve OR instr(m.tool_calls, '\\u') OR instr(m.tool_calls, '\\/')
OR length(CAST(m.tool_calls AS BLOB)) <> length(m.tool_calls)
OR m.tool_name LIKE :sieve OR {_TOOL_NAME_SQL}
"""
"""Rows that are not plain ASCII pass: folding or decoding may make their letters equal."""

_HAN_RUN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]+")
_COMPOUND_CHARS = (
    "\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef"
    "\u2e80-\u2fdf\u3038-\u303a\u3190-\u33ff\uf900-\ufaff\U0001f200-\U0001f2ff\U0002f800-\U0002fa1f"
)
"""Characters that fold to Han characters, or to nothing between them."""


def build_sieve(handle: Connection, text: str) -> tuple[str, dict[str, str]]:
    """Build a condition on rows that may contain a folded text, or return an empty text."""
    if not handle.has_row_ids:
        return "", {}
    # SQL can see neither encoded text, as after the marker, nor letters that folding makes equal.
    if text.isascii() and text.isprintable() and text and not set(text) & set('"\\'):
        return _LIKE_SIEVE_SQL, {"sieve": f"%{text.replace('%', '_')}%"}
    if _HAN_RUN.fullmatch(text):
        condition = (
            "instr(m.content, :sieve) OR unicode(m.content) IS NULL OR m.tool_calls IS NOT NULL"
            f" OR {_TOOL_NAME_SQL} OR length(CAST(m.content AS BLOB)) <> length(m.content)"
            f" AND m.content GLOB '*[{_COMPOUND_CHARS}]*'"
        )
        return condition, {"sieve": text}
    return "", {}
