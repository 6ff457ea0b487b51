"""Statements of a range of messages, with their kind, links, state, age and worth.

Lines of an earlier summary are statements with an age. New statements close tasks, and replace or
repeat older statements. Only statements that still hold are worth keeping.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from session_core.compression import chat_messages
from session_core.compression.chat_messages import Message
from session_core.compression.extractive import (
    links,
    passages,
    resolve,
    scoring,
    topics,
    written_form,
)
from session_core.compression.extractive.classify import Traits, classify_passage, classify_title
from session_core.compression.extractive.passages import Passage, PassageSet
from session_core.compression.extractive.patterns import CHECKBOX
from session_core.compression.extractive.scoring import ScoredPassage
from session_core.compression.extractive.written_form import (
    Author,
    Label,
    Section,
    StatementKind,
    WrittenLine,
)

_WORTH: Mapping[StatementKind, float] = {
    "goal": 1.8,
    "rule": 1.6,
    "task": 1.7,
    "changed": 1.6,
    "decision": 1.5,
    "problem": 1.2,
    "person": 1.3,
    "done": 1.1,
    "request": 0.5,
    "command": 0.8,
    "file": 1.0,
    "detail": 1.0,
    "note": 0.9,
    "remark": 0.6,
}
"""The worth of a statement by its kind. Mentions and output have the worth of their facts."""
_HALF_LIVES: Mapping[StatementKind, float] = {
    "goal": 12.0,
    "task": 24.0,
    "rule": 6.0,
    "changed": 4.0,
    "decision": 4.0,
    "person": 4.0,
    "problem": 3.0,
    "note": 3.0,
    "detail": 3.0,
    "remark": 2.0,
    "done": 2.0,
    "request": 1.0,
}
"""The age at which the worth of a statement is halved, in ranges of the present length."""
_DETAIL_HALF_LIFE = 1.0
_MIN_FILLER_WORTH = 0.01
"""The worth below which new speech without a fact is filler."""
_MIN_NARRATION_WORTH = 0.3
"""The worth below which narration is a mention of its facts."""
_MAX_FILLER_CHARS = 140
_MIN_OUTPUT_CHANCE = 0.3
"""The probability below which tool output without a fact is filler."""
_UNSURE_FACTOR = 0.8
_USER_FACTOR = 1.3
_NARRATION_FACTOR = 0.2
"""The factor for text that the assistant writes while it calls a tool."""
_LABEL_FACTOR = 0.4
_PART_SHARE = 0.8
"""The share of the worth of a linked statement that is added to its head."""
_REPLACED_SHARE = 0.1
"""The share for an earlier value that a summary has already written."""
_TICKED_FACTOR = 0.3
_SURE_SHARE = 0.15
"""The share of the quality that does not depend on the form of the passage."""
_MAX_UNIQUE_WORDS = 4
"""The number of own words from which a statement counts as completely new."""
_NOVELTY_POWER = 1.25
_MESSAGE_NOVELTY_POWER = 6
"""The exponent that lowers the worth of messages made of repeated phrases."""
_QUESTION_FACTOR = 0.3
_BASE_WEIGHT = 0.6
_MEAN_WEIGHT = 4.0
"""The weight of a statement of average worth, in rare words."""
_MAX_WEIGHT_FACTOR = 1.5
_INSTRUCTION_WORTH = 1.0
_INSTRUCTION_QUALITY = 0.6
_LISTED_QUALITY = 0.8
"""The minimum quality of an item of a to-do list, whose words were used before."""
_MIN_DISTINCT_CHANCE = 0.3
_ALIKE_OVERLAP = 0.5
_MAX_AGE = 12.0
_MIN_ESSENTIAL_WORTH = 0.2
"""The worth from which a statement is essential, calibrated on sessions with planted facts."""
_KEPT_FACTOR = 0.75
_MIN_ESSENTIAL_SHARE = 0.05
_FEW_STATEMENTS = 8
"""The number of statements up to which all are essential."""
_NAMING_KINDS = frozenset(("path", "url", "identifier", "command", "error"))

State = Literal["current", "superseded", "done", "linked", "repeated"]
_AUTHORS: Mapping[str, Author] = {"user": "user", "assistant": "assistant"}


@dataclass(slots=True)
class Statement:
    """One statement, and the passage in which it is written."""

    scored: ScoredPassage
    kind: StatementKind
    traits: Traits
    words: frozenset[str]
    author: Author | None = None
    message_id: int | None = None
    age: float = 0.0
    state: State = "current"
    parts: list[tuple[Label, Statement]] = field(default_factory=list)
    is_narration: bool = False
    alike: int = 0
    """The number of other statements that share half of its words."""
    later_alike: int = 0
    """The number of those statements that come later. The last of a group has its full worth."""
    unique_words: float = 0.0
    """The number of its words that no other message contains."""
    weight: float = 0.0
    """Its weight as a number of words of maximal weight."""
    novelty: float = 1.0
    """The share of its message's phrases that no other message contains."""
    old_parts: list[WrittenLine] = field(default_factory=list)
    """The parts with which an earlier summary has written it."""
    is_unlisted: bool = False
    """Whether a later list of all tasks does not contain it."""
    worth: float = 0.0
    full_worth: float = 0.0
    """The worth without its parts, and before it fades with age."""
    is_essential: bool = False
    """Whether a summary has to keep it."""

    @property
    def passage(self) -> Passage:
        """The passage of the statement."""
        return self.scored.passage

    @property
    def text(self) -> str:
        """The text of the passage."""
        return self.scored.passage.text

    @property
    def section(self) -> Section:
        """The section in which the statement is written."""
        return "unlisted" if self.is_unlisted and self.kind == "task" else self.kind

    @property
    def is_speech(self) -> bool:
        """Whether a person or the assistant said the statement or put it on a list."""
        if self.kind in ("task", "done"):
            return True
        tool = self.passage.speaker in ("call", "result") or self.author == "tool"
        return not tool and self.kind not in ("mention", "output")

    @property
    def is_filler(self) -> bool:
        """Whether the statement is left out even if there is room."""
        if self.age or self.passage.facts or self.parts:
            return False
        if self.is_speech:
            return self.worth < _MIN_FILLER_WORTH and len(self.text) <= _MAX_FILLER_CHARS
        return self.scored.chance < _MIN_OUTPUT_CHANCE


@dataclass(slots=True)
class StatementSet:
    """The statements of a range in order, and the number that the conversation has had."""

    statements: list[Statement]
    counted: int

    @property
    def current(self) -> list[Statement]:
        """The statements that hold, are not parts of others and are no filler.

        If all are filler, filler is included.
        """
        current = [statement for statement in self.statements if statement.state == "current"]
        return [statement for statement in current if not statement.is_filler] or current


def read_statements(
    messages: Iterable[Message], most: int = passages.MAX_RANGE_CHARS
) -> StatementSet:
    """Return the statements of a range, reading at most `most` characters."""
    listed = list(messages)
    reading = passages.read_passages(listed, most)
    scored = scoring.score_passages(reading)
    # A range of greetings alone has a summary too.
    found_statements = _make_statements(scored, listed) or _make_statements(
        scored, listed, "remark"
    )
    speech = [statement for statement in found_statements if statement.is_speech]
    index = topics.TopicIndex(statement.words for statement in speech)
    _count_alike(speech, index)
    _set_novelty(speech)
    links.link_statements(found_statements)
    resolve.resolve_states(speech, index)
    _set_ages(found_statements, listed)
    _count_unique_words(speech)
    for statement in speech:
        statement.weight = index.measure_in_rare_words(statement.words)
    for statement in found_statements:
        _set_worth(statement)
    for statement in found_statements:
        statement.worth += _PART_SHARE * sum(part.worth for _, part in statement.parts)
    _mark_essential(found_statements)
    return StatementSet(found_statements, _count_essential(found_statements, reading))


def _count_unique_words(speech: Sequence[Statement]) -> None:
    """Count the words of each statement that no other message contains.

    New statements are compared only with new messages.
    """
    held = [statement for statement in speech if statement.state in ("current", "linked")]
    new = topics.SharedWords(
        (statement.passage.place, statement.words) for statement in held if not statement.age
    )
    # Each line of an earlier summary counts as a message.
    every = topics.SharedWords(
        (-1 - at if statement.age else statement.passage.place, statement.words)
        for at, statement in enumerate(held)
    )
    for statement in held:
        statement.unique_words = (every if statement.age else new).count_unique(statement.words)


def _set_novelty(speech: Sequence[Statement]) -> None:
    """Set the share of each statement's message that no other message repeats."""
    places = [
        -1 - at if statement.age else statement.passage.place for at, statement in enumerate(speech)
    ]
    phrases = topics.SharedPhrases(
        (place, statement.text) for place, statement in zip(places, speech, strict=True)
    )
    novelty = phrases.measure_novelty()
    for place, statement in zip(places, speech, strict=True):
        statement.novelty = novelty[place]


def _make_statements(
    scored: Iterable[ScoredPassage],
    messages: Sequence[Message],
    filler_kind: StatementKind | None = None,
) -> list[Statement]:
    statements = (_make_statement(item, messages, filler_kind) for item in scored)
    return [statement for statement in statements if statement is not None]


def _make_statement(
    scored: ScoredPassage, messages: Sequence[Message], filler_kind: StatementKind | None
) -> Statement | None:
    passage = scored.passage
    if passage.line is not None:
        return _make_earlier_statement(scored, passage.line)
    traits = classify_passage(passage)
    kind = traits.kind or filler_kind
    if kind is None:
        return None
    speech = passage.speaker in ("user", "assistant")
    words = (
        topics.extract_words(passage.text)
        if speech or kind in ("task", "done")
        else frozenset[str]()
    )
    message = messages[passage.place]
    number = message.get("id")
    return Statement(
        scored,
        kind,
        traits,
        words,
        _AUTHORS.get(passage.speaker, "tool"),
        number if isinstance(number, int) else None,
        is_narration=passage.speaker == "assistant" and bool(chat_messages.list_call_ids(message)),
    )


def _make_earlier_statement(scored: ScoredPassage, line: WrittenLine) -> Statement:
    traits = classify_passage(scored.passage)
    # A line that a model has written is not filler.
    written = "task" if line.kind == "unlisted" else line.kind
    kind = written or classify_title(line.heading) or traits.kind or "remark"
    if kind == "detail":
        kind = written_form.get_detail_kind(traits.kind)
    text = " ".join((scored.passage.text, *(part.text for part in line.parts)))
    return Statement(
        scored,
        kind,
        traits._replace(kind=kind),
        topics.extract_words(text),
        line.author,
        line.message_id,
        age=1.0,
        old_parts=line.parts,
        is_unlisted=line.kind == "unlisted",
    )


def _set_ages(statements: Sequence[Statement], messages: Sequence[Message]) -> None:
    """Set the ages of statements of earlier summaries.

    The unit is the length of the present range.
    """
    numbers = [number for row in messages if isinstance(number := row.get("id"), int)]
    if len(numbers) < 2:  # noqa: PLR2004 -- one id has no distance
        return
    # The first may be the summary itself, whose id is larger than the ids that it summarizes.
    first, span = min(numbers), max(max(numbers) - min(numbers), 1)
    for statement in statements:
        # An id that is not smaller comes from another home and does not show the age.
        if statement.age and statement.message_id is not None and statement.message_id < first:
            statement.age = min(1 + (first - statement.message_id) / span, _MAX_AGE)


def _set_worth(statement: Statement) -> None:
    """Set the worth of a statement. Weak narration with facts becomes a mention."""
    statement.worth = _compute_worth(statement)
    weak = statement.is_narration and statement.worth < _MIN_NARRATION_WORTH
    if weak and statement.passage.facts:
        statement.kind = "mention"
        statement.worth = _compute_worth(statement)


def _compute_worth(statement: Statement) -> float:
    fade: float = 0.5 ** (statement.age / _HALF_LIVES.get(statement.kind, _DETAIL_HALF_LIFE))
    worth = _compute_speech_worth(statement) if statement.is_speech else statement.scored.alone
    statement.full_worth = worth
    labels = sum(line.label != "previously" for line in statement.old_parts)
    return worth * fade * (1 + _LABEL_FACTOR * labels)


def _compute_speech_worth(statement: Statement) -> float:
    worth = max(_WORTH[statement.kind], _INSTRUCTION_WORTH * statement.traits.is_instruction)
    worth *= _measure_quality(statement)
    worth *= 1 if statement.traits.is_explicit or statement.age else _UNSURE_FACTOR
    worth *= _USER_FACTOR if statement.author == "user" or statement.kind == "note" else 1
    worth *= min((_BASE_WEIGHT + statement.weight) / _MEAN_WEIGHT, _MAX_WEIGHT_FACTOR)
    if statement.kind == "done" and CHECKBOX.match(statement.text):
        worth *= _TICKED_FACTOR
    return worth


def _measure_quality(statement: Statement) -> float:
    """Return the estimated probability that a statement says something new."""
    own = min(statement.unique_words, _MAX_UNIQUE_WORDS)
    novelty: float = ((1 + own) / (1 + _MAX_UNIQUE_WORDS)) ** _NOVELTY_POWER
    chance = min(statement.scored.chance, 1)
    quality = (_SURE_SHARE + (1 - _SURE_SHARE) * chance) * novelty
    quality *= statement.novelty**_MESSAGE_NOVELTY_POWER
    if statement.traits.is_question:
        quality *= _QUESTION_FACTOR
    if statement.traits.is_instruction:
        # Its words are often those of the talk before it.
        quality = max(quality, _INSTRUCTION_QUALITY * statement.novelty**_MESSAGE_NOVELTY_POWER)
    if statement.kind == "task" and CHECKBOX.match(statement.text):
        return max(quality, _LISTED_QUALITY)
    if _is_distinct(statement):
        # Of many decisions in the same words each one holds.
        return max(quality, _MIN_DISTINCT_CHANCE)
    narration = _NARRATION_FACTOR if statement.is_narration else 1
    if statement.is_narration and _has_name(statement):
        # A name makes even a narration likely to be about something of its own.
        narration = math.sqrt(narration)
    return quality * narration / max(statement.later_alike, 1)


def _count_alike(speech: Sequence[Statement], index: topics.TopicIndex) -> None:
    for at, statement in enumerate(speech):
        words = index.topics[at]
        for other, common in index.find_related(at):
            union = len(words) + len(index.topics[other]) - len(common & words)
            apart = statement.passage.place != speech[other].passage.place
            if (apart or statement.age) and len(common & words) >= _ALIKE_OVERLAP * union:
                statement.alike += 1
                speech[other].alike += 1
                speech[other].later_alike += 1


def measure_replaced_worth(statement: Statement) -> float:
    """Return the part of a statement's worth that belongs to the values it has replaced."""
    new = sum(part.worth for label, part in statement.parts if label == "previously")
    old = sum(line.label == "previously" for line in statement.old_parts)
    return _PART_SHARE * new + _REPLACED_SHARE * min(old, 1) * statement.worth


def _count_essential(statements: Sequence[Statement], reading: PassageSet) -> int:
    """Return the number of essential statements of the conversation.

    It includes the statements that earlier summaries have left out.
    """
    new = sum(statement.is_essential and not statement.age for statement in statements)
    old = sum(statement.is_essential and statement.age > 0 for statement in statements)
    return new + max(reading.counted, old)


def _mark_essential(statements: Sequence[Statement]) -> None:
    """Mark the statements that a summary has to keep.

    These are all statements that are worth enough.
    """
    spoken = [
        statement
        for statement in statements
        if statement.is_speech
        and not statement.is_narration
        and statement.state in ("current", "linked")
    ]
    best = max((statement.full_worth for statement in spoken), default=0.0)
    least = min(_MIN_ESSENTIAL_WORTH, _MIN_ESSENTIAL_SHARE * best)
    least *= len(spoken) > _FEW_STATEMENTS
    for statement in spoken:
        # A statement that a summary has kept was worth it. Its line has fewer words of its own.
        factor = _KEPT_FACTOR if statement.age else 1
        statement.is_essential = statement.full_worth >= factor * least


def _is_distinct(statement: Statement) -> bool:
    """Return whether an explicit statement contains a value, which distinguishes it from others."""
    return (
        statement.traits.is_explicit
        and not statement.is_narration
        and any(map(topics.is_value, statement.words))
    )


def _has_name(statement: Statement) -> bool:
    return any(fact.kind in _NAMING_KINDS for fact in statement.passage.facts)
