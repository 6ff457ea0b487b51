"""Write a summary without a model: the best passages, verbatim, within a number of characters.

The result is deterministic. Each item is a sentence, a line, or, to save room, its facts with the
words next to them; each fact appears once. Once the best items fit, the remaining room goes to
whole sentences, and then to passages without facts.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from session_core.compression.chat_messages import Message
from session_core.compression.extractive import passages, scoring
from session_core.compression.extractive.facts import STATEMENT_KINDS, Fact, FactKind
from session_core.compression.extractive.passages import SECTIONS, Passage
from session_core.compression.extractive.patterns import LOG_TIMESTAMP
from session_core.compression.extractive.scoring import ScoredPassage

EMPTY_SUMMARY = "Nothing was said."
NO_ROOM_SUMMARY = "What was said does not fit here."

_SECTION_BY_KIND: Mapping[FactKind, str] = {
    "decision": "Decided",
    "task": "Open",
    "error": "Errors",
    "command": "Commands",
    "path": "Files",
}
_CONTEXT_WORDS: Mapping[FactKind, tuple[int, int]] = {"number": (4, 2)}
"""How many words before and behind a fact go with it where there is little room."""

_GAP = " … "
_MAX_WORD_CHARS = 24
_MIN_WHOLE_SHARE = 0.75
_RANK_OFFSET = 20


def summarize(messages: Iterable[Message], budget_chars: int) -> str:
    """Return a summary of a range within a budget.

    Earlier summaries in the range are read as summaries.
    """
    return build_summary(scoring.score_passages(passages.read_passages(messages)), budget_chars)


def build_summary(weighed: Sequence[ScoredPassage], budget_chars: int) -> str:
    """Return a summary of scored passages within a budget."""
    if not weighed:
        return EMPTY_SUMMARY[: max(budget_chars, 0)]
    chosen = _ItemSelector(weighed, budget_chars).select_items()
    return _render_summary(weighed, chosen) or NO_ROOM_SUMMARY[: max(budget_chars, 0)]


@dataclass(slots=True)
class _Candidate:
    """One form of an item: its text, value and cost."""

    text: str
    gain: float
    cost: int

    @property
    def rank(self) -> float:
        """Return the sort key, lower is better; short forms are slightly preferred."""
        return -self.gain / (_RANK_OFFSET + max(self.cost, 0))


class _ItemSelector:
    """Selects the best candidate repeatedly; facts in the summary have no more value."""

    def __init__(self, valued: Sequence[ScoredPassage], room: int) -> None:
        self._valued = valued
        self._room = room
        self._said: set[str] = set()
        self._headed: set[str] = set()
        self._chosen: dict[int, str] = {}

    def select_items(self) -> dict[int, str]:
        """Return the text of each chosen item by its number."""
        heap = [
            (offer.rank, at)
            for at in range(len(self._valued))
            if (offer := self._find_best_candidate(at))
        ]
        heapq.heapify(heap)
        while heap and self._room > 1:
            rank, at = heapq.heappop(heap)
            offer = self._find_best_candidate(at)
            if offer is None:
                continue
            if offer.rank <= rank:
                self._accept_candidate(at, offer)
                offer = self._find_best_candidate(at)
            if offer:
                heapq.heappush(heap, (offer.rank, at))
        return self._chosen

    def _find_best_candidate(self, at: int) -> _Candidate | None:
        """Return the best form of an item that still fits."""
        item = self._valued[at]
        taken = self._chosen.get(at)
        offers = (
            self._list_candidates(item) if taken is None else self._list_extensions(item, taken)
        )
        room = self._room - self._measure_heading(item)
        fitting = [offer for offer in offers if offer.cost <= room]
        return min(fitting, key=lambda offer: offer.rank, default=None)

    def _list_candidates(self, item: ScoredPassage) -> Iterator[_Candidate]:
        """Yield a whole item, and its new facts alone."""
        text = _strip_timestamp(item.passage)
        new = [pair for pair in self._list_new_facts(item) if pair[0].text not in self._said]
        if item.passage.text in self._said or (item.passage.facts and not new):
            return
        yield _Candidate(text, item.alone, _measure_cost(text))
        new = [pair for pair in new if not _is_bare_name(pair[0])]
        if new:
            text = _format_facts(item.passage, [fact for fact, _ in new])
            yield _Candidate(text, max(gain for _, gain in new), _measure_cost(text))

    def _list_extensions(self, item: ScoredPassage, taken: str) -> Iterator[_Candidate]:
        """Yield the whole item for each item of which only a part is chosen."""
        whole = _strip_timestamp(item.passage)
        if taken != whole:
            left = max(item.alone - max(item.facts, default=0.0), 0.0)
            yield _Candidate(whole, left, _measure_cost(whole) - _measure_cost(taken))

    def _list_new_facts(self, item: ScoredPassage) -> Iterator[tuple[Fact, float]]:
        return zip(item.passage.facts, item.facts, strict=True)

    def _measure_heading(self, item: ScoredPassage) -> int:
        section = _choose_section(item.passage)
        return 0 if section in self._headed else len(section) + 2

    def _accept_candidate(self, at: int, offer: _Candidate) -> None:
        passage = self._valued[at].passage
        self._room -= offer.cost + self._measure_heading(self._valued[at])
        self._headed.add(_choose_section(passage))
        self._chosen[at] = offer.text
        self._said.add(passage.text)
        self._said.update(fact.text for fact in passage.facts if fact.text in offer.text)


def _is_bare_name(fact: Fact) -> bool:
    """Return whether a fact is a name without meaning of its own."""
    return fact.kind == "identifier" and fact.text.isalpha()


def _strip_timestamp(passage: Passage) -> str:
    """Return a passage without the time that a program wrote before it."""
    stamp = LOG_TIMESTAMP.match(passage.text) if passage.speaker == "result" else None
    return passage.text[stamp.end() :] if stamp else passage.text


def _measure_cost(text: str) -> int:
    return len(passages.format_summary_line(text)) + 1


def _format_facts(passage: Passage, facts: Sequence[Fact]) -> str:
    """Return the facts of a passage with the words next to them, or the whole passage."""
    text = passage.text
    if passage.speaker == "earlier":
        return text
    spans: list[tuple[int, int]] = []
    for fact in facts:
        begin, end = _widen_span(passage, fact, *_CONTEXT_WORDS.get(fact.kind, (0, 0)))
        if spans and begin <= spans[-1][1] + len(_GAP):
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((begin, end))
    form = _GAP.join(text[begin:end].strip() for begin, end in spans)
    return text if len(form) > _MIN_WHOLE_SHARE * len(text) else form


def _widen_span(passage: Passage, fact: Fact, before: int, behind: int) -> tuple[int, int]:
    begin, end = fact.position, fact.end
    for _ in range(before):
        begin = _find_word_before(passage.text, begin)
    for _ in range(behind):
        end = _find_word_after(passage.text, end)
    for other in passage.facts if before or behind else ():
        if other.position < begin < other.end <= fact.position:
            begin = other.end
        if fact.end <= other.position < end < other.end:
            end = other.position
    return begin, end


def _find_word_before(text: str, at: int) -> int:
    head = text[max(0, at - _MAX_WORD_CHARS) : at]
    cut = head.rstrip().rfind(" ")
    if cut < 0:
        return 0 if len(head) < _MAX_WORD_CHARS else at
    return at - len(head) + cut + 1


def _find_word_after(text: str, at: int) -> int:
    tail = text[at : at + _MAX_WORD_CHARS]
    word = tail.lstrip()
    if not word:
        return at + len(tail)
    cut = word.find(" ")
    if cut < 0:
        return len(text) if len(tail) < _MAX_WORD_CHARS else at
    return at + len(tail) - len(word) + cut


def _choose_section(passage: Passage) -> str:
    if passage.section:
        return passage.section
    kinds = {fact.kind for fact in passage.facts}
    # A page or a file may say "always", or what to do, which nobody here has decided or asked for.
    own = kinds - STATEMENT_KINDS if passage.speaker == "result" else kinds
    found = next((name for kind, name in _SECTION_BY_KIND.items() if kind in own), None)
    if passage.speaker == "user" and found in (None, "Open", "Files", "Commands"):
        return "Asked"
    return found or ("Details" if kinds else "Said")


def _render_summary(valued: Sequence[ScoredPassage], chosen: Mapping[int, str]) -> str:
    lines: dict[str, list[str]] = {name: [] for name in SECTIONS}
    for at in sorted(chosen):
        lines[_choose_section(valued[at].passage)].append(passages.format_summary_line(chosen[at]))
    parts = ["\n".join((f"{name}:", *items)) for name, items in lines.items() if items]
    return "\n".join(parts)
