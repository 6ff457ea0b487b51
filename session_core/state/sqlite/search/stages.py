"""The stages of a search, from strict to loose, and the match mode that each stage reports.

A query with syntax has one stage. Plain words are loosened until there is a match. Rows that an
index does not cover have a stage of their own that adds to the stages before it. Each message
belongs to exactly one of them, so that it is found once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial

from session_core.state import query as queries
from session_core.state import search_text
from session_core.state.query import Node, Query
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.search import any_words, index_plan
from session_core.state.sqlite.search.candidates import CandidateQuery
from session_core.state.sqlite.search.index_plan import IndexPlan, UnindexedRows
from session_core.state.terms import SearchTerm
from session_core.types import MatchMode, SearchMode, SearchStep

_MAX_INNER_LEAVES = 2


@dataclass(frozen=True, slots=True)
class SearchStage:
    """A way to find matches, and the match mode that it reports."""

    name: str
    matched: MatchMode
    query: CandidateQuery
    words: tuple[queries.LeafMatcher, ...] = ()
    terms: tuple[SearchTerm, ...] = ()
    """If set, the best messages of the whole home are gathered instead of the newest."""
    adds_up: bool = False
    """True if the terms may be in different messages of a session."""
    goes_on: bool = False
    """True if the next stage adds to the matches of this stage."""
    adds: bool = False
    """True if the stage only adds, so that its unread rows do not delay the next stage."""
    brief: bool = False
    """True if the stage has only one block."""
    before: tuple[SearchStage, ...] = ()
    """The stages whose conversations are not shown again."""
    best: SearchStage | None = None
    """The stage of the best messages, if this stage yields all others."""


def iter_steps(
    handle: Connection, query: Query, query_text: str, mode: SearchMode
) -> Iterator[tuple[SearchStep, Iterator[SearchStage]]]:
    """Yield the steps of a query, from strict to loose, each with its stages.

    A stage is planned when it is asked for, since planning reads the index.
    """
    if mode == "substring":
        needle = query_text.replace("\x00", "")
        yield "substring", _iter_substring_stages(handle, needle, "substring")
    elif query.kind == "literal":
        yield "substring", _iter_substring_stages(handle, query.text, "text")
    elif query.node is not None:
        yield from _iter_word_steps(handle, query, query.node)


def _iter_word_steps(
    handle: Connection, query: Query, node: Node
) -> Iterator[tuple[SearchStep, Iterator[SearchStage]]]:
    # A question goes to any of its words at once: a message with all of them may only repeat it.
    if query.kind != "words" or not queries.is_question(query.text):
        yield "all", _iter_node_stages(handle, "all", node)
        if query.kind == "syntax":
            return
        if query.kind == "words":
            yield "conversation", _iter_conversation_stages(handle, node)
        if len(set(queries.iter_leaves(node))) <= _MAX_INNER_LEAVES:
            yield "inner", _iter_inner_stages(handle, node)
        prefixes = queries.add_prefixes(node, except_for=queries.STOP_WORDS)
        yield "prefix", _iter_node_stages(handle, "prefix", prefixes)
    # Both steps need the stage of the best messages, which is planned once.
    plan_best = cache(partial(_make_best_stage, handle, node))
    yield "any", (plan() for plan in (plan_best,))
    yield "rest", _iter_rest_stages(handle, node, plan_best)


def _iter_node_stages(handle: Connection, name: MatchMode, node: Node) -> Iterator[SearchStage]:
    yield from _add_unindexed_stage(handle, _make_node_stage(handle, name, name, node))


def _iter_conversation_stages(handle: Connection, node: Node) -> Iterator[SearchStage]:
    """Yield the stage of sessions with all words, if there are several."""
    terms = any_words.split_terms(handle, node)
    if len(terms) > 1:
        stage = _make_node_stage(handle, "conversation", "conversation", node)
        yield replace(stage, terms=terms, adds_up=True, brief=True)


def _iter_inner_stages(handle: Connection, node: Node) -> Iterator[SearchStage]:
    """Yield the stages for words between Han characters."""
    plan = index_plan.plan_trigram_search(handle, node)
    if plan is not None:
        stage = _make_node_stage(handle, "inner", "all", node)
        stage = replace(stage, query=replace(stage.query, plan=plan), adds=True, brief=True)
        yield from _split_stage(stage, index_plan.find_glued_rows(handle, plan, stage.query.needle))


def _make_best_stage(handle: Connection, node: Node) -> SearchStage:
    """Build the stage of the best messages with any of the words."""
    best = _make_node_stage(handle, "any", "any", node)
    query = replace(best.query, needle="", sieve="")
    terms = any_words.split_terms(handle, node)
    return replace(best, query=query, terms=terms, goes_on=True, brief=True)


def _iter_rest_stages(
    handle: Connection, node: Node, plan_best: Callable[[], SearchStage]
) -> Iterator[SearchStage]:
    """Yield the stages of all other messages with any of the words."""
    terms = any_words.split_terms(handle, node)
    best = plan_best()

    def has_any_term(folded: str) -> bool:
        return any(term.compute_match_weight(folded) for term in terms)

    plan = index_plan.make_plan(handle, any_words.build_any_query(terms))
    rest = CandidateQuery(plan, has_any_term)
    words = tuple(term.word for term in terms)
    yield from _add_unindexed_stage(
        handle, SearchStage("rest", "any", rest, words, adds=True, best=best)
    )


def _make_node_stage(handle: Connection, name: str, matched: MatchMode, node: Node) -> SearchStage:
    """Build the stage of the messages that match a node."""
    words = tuple(queries.compile_leaf(leaf) for leaf in dict.fromkeys(queries.iter_leaves(node)))
    needle = queries.find_needle(node)
    sieve, values = index_plan.build_sieve(handle, needle)
    plan = index_plan.make_plan(handle, node)

    def matches_node(folded: str) -> bool:
        return queries.is_match(node, folded)

    return SearchStage(
        name, matched, CandidateQuery(plan, matches_node, needle, sieve, values=values), words
    )


def _add_unindexed_stage(handle: Connection, stage: SearchStage) -> Iterator[SearchStage]:
    """Yield the stage, and another stage for the rows that its index does not cover."""
    return _split_stage(stage, index_plan.find_unindexed_rows(handle, stage.query.plan))


def _split_stage(stage: SearchStage, left_out: UnindexedRows | None) -> Iterator[SearchStage]:
    if left_out is None:
        yield stage
        return
    query, values = stage.query, stage.query.values | left_out.values
    indexed = replace(query, only=f"NOT ({left_out.unknown_condition})", values=values)
    # The rows of a lookup are indexed, so the condition need not be checked for each of them.
    yield replace(stage, query=query if left_out.known else indexed, goes_on=True)
    rest = CandidateQuery(
        IndexPlan(),
        query.test,
        query.needle,
        "" if left_out.known else query.sieve,
        only=left_out.unknown_condition,
        apart=left_out.rows,
        values=values,
    )
    # A conversation that the indexed rows have shown is not shown again.
    before = (replace(stage, query=indexed),)
    name = f"{stage.name}+"
    yield replace(stage, name=name, query=rest, adds=True, brief=False, before=before)


def _iter_substring_stages(
    handle: Connection, needle: str, matched: MatchMode
) -> Iterator[SearchStage]:
    folded_needle = search_text.fold_text(needle)
    if not folded_needle.strip():
        return iter(())
    sieve, values = index_plan.build_sieve(handle, folded_needle)

    def has_needle(folded: str) -> bool:
        return folded_needle in folded

    plan = index_plan.plan_substring_search(handle, needle)
    whole = SearchStage(
        "substring", matched, CandidateQuery(plan, has_needle, sieve=sieve, values=values)
    )
    if index_plan.has_inner_words(handle, folded_needle):
        return _chain_stages(*_iter_place_stages(whole, folded_needle))
    return _chain_stages(*_iter_row_stages(handle, whole))


def _iter_place_stages(whole: SearchStage, needle: str) -> Iterator[SearchStage]:
    """Yield the stages of a home of our own: beginnings of words, then insides of words."""
    begins_word = queries.make_word_start_test(needle)

    def is_only_inside_word(folded: str) -> bool:
        return whole.query.test(folded) and not begins_word(folded)

    yield replace(whole, query=replace(whole.query, test=begins_word))
    yield replace(
        whole, name="inside", query=replace(whole.query, plan=IndexPlan(), test=is_only_inside_word)
    )


def _iter_row_stages(handle: Connection, whole: SearchStage) -> Iterator[SearchStage]:
    """Yield the stages of a Hermes home: plain rows, multi-part rows, unindexed rows."""
    multi_part_plan = index_plan.plan_multi_part_search(handle, whole.query.plan)
    if multi_part_plan is None:
        yield whole
        return
    plan, multi_part = multi_part_plan
    left_out = index_plan.find_unindexed_rows(handle, whole.query.plan)
    unindexed = f"({left_out.rows}) AND NOT ({multi_part})" if left_out else "0"
    plain = f"NOT ({multi_part}) AND NOT ({unindexed})"
    yield replace(whole, query=replace(whole.query, only=plain))
    yield replace(whole, name="coded", query=replace(whole.query, plan=plan, only=multi_part))
    if left_out is not None:
        query = replace(whole.query, plan=IndexPlan(), only=unindexed, apart=unindexed)
        yield replace(whole, name="substring+", query=query)


def _chain_stages(*stages: SearchStage) -> Iterator[SearchStage]:
    """Yield stages in order. Each stage adds to the stages before it."""
    for number, stage in enumerate(stages, 1):
        yield replace(
            stage, goes_on=number < len(stages), adds=number > 1, before=stages[: number - 1]
        )
