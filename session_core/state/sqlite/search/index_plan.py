"""Where the matches of a query are looked up: the index that this home has, and what it leaves out.

A plan is a few lookups whose union holds every match up to `covered_to`; what lies above is read
row by row, and so are rows of which an index lacks something. What an index of Hermes finds is
verified on decoded text; ours holds decoded text.

What SQL can tell of a row without decoding it; each is a condition on `messages m`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from session_core.state import query as queries
from session_core.state import search_text
from session_core.state.query import Leaf, Node
from session_core.state.sqlite import fts
from session_core.state.sqlite.connection import Handle
from session_core.state.sqlite.search import hermes
from session_core.state.sqlite.search.hermes import TRIGRAMS, WORDS, Lookup

_OWN = "list_own_ids"
_SHORT = 3
_FOUND = "EXISTS (SELECT 1 FROM messages_fts WHERE messages_fts MATCH :{} AND rowid = m.id)"


@dataclass(frozen=True, slots=True)
class Plan:
    """Lookups that together find every match up to `covered_to`; none: nothing indexes it."""

    lookups: tuple[Lookup, ...] = ()
    covered_to: int = fts.NOTHING
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
        return Plan(asked, fts.indexed_to(handle), verify=False, dense=dense)
    end = hermes.index_end(handle)
    if end == fts.NOTHING:
        return Plan()
    lookups = tuple(dict.fromkeys(hermes.lookups(handle, node, coded=coded)))
    return Plan(lookups, end if lookups else fts.NOTHING, dense=dense or _has_short_piece(node))


def is_indexed(handle: Handle, leaf: Leaf) -> bool:
    """Whether an index of words has a word; one that has none says no."""
    if _is_ours(handle):
        return Lookup(_OWN, _own_word(leaf)).finds_any(handle)
    match = hermes.word(leaf)
    if match is None or hermes.index_end(handle) == fts.NOTHING:
        return False
    return Lookup(WORDS, match).finds_any(handle)


def substring(handle: Handle, needle: str) -> Plan:
    """Plan the search for a substring: on a home of our own those that begin with a word."""
    if _is_ours(handle):
        return _own_beginnings(handle, Leaf(needle, prefix=True))
    end = hermes.index_end(handle)
    if end == fts.NOTHING or not hermes.has_trigrams(handle):
        return Plan()
    lookups = tuple(hermes.of_substring(handle, needle))
    dense = len(needle) < hermes.GRAM
    return Plan(lookups, end if lookups else fts.NOTHING, dense=dense)


def inner(handle: Handle, node: Node) -> Plan | None:
    """Plan a second look at a Hermes home, for words that stand inside a longer run.

    Between Han characters its word index does not see where a word begins and ends.
    """
    end, match = hermes.index_end(handle), hermes.inner(node)
    if fts.is_ours(handle) or end == fts.NOTHING or match is None:
        return None
    if not hermes.has_trigrams(handle):
        return None
    return Plan((Lookup(TRIGRAMS, match),), end)


def multi_part(handle: Handle, plan: Plan) -> tuple[Plan, str] | None:
    """Plan the look at multi-part rows, and tell them; None if the trigram index is not asked.

    It stops at the marker, so it has nothing of them. The word index knows them by their beginning.
    """
    if not _asks_trigrams(plan):
        return None
    told, cut = MULTI_PART, hermes.cut_rows(handle)
    if cut is not None:
        told += f" AND NOT ({cut})"
    lookup = Lookup(WORDS, hermes.MULTI_PART)
    return Plan((lookup,), hermes.index_end(handle)), told


def left_out(handle: Handle, plan: Plan) -> LeftOut | None:
    """Return which rows the lookups do not have, None if they have all."""
    if not plan.lookups or fts.is_ours(handle):
        return None
    trigrams = _asks_trigrams(plan)
    lacking = NO_TRIGRAMS if trigrams and hermes.lacks_trigrams(handle) else None
    rows = " OR ".join(filter(None, (lacking, hermes.cut_rows(handle))))
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
    return LeftOut(f"({rows.rows}) AND coalesce({GLUED}, 0)", values={"glued": f"%{needle}%"})


def has_insides(handle: Handle, needle: str) -> bool:
    """Whether a folded needle may lie inside a word, which an index of ours does not have."""
    return _is_ours(handle) and search_text.is_joined(needle[0])


def gram(handle: Handle) -> int:
    """Return how long pieces of a spaceless script must be to be looked up at once."""
    return 2 if fts.is_ours(handle) else hermes.GRAM


def _is_ours(handle: Handle) -> bool:
    """Whether there is an index of ours, and it can be read."""
    return fts.is_ours(handle) and not handle.seen.get(hermes.BROKEN)


def _own_beginnings(handle: Handle, leaf: Leaf) -> Plan:
    if not leaf.words:
        return Plan()
    return Plan((Lookup(_OWN, _own_word(leaf)),), fts.indexed_to(handle))


def _own_word(leaf: Leaf) -> str:
    """Return what our index is asked for a leaf; it has every word of every script."""
    return queries.quoted(" ".join(leaf.words)) + ("*" if leaf.prefix else "")


def _has_short_piece(node: Node) -> bool:
    """Whether the trigrams that begin with a piece would have to be listed."""
    return any(
        len(run) < hermes.GRAM
        for leaf in queries.leaves(node)
        for run in search_text.runs(leaf.text)
    )


def _asks_trigrams(plan: Plan) -> bool:
    return any(lookup.block == TRIGRAMS for lookup in plan.lookups)


NO_TRIGRAMS = (
    "m.tool_calls IS NOT NULL OR NOT EXISTS"
    " (SELECT 1 FROM messages_fts_trigram_docsize d WHERE d.id = m.id)"
)
"""A row of which a newer trigram index has nothing, or not all."""

MULTI_PART = "coalesce(m.content, '') <> '' AND unicode(m.content) IS NULL"
"""A row with the marker of multi-part content."""

GLUED = " OR ".join(
    f"m.{column} LIKE :glued AND length(CAST(m.{column} AS BLOB)) <> length(m.{column})"
    for column in ("content", "tool_calls", "tool_name")
)
"""A row that may have an ASCII word beside a character of another script."""

_TOOL_NAME = "length(CAST(m.tool_name AS BLOB)) <> length(m.tool_name)"
"""The name of a tool that is not plain ASCII, which is rare enough to be read."""

_LIKE_SIEVE = f"""
m.content LIKE :sieve OR length(CAST(m.content AS BLOB)) <> length(m.content)
OR m.tool_calls LIKE :sieve OR instr(m.tool_calls, '\\u') OR instr(m.tool_calls, '\\/')
OR length(CAST(m.tool_calls AS BLOB)) <> length(m.tool_calls)
OR m.tool_name LIKE :sieve OR {_TOOL_NAME}
"""
"""A row that is not plain ASCII passes: its letters may be equal when folded, or encoded."""

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]+")
_COMPOUND = (
    "\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef"
    "\u2e80-\u2fdf\u3038-\u303a\u3190-\u33ff\uf900-\ufaff\U0001f200-\U0001f2ff\U0002f800-\U0002fa1f"
)
"""Signs that are folded to Han characters, or to nothing between them."""


def of(text: str) -> tuple[str, dict[str, str]]:
    """Return a condition on rows that may have a folded text, empty where SQL cannot tell.

    It cannot tell what is encoded, as behind the marker, nor which letters are equal when folded.
    """
    if text.isascii() and text.isprintable() and text and not set(text) & set('"\\'):
        return _LIKE_SIEVE, {"sieve": f"%{text.replace('%', '_')}%"}
    if _HAN.fullmatch(text):
        either = (
            "instr(m.content, :sieve) OR unicode(m.content) IS NULL OR m.tool_calls IS NOT NULL"
            f" OR {_TOOL_NAME} OR length(CAST(m.content AS BLOB)) <> length(m.content)"
            f" AND m.content GLOB '*[{_COMPOUND}]*'"
        )
        return either, {"sieve": text}
    return "", {}
