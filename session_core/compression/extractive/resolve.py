"""Mark statements that later statements corrected, completed or repeated."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from session_core.compression.extractive import patterns as p
from session_core.compression.extractive.corrections import CorrectionFinder
from session_core.compression.extractive.topics import TopicIndex

if TYPE_CHECKING:
    from session_core.compression.extractive.statements import Statement

_REPEAT_OVERLAP = 0.85
_DONE_OVERLAP = 0.5
_MIN_COMMON_WORDS = 2
_OPEN_KINDS = frozenset(("task", "request"))
_MIN_LIST_ITEMS = 3
_TASK_ENDS = ".!。 "


def resolve_states(speech: Sequence[Statement], index: TopicIndex) -> None:
    """Set the states of statements. Later statements decide about earlier statements."""
    _close_dropped_items(speech)
    finder = CorrectionFinder(speech, index)
    for at, statement in enumerate(speech):
        related = [
            (other, common)
            for other, common in index.find_related(at)
            if speech[other].state in ("current", "linked")
        ]
        for other in _find_repeated(at, related, index):
            if speech[other].passage.place != statement.passage.place or statement.age:
                speech[other].state = "repeated"
        if statement.kind == "done":
            for other in _find_finished(at, related, speech, index):
                speech[other].state = "done"
        for correction in finder.find_corrected(at, related):
            corrected = speech[correction.place]
            corrected.state = "superseded"
            if not correction.is_whole and statement.state == "current":
                statement.parts.append(("previously", corrected))
    _mark_unlisted(speech)


def _close_dropped_items(speech: Sequence[Statement]) -> None:
    """Close the items of a to-do list that the next list does not contain."""
    before: dict[str, Statement] = {}
    for items in _group_lists(speech):
        texts = {_get_item_text(item): item for item in items}
        common = before.keys() & texts.keys()
        whole = _is_whole_list(items) or 2 * len(common) >= max(len(before), _MIN_LIST_ITEMS)
        for text, item in before.items() if whole else ():
            item.state = "repeated" if text in common else "done"
        for text in common:
            before[text].state = "repeated"
        before = texts if whole else before | texts


def _mark_unlisted(speech: Sequence[Statement]) -> None:
    """Mark tasks that a later list of all tasks does not repeat."""
    new = [items for items in _group_lists(speech) if not items[0].age]
    whole = [items[0].passage.place for items in new if _is_whole_list(items)]
    for statement in speech:
        if statement.kind == "task" and statement.passage.place < max(whole, default=-1):
            statement.is_unlisted = statement.state == "current"


def _group_lists(speech: Sequence[Statement]) -> Iterator[list[Statement]]:
    """Yield the items of each to-do list of one message or of an earlier summary."""
    boxes = [statement for statement in speech if p.CHECKBOX.match(statement.text)]
    for _, group in itertools.groupby(boxes, key=lambda statement: statement.passage.place):
        yield list(group)


def _is_whole_list(items: Sequence[Statement]) -> bool:
    """Return whether a list contains all tasks.

    A list of a tool does, and a list with both open and ticked boxes.
    """
    return items[0].author == "tool" or len({item.kind for item in items}) > 1


def _get_item_text(item: Statement) -> str:
    box = p.CHECKBOX.match(item.text)
    return item.text[box.end() if box else 0 :].rstrip(_TASK_ENDS)


Related = Sequence[tuple[int, set[str]]]


def _find_repeated(at: int, related: Related, index: TopicIndex) -> Iterator[int]:
    words = index.words[at]
    for other, common in related:
        before = index.words[other]
        # Most have little in common; counting is faster than weighing.
        if 2 * len(common) >= len(before) and index.values[other] <= index.values[at]:
            union = index.sum_weights(words | before)
            if union and index.sum_weights(words & before) / union >= _REPEAT_OVERLAP:
                yield other


def _find_finished(
    at: int, related: Related, speech: Sequence[Statement], index: TopicIndex
) -> Iterator[int]:
    """Yield the open tasks whose words a report contains."""
    for other, common in related:
        if speech[other].kind in _OPEN_KINDS:
            covered = index.measure_coverage(other, at)
            if covered >= _DONE_OVERLAP and _is_strong_overlap(common, index):
                yield other


def _is_strong_overlap(common: set[str], index: TopicIndex) -> bool:
    return len(common) >= _MIN_COMMON_WORDS or any(index.is_rare(word) for word in common)
