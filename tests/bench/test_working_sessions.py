"""The retention bench is fair and hard: what it asks for fits, what looks like it does not."""

from __future__ import annotations

import re

import pytest

from tests.bench.retention import KEPT, transcript
from tests.bench.talk import Message, texts
from tests.bench.working_sessions import Session, session

_SENTENCE = re.compile(r"(?<=[.!?。\uff1f\uff01])\s*(?=\S)")
_SETS = pytest.mark.parametrize("held_out", [False, True], ids=["working", "held out"])
_NUMBERS = (0, 6, 9)
"""One of them in English, one in Chinese, one in Japanese."""


@_SETS
def test_the_same_number_gives_the_same_working_session(held_out):
    assert session(0, held_out=held_out) == session(0, held_out=held_out)


@_SETS
def test_facts_stand_in_the_compressed_zone_alone_and_take_half_of_the_room(held_out):
    for number in _NUMBERS:
        working = session(number, held_out=held_out)
        inside = transcript(working.zone)
        outside = transcript(working.messages[: working.start] + working.messages[working.end :])
        assert all(fact.text in inside and fact.text not in outside for fact in working.facts)
        taken = sum(len(fact.text) for fact in working.facts)
        assert taken == pytest.approx(working.budget / 2, rel=0.05)


@_SETS
def test_a_choice_of_whole_lines_and_sentences_can_keep_what_is_asked_for(held_out):
    chosen = [session(number, held_out=held_out) for number in _NUMBERS]
    kept = sum(_kept_by_a_perfect_choice(working) for working in chosen)
    assert kept >= KEPT * sum(len(working.facts) for working in chosen)


@_SETS
def test_output_that_looks_like_facts_takes_more_than_twice_the_room(held_out):
    for number in _NUMBERS:
        working = session(number, held_out=held_out)
        alike = {line for line in _output_lines(working) if re.search(r"\d|/|_", line)}
        assert sum(len(line) for line in alike) > 2 * working.budget


def _kept_by_a_perfect_choice(working: Session) -> int:
    pieces = [piece for message in working.zone for piece in _pieces(message)]
    holding: dict[str, int] = {}
    for fact in working.facts:
        piece = min((piece for piece in pieces if fact.text in piece), key=len)
        holding[piece] = holding.get(piece, 0) + 1
    room, kept = working.budget, 0
    for piece in sorted(holding, key=lambda piece: len(piece) / holding[piece]):
        room -= len(piece) + 1
        kept += holding[piece] if room >= 0 else 0
    return kept


def _pieces(message: Message) -> list[str]:
    lines = [line for text in texts(message) for line in text.split("\n")]
    return [piece for line in lines for piece in (line, *_SENTENCE.split(line))]


def _output_lines(working: Session) -> list[str]:
    outputs = [message["content"] for message in working.zone if message["role"] == "tool"]
    return [line for output in outputs for line in output.split("\n")]
