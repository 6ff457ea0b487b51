"""The ways in which a query is looked for, one after the other, and what each reports.

A query that means what it says has one. Plain words are loosened as long as nothing is found. What
an index leaves out is a stage of its own that adds to the one before it; a message belongs to
exactly one of the two, so that none is found twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from session_core.models import Matched, Mode
from session_core.state import matcher, questions, searchable
from session_core.state import query as queries
from session_core.state.query import Node, Query
from session_core.state.sqlite import search_any, search_plan
from session_core.state.sqlite.handle import Handle
from session_core.state.sqlite.search_plan import Plan
from session_core.state.sqlite.search_rows import Test

_INNER_LEAVES = 2


@dataclass(frozen=True, slots=True)
class Stage:
    """One way to look: how it is looked up, what must hold of a text, what is reported."""

    name: str
    matched: Matched
    plan: Plan
    test: Test
    words: tuple[matcher.Word, ...] = ()
    goes_on: bool = False
    """Whether the next stage adds to what this one has found."""
    adds: bool = False
    """Whether it only adds: what it has not got to does not keep the next one waiting."""
    needle: str = ""
    """A piece of folded text without which nothing matches."""
    sieve: tuple[str, dict[str, str]] | None = None
    only: str = ""
    """A condition on the rows that are its own."""
    values: dict[str, Any] = field(default_factory=dict)
    """What is bound in it."""
    apart: str = ""
    """A condition on rows that lie scattered among others: its own, and perhaps some more."""
    before: Stage | None = None
    """What the stage before has shown, where this one adds to it."""
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
    if query.kind != "words" or not questions.is_question(query.text):
        yield from _strictly(handle, query, node)
    if query.kind != "syntax":
        best = replace(_one(handle, "any", "any", node), goes_on=True, needle="", sieve=None)
        yield best
        yield from _split(handle, replace(_rest(handle, node), best=best))


def _strictly(handle: Handle, query: Query, node: Node) -> Iterator[Stage]:
    yield from _node(handle, "all", "all", node)
    if query.kind == "syntax":
        return
    inner = None
    if len(set(queries.leaves(node))) <= _INNER_LEAVES:
        inner = search_plan.inner(handle, node)
    if inner is not None:
        yield replace(_one(handle, "inner", "all", node), plan=inner, adds=True)
    prefixes = queries.as_prefixes(node, except_for=questions.STOP)
    yield from _node(handle, "prefix", "prefix", prefixes)


def _node(handle: Handle, name: str, matched: Matched, node: Node) -> Iterator[Stage]:
    stage = _one(handle, name, matched, node)
    yield from _split(handle, stage)


def _one(handle: Handle, name: str, matched: Matched, node: Node) -> Stage:
    words = tuple(matcher.word(leaf) for leaf in dict.fromkeys(queries.leaves(node)))
    plan = search_plan.make(handle, node)
    needle = matcher.needle(node)
    return Stage(
        name,
        matched,
        plan,
        lambda folded: matcher.matches(node, folded),
        words,
        needle=needle,
        sieve=search_plan.sieve(needle),
    )


def _split(handle: Handle, stage: Stage) -> Iterator[Stage]:
    """Yield the stage, and another one for the rows that its index leaves out."""
    left_out = search_plan.left_out(handle, stage.plan)
    if left_out is None:
        yield stage
        return
    indexed = replace(stage, only=f"NOT ({left_out.unknown})", values=left_out.values)
    yield replace(stage if left_out.known else indexed, goes_on=True)
    yield replace(
        stage,
        name=f"{stage.name}+",
        plan=Plan(),
        only=left_out.unknown,
        values=left_out.values,
        apart=left_out.rows,
        sieve=None if left_out.known else stage.sieve,
        adds=True,
        before=indexed,
    )


def _encoded(handle: Handle, whole: Stage) -> Iterator[Stage]:
    """Yield the stages of a substring on a Hermes home: plain rows, multi-part ones, the others."""
    coded = search_plan.multi_part(handle, whole.plan)
    if coded is None:
        yield whole
        return
    plan, told = coded
    left_out = search_plan.left_out(handle, whole.plan)
    others = f"({left_out.rows}) AND NOT ({told})" if left_out else "0"
    first = replace(whole, goes_on=True, only=f"NOT ({told}) AND NOT ({others})")
    yield first
    yield replace(
        whole,
        name="coded",
        plan=plan,
        only=told,
        adds=True,
        before=first,
        goes_on=left_out is not None,
    )
    if left_out is not None:
        yield replace(
            whole,
            name="substring+",
            plan=Plan(),
            only=others,
            apart=others,
            adds=True,
            before=replace(whole, only=f"NOT ({others})"),
        )


def _rest(handle: Handle, node: Node) -> Stage:
    """Return the stage of all messages that have any of the words, newest first."""
    terms = search_any.terms(handle, node)
    either = search_any.either(terms)
    plan = search_plan.make(handle, either)
    words = tuple(term.word for term in terms)
    return Stage(
        "rest",
        "any",
        plan,
        lambda folded: any(term.there(folded) for term in terms),
        words,
        adds=True,
    )


def _substring(handle: Handle, needle: str, matched: Matched) -> Iterator[Stage]:
    """On a home of our own first what begins with a word, then what lies inside of one."""
    folded_needle = searchable.fold(needle)
    if not folded_needle.strip():
        return
    plan = search_plan.substring(handle, needle)
    sieve = search_plan.sieve(folded_needle)

    def has(folded: str) -> bool:
        return folded_needle in folded

    whole = Stage("substring", matched, plan, has, sieve=sieve)
    inside = search_plan.inside(handle, needle)
    if inside is None:
        yield from _encoded(handle, whole)
        return
    begins = search_plan.begins(folded_needle)
    first = replace(whole, test=begins, goes_on=True)
    yield first
    yield Stage(
        "inside",
        matched,
        inside,
        lambda folded: has(folded) and not begins(folded),
        adds=True,
        before=first,
        sieve=sieve,
    )
