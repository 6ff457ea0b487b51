"""Where the matches of a query are looked up: the index that this home has, and what it leaves out.

A plan is a few lookups whose union holds every match up to `covered_to`; what lies above is read
row by row. What an index of Hermes finds is a superset (it has JSON as it is stored), so it is
verified on decoded text; ours holds decoded text already.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from session_core.state import query as queries
from session_core.state import searchable
from session_core.state.query import And, Leaf, Node, Not, Or
from session_core.state.sqlite import blocks, index, search_cjk
from session_core.state.sqlite.handle import Handle

SQL = blocks.load("search")

BROKEN = "search_index_broken"
"""Set in `seen` once an index could not be read: everything is read row by row then."""

OWN, WORDS, TRIGRAMS = "list_own_ids", "list_word_ids", "list_trigram_ids"

_SHORT = 3
_GRAM = 3


@dataclass(frozen=True, slots=True)
class Lookup:
    """A statement that lists ids, newest first, and what it is to match."""

    block: str
    match: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Lookups that together find every match up to `covered_to`; none: nothing indexes it."""

    lookups: tuple[Lookup, ...]
    covered_to: int
    verify: bool
    dense: bool = False
    """Whether a lookup is dear where matches are many: the newest rows are read before it."""


def make(handle: Handle, node: Node, *, coded: bool = True) -> Plan:
    """Plan the search for a node; without `coded`, words that JSON has glued may be missed."""
    if handle.seen.get(BROKEN):
        return Plan((), 0, verify=True)
    if index.is_ours(handle):
        match = queries.expression(node, own_word)
        asked = () if match is None else (Lookup(OWN, match),)
        return Plan(asked, index.indexed_to(handle), verify=False, dense=_has_short_prefix(node))
    covered_to = word_index_end(handle)
    if not covered_to:
        return Plan((), 0, verify=True)
    lookups = tuple(dict.fromkeys(_hermes_lookups(handle, node, coded=coded)))
    dense = _has_short_prefix(node) or _has_short_piece(node)
    return Plan(lookups, covered_to if lookups else 0, verify=True, dense=dense)


def word_index_end(handle: Handle) -> int:
    """Return up to which message the index of a Hermes home goes, 0 where it has holes."""
    if not handle.has("messages_fts_docsize"):
        return 0
    found = handle.seen.get("word_index_end")
    if found is None:
        end = 0 if _is_rebuilding(handle) else handle.value(SQL["get_word_index_end"])
        found = handle.seen["word_index_end"] = end or 0
    return int(found)


def _is_rebuilding(handle: Handle) -> bool:
    """Whether the index of Hermes has holes that it has not got to fill yet."""
    if not handle.has("state_meta"):
        return False
    marks = dict(handle.values(SQL["list_marks"]))
    if marks.get("fts_stale") not in (None, "", "0"):
        return True
    try:
        high, done = (
            int(marks.get(f"fts_rebuild_{key}") or -1) for key in ("high_water", "progress")
        )
    except ValueError:
        return True
    return high > done


def is_indexed(handle: Handle, leaf: Leaf) -> bool:
    """Whether an index of words has a word; one that has none says no."""
    if handle.seen.get(BROKEN):
        return False
    ours = index.is_ours(handle)
    match = own_word(leaf) if ours else hermes_word(leaf)
    if match is None or not (ours or word_index_end(handle)):
        return False
    bounds = {"match": match, "below": 2**62, "low": 0, "count": 1}
    return handle.value(SQL[OWN if ours else WORDS], bounds) is not None


def own_word(leaf: Leaf) -> str:
    """Return what our index is asked for a leaf; it has every word of every script."""
    return queries.quoted(searchable.spaced(leaf.text)) + ("*" if leaf.prefix else "")


def hermes_word(leaf: Leaf) -> str | None:
    """Return what the word index of Hermes is asked, None for what it has as one long word."""
    if searchable.has_spaceless(leaf.text):
        return None
    return queries.quoted(leaf.text) + ("*" if leaf.prefix else "")


def substring(handle: Handle, needle: str) -> Plan:
    """Plan the search for a substring: on a home of our own those that begin with a word."""
    if handle.seen.get(BROKEN):
        return Plan((), 0, verify=True)
    if index.is_ours(handle):
        leaf = Leaf(needle, prefix=True)
        asked = (Lookup(OWN, own_word(leaf)),) if leaf.words else ()
        return Plan(asked, index.indexed_to(handle) if asked else 0, verify=True)
    if not word_index_end(handle) or not handle.has("messages_fts_trigram"):
        return Plan((), 0, verify=True)
    lookups = tuple(_trigram_lookups(handle, needle))
    return Plan(
        lookups, word_index_end(handle) if lookups else 0, verify=True, dense=len(needle) < _GRAM
    )


def _hermes_lookups(handle: Handle, node: Node, *, coded: bool) -> list[Lookup]:
    """Return lookups whose union holds every match, none where there is no such union."""
    positive = _without_not(node)
    match = queries.expression(positive, hermes_word)
    if match is not None:
        found = [Lookup(WORDS, match)]
        glued = queries.expression(positive, search_cjk.coded_word) if coded else None
        if glued is not None:
            found.append(Lookup(WORDS, f"({glued} AND {search_cjk.CODED_ROW})"))
        return found
    if isinstance(positive, Leaf):
        return _spaceless_lookups(handle, positive)
    if isinstance(positive, Or):
        parts = [_hermes_lookups(handle, part, coded=coded) for part in positive.parts]
        return [lookup for part in parts for lookup in part] if all(parts) else []
    options = [
        _hermes_lookups(handle, part, coded=coded) for part in getattr(positive, "parts", ())
    ]
    return max(filter(None, options), key=_selectivity, default=[])


def _selectivity(lookups: list[Lookup]) -> int:
    """Return how far the lookups narrow a search: long pieces are rarer than short ones."""
    return min(len(lookup.match) for lookup in lookups)


def _spaceless_lookups(handle: Handle, leaf: Leaf) -> list[Lookup]:
    run = max(searchable.runs(leaf.text), key=len, default="")
    if not run or not handle.has("messages_fts_trigram"):
        return []
    found = list(_trigram_lookups(handle, run))
    return [*found, Lookup(WORDS, queries.quoted(run) + "*")] if found else []


def _trigram_lookups(handle: Handle, needle: str) -> list[Lookup]:
    """Return the lookups of a substring: as it is, and as JSON has it once and twice encoded."""
    match = search_cjk.trigrams(handle, needle)
    if match is None:
        return []
    found = [Lookup(TRIGRAMS, match)] if match else []
    found += [Lookup(TRIGRAMS, queries.quoted(one)) for one in search_cjk.encodings(needle)]
    escaped = search_cjk.escaped_phrase(needle)
    if escaped:
        found.append(Lookup(WORDS, escaped))
    return found


def _without_not(node: Node) -> Node:
    if not isinstance(node, (And, Or)):
        return node
    parts = tuple(_without_not(part) for part in node.parts if not isinstance(part, Not))
    return parts[0] if len(parts) == 1 else type(node)(parts)


def _has_short_prefix(node: Node) -> bool:
    """Whether the postings of very many words would be merged."""
    return any(leaf.prefix and len(leaf.text) < _SHORT for leaf in queries.leaves(node))


def _has_short_piece(node: Node) -> bool:
    """Whether the trigrams that begin with a piece would have to be listed."""
    return any(
        len(run) < _GRAM for leaf in queries.leaves(node) for run in searchable.runs(leaf.text)
    )


def inner(handle: Handle, node: Node) -> Plan | None:
    """Plan a second look at a Hermes home, for words that stand inside a longer run.

    Between Han characters its word index does not see where a word begins and ends.
    """
    if handle.seen.get(BROKEN) or index.is_ours(handle):
        return None
    if not handle.has("messages_fts_trigram"):
        return None
    end = word_index_end(handle)
    match = queries.expression(_without_not(node), search_cjk.inner_word)
    if not end or match is None:
        return None
    return Plan((Lookup(TRIGRAMS, match),), end, verify=True)


def multi_part(handle: Handle, plan: Plan) -> tuple[Plan, str] | None:
    """Plan the look at multi-part rows, and tell them; None if the trigram index is not asked.

    It stops at the marker, so it has nothing of them. The word index knows them by their beginning.
    """
    if not any(lookup.block == TRIGRAMS for lookup in plan.lookups):
        return None
    end = word_index_end(handle)
    told = "m.content <> '' AND unicode(m.content) IS NULL"
    return Plan((Lookup(WORDS, search_cjk.MULTI_PART),), end, verify=True), told


def left_out(handle: Handle, plan: Plan) -> str | None:
    """Return a condition on the rows that the lookups do not have, None if they have all.

    Newer homes have no trigrams of what tools said, of arguments, and of sessions nobody talks in.
    """
    if not any(lookup.block == TRIGRAMS for lookup in plan.lookups):
        return None
    partial = handle.seen.get("partial_trigrams")
    if partial is None:
        partial = handle.seen["partial_trigrams"] = bool(handle.value(SQL["has_partial_trigrams"]))
    if not partial or not handle.has("messages_fts_trigram_docsize"):
        return None
    return (
        "m.tool_calls IS NOT NULL OR NOT EXISTS"
        " (SELECT 1 FROM messages_fts_trigram_docsize d WHERE d.id = m.id)"
    )


def sieve(text: str) -> tuple[str, dict[str, str]] | None:
    """Return a condition on rows that may have a text, None where SQL cannot tell.

    Text behind the marker and arguments of tools are encoded, so there only ASCII can be told.
    """
    if text.isascii() and text.isprintable() and not set(text) & set('"\\'):
        columns = ("m.content", "m.tool_calls", "m.tool_name")
        either = " OR ".join(f"instr(lower({column}), :sieve)" for column in columns)
        return either, {"sieve": text.lower()}
    if text and "".join(searchable.runs(text)) == text:
        either = (
            "instr(m.content, :sieve) OR unicode(m.content) IS NULL OR m.tool_calls IS NOT NULL"
        )
        return either, {"sieve": text}
    return None


def inside(handle: Handle, needle: str) -> Plan | None:
    """Plan the second look at a home of our own: what lies inside a word is read row by row."""
    if handle.seen.get(BROKEN) or not index.is_ours(handle) or not Leaf(needle).words:
        return None
    if searchable.has_spaceless(needle[0]) or not needle[0].isalnum():
        return None
    return Plan((), 0, verify=True)


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
    return 2 if index.is_ours(handle) else 3
