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
from session_core.state.sqlite.connection import Handle
from session_core.state.sqlite.search import any_words, index_plan
from session_core.state.sqlite.search.candidates import Look
from session_core.state.sqlite.search.index_plan import LeftOut, Plan
from session_core.types import Matched, Mode

_INNER_LEAVES = 2


@dataclass(frozen=True, slots=True)
class Stage:
    """One way to look, and what is reported of it."""

    name: str
    matched: Matched
    look: Look
    words: tuple[state_query.Word, ...] = ()
    terms: tuple[any_words.Term, ...] = ()
    """Of which the best of the whole home are gathered, instead of the newest that match."""
    goes_on: bool = False
    """Whether the next stage adds to what this one has found."""
    adds: bool = False
    """Whether it only adds: what it has not got to does not keep the next one waiting."""
    brief: bool = False
    """Whether its first block is all of it."""
    before: tuple[Stage, ...] = ()
    """The stages whose conversations are not shown again."""
    best: Stage | None = None
    """The best of any words, where this one comes after it with what was not among them."""


def of(handle: Handle, query: Query, typed: str, mode: Mode) -> Iterator[Stage]:
    """Return the stages of a query, none where there is nothing to look for."""
    if mode == "substring":
        return _substring(handle, typed.replace("\x00", ""), "substring")
    if query.node is None:
        return iter(())
    if query.kind == "literal":
        return _substring(handle, query.text, "text")
    return _words(handle, query, query.node)


def _words(handle: Handle, query: Query, node: Node) -> Iterator[Stage]:
    """A question is asked for any of its words at once: who has all of them asks it, too."""
    if query.kind != "words" or not state_query.is_question(query.text):
        yield from _strictly(handle, query, node)
    if query.kind != "syntax":
        yield from _loosely(handle, node)


def _strictly(handle: Handle, query: Query, node: Node) -> Iterator[Stage]:
    yield from _whole(handle, _matching(handle, "all", "all", node))
    if query.kind == "syntax":
        return
    if len(set(queries.leaves(node))) <= _INNER_LEAVES:
        yield from _inner(handle, node)
    prefixes = queries.as_prefixes(node, except_for=state_query.STOP)
    yield from _whole(handle, _matching(handle, "prefix", "prefix", prefixes))


def _inner(handle: Handle, node: Node) -> Iterator[Stage]:
    """Yield the stages for words that stand between Han characters."""
    plan = index_plan.inner(handle, node)
    if plan is not None:
        stage = _matching(handle, "inner", "all", node)
        stage = replace(stage, look=replace(stage.look, plan=plan), adds=True, brief=True)
        yield from _split(stage, index_plan.glued(handle, plan, stage.look.needle))


def _loosely(handle: Handle, node: Node) -> Iterator[Stage]:
    """Yield the best of those that have any of the words, then all others, newest first."""
    terms = any_words.terms(handle, node)
    best = _matching(handle, "any", "any", node)
    look = replace(best.look, needle="", sieve="")
    best = replace(best, look=look, terms=terms, goes_on=True, brief=True)
    yield best

    def test(folded: str) -> bool:
        return any(term.there(folded) for term in terms)

    rest = Look(index_plan.make(handle, any_words.either(terms)), test)
    words = tuple(term.word for term in terms)
    yield from _whole(handle, Stage("rest", "any", rest, words, adds=True, best=best))


def _matching(handle: Handle, name: str, matched: Matched, node: Node) -> Stage:
    """Return the stage of what matches a node."""
    words = tuple(state_query.word(leaf) for leaf in dict.fromkeys(queries.leaves(node)))
    needle = state_query.needle(node)
    sieve, values = index_plan.of(needle)
    plan = index_plan.make(handle, node)

    def test(folded: str) -> bool:
        return state_query.matches(node, folded)

    return Stage(name, matched, Look(plan, test, needle, sieve, values=values), words)


def _whole(handle: Handle, stage: Stage) -> Iterator[Stage]:
    """Yield the stage, and another one for the rows that its index leaves out."""
    return _split(stage, index_plan.left_out(handle, stage.look.plan))


def _split(stage: Stage, left_out: LeftOut | None) -> Iterator[Stage]:
    if left_out is None:
        yield stage
        return
    look, values = stage.look, stage.look.values | left_out.values
    indexed = replace(look, only=f"NOT ({left_out.unknown})", values=values)
    # What a lookup has found is known: nobody need ask again of each row.
    yield replace(stage, look=look if left_out.known else indexed, goes_on=True)
    rest = Look(
        Plan(),
        look.test,
        look.needle,
        "" if left_out.known else look.sieve,
        only=left_out.unknown,
        apart=left_out.rows,
        values=values,
    )
    before = (replace(stage, look=indexed),)
    name = f"{stage.name}+"
    yield replace(stage, name=name, look=rest, adds=True, brief=False, before=before)


def _substring(handle: Handle, needle: str, matched: Matched) -> Iterator[Stage]:
    folded_needle = search_text.fold(needle)
    if not folded_needle.strip():
        return iter(())
    sieve, values = index_plan.of(folded_needle)

    def test(folded: str) -> bool:
        return folded_needle in folded

    plan = index_plan.substring(handle, needle)
    whole = Stage("substring", matched, Look(plan, test, sieve=sieve, values=values))
    if index_plan.has_insides(handle, folded_needle):
        return _in_turn(*_by_place(whole, folded_needle))
    return _in_turn(*_by_rows(handle, whole))


def _by_place(whole: Stage, needle: str) -> Iterator[Stage]:
    """Yield the stages of a home of our own: what begins a word, then what lies inside of one."""
    begins = state_query.begins(needle)

    def inside(folded: str) -> bool:
        return whole.look.test(folded) and not begins(folded)

    yield replace(whole, look=replace(whole.look, test=begins))
    yield replace(whole, name="inside", look=replace(whole.look, plan=Plan(), test=inside))


def _by_rows(handle: Handle, whole: Stage) -> Iterator[Stage]:
    """Yield the stages of a Hermes home: plain rows, multi-part ones, what the index leaves out."""
    coded = index_plan.multi_part(handle, whole.look.plan)
    if coded is None:
        yield whole
        return
    plan, told = coded
    left_out = index_plan.left_out(handle, whole.look.plan)
    others = f"({left_out.rows}) AND NOT ({told})" if left_out else "0"
    plain = f"NOT ({told}) AND NOT ({others})"
    yield replace(whole, look=replace(whole.look, only=plain))
    yield replace(whole, name="coded", look=replace(whole.look, plan=plan, only=told))
    if left_out is not None:
        look = replace(whole.look, plan=Plan(), only=others, apart=others)
        yield replace(whole, name="substring+", look=look)


def _in_turn(*stages: Stage) -> Iterator[Stage]:
    """Yield stages of which each adds to those before it."""
    for place, stage in enumerate(stages, 1):
        yield replace(
            stage, goes_on=place < len(stages), adds=place > 1, before=stages[: place - 1]
        )
