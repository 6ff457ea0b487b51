"""A plain question: which messages have most of its words, and the rare ones rather.

Words that every text has are left out, and a word counts in its other forms too. Candidates come
from the rarest words and from what has several of them; each lookup is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import chain, combinations

from session_core.state import query as queries
from session_core.state import questions
from session_core.state.matcher import Word, word
from session_core.state.query import And, Leaf, Node, Or
from session_core.state.sqlite import search_plan, search_rank, search_rows, search_scan
from session_core.state.sqlite.handle import Handle
from session_core.state.sqlite.search_rows import Match, Task
from session_core.state.sqlite.search_scan import Block

MOST_TERMS = 12
_MOST_COUNTED = 2000
_OF_ALL = 200
_OF_THREE = 100
_OF_PAIR = 120
_TWO = 2
_RANKED = 300
_OF_RARE = 200
_OF_COMMON = 60
_RARE = 1500
_PAIRED = 4
_CHUNK = 400


@dataclass(frozen=True, slots=True)
class Term:
    """One word of a question, with its other forms."""

    node: Node
    word: Word
    stem: str
    """What all forms begin with."""
    forms: re.Pattern[str] | None

    def there(self, folded: str) -> float:
        """Return how much of the term a text has: 1 as it was typed, less in another form."""
        if self.stem not in folded:
            return 0.0
        if self.word.find(folded):
            return 1.0
        return 0.8 if self.forms and self.forms.search(folded) else 0.0

    def find(self, folded: str, start: int = 0) -> tuple[int, int] | None:
        """Return where it, or another form of it, begins and ends."""
        found = self.word.find(folded, start)
        if found is None and self.forms and self.stem in folded:
            form = self.forms.search(folded, start)
            return None if form is None else form.span()
        return found


def terms(handle: Handle, node: Node) -> list[Term]:
    """Return the words of a question that mean something; all if none does."""
    gram = search_plan.gram(handle)
    typed = (questions.pieces(leaf.text, gram) for leaf in queries.leaves(node))
    pieces = list(dict.fromkeys(chain.from_iterable(typed)))
    telling = [piece for piece in pieces if not questions.is_stop(piece)]
    return [_term(handle, piece) for piece in (telling or pieces)[:MOST_TERMS]]


def either(found_terms: list[Term]) -> Node:
    """Return what any message has that has one of the terms."""
    nodes = tuple(term.node for term in found_terms)
    return nodes[0] if len(nodes) == 1 else Or(nodes)


def gather(task: Task, found_terms: list[Term], top: int) -> Block:
    """Return the messages that have the most of the terms, of the whole home."""
    ids: set[int] = set()
    floor = task.low
    plans = _plans(task.handle, found_terms)
    counts = [_count(task, plan) for plan in plans]
    for plan, most in _probes(task.handle, found_terms, plans, counts):
        more, done = _ids(task, plan, top, most)
        ids.update(more)
        if not done:
            floor = max(floor, more[-1] if more else 0)
    matches = search_rows.loaded(task, sorted(ids, reverse=True))
    tail = _tail_matches(task, found_terms, top)
    known = {match.id for match in tail}
    matches = tail + [match for match in matches if match.id not in known]
    weights = [search_rank.rarity(count, _MOST_COUNTED) for count in counts]
    for match in matches:
        match.score = _worth(match.folded, found_terms, weights)
    best = nlargest(_RANKED, matches, key=lambda match: (match.score, match.id))
    return Block([match for match in best if match.score > 0], floor, done=floor <= task.low)


def rank(matches: list[Match], found_terms: list[Term], newest: float) -> None:
    """Add to the score of each match how close together the words are and how new it is."""
    for match in matches:
        match.score += search_rank.beside(match, found_terms, newest)


def _worth(folded: str, found_terms: list[Term], weights: list[float]) -> float:
    """How much of the question is there; in a long text words meet by chance."""
    there = [term.there(folded) for term in found_terms]
    total = sum(part * (1 + 1.5 * weight) for part, weight in zip(there, weights, strict=True))
    return total / (0.6 + 0.4 * len(folded) / search_rank.USUAL_LENGTH)


def _probes(
    handle: Handle, found_terms: list[Term], plans: list[search_plan.Plan], counts: list[int]
) -> Iterator[tuple[search_plan.Plan, int]]:
    """Yield what to look up: all terms, pairs of the rarest, each alone."""
    if len(found_terms) > 1:
        together = And(tuple(term.node for term in found_terms))
        yield search_plan.make(handle, together, coded=False), _OF_ALL
    rarest = sorted(
        (place for place in range(len(counts)) if counts[place]), key=counts.__getitem__
    )
    for size, most in ((3, _OF_THREE), (2, _OF_PAIR)) if len(rarest) > _TWO else ():
        for some in combinations(rarest[:_PAIRED], size):
            together = And(tuple(found_terms[place].node for place in some))
            yield search_plan.make(handle, together, coded=False), most
    for place in rarest:
        yield plans[place], _OF_RARE if counts[place] < _RARE else _OF_COMMON


def _plans(handle: Handle, found_terms: list[Term]) -> list[search_plan.Plan]:
    return [search_plan.make(handle, term.node, coded=False) for term in found_terms]


def _count(task: Task, plan: search_plan.Plan) -> int:
    bounds = (task.low, plan.covered_to + 1)
    return len(search_rows.listed(task.handle, plan.lookups, *bounds, _MOST_COUNTED)[0])


def _ids(task: Task, plan: search_plan.Plan, top: int, most: int) -> tuple[list[int], bool]:
    """Return the newest ids that pass the filters."""
    below = min(top, plan.covered_to + 1)
    if not plan.lookups:
        return [], True
    passing: list[int] = []
    for _ in range(3):
        ids, below, done = search_rows.listed(task.handle, plan.lookups, task.low, below, _CHUNK)
        passing += search_rows.passing(task, ids)
        if done or len(passing) >= most:
            break
    return passing[:most], done and len(passing) <= most


def _tail_matches(task: Task, found_terms: list[Term], top: int) -> list[Match]:
    """Return what is above the index, or the newest messages where there is no index."""
    either = replace(
        task,
        plan=replace(task.plan, lookups=()),
        test=lambda folded: any(term.there(folded) for term in found_terms),
        per_session=False,
    )
    return search_scan.gather(either, top).matches


def _term(handle: Handle, piece: str) -> Term:
    forms = questions.forms(piece)
    typed = word(Leaf(piece))
    if len(forms) == 1:
        return Term(typed.leaf, typed, typed.longest, None)
    there = [form for form in forms[1:] if search_plan.is_indexed(handle, Leaf(form))]
    leaves = tuple(Leaf(form) for form in (piece, *there))
    pattern = re.compile(rf"(?<![a-z0-9])(?:{'|'.join(forms)})(?![a-z0-9])")
    shortest = min(forms, key=len)
    stem = next(
        shortest[:end]
        for end in range(len(shortest), -1, -1)
        if all(form.startswith(shortest[:end]) for form in forms)
    )
    return Term(leaves[0] if len(leaves) == 1 else Or(leaves), typed, stem, pattern)
