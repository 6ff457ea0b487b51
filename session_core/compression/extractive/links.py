"""Links between statements: a problem and its fix, a question and its answer.

A statement is linked only to an earlier statement, within a few messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from session_core.compression.extractive.statements import Statement
    from session_core.compression.extractive.written_form import Label

_MAX_CASE_MESSAGES = 12
_NEAR_MESSAGES = 6
_NEXT_MESSAGES = 2
"""The distance of an answer that follows directly or after a note. After more messages, only a
short answer is linked.
"""
_MAX_PARTS = 3
_MAX_PROPOSAL_STATEMENTS = 8
_MAX_QUESTION_CHARS = 120
_MAX_ANSWER_CHARS = 60
_MIN_WORDS = 2
_MIN_NOVELTY = 0.6
"""The minimum novelty of an answer, a cause or a fix, which excludes small talk."""
_REASONED = frozenset((kind, "current") for kind in ("decision", "rule", "changed", "task"))
_ACCEPTED = re.compile(
    r"^(?:agreed|yes|right|ok(?:ay)?|good|fine|let's|we'll|einverstanden|ja|gut|also gut|abgemacht"
    r"|wir nehmen|d'accord|oui|on (?:prend|part)|de acuerdo|sí|vale|согласен|согласна|да|хорошо)\b"
    r"|^(?:賛成|はい|同意|好的?)"
)
"""The beginning of a reply that accepts a proposal."""
_ACTION = re.compile(
    r"^(?:\w+ing |i (?!t)|i'(?:m|ll|ve|d) |let me |ich |je |j'|voy |estoy |я )|我先|我来"
)
"""The beginning of a sentence about what the speaker does, which causes nothing."""
_CAUSE_KINDS = frozenset(("problem", "note", "remark", "detail", "file", "command", "person"))
_FIX_KINDS = frozenset(("done", "problem", "note", "remark", "detail", "file", "command"))


def link_statements(statements: Sequence[Statement]) -> None:
    """Link the new statements in their order."""
    new = [statement for statement in statements if not statement.age]
    speech = [statement for statement in new if statement.is_speech]
    _link_reasons(speech)
    _link_accepted(speech)
    _link_answers(speech)
    _link_causes_and_fixes(new)


def _link_part(head: Statement, label: Label, part: Statement) -> None:
    head.parts.append((label, part))
    part.state = "linked"


def _link_reasons(speech: Sequence[Statement]) -> None:
    for before, after in pairwise(speech):
        if (
            before.passage.place == after.passage.place
            and after.traits.is_reason
            and after.kind not in ("task", "changed")
            and (before.kind, before.state) in _REASONED
        ):
            _link_part(before, "reason", after)


def _link_accepted(speech: Sequence[Statement]) -> None:
    """Link the proposal with a reason to the decision that accepts it."""
    for at, decision in enumerate(speech):
        if decision.kind not in ("decision", "changed") or decision.state != "current":
            continue
        if decision.parts or not _ACCEPTED.match(decision.text.lower()):
            continue
        for before in reversed(speech[max(at - _MAX_PROPOSAL_STATEMENTS, 0) : at]):
            near = decision.passage.place - before.passage.place <= _NEXT_MESSAGES
            if not near or before.state != "current":
                break
            reasoned = before.traits.is_cause and before.author != decision.author
            if reasoned and before.words & decision.words:
                _link_part(decision, "reason", before)
                break


def _link_answers(speech: Sequence[Statement]) -> None:
    """Link a short question to the answer of the other side, or a question to a short answer."""
    for question, answer in pairwise(
        [statement for statement in speech if not statement.is_narration]
    ):
        if not question.traits.is_question or "linked" in (question.state, answer.state):
            continue
        distance = answer.passage.place - question.passage.place
        if not 0 < distance <= _NEAR_MESSAGES or question.author == answer.author:
            continue
        if answer.traits.is_question or answer.traits.is_instruction:
            continue
        if distance > _NEXT_MESSAGES and len(answer.text) > _MAX_ANSWER_CHARS:
            continue
        if answer.novelty < _MIN_NOVELTY:
            continue
        if answer.alike or len(answer.words) + len(question.words) < _MIN_WORDS:
            continue
        asked_briefly = question.author == "user" and len(question.text) <= _MAX_QUESTION_CHARS
        answered_briefly = (
            question.author == "assistant"
            and len(answer.text) <= _MAX_ANSWER_CHARS
            and len(question.text) <= 2 * _MAX_QUESTION_CHARS
        )
        if asked_briefly or answered_briefly:
            question.kind = (
                "decision"
                if answered_briefly and answer.kind in ("note", "remark")
                else answer.kind
            )
            _link_part(question, "answer", answer)


def _link_causes_and_fixes(new: Sequence[Statement]) -> None:
    cases: list[Statement] = []
    for statement in new:
        place = statement.passage.place
        cases = [case for case in cases if place - case.passage.place <= _MAX_CASE_MESSAGES]
        label = _choose_label(statement) if statement.state == "current" else None
        case = _find_problem(cases, statement) if label else None
        if label and case and not statement.parts:
            _link_part(case, label, statement)
        elif statement.kind == "problem" and statement.state == "current":
            cases.append(statement)


def _choose_label(statement: Statement) -> Label | None:
    if not statement.is_speech or statement.traits.is_question:
        return None
    if statement.novelty < _MIN_NOVELTY:
        return None
    if statement.traits.is_fix and statement.kind in _FIX_KINDS:
        return "fix"
    if _ACTION.match(statement.text.lower()):
        return None
    return "cause" if statement.traits.is_cause and statement.kind in _CAUSE_KINDS else None


def _find_problem(cases: Sequence[Statement], statement: Statement) -> Statement | None:
    """Return the problem to which a cause or a fix belongs.

    It is the last problem with common words, or else a problem of the messages just before.
    """
    open_cases = [case for case in cases if len(case.parts) < _MAX_PARTS]
    related = [case for case in open_cases if case.words & statement.words]
    if statement.traits.is_correction and not statement.traits.is_fix and not related:
        return None
    near = [
        case
        for case in open_cases
        if statement.passage.place - case.passage.place <= _NEXT_MESSAGES and case.is_speech
    ]
    return next(_iter_newest(related, near), None)


def _iter_newest(*groups: Sequence[Statement]) -> Iterator[Statement]:
    for group in groups:
        yield from reversed(group)
