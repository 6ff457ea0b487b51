"""Where the matches of a query are looked up: the index that this home has, and what it leaves out.

A plan is a few lookups whose union holds every match up to `covered_to`; what lies above is read
row by row, and so are rows of which an index lacks something. What an index of Hermes finds is
verified on decoded text; ours holds decoded text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from session_core.state import query as queries
from session_core.state import searchable
from session_core.state.query import Leaf, Node
from session_core.state.sqlite import index, search_extent, search_hermes, search_sieve
from session_core.state.sqlite.handle import Handle
from session_core.state.sqlite.search_hermes import TRIGRAMS, WORDS, Lookup

_OWN = "list_own_ids"
_SHORT = 3
_FOUND = "EXISTS (SELECT 1 FROM messages_fts WHERE messages_fts MATCH :{} AND rowid = m.id)"


@dataclass(frozen=True, slots=True)
class Plan:
    """Lookups that together find every match up to `covered_to`; none: nothing indexes it."""

    lookups: tuple[Lookup, ...] = ()
    covered_to: int = index.NOTHING
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
    dense = any(leaf.prefix and len(leaf.text) < _SHORT for leaf in queries.leaves(node))
    if _is_ours(handle):
        match = queries.expression(node, _own_word)
        asked = () if match is None else (Lookup(_OWN, match),)
        return Plan(asked, index.indexed_to(handle), verify=False, dense=dense)
    end = search_extent.index_end(handle)
    if end == index.NOTHING:
        return Plan()
    lookups = tuple(dict.fromkeys(search_hermes.lookups(handle, node, coded=coded)))
    return Plan(lookups, end if lookups else index.NOTHING, dense=dense or _has_short_piece(node))


def is_indexed(handle: Handle, leaf: Leaf) -> bool:
    """Whether an index of words has a word; one that has none says no."""
    if _is_ours(handle):
        return Lookup(_OWN, _own_word(leaf)).finds_any(handle)
    match = search_hermes.word(leaf)
    if match is None or search_extent.index_end(handle) == index.NOTHING:
        return False
    return Lookup(WORDS, match).finds_any(handle)


def substring(handle: Handle, needle: str) -> Plan:
    """Plan the search for a substring: on a home of our own those that begin with a word."""
    if _is_ours(handle):
        return _own_beginnings(handle, Leaf(needle, prefix=True))
    end = search_extent.index_end(handle)
    if end == index.NOTHING or not search_extent.has_trigrams(handle):
        return Plan()
    lookups = tuple(search_hermes.of_substring(handle, needle))
    dense = len(needle) < search_hermes.GRAM
    return Plan(lookups, end if lookups else index.NOTHING, dense=dense)


def inner(handle: Handle, node: Node) -> Plan | None:
    """Plan a second look at a Hermes home, for words that stand inside a longer run.

    Between Han characters its word index does not see where a word begins and ends.
    """
    end, match = search_extent.index_end(handle), search_hermes.inner(node)
    if index.is_ours(handle) or end == index.NOTHING or match is None:
        return None
    if not search_extent.has_trigrams(handle):
        return None
    return Plan((Lookup(TRIGRAMS, match),), end)


def multi_part(handle: Handle, plan: Plan) -> tuple[Plan, str] | None:
    """Plan the look at multi-part rows, and tell them; None if the trigram index is not asked.

    It stops at the marker, so it has nothing of them. The word index knows them by their beginning.
    """
    if not _asks_trigrams(plan):
        return None
    told, cut = search_sieve.MULTI_PART, search_extent.cut_rows(handle)
    if cut is not None:
        told += f" AND NOT ({cut})"
    lookup = Lookup(WORDS, search_hermes.MULTI_PART)
    return Plan((lookup,), search_extent.index_end(handle)), told


def left_out(handle: Handle, plan: Plan) -> LeftOut | None:
    """Return which rows the lookups do not have, None if they have all."""
    if not plan.lookups or index.is_ours(handle):
        return None
    trigrams = _asks_trigrams(plan)
    lacking = (
        search_sieve.NO_TRIGRAMS if trigrams and search_extent.lacks_trigrams(handle) else None
    )
    rows = " OR ".join(filter(None, (lacking, search_extent.cut_rows(handle))))
    if not rows or trigrams or plan.dense:
        return LeftOut(rows) if rows else None
    matches = {f"found_{place}": lookup.match for place, lookup in enumerate(plan.lookups)}
    known = " OR ".join(("m.id > :covered_to", *map(_FOUND.format, matches)))
    return LeftOut(rows, known, {**matches, "covered_to": plan.covered_to})


def glued(handle: Handle, plan: Plan, needle: str) -> LeftOut | None:
    """Return which rows the second look does not have that may have a word inside a longer run."""
    rows = left_out(handle, plan)
    if rows is None or not needle.isascii():
        return rows
    return LeftOut(
        f"({rows.rows}) AND coalesce({search_sieve.GLUED}, 0)", values={"glued": f"%{needle}%"}
    )


def has_insides(handle: Handle, needle: str) -> bool:
    """Whether a folded needle may lie inside a word, which an index of ours does not have."""
    return _is_ours(handle) and searchable.is_joined(needle[0])


def gram(handle: Handle) -> int:
    """Return how long pieces of a spaceless script must be to be looked up at once."""
    return 2 if index.is_ours(handle) else search_hermes.GRAM


def _is_ours(handle: Handle) -> bool:
    """Whether there is an index of ours, and it can be read."""
    return index.is_ours(handle) and not handle.seen.get(search_extent.BROKEN)


def _own_beginnings(handle: Handle, leaf: Leaf) -> Plan:
    if not leaf.words:
        return Plan()
    return Plan((Lookup(_OWN, _own_word(leaf)),), index.indexed_to(handle))


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
