"""A plain question: which messages have most of its words, and the rare ones rather.

Words that every text has are left out, and a word counts in its other forms too. The newest
messages that have a word are listed, more of them where the word is rare; what is in several lists
is read. Each lookup is bounded.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import chain, combinations, islice

from session_core.state import query, search_text
from session_core.state import query as queries
from session_core.state.query import And, Leaf, Node, Or, Word, word
from session_core.state.sqlite.connection import Handle
from session_core.state.sqlite.search import candidates, index_plan, scan
from session_core.state.sqlite.search.candidates import Look, Match, Task
from session_core.state.sqlite.search.index_plan import Plan
from session_core.state.sqlite.search.scan import Block

MOST_TERMS = 12
_LISTED = 4000
_LISTED_IN_ALL = 30_000
_PROBED = 5
_OF_PROBE = 100
_FILTERED, _MOST_FILTERED = 1000, 6000
_READ = 200
_JOINED = rf"[^\W_{search_text.SPACELESS}]"


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
        return 0.9 if self.forms and self.forms.search(folded) else 0.0

    def find(self, folded: str, start: int = 0) -> tuple[int, int] | None:
        """Return where it, or another form of it, begins and ends."""
        found = self.word.find(folded, start)
        if found is None and self.forms and self.stem in folded:
            form = self.forms.search(folded, start)
            return None if form is None else form.span()
        return found


class _Listed:
    """The newest messages that have a term, those above the index first."""

    def __init__(self, task: Task, term: Term, top: int, tail: dict[int, str]) -> None:
        self.term = term
        self.newest = [one for one, text in reversed(tail.items()) if term.there(text)]
        self.ids = set(self.newest)
        self.weight = 0.0
        """What it is worth that a message has it."""
        self.done = False
        self._task = task
        self._plan = index_plan.make(task.handle, term.node, coded=False)
        self._top = top
        self.floor = max(task.low, min(top, self._plan.covered_to + 1))
        self.go_on()

    def go_on(self) -> None:
        """List some more."""
        ids, self.floor, self.done = candidates.listed(
            self._task.handle, self._plan.lookups, self._task.low, self.floor, _LISTED
        )
        self.ids.update(ids)
        self.newest = [*self.newest, *ids][:_READ]
        looked_at = self._top - (self._task.low if self.done else self.floor)
        share = (len(self.ids) + 0.5) / (max(looked_at, len(self.ids)) + 1)
        self.weight = 1 + 0.5 * -math.log(share)


def terms(handle: Handle, node: Node) -> tuple[Term, ...]:
    """Return the words of a question that mean something; all if none does."""
    gram = index_plan.gram(handle)
    typed = (query.pieces(leaf.text, gram) for leaf in queries.leaves(node))
    pieces = list(dict.fromkeys(chain.from_iterable(typed)))
    telling = [piece for piece in pieces if not query.is_stop(piece)]
    return tuple(_term(handle, piece) for piece in (telling or pieces)[:MOST_TERMS])


def either(found_terms: Sequence[Term]) -> Node:
    """Return what any message has that has one of the terms."""
    nodes = tuple(term.node for term in found_terms)
    return nodes[0] if len(nodes) == 1 else Or(nodes)


def gather(task: Task, found_terms: Sequence[Term], top: int) -> Block:
    """Return the messages that have the most of the terms, of the whole home."""
    texts = scan.load_tail_texts(task)
    known_texts = {**scan.changed(task.handle), **(texts or {})}
    tail = {one: text for one, text in known_texts.items() if task.low <= one < top}
    lists = [_Listed(task, term, top, tail) for term in found_terms]
    lists.sort(key=lambda one: one.weight, reverse=True)
    room = _LISTED_IN_ALL - sum(len(one.ids) for one in lists)
    for one in lists:
        while not one.done and room > 0:
            one.go_on()
            room -= _LISTED
    known = dict(_known(task, lists, top))
    matches = candidates.loaded(task, list(islice(_passing(task, known), _READ)))
    if texts is None:
        matches += _newest(task, found_terms, top).matches
    left_out = _left_out(task, found_terms, top)
    matches = list({match.id: match for match in (*matches, *left_out.matches)}.values())
    for match in matches:
        match.score = _worth(match.folded, lists)
    floor = max([left_out.floor, *(one.floor for one in lists if not one.done)])
    best = nlargest(_READ, matches, key=lambda match: (match.score, match.id))
    return Block([match for match in best if match.score > 0], floor, done=floor <= task.low)


def rank(matches: list[Match], found_terms: Sequence[Term], literal: str, newest: float) -> None:
    """Add to the score of each match how close together the words are and how new it is.

    A message that asks the same is no answer; `literal` is what was typed, folded.
    """
    asked = literal.rstrip("?")
    for match in matches:
        match.score += candidates.beside(match, found_terms, newest)
        if asked in match.folded:
            match.score /= 2


def _known(task: Task, lists: list[_Listed], top: int) -> Iterator[tuple[int, float]]:
    """Yield messages and what they are worth, as far as the lists tell it; rarest terms first."""
    for one in lists:
        yield from ((message_id, one.weight) for message_id in one.newest)
    for some in _to_probe(lists):
        together = index_plan.make(
            task.handle, And(tuple(one.term.node for one in some)), coded=False
        )
        below = min(top, together.covered_to + 1)
        ids, _, _ = candidates.listed(task.handle, together.lookups, task.low, below, _OF_PROBE)
        worth = sum(one.weight for one in some)
        yield from ((message_id, worth) for message_id in ids)
    seen: set[int] = set()
    several: set[int] = set()
    for one in lists:
        several |= seen & one.ids
        seen |= one.ids
    weighed = [(one.ids, one.weight) for one in lists]
    for message_id in several:
        yield message_id, sum(weight for ids, weight in weighed if message_id in ids)


def _to_probe(lists: list[_Listed]) -> Iterator[tuple[_Listed, ...]]:
    """Yield what is asked for together, since the lists by themselves do not tell it."""
    if len(lists) > 1 and not all(one.done for one in lists):
        yield tuple(lists)
    for some in combinations(lists[:_PROBED], 3):
        if len(lists) > len(some) and not all(one.done for one in some):
            yield some


def _passing(task: Task, known: dict[int, float]) -> Iterator[int]:
    """Yield those that pass the filters, the best first, a few of each session."""
    ranked = sorted(known, key=lambda one: (known[one], one), reverse=True)
    counted: Counter[str] = Counter()
    for start in range(0, min(len(ranked), _MOST_FILTERED), _FILTERED):
        rows = candidates.sizes(task, ranked[start : start + _FILTERED])
        rows.sort(key=lambda row: _by_length(known[row[0]], row[2] or 0), reverse=True)
        for message_id, session_id, _ in rows:
            counted[session_id] += 1
            if not task.per_session or counted[session_id] <= scan.OF_ONE_SESSION:
                yield message_id


def _worth(folded: str, lists: Iterable[_Listed]) -> float:
    """How much of the question is there."""
    return _by_length(sum(one.term.there(folded) * one.weight for one in lists), len(folded))


def _by_length(worth: float, length: int) -> float:
    """Return what that is worth: in a long text words meet by chance."""
    return worth / (0.6 + 0.4 * length / candidates.USUAL_LENGTH)


def _newest(task: Task, found_terms: Sequence[Term], top: int) -> Block:
    """Return the newest messages that have any of the terms, where no index tells the best."""
    return _read(task, replace(task.look.plan, lookups=()), found_terms, top)


def _left_out(task: Task, found_terms: Sequence[Term], top: int) -> Block:
    """Return the newest messages that have any of the terms, of those that an index cuts short."""
    plan = index_plan.make(task.handle, either(found_terms), coded=False)
    left_out = index_plan.left_out(task.handle, plan)
    if left_out is None:
        return Block(floor=task.low)
    return _read(task, Plan(), found_terms, top, apart=left_out.rows)


def _read(
    task: Task, plan: Plan, found_terms: Sequence[Term], top: int, *, apart: str = ""
) -> Block:
    def test(folded: str) -> bool:
        return any(term.there(folded) for term in found_terms)

    return scan.gather(replace(task, look=Look(plan, test, apart=apart), per_session=False), top)


def _term(handle: Handle, piece: str) -> Term:
    forms = query.forms(piece)
    typed = word(Leaf(piece))
    if len(forms) == 1:
        return Term(typed.leaf, typed, typed.longest, None)
    there = [form for form in forms[1:] if index_plan.is_indexed(handle, Leaf(form))]
    leaves = tuple(Leaf(form) for form in (piece, *there))
    pattern = re.compile(f"(?<!{_JOINED})(?:{'|'.join(forms)})(?!{_JOINED})")
    shortest = min(forms, key=len)
    stem = next(
        shortest[:end]
        for end in range(len(shortest), -1, -1)
        if all(form.startswith(shortest[:end]) for form in forms)
    )
    return Term(leaves[0] if len(leaves) == 1 else Or(leaves), typed, stem, pattern)
