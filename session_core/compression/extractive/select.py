"""Selection of the statements that a summary contains, within its length.

Open tasks come first, then all statements by their worth, which fades with age and counts less for
old statements. Mentions and tool output take the remaining room, by the value of their facts. Room
for which no text is worth enough stays empty.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from session_core.compression.extractive import statements, tokenize, written_form
from session_core.compression.extractive.facts import Fact, FactKind
from session_core.compression.extractive.passages import Passage
from session_core.compression.extractive.patterns import LOG_TIMESTAMP
from session_core.compression.extractive.statements import Statement
from session_core.compression.extractive.written_form import Section, WrittenLine

_TASK_SHARE = 0.6
"""The share of a summary that open tasks may take."""
_MIN_TASK_WORTH = 0.12
"""The minimum worth of a task that precedes other statements."""
_OLD_FACTOR = 0.3
"""The factor for the worth of an old statement next to new statements."""
_SMALL_ROOM = 1500
_OLD_FACTOR_IN_SMALL_ROOM = 0.38
"""The factor in little room, where only good statements are compared."""
_CONTEXT_WORDS: Mapping[FactKind, tuple[int, int]] = {"number": (4, 2)}
"""The number of words before and after a fact that are written with it if there is little room."""
_FRAGMENT_KINDS = frozenset(
    ("command", "file", "detail", "output", "problem", "request", "note", "remark", "mention")
)
_GAP = " … "
_MAX_WORD_CHARS = 24
_MIN_FRAGMENT_CHARS = 60
"""The minimum length of a sentence that may be written in part."""
_MIN_WHOLE_SHARE = 0.75
_RANK_OFFSET = 10
_MIN_WORTH = 0.01
_MIN_WORTH_SHARE = 0.25
"""The minimum worth, as a share of the best worth, if no statement is worth much."""
_MIN_SPEECH_WORTH = 0.04
_MIN_SPEECH_RANK = 0.0004
"""The minimum value per character of speech. Other speech competes with tool output."""
_REST_SHARE = 0.2
"""The minimum share of the worth of a statement that remains after its facts were written."""


@dataclass(frozen=True, slots=True)
class SelectedItem:
    """A statement, and its text in a summary."""

    statement: Statement
    written: str


@dataclass(slots=True)
class _Form:
    """One form of a statement: its text, value and cost."""

    written: str
    gain: float
    cost: int

    @property
    def rank(self) -> float:
        """The sort key, of which lower is better. Short forms are slightly preferred."""
        return -self.gain / (_RANK_OFFSET + max(self.cost, 0))


def select_items(
    current: Sequence[Statement], room: int, *, numbered: bool, brief: bool
) -> list[SelectedItem]:
    """Return the statements that fit, in order. With `brief`, they have no ornament."""
    best = max((statement.worth for statement in current), default=0.0)
    selector = _Selector(current, room, numbered, brief, min(_MIN_WORTH, _MIN_WORTH_SHARE * best))
    speech = [
        at
        for at, statement in enumerate(current)
        if statement.is_speech and statement.worth >= _MIN_SPEECH_WORTH
    ]
    tasks = [at for at in speech if _is_open(current[at])]
    selector.choose_from(tasks, int(room * _TASK_SHARE))
    selector.choose_from(speech, room, _MIN_SPEECH_RANK)
    selector.counts_facts = True
    selector.choose_from(range(len(current)), room)
    return [SelectedItem(current[at], selector.chosen[at]) for at in sorted(selector.chosen)]


def _is_open(statement: Statement) -> bool:
    """Return whether a statement is a task that is certainly open."""
    instructed = statement.kind == "request" and statement.traits.is_instruction
    if statement.worth < _MIN_TASK_WORTH or (statement.is_unlisted and statement.age):
        return False
    return statement.kind == "task" or (instructed and not statement.age)


@dataclass(slots=True)
class _Selector:
    """Adds the best form repeatedly. A fact that the summary has already adds no value."""

    candidates: Sequence[Statement]
    room: int
    numbered: bool
    brief: bool
    least_worth: float
    counts_facts: bool = False
    """Whether new speech is worth at least as much as its facts."""
    used: int = 0
    chosen: dict[int, str] = field(default_factory=dict)
    _said: set[str] = field(default_factory=set)
    _headed: set[Section] = field(default_factory=set)

    def choose_from(self, places: Iterable[int], limit: int, least: float = 0.0) -> None:
        """Add statements at `places` until the summary has `limit` characters.

        A form must have at least the value `least` per character.
        """
        forms = ((at, self._find_best_form(at, limit, least)) for at in places)
        heap = [(self._compute_rank(at, form), at) for at, form in forms if form]
        heapq.heapify(heap)
        while heap and self.used < limit - 1:
            rank, at = heapq.heappop(heap)
            form = self._find_best_form(at, limit, least)
            if form is None:
                continue
            if self._compute_rank(at, form) <= rank:
                self._add_item(at, form)
                form = self._find_best_form(at, limit, least)
            if form:
                heapq.heappush(heap, (self._compute_rank(at, form), at))

    def _compute_rank(self, at: int, form: _Form) -> float:
        if not self.candidates[at].age:
            return form.rank
        return form.rank * (_OLD_FACTOR if self.room >= _SMALL_ROOM else _OLD_FACTOR_IN_SMALL_ROOM)

    def _find_best_form(self, at: int, limit: int, least: float) -> _Form | None:
        """Return the best form of a statement that still fits, or None."""
        statement = self.candidates[at]
        taken = self.chosen.get(at)
        forms = (
            self._list_forms(statement)
            if taken is None
            else self._list_longer_forms(statement, taken)
        )
        room = limit - self.used - self._measure_heading(statement)
        fitting = [
            form
            for form in forms
            if form.cost <= room and form.gain >= self.least_worth and -form.rank >= least
        ]
        return min(fitting, key=lambda form: form.rank, default=None)

    def _list_forms(self, statement: Statement) -> Iterator[_Form]:
        """Yield the forms of a statement: all of it, and its new facts alone."""
        passage = statement.passage
        pairs = zip(passage.facts, statement.scored.facts, strict=True)
        new = [(fact, gain) for fact, gain in pairs if fact.text not in self._said]
        detail = statement.kind in _FRAGMENT_KINDS
        if passage.text in self._said or (detail and passage.facts and not new):
            return
        whole = self._write_whole(statement)
        worth = self._get_worth(statement)
        yield _Form(whole, worth, len(whole) + 1)
        if _has_replaced(statement):
            lean = self._write_whole(statement, lean=True)
            yield _Form(lean, worth - statements.measure_replaced_worth(statement), len(lean) + 1)
        new = [pair for pair in new if not _is_bare_name(pair[0])]
        long = not statement.is_speech or len(passage.text) >= _MIN_FRAGMENT_CHARS
        whole_only = self.numbered and statement.is_speech
        if new and detail and long and not statement.parts and not whole_only:
            part = _write_statement(
                statement,
                _format_facts(passage, [fact for fact, _ in new]),
                numbered=self.numbered,
            )
            yield _Form(part, max(gain for _, gain in new), len(part) + 1)

    def _write_whole(self, statement: Statement, *, lean: bool = False) -> str:
        """Return a statement with its parts.

        With `lean`, the values that it has replaced are left out.
        """
        text = _strip_timestamp(statement.passage)
        if statement.is_speech and self.brief:
            text = tokenize.strip_ornament(text)
        return _write_statement(statement, text, numbered=self.numbered, lean=lean)

    def _get_worth(self, statement: Statement) -> float:
        if self.counts_facts and statement.passage.facts and not statement.age:
            return max(statement.worth, statement.scored.alone)
        return statement.worth

    def _list_longer_forms(self, statement: Statement, taken: str) -> Iterator[_Form]:
        """Yield the whole statement if only a part of it was chosen so far."""
        whole = self._write_whole(statement)
        if taken != whole:
            if taken == self._write_whole(statement, lean=True):
                gain = statements.measure_replaced_worth(statement)
                yield _Form(whole, gain, len(whole) - len(taken))
                return
            left = statement.worth - max(statement.scored.facts, default=0.0)
            left = max(left, _REST_SHARE * statement.worth)
            yield _Form(whole, left, len(whole) - len(taken))

    def _measure_heading(self, statement: Statement) -> int:
        section = self._get_section(statement)
        return 0 if section in self._headed else len(written_form.write_heading(section)) + 1

    def _get_section(self, statement: Statement) -> Section:
        return written_form.choose_section(statement.section, brief=self.brief)

    def _add_item(self, at: int, form: _Form) -> None:
        statement = self.candidates[at]
        self.used += form.cost + self._measure_heading(statement)
        self._headed.add(self._get_section(statement))
        self.chosen[at] = form.written
        self._said.add(statement.text)
        self._said.update(f.text for f in statement.passage.facts if f.text in form.written)


def _write_statement(statement: Statement, text: str, *, numbered: bool, lean: bool = False) -> str:
    parts = [
        *statement.old_parts,
        *(
            WrittenLine(part.text, part.kind, part.author, part.message_id, label)
            for label, part in statement.parts
        ),
    ]
    shown = [
        replace(part, message_id=part.message_id if numbered else None)
        for part in parts
        if not (lean and part.label == "previously")
    ]
    number = statement.message_id if numbered else None
    return written_form.write_line(
        WrittenLine(text, statement.kind, statement.author, number, parts=shown)
    )


def _has_replaced(statement: Statement) -> bool:
    """Return whether a statement is written with an earlier statement that it replaced."""
    labels = (
        *(line.label for line in statement.old_parts),
        *(label for label, _ in statement.parts),
    )
    return "previously" in labels


def _is_bare_name(fact: Fact) -> bool:
    """Return whether a fact is a name without meaning of its own."""
    return fact.kind == "identifier" and fact.text.isalpha()


def _strip_timestamp(passage: Passage) -> str:
    """Return the text of a passage without the timestamp of a log line."""
    stamp = LOG_TIMESTAMP.match(passage.text) if passage.speaker == "result" else None
    return passage.text[stamp.end() :] if stamp else passage.text


def _format_facts(passage: Passage, facts: Sequence[Fact]) -> str:
    """Return facts of a passage with the words next to them, or the whole passage."""
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
