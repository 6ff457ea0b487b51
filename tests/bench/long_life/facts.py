"""Planted facts of a long session, and whether a summary keeps them.

A needle is a tuple of alternatives, of which one must be found; every needle of a fact must be.
An alternative between slashes is a regular expression, any other is literal text.
Case, width, quotation marks, dashes, emphasis and white space are ignored.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Kind = Literal[
    "decision",
    "constraint",
    "preference",
    "task_open",
    "task_done",
    "error_fix",
    "correction",
    "person_date",
    "file_command",
    "fact",
]
TaskState = Literal["unknown", "open", "done", "dropped"]
Needle = tuple[str, ...]

_MARKS_FILE = Path(__file__).with_name("replaced_marks.txt")


@dataclass(frozen=True)
class PlantedFact:
    """One thing that a later reader of the session needs."""

    fact_id: str
    kind: Kind
    part_number: int
    needles: tuple[Needle, ...]
    message_indexes: tuple[int, ...]
    """For each needle, the message of the part in which it is stated."""
    stale_needles: tuple[str, ...] = ()
    """Texts of the old value, any of which shows that the old statement was kept."""
    replaced_ids: tuple[str, ...] = ()
    closed_ids: tuple[str, ...] = ()
    dropped_ids: tuple[str, ...] = ()
    task_states: tuple[TaskState, ...] = ()
    """For a task: its state at the end of each part."""


@dataclass(frozen=True)
class LifePart:
    """One generation of a session: the messages between two compressions."""

    number: int
    language: str
    messages: list[dict[str, Any]] = field(repr=False)
    facts: tuple[PlantedFact, ...] = field(repr=False)


@dataclass(frozen=True)
class LongLife:
    """A session of several months, in parts that are compressed one after another."""

    name: str
    language: str
    parts: tuple[LifePart, ...]


def is_kept(fact: PlantedFact, summary: str) -> bool:
    """Return True if the summary contains every needle of the fact."""
    return not list_missing_needles(fact, summary)


def list_missing_needles(fact: PlantedFact, summary: str) -> tuple[Needle, ...]:
    """Return the needles of which the summary contains no alternative."""
    text = normalize_text(summary)
    return tuple(needle for needle in fact.needles if not _has_needle(needle, text))


def is_stale(fact: PlantedFact, summary: str) -> bool:
    """Return True if the summary shows a superseded statement as current.

    An old value is excused if its sentence marks it as replaced or has a new value next to it,
    or if the new value comes after it.
    """
    text = normalize_text(summary)
    new_starts = [start for needle in fact.needles for start, _ in _find_spans(needle, text)]
    for start, end in _find_spans(fact.stale_needles, text):
        if not _is_excused(fact, text, start, end) and not any(new > start for new in new_starts):
            return True
    return False


def list_open_tasks(life: LongLife, part_number: int) -> tuple[PlantedFact, ...]:
    """Return the tasks that are open at the end of a part. Parts count from 1."""
    return tuple(
        fact
        for part in life.parts[:part_number]
        for fact in part.facts
        if fact.task_states and fact.task_states[part_number - 1] == "open"
    )


def list_valid_facts(life: LongLife, part_number: int) -> tuple[PlantedFact, ...]:
    """Return the facts stated up to the end of a part that no later fact replaces."""
    stated = [fact for part in life.parts[:part_number] for fact in part.facts]
    replaced = {fact_id for fact in stated for fact_id in fact.replaced_ids}
    return tuple(fact for fact in stated if fact.fact_id not in replaced)


def get_message_text(message: dict[str, Any]) -> str:
    """Return all text of a message: its content and the arguments of its tool calls."""
    calls = [call["function"]["arguments"] for call in message.get("tool_calls", ())]
    return "\n".join([message["content"], *calls])


@functools.lru_cache(maxsize=64)
def normalize_text(text: str) -> str:
    """Return text in the form in which needles are compared."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    plain = folded.translate(_PLAIN)
    return re.sub(r"[ \t\xa0]+", " ", plain)


def find_first_alternative(needle: Iterable[str], normalized: str) -> str | None:
    """Return the alternative of a needle that normalized text contains, if there is one."""
    return next((text for text in needle if _compile(text).search(normalized)), None)


_PLAIN = {
    **dict.fromkeys(map(ord, "\u2018\u2019\u201b\u02bc\xb4"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\xab\xbb\u300c\u300d\u300e\u300f"), '"'),
    **dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212"), "-"),
    **dict.fromkeys(map(ord, "*`"), None),
}
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=\S)|[\u3002!?\n]")
_ARROW_AFTER = re.compile(r"\s*(?:->|→|=>)")


def _has_needle(needle: Needle, normalized: str) -> bool:
    return find_first_alternative(needle, normalized) is not None


def _find_spans(alternatives: Iterable[str], normalized: str) -> list[tuple[int, int]]:
    return [match.span() for text in alternatives for match in _compile(text).finditer(normalized)]


@functools.lru_cache(maxsize=8192)
def _compile(alternative: str) -> re.Pattern[str]:
    if len(alternative) > 2 and alternative[0] == alternative[-1] == "/":
        return re.compile(alternative[1:-1], re.IGNORECASE)
    text = normalize_text(alternative).strip()
    body = r"\s+".join(re.escape(word) for word in text.split())
    # 8443 is not found in 184430, but "Friday" is found in "Fridays".
    before = r"(?<![0-9a-z])" if text[0].isascii() and text[0].isalnum() else ""
    after = r"(?![0-9])" if text[-1].isdigit() else ""
    return re.compile(before + body + after)


@functools.cache
def _compile_marks() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of replaced sentences, and of a negation directly before a value."""
    text = _MARKS_FILE.read_text(encoding="utf-8")
    in_sentence, before = ("|".join(block.splitlines()[1:]) for block in text.split("\n["))
    return (
        re.compile(in_sentence),
        re.compile(rf"(?:{before})\s*(?:a las |at |the )?\W*$"),
    )


def _is_excused(fact: PlantedFact, text: str, start: int, end: int) -> bool:
    sentence_start = max((m.end() for m in _SENTENCE_END.finditer(text, 0, start)), default=0)
    following = _SENTENCE_END.search(text, end)
    sentence = text[sentence_start : following.start() if following else len(text)]
    in_sentence, negation = _compile_marks()
    return bool(
        in_sentence.search(sentence)
        or negation.search(text[sentence_start:start])
        or _ARROW_AFTER.match(text, end)
        or any(_has_needle(needle, sentence) for needle in fact.needles)
    )
