"""A summary without a model: what is worth most, word for word, within a number of characters.

It is deterministic and asks nobody. Each item is a sentence or a line, or where there is no room
for that, its facts with the words beside them; each fact stands once. Where the best items fit,
the room that is left goes to whole sentences, and then to what has no fact in it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from session_core.compression.chat_messages import Message
from session_core.compression.extractive import passages, scoring
from session_core.compression.extractive.facts import STATEMENTS, Fact, Kind
from session_core.compression.extractive.passages import SECTIONS, Passage
from session_core.compression.extractive.patterns import STAMP
from session_core.compression.extractive.scoring import Valued

NOTHING = "Nothing was said."
NO_ROOM = "What was said does not fit here."

_OF_KIND: Mapping[Kind, str] = {
    "decision": "Decided",
    "task": "Open",
    "error": "Errors",
    "command": "Commands",
    "path": "Files",
}
_BESIDE: Mapping[Kind, tuple[int, int]] = {"number": (4, 2)}
"""How many words before and behind a fact go with it where there is little room."""

_GAP = " … "
_WORD_MAX = 24
_NEARLY_WHOLE = 0.75
_EVEN = 20


def summarize(messages: Iterable[Message], budget_chars: int) -> str:
    """Return a summary of a range within a budget.

    Summaries that stand in the range are read as what they are.
    """
    return summary_of(scoring.weigh(passages.read(messages)), budget_chars)


def summary_of(weighed: Sequence[Valued], budget_chars: int) -> str:
    """Return a summary of what was weighed within a budget."""
    if not weighed:
        return NOTHING[: max(budget_chars, 0)]
    chosen = _Choice(weighed, budget_chars).made()
    return _rendered(weighed, chosen) or NO_ROOM[: max(budget_chars, 0)]


@dataclass(slots=True)
class _Offer:
    """What an item would say in one of its forms, what that is worth, and what it costs."""

    text: str
    gain: float
    cost: int

    @property
    def rank(self) -> float:
        """The better, the lower; the short is preferred, but not much."""
        return -self.gain / (_EVEN + max(self.cost, 0))


class _Choice:
    """Takes the best of all offers again and again; what was said already is worth nothing."""

    def __init__(self, valued: Sequence[Valued], room: int) -> None:
        self._valued = valued
        self._room = room
        self._said: set[str] = set()
        self._headed: set[str] = set()
        self._chosen: dict[int, str] = {}

    def made(self) -> dict[int, str]:
        """Return what each chosen item says, by its number."""
        heap = [(offer.rank, at) for at in range(len(self._valued)) if (offer := self._offer(at))]
        heapq.heapify(heap)
        while heap and self._room > 1:
            rank, at = heapq.heappop(heap)
            offer = self._offer(at)
            if offer is None:
                continue
            if offer.rank <= rank:
                self._take(at, offer)
                offer = self._offer(at)
            if offer:
                heapq.heappush(heap, (offer.rank, at))
        return self._chosen

    def _offer(self, at: int) -> _Offer | None:
        """Return the best of what an item would add now, of what there is room for."""
        item = self._valued[at]
        taken = self._chosen.get(at)
        offers = self._forms(item) if taken is None else self._rest(item, taken)
        room = self._room - self._heading(item)
        fitting = [offer for offer in offers if offer.cost <= room]
        return min(fitting, key=lambda offer: offer.rank, default=None)

    def _forms(self, item: Valued) -> Iterator[_Offer]:
        """Yield an item whole, and its new facts alone."""
        text = _told(item.passage)
        new = [pair for pair in self._facts(item) if pair[0].text not in self._said]
        if item.passage.text in self._said or (item.passage.facts and not new):
            return
        yield _Offer(text, item.alone, _cost(text))
        new = [pair for pair in new if not _is_word(pair[0])]
        if new:
            text = _form(item.passage, [fact for fact, _ in new])
            yield _Offer(text, max(gain for _, gain in new), _cost(text))

    def _rest(self, item: Valued, taken: str) -> Iterator[_Offer]:
        """Yield all of an item of which a part is chosen."""
        whole = _told(item.passage)
        if taken != whole:
            left = max(item.alone - max(item.facts, default=0.0), 0.0)
            yield _Offer(whole, left, _cost(whole) - _cost(taken))

    def _facts(self, item: Valued) -> Iterator[tuple[Fact, float]]:
        return zip(item.passage.facts, item.facts, strict=True)

    def _heading(self, item: Valued) -> int:
        section = _section(item.passage)
        return 0 if section in self._headed else len(section) + 2

    def _take(self, at: int, offer: _Offer) -> None:
        passage = self._valued[at].passage
        self._room -= offer.cost + self._heading(self._valued[at])
        self._headed.add(_section(passage))
        self._chosen[at] = offer.text
        self._said.add(passage.text)
        self._said.update(fact.text for fact in passage.facts if fact.text in offer.text)


def _is_word(fact: Fact) -> bool:
    """Whether a fact is a name that says nothing by itself."""
    return fact.kind == "identifier" and fact.text.isalpha()


def _told(passage: Passage) -> str:
    """Return a passage without the time that a program has put before it."""
    stamp = STAMP.match(passage.text) if passage.speaker == "result" else None
    return passage.text[stamp.end() :] if stamp else passage.text


def _cost(text: str) -> int:
    return len(passages.item(text)) + 1


def _form(passage: Passage, facts: Sequence[Fact]) -> str:
    """Return facts of a passage with the words beside them, or all of it if that is about it."""
    text = passage.text
    if passage.speaker == "earlier":
        return text
    spans: list[tuple[int, int]] = []
    for fact in facts:
        begin, end = _widened(passage, fact, *_BESIDE.get(fact.kind, (0, 0)))
        if spans and begin <= spans[-1][1] + len(_GAP):
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((begin, end))
    form = _GAP.join(text[begin:end].strip() for begin, end in spans)
    return text if len(form) > _NEARLY_WHOLE * len(text) else form


def _widened(passage: Passage, fact: Fact, before: int, behind: int) -> tuple[int, int]:
    begin, end = fact.position, fact.end
    for _ in range(before):
        begin = _word_before(passage.text, begin)
    for _ in range(behind):
        end = _word_behind(passage.text, end)
    for other in passage.facts if before or behind else ():
        if other.position < begin < other.end <= fact.position:
            begin = other.end
        if fact.end <= other.position < end < other.end:
            end = other.position
    return begin, end


def _word_before(text: str, at: int) -> int:
    head = text[max(0, at - _WORD_MAX) : at]
    cut = head.rstrip().rfind(" ")
    if cut < 0:
        return 0 if len(head) < _WORD_MAX else at
    return at - len(head) + cut + 1


def _word_behind(text: str, at: int) -> int:
    tail = text[at : at + _WORD_MAX]
    word = tail.lstrip()
    if not word:
        return at + len(tail)
    cut = word.find(" ")
    if cut < 0:
        return len(text) if len(tail) < _WORD_MAX else at
    return at + len(tail) - len(word) + cut


def _section(passage: Passage) -> str:
    if passage.section:
        return passage.section
    kinds = {fact.kind for fact in passage.facts}
    # A page or a file may say "always", or what to do, which nobody here has decided or asked for.
    own = kinds - STATEMENTS if passage.speaker == "result" else kinds
    found = next((name for kind, name in _OF_KIND.items() if kind in own), None)
    if passage.speaker == "user" and found in (None, "Open", "Files", "Commands"):
        return "Asked"
    return found or ("Details" if kinds else "Said")


def _rendered(valued: Sequence[Valued], chosen: Mapping[int, str]) -> str:
    lines: dict[str, list[str]] = {name: [] for name in SECTIONS}
    for at in sorted(chosen):
        lines[_section(valued[at].passage)].append(passages.item(chosen[at]))
    parts = ["\n".join((f"{name}:", *items)) for name, items in lines.items() if items]
    return "\n".join(parts)
