"""Classification of passages by their speaker, their form, and words of seven languages."""

from __future__ import annotations

import re
from typing import NamedTuple

from session_core.compression.extractive import cues, rulings
from session_core.compression.extractive import patterns as p
from session_core.compression.extractive.facts import FactKind
from session_core.compression.extractive.instructions import (
    has_ambiguous_first_verb,
    is_instruction,
)
from session_core.compression.extractive.passages import Passage
from session_core.compression.extractive.written_form import StatementKind

_FILLER_CHARS = 30
"""A filler is within so many characters of the start of a sentence."""
_MAX_FILLER_CHARS = 140
_SETTLED = re.compile(
    r"\b(?:decid|agreed|(?:we|i|they|all) agree|agree (?:on|to)|we chose"
    r"|settled|go with|going with|beschlossen|entschieden|geeinigt|décid"
    r"|acord|решил[аи]? |договор)|决定|決定|決め"
)
"""Words of a decision that could also be a report, such as `we agreed to …`"""
_FACT_KINDS: dict[FactKind, StatementKind] = {"command": "command", "path": "file"}
_EMAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,64}\.\w")
_NAME_KINDS = frozenset(("command", "path", "url"))
_INSTRUCTED_KINDS: frozenset[StatementKind] = frozenset(
    ("request", "remark", "note", "detail", "file", "command", "problem", "person")
)
_PHONE = re.compile(r"\+\d[\d /-]{6,18}\d")


class Traits(NamedTuple):
    """The kind of a passage, and its role in a problem or a correction."""

    kind: StatementKind | None
    """None for a filler."""
    is_question: bool = False
    is_correction: bool = False
    is_explicit: bool = False
    """Whether the words state the kind explicitly, so that the statement stays for long."""
    is_cause: bool = False
    is_fix: bool = False
    is_reason: bool = False
    is_instruction: bool = False


def classify_passage(passage: Passage) -> Traits:
    """Return the kind and traits of a passage."""
    if passage.speaker in ("call", "result"):
        return Traits(_classify_output(passage))
    folded = passage.text.lower().replace("\u2019", "'")
    return _classify_speech(passage, folded, frozenset(p.WORD.findall(folded)))


def _classify_output(passage: Passage) -> StatementKind:
    box = p.CHECKBOX.match(passage.text)
    if box and passage.speaker == "call":
        return "done" if box["done"] else "task"
    kinds = {fact.kind for fact in passage.facts}
    if "error" in kinds:
        return "problem"
    return "command" if passage.speaker == "call" and "command" in kinds else "output"


def _classify_speech(passage: Passage, folded: str, words: frozenset[str]) -> Traits:
    text, kinds = passage.text, {fact.kind for fact in passage.facts}
    box = p.CHECKBOX.match(text)
    if box:
        return Traits("done" if box["done"] else "task", is_explicit=True)
    named = bool(kinds - {"decision", "task"})
    strong = cues.STRONG_CORRECTION.is_in(folded, words) or bool(cues.NEGATED_VALUE.search(folded))
    strong = strong and not (passage.speaker == "assistant" and rulings.is_hedged(folded))
    if not strong and _is_filler(folded, words, named):
        return Traits(None)
    offer = cues.OFFER_END.search(folded) is not None
    if cues.QUESTION_END.search(text) and not offer:
        return Traits("request" if passage.speaker == "user" else "remark", is_question=True)
    correction = (
        strong
        or cues.CORRECTION.is_in(folded, words)
        or any(sign.search(folded) for sign in (cues.EFFECTIVE, cues.REPLACED_PERSON))
    )
    kind, explicit = _find_kind(passage, folded, words, kinds)
    # An instruction of the user with a participle reports nothing: `keep both published`.
    instructed = (
        offer
        or kind in _INSTRUCTED_KINDS
        or (kind == "done" and (passage.speaker == "user" or has_ambiguous_first_verb(text)))
    )
    fix = cues.FIX.is_in(folded, words)
    # `Group bind and mode 0640 cured it` begins like an instruction.
    instruction = instructed and not fix and is_instruction(text)
    if instruction or (kind in _INSTRUCTED_KINDS and _is_announced(passage, folded)):
        kind = "request" if passage.speaker == "user" else "task"
    if strong and kind not in ("task", "done") and not cues.BREAKS.search(folded):
        kind = "changed"
    return Traits(
        kind,
        is_correction=correction,
        is_explicit=explicit or strong,
        is_cause=cues.CAUSE.is_in(folded, words),
        is_fix=fix,
        is_reason=_begins_with(cues.REASON, folded),
        is_instruction=instruction,
    )


def _find_kind(
    passage: Passage, folded: str, words: frozenset[str], kinds: set[FactKind]
) -> tuple[StatementKind, bool]:
    user = passage.speaker == "user"
    unsettled = rulings.is_unsettled(folded) or (not user and rulings.is_hedged(folded))
    settled = not unsettled and _SETTLED.search(folded) is not None
    reported = not user and cues.REPORT.search(folded) is not None
    if not settled and (is_done_report(folded, words) or reported):
        return "done", True
    intention = not user and _begins_with(cues.INTENTION, folded)
    standing = user and rulings.is_standing_rule(folded)
    if not (settled or intention or standing or unsettled) and _is_open(folded, words):
        return "task", True
    if settled:
        return "decision", True
    if standing or (not intention and not unsettled and _has_rule(folded, words, user=user)):
        return "rule", user
    if not unsettled and rulings.is_decision(folded):
        return "decision", True
    broken = cues.BREAKS.search(folded) is not None
    if "decision" in kinds and not (unsettled or broken) and _has_decision(folded, user=user):
        return "decision", False
    if user and cues.GOAL.is_in(folded, words):
        return "goal", True
    return _find_lesser_kind(passage, folded, words, kinds)


def _is_open(folded: str, words: frozenset[str]) -> bool:
    return cues.OPEN.is_in(folded, words) or cues.OPEN_FORM.search(folded) is not None


def _has_rule(folded: str, words: frozenset[str], *, user: bool) -> bool:
    """Return whether a text has a word of a rule. `Always` is a habit of the assistant."""
    text = rulings.strip_habit(folded, always=not user)
    if text != folded:
        words = frozenset(p.WORD.findall(text))
    return cues.RULE.is_in(text, words)


def _has_decision(folded: str, *, user: bool) -> bool:
    text = rulings.strip_habit(folded, always=not user)
    return bool(p.DECIDED.search(text) or p.UNSPACED_DECISION.search(text))


def _is_announced(passage: Passage, folded: str) -> bool:
    """Return whether the assistant notes a task, or names its next step."""
    return passage.speaker == "assistant" and _begins_with(cues.NOTED, folded)


def _find_lesser_kind(
    passage: Passage, folded: str, words: frozenset[str], kinds: set[FactKind]
) -> tuple[StatementKind, bool]:
    """Return the kind of a statement that is no decision, rule, goal, task or report."""
    user = passage.speaker == "user"
    if "error" in kinds or _is_problem(passage, folded, words):
        return "problem", False
    spoken = _blank_names(passage, folded)
    if cues.PERSON.is_in(folded, words) or _EMAIL.search(spoken) or _PHONE.search(spoken):
        return "person", True
    if cues.DATE.search(spoken):
        return "person", False
    if "task" in kinds and user:
        return "request", False
    fact_kind = next((kind for name, kind in _FACT_KINDS.items() if name in kinds), None)
    remark: StatementKind = "note" if user else "remark"
    return fact_kind or ("detail" if kinds else remark), False


def _is_problem(passage: Passage, folded: str, words: frozenset[str]) -> bool:
    """Return whether a text reports a failure and not its absence or an intention."""
    if cues.BREAKS.search(folded):
        return True
    if passage.speaker == "assistant" and _begins_with(cues.INTENTION, folded):
        return False
    return cues.PROBLEM.is_in(folded, words) and not cues.NO_PROBLEM.search(folded)


def _blank_names(passage: Passage, folded: str) -> str:
    """Return a text with spaces in place of paths and addresses, whose dates do not count."""
    if len(folded) == len(passage.text):
        for fact in passage.facts:
            if fact.kind in _NAME_KINDS:
                folded = f"{folded[: fact.position]}{' ' * len(fact.text)}{folded[fact.end :]}"
    return folded


def is_done_report(folded: str, words: frozenset[str]) -> bool:
    """Return whether a text reports that something is done."""
    return cues.DONE.is_in(folded, words) and not cues.NOT_DONE.search(folded)


def _begins_with(cue: cues.Cue, folded: str) -> bool:
    begin = folded[:_FILLER_CHARS]
    spaced = cue.spaced.search(begin)
    if spaced and not p.WORD.search(begin, 0, spaced.start()):
        return True
    wide = None if folded.isascii() else cue.unspaced.match(begin)
    return wide is not None


def _is_filler(folded: str, words: frozenset[str], named: bool) -> bool:
    if named or len(folded) > _MAX_FILLER_CHARS or any(map(str.isdigit, folded)):
        return False
    if not _begins_with(cues.FILLER, cues.INTERJECTION.sub("", folded) or folded):
        return False
    return not (cues.OPEN.is_in(folded, words) or cues.RULE.is_in(folded, words))


def classify_title(title: str) -> StatementKind | None:
    """Return the kind of the lines below a heading of a foreign summary."""
    folded = title.lower()
    words = frozenset(p.WORD.findall(folded))
    if is_done_report(folded, words):
        return "done"
    if cues.OPEN.is_in(folded, words) or "task" in folded or "next" in words:
        return "task"
    if p.DECIDED.search(folded) or p.UNSPACED_DECISION.search(folded):
        return "decision"
    return "goal" if cues.GOAL.is_in(folded, words) else None
