"""Where the matches of a query are looked up: the index that this home has, and what it leaves out.

A plan is a few lookups whose union holds every match up to `covered_to`; what lies above is read
row by row, and so are rows of which an index lacks something. What an index of Hermes finds is
verified on decoded text; ours holds decoded text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from session_core.state import query as queries
from session_core.state import searchable
from session_core.state.query import Leaf, Node
from session_core.state.sqlite import index, search_extent, search_hermes
from session_core.state.sqlite.handle import Handle
from session_core.state.sqlite.search_hermes import TRIGRAMS, WORDS, Lookup

BROKEN = "search_index_broken"
"""Set in `seen` once an index could not be read: everything is read row by row then."""

_OWN = "list_own_ids"
_SHORT = 3
_SIEVE = """
m.content LIKE :sieve OR length(CAST(m.content AS BLOB)) <> length(m.content)
OR m.tool_calls LIKE :sieve OR instr(m.tool_calls, '\\u') OR m.tool_name LIKE :sieve
"""
"""A row that is not plain ASCII passes: its letters may be equal when folded, or encoded."""

_NO_TRIGRAMS = (
    "m.tool_calls IS NOT NULL OR NOT EXISTS"
    " (SELECT 1 FROM messages_fts_trigram_docsize d WHERE d.id = m.id)"
)

_MULTI_PART = "coalesce(m.content, '') <> '' AND unicode(m.content) IS NULL"
_FOUND = "EXISTS (SELECT 1 FROM messages_fts WHERE messages_fts MATCH :{} AND rowid = m.id)"

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]+")
_COMPOUND = (
    "\u2e80-\u2fdf\u3038-\u303a\u3190-\u33ff\uf900-\ufaff\U0001f200-\U0001f2ff\U0002f800-\U0002fa1f"
)
"""Signs that are folded to Han characters."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Lookups that together find every match up to `covered_to`; none: nothing indexes it."""

    lookups: tuple[Lookup, ...] = ()
    covered_to: int = 0
    verify: bool = True
    dense: bool = False
    """Whether a lookup is dear where matches are many: the newest rows are read before it."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Rows of which an index lacks something, or everything."""

    rows: str
    """A condition on them."""
    known: str = ""
    """A condition on those that are found nevertheless."""
    values: dict[str, Any] = field(default_factory=dict)
    """What is bound in it."""

    @property
    def unknown(self) -> str:
        """A condition on those that are not found."""
        return f"({self.rows}) AND NOT ({self.known})" if self.known else self.rows


def make(handle: Handle, node: Node, *, coded: bool = True) -> Plan:
    """Plan the search for a node; without `coded`, words that JSON has glued may be missed."""
    if handle.seen.get(BROKEN):
        return Plan()
    dense = any(leaf.prefix and len(leaf.text) < _SHORT for leaf in queries.leaves(node))
    if index.is_ours(handle):
        match = queries.expression(node, _own_word)
        asked = () if match is None else (Lookup(_OWN, match),)
        return Plan(asked, index.indexed_to(handle), verify=False, dense=dense)
    covered_to = search_extent.index_end(handle)
    if not covered_to:
        return Plan()
    lookups = tuple(dict.fromkeys(search_hermes.lookups(handle, node, coded=coded)))
    return Plan(lookups, covered_to if lookups else 0, dense=dense or _has_short_piece(node))


def is_indexed(handle: Handle, leaf: Leaf) -> bool:
    """Whether an index of words has a word; one that has none says no."""
    if handle.seen.get(BROKEN):
        return False
    if index.is_ours(handle):
        return Lookup(_OWN, _own_word(leaf)).finds_any(handle)
    match = search_hermes.word(leaf)
    if match is None or not search_extent.index_end(handle):
        return False
    return Lookup(WORDS, match).finds_any(handle)


def substring(handle: Handle, needle: str) -> Plan:
    """Plan the search for a substring: on a home of our own those that begin with a word."""
    if handle.seen.get(BROKEN):
        return Plan()
    if index.is_ours(handle):
        leaf = Leaf(needle, prefix=True)
        return (
            Plan((Lookup(_OWN, _own_word(leaf)),), index.indexed_to(handle))
            if leaf.words
            else Plan()
        )
    end = search_extent.index_end(handle)
    if not end or not search_extent.has_trigrams(handle):
        return Plan()
    lookups = tuple(search_hermes.of_substring(handle, needle))
    return Plan(lookups, end if lookups else 0, dense=len(needle) < search_hermes.GRAM)


def inner(handle: Handle, node: Node) -> Plan | None:
    """Plan a second look at a Hermes home, for words that stand inside a longer run.

    Between Han characters its word index does not see where a word begins and ends.
    """
    if handle.seen.get(BROKEN) or index.is_ours(handle) or not search_extent.has_trigrams(handle):
        return None
    end, match = search_extent.index_end(handle), search_hermes.inner(node)
    return Plan((Lookup(TRIGRAMS, match),), end) if end and match is not None else None


def multi_part(handle: Handle, plan: Plan) -> tuple[Plan, str] | None:
    """Plan the look at multi-part rows, and tell them; None if the trigram index is not asked.

    It stops at the marker, so it has nothing of them. The word index knows them by their beginning.
    """
    if not _asks_trigrams(plan):
        return None
    told, cut = _MULTI_PART, search_extent.cut_rows(handle)
    if cut is not None:
        told += f" AND NOT ({cut})"
    lookup = Lookup(WORDS, search_hermes.MULTI_PART)
    return Plan((lookup,), search_extent.index_end(handle)), told


def left_out(handle: Handle, plan: Plan) -> LeftOut | None:
    """Return which rows the lookups do not have, None if they have all."""
    if not plan.lookups or index.is_ours(handle):
        return None
    trigrams = _asks_trigrams(plan)
    lacking = _NO_TRIGRAMS if trigrams and search_extent.lacks_trigrams(handle) else None
    rows = " OR ".join(filter(None, (lacking, search_extent.cut_rows(handle))))
    if not rows or trigrams or plan.dense:
        return LeftOut(rows) if rows else None
    matches = {f"found_{place}": lookup.match for place, lookup in enumerate(plan.lookups)}
    known = " OR ".join(("m.id > :covered_to", *map(_FOUND.format, matches)))
    return LeftOut(rows, known, {**matches, "covered_to": plan.covered_to})


def inside(handle: Handle, needle: str) -> Plan | None:
    """Plan the second look at a home of our own: what lies inside a word is read row by row."""
    if handle.seen.get(BROKEN) or not index.is_ours(handle):
        return None
    return Plan() if searchable.is_joined(searchable.fold(needle)[0]) else None


def begins(needle: str) -> Callable[[str], bool]:
    """Return a test whether a folded needle stands at the beginning of a word."""

    def test(folded: str) -> bool:
        at = folded.find(needle)
        while at > 0 and searchable.is_joined(folded[at - 1]):
            at = folded.find(needle, at + 1)
        return at >= 0

    return test


def gram(handle: Handle) -> int:
    """Return how long pieces of a spaceless script must be to be looked up at once."""
    return 2 if index.is_ours(handle) else search_hermes.GRAM


def sieve(text: str) -> tuple[str, dict[str, str]] | None:
    """Return a condition on rows that may have a text, None where SQL cannot tell.

    It cannot tell what is encoded, as behind the marker, nor which letters are equal when folded.
    """
    if not text:
        return None
    if text.isascii() and text.isprintable() and not set(text) & set('"\\'):
        return _SIEVE, {"sieve": f"%{text.replace('%', '_')}%"}
    if _HAN.fullmatch(text):
        either = (
            "instr(m.content, :sieve) OR unicode(m.content) IS NULL OR m.tool_calls IS NOT NULL"
            " OR length(CAST(m.content AS BLOB)) <> length(m.content)"
            f" AND m.content GLOB '*[{_COMPOUND}]*'"
        )
        return either, {"sieve": text}
    return None


def _own_word(leaf: Leaf) -> str:
    """Return what our index is asked for a leaf; it has every word of every script."""
    return queries.quoted(" ".join(leaf.words)) + ("*" if leaf.prefix else "")


def _has_short_piece(node: Node) -> bool:
    """Whether the trigrams that begin with a piece would have to be listed."""
    return any(
        len(run) < search_hermes.GRAM
        for leaf in queries.leaves(node)
        for run in searchable.runs(leaf.text)
    )


def _asks_trigrams(plan: Plan) -> bool:
    return any(lookup.block == TRIGRAMS for lookup in plan.lookups)
