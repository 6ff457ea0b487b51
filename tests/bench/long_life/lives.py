"""Long lives: hand-written exchanges of months, woven into talk and tool output by a seed.

The scripts carry every fact. The woven text adds no facts, and quotes a task only after the
message that states it. The same code gives the same messages.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.long_life.facts import (
    LifePart,
    LongLife,
    PlantedFact,
    TaskState,
    get_message_text,
)
from tests.bench.long_life.script import (
    BLIND_LIVES_FOLDER,
    LIVES_FOLDER,
    Script,
    ScriptFact,
    list_scripts,
)
from tests.bench.long_life.weaving import weave_part

_QUESTIONS = Path(__file__).with_name("questions.jsonl")


_UNKNOWN: tuple[TaskState, ...] = ("unknown",)


@dataclass(frozen=True)
class LifeQuestion:
    """A question for an engineer that continues the work, with its right answer."""

    life_name: str
    question: str
    answer: str
    fact_ids: tuple[str, ...]


@functools.cache
def list_long_lives() -> tuple[LongLife, ...]:
    """Return all lives by name. The messages are shared and must not be changed."""
    return tuple(build_life(script) for script in list_scripts(LIVES_FOLDER))


@functools.cache
def list_blind_lives() -> tuple[LongLife, ...]:
    """Return the shorter lives that the summariser was never tuned on, by name."""
    return tuple(build_life(script) for script in list_scripts(BLIND_LIVES_FOLDER))


def list_questions() -> tuple[LifeQuestion, ...]:
    """Return the questions that a summary of a whole life must answer."""
    rows = map(json.loads, _QUESTIONS.read_text(encoding="utf-8").splitlines())
    return tuple(
        LifeQuestion(row["life"], row["question"], row["answer"], tuple(row["facts"]))
        for row in rows
    )


def build_life(script: Script) -> LongLife:
    """Return the life of a script, with its task states."""
    states = _list_task_states(script)
    open_labels: dict[str, str] = {}
    parts = []
    for number, part in enumerate(script.parts, 1):
        messages, places = weave_part(script, number, open_labels)
        facts = tuple(
            _plant(
                fact,
                number,
                _place_needles(fact, messages, places),
                tuple(states.get(fact.fact_id, ())),
            )
            for fact in part.facts.values()
        )
        parts.append(LifePart(number, part.language, messages, facts))
    return LongLife(script.name, script.language, tuple(parts))


def _list_task_states(script: Script) -> dict[str, list[TaskState]]:
    """Return the state of each task at the end of each part, by id."""
    states: dict[str, list[TaskState]] = {}
    for number, part in enumerate(script.parts, 1):
        for fact in part.facts.values():
            if fact.kind == "task_open":
                states[fact.fact_id] = [*_UNKNOWN * (number - 1), "open"]
        for fact_id, history in states.items():
            history.extend([history[-1]] * (number - len(history)))
            history[-1] = _end_state(part.facts.values(), fact_id, history[-1])
    return states


def _end_state(facts: Iterable[ScriptFact], fact_id: str, state: TaskState) -> TaskState:
    for fact in facts:
        if fact_id in fact.done:
            return "done"
        if fact_id in fact.drops:
            return "dropped"
    return state


def _place_needles(
    fact: ScriptFact, messages: list[dict[str, Any]], places: list[int]
) -> tuple[int, ...]:
    """Return the message of each needle: of a tool call it may be the result."""
    indexes = []
    for needle, line_index in zip(fact.needles, fact.line_indexes, strict=True):
        index = places[line_index]
        indexes.append(index + (needle[0] not in get_message_text(messages[index])))
    return tuple(indexes)


def _plant(
    fact: ScriptFact, number: int, indexes: tuple[int, ...], states: tuple[TaskState, ...]
) -> PlantedFact:
    return PlantedFact(
        fact_id=fact.fact_id,
        kind=fact.kind,
        part_number=number,
        needles=tuple(fact.needles),
        message_indexes=indexes,
        stale_needles=fact.stale,
        replaced_ids=fact.replaces,
        closed_ids=fact.done,
        dropped_ids=fact.drops,
        task_states=states,
    )
