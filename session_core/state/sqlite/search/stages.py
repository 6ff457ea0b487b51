"""The ways in which a query is looked for, one after the other, and what each reports.

A query that means what it says has one. Plain words are loosened as long as nothing is found. What
an index leaves out is a stage of its own that adds to those before it; a message belongs to exactly
one of them, so that none is found twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from session_core.state import query as queries
from session_core.state import query as state_query
from session_core.state import search_text
from session_core.state.query import Node, Query
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.search import any_words, index_plan
from session_core.state.sqlite.search.candidates import CandidateQuery
from session_core.state.sqlite.search.index_plan import IndexPlan, UnindexedRows
from session_core.types import MatchMode, SearchMode

_MAX_INNER_LEAVES = 2


@dataclass(frozen=True, slots=True)
class SearchStage:
    """One way to look, and what is reported of it."""

    name: str
    matched: MatchMode
    look: CandidateQuery
    words: tuple[state_query.LeafMatcher, ...] = ()
    terms: tuple[any_words.SearchTerm, ...] = ()
    """Of which the best of the whole home are gathered, instead of the newest that match."""
    goes_on: bool = False
    """Whether the next stage adds to what this one has found."""
    adds: bool = False
    """Whether it only adds: what it has not got to does not keep the next one waiting."""
    brief: bool = False
    """Whether its first block is all of it."""
    before: tuple[SearchStage, ...] = ()
    """The stages whose conversations are not shown again."""
    best: SearchStage | None = None
    """The best of any words, where this one comes after it with what was not among them."""


def iter_stages(
    handle: Connection, query: Query, typed: str, mode: SearchMode
) -> Iterator[SearchStage]:
    """Return the stages of a query, none where there is nothing to look for."""
    if mode == "substring":
        return _iter_substring_stages(handle, typed.replace("\x00", ""), "substring")
    if query.node is None:
        return iter(())
    if query.kind == "literal":
        return _iter_substring_stages(handle, query.text, "text")
    return _iter_word_stages(handle, query, query.node)


def _iter_word_stages(handle: Connection, query: Query, node: Node) -> Iterator[SearchStage]:
    """A question is asked for any of its words at once: who has all of them asks it, too."""
    if query.kind != "words" or not state_query.is_question(query.text):
        yield from _iter_strict_stages(handle, query, node)
    if query.kind != "syntax":
        yield from _iter_loose_stages(handle, node)


def _iter_strict_stages(handle: Connection, query: Query, node: Node) -> Iterator[SearchStage]:
    yield from _add_unindexed_stage(handle, _make_node_stage(handle, "all", "all", node))
    if query.kind == "syntax":
        return
    if len(set(queries.iter_leaves(node))) <= _MAX_INNER_LEAVES:
        yield from _iter_inner_stages(handle, node)
    prefixes = queries.add_prefixes(node, except_for=state_query.STOP_WORDS)
    yield from _add_unindexed_stage(handle, _make_node_stage(handle, "prefix", "prefix", prefixes))


def _iter_inner_stages(handle: Connection, node: Node) -> Iterator[SearchStage]:
    """Yield the stages for words that stand between Han characters."""
    plan = index_plan.plan_inner_words(handle, node)
    if plan is not None:
        stage = _make_node_stage(handle, "inner", "all", node)
        stage = replace(stage, look=replace(stage.look, plan=plan), adds=True, brief=True)
        yield from _split_stage(stage, index_plan.find_glued_rows(handle, plan, stage.look.needle))


def _iter_loose_stages(handle: Connection, node: Node) -> Iterator[SearchStage]:
    """Yield the best of those that have any of the words, then all others, newest first."""
    terms = any_words.split_terms(handle, node)
    best = _make_node_stage(handle, "any", "any", node)
    look = replace(best.look, needle="", sieve="")
    best = replace(best, look=look, terms=terms, goes_on=True, brief=True)
    yield best

    def test(folded: str) -> bool:
        return any(term.compute_match_weight(folded) for term in terms)

    rest = CandidateQuery(index_plan.make_plan(handle, any_words.build_any_query(terms)), test)
    words = tuple(term.word for term in terms)
    yield from _add_unindexed_stage(
        handle, SearchStage("rest", "any", rest, words, adds=True, best=best)
    )


def _make_node_stage(handle: Connection, name: str, matched: MatchMode, node: Node) -> SearchStage:
    """Return the stage of what matches a node."""
    words = tuple(
        state_query.compile_leaf(leaf) for leaf in dict.fromkeys(queries.iter_leaves(node))
    )
    needle = state_query.find_needle(node)
    sieve, values = index_plan.build_sieve(needle)
    plan = index_plan.make_plan(handle, node)

    def test(folded: str) -> bool:
        return state_query.is_match(node, folded)

    return SearchStage(
        name, matched, CandidateQuery(plan, test, needle, sieve, values=values), words
    )


def _add_unindexed_stage(handle: Connection, stage: SearchStage) -> Iterator[SearchStage]:
    """Yield the stage, and another one for the rows that its index leaves out."""
    return _split_stage(stage, index_plan.find_unindexed_rows(handle, stage.look.plan))


def _split_stage(stage: SearchStage, left_out: UnindexedRows | None) -> Iterator[SearchStage]:
    if left_out is None:
        yield stage
        return
    look, values = stage.look, stage.look.values | left_out.values
    indexed = replace(look, only=f"NOT ({left_out.unknown_condition})", values=values)
    # What a lookup has found is known: nobody need ask again of each row.
    yield replace(stage, look=look if left_out.known else indexed, goes_on=True)
    rest = CandidateQuery(
        IndexPlan(),
        look.test,
        look.needle,
        "" if left_out.known else look.sieve,
        only=left_out.unknown_condition,
        apart=left_out.rows,
        values=values,
    )
    before = (replace(stage, look=indexed),)
    name = f"{stage.name}+"
    yield replace(stage, name=name, look=rest, adds=True, brief=False, before=before)


def _iter_substring_stages(
    handle: Connection, needle: str, matched: MatchMode
) -> Iterator[SearchStage]:
    folded_needle = search_text.fold_text(needle)
    if not folded_needle.strip():
        return iter(())
    sieve, values = index_plan.build_sieve(folded_needle)

    def test(folded: str) -> bool:
        return folded_needle in folded

    plan = index_plan.plan_substring(handle, needle)
    whole = SearchStage(
        "substring", matched, CandidateQuery(plan, test, sieve=sieve, values=values)
    )
    if index_plan.has_inner_words(handle, folded_needle):
        return _chain_stages(*_iter_place_stages(whole, folded_needle))
    return _chain_stages(*_iter_row_stages(handle, whole))


def _iter_place_stages(whole: SearchStage, needle: str) -> Iterator[SearchStage]:
    """Yield the stages of a home of our own: what begins a word, then what lies inside of one."""
    begins = state_query.make_word_start_test(needle)

    def inside(folded: str) -> bool:
        return whole.look.test(folded) and not begins(folded)

    yield replace(whole, look=replace(whole.look, test=begins))
    yield replace(whole, name="inside", look=replace(whole.look, plan=IndexPlan(), test=inside))


def _iter_row_stages(handle: Connection, whole: SearchStage) -> Iterator[SearchStage]:
    """Yield the stages of a Hermes home: plain rows, multi-part ones, what the index leaves out."""
    coded = index_plan.plan_multi_part(handle, whole.look.plan)
    if coded is None:
        yield whole
        return
    plan, told = coded
    left_out = index_plan.find_unindexed_rows(handle, whole.look.plan)
    others = f"({left_out.rows}) AND NOT ({told})" if left_out else "0"
    plain = f"NOT ({told}) AND NOT ({others})"
    yield replace(whole, look=replace(whole.look, only=plain))
    yield replace(whole, name="coded", look=replace(whole.look, plan=plan, only=told))
    if left_out is not None:
        look = replace(whole.look, plan=IndexPlan(), only=others, apart=others)
        yield replace(whole, name="substring+", look=look)


def _chain_stages(*stages: SearchStage) -> Iterator[SearchStage]:
    """Yield stages of which each adds to those before it."""
    for place, stage in enumerate(stages, 1):
        yield replace(
            stage, goes_on=place < len(stages), adds=place > 1, before=stages[: place - 1]
        )
