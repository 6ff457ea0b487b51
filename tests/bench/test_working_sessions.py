"""The retention bench is fair and hard: what it asks for fits, what looks like it does not."""

from __future__ import annotations

import random
import re

import pytest

from tests.bench.formats import FIXTURE_NAMES, FixtureName, TemplateFiller, load_sections
from tests.bench.retention import MIN_KEPT_SHARE, render_transcript
from tests.bench.talk import TalkMessage, list_texts
from tests.bench.working_sessions import FACT_KINDS, WorkingSession, make_session

_SENTENCE = re.compile(r"(?<=[.!?。\uff1f\uff01])\s*(?=\S)")
_SETS = pytest.mark.parametrize("fixture", FIXTURE_NAMES)
_NUMBERS = (0, 6, 9)
"""One of them in English, one in Chinese or Korean, one in Japanese or Spanish."""


@_SETS
def test_the_same_number_gives_the_same_working_session(fixture):
    assert make_session(0, fixture) == make_session(0, fixture)


@_SETS
def test_facts_stand_in_the_compressed_zone_alone_and_take_half_of_the_room(fixture):
    for number in _NUMBERS:
        working = make_session(number, fixture)
        inside = render_transcript(working.zone)
        outside = render_transcript(
            working.messages[: working.start] + working.messages[working.end :]
        )
        assert all(fact.text in inside and fact.text not in outside for fact in working.facts)
        taken = sum(len(fact.text) for fact in working.facts)
        assert taken == pytest.approx(working.budget / 2, rel=0.05)


@_SETS
def test_a_choice_of_whole_lines_and_sentences_can_keep_what_is_asked_for(fixture):
    chosen = [make_session(number, fixture) for number in _NUMBERS]
    kept = sum(_kept_by_a_perfect_choice(working) for working in chosen)
    assert kept >= MIN_KEPT_SHARE * sum(len(working.facts) for working in chosen)


@_SETS
def test_output_that_looks_like_facts_takes_more_than_twice_the_room(fixture):
    for number in _NUMBERS:
        working = make_session(number, fixture)
        alike = {line for line in _output_lines(working) if re.search(r"\d|/|_", line)}
        assert sum(len(line) for line in alike) > 2 * working.budget


@_SETS
def test_every_slot_can_be_filled_and_every_fact_is_one_piece_of_one_line(fixture):
    filler = TemplateFiller(random.Random(1), fixture)
    for section, formats in load_sections(fixture).items():
        for text in (filler.fill_template(line, 1) for line in formats):
            assert not re.search(r"\{[a-z]+\}", text), text
            marked = re.findall("«(.+)»", text)
            assert len(marked) == section.startswith("fact "), text


@_SETS
def test_people_the_agent_and_tools_say_every_kind_of_fact(fixture):
    sides = {"user", "assistant"}
    said = [fact for number in range(10) for fact in make_session(number, fixture).facts]
    for kind in FACT_KINDS:
        places = {fact.places[0] for fact in said if fact.kind == kind}
        assert places > sides


def test_the_other_formats_have_no_fact_no_talk_and_no_output_of_the_first():
    first, other = (_shapes(fixture) for fixture in ("working", "other formats"))
    assert not first & other


def _shapes(fixture: FixtureName) -> set[str]:
    """Return the formats without what is drawn into them, where there is more than that."""
    lines = {line for lines in load_sections(fixture).values() for line in lines if "{" in line}
    shapes = {re.sub(r"\{[^{} ]+( [^{} ]+)?\}", "", line) for line in lines}
    return {shape for shape in shapes if re.search(r"\w{3}", shape)}


def _kept_by_a_perfect_choice(working: WorkingSession) -> int:
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


def _pieces(message: TalkMessage) -> list[str]:
    lines = [line for text in list_texts(message) for line in text.split("\n")]
    return [piece for line in lines for piece in (line, *_SENTENCE.split(line))]


def _output_lines(working: WorkingSession) -> list[str]:
    outputs = [message["content"] for message in working.zone if message["role"] == "tool"]
    return [line for output in outputs for line in output.split("\n")]
