"""The retention bench is fair and hard: its facts fit into the room, and similar texts do not."""

from __future__ import annotations

import random
import re

import pytest

from tests.bench.formats import FIXTURE_NAMES, FixtureName, TemplateFiller, load_sections
from tests.bench.retention import MIN_KEPT_SHARE, render_transcript
from tests.bench.talk import TalkMessage, list_texts
from tests.bench.working_sessions import FACT_KINDS, WorkingSession, make_session

_SENTENCE = re.compile(r"(?<=[.!?。\uff1f\uff01])\s*(?=\S)")
_FIXTURE_PARAMETERS = pytest.mark.parametrize("fixture", FIXTURE_NAMES)
_SESSION_NUMBERS = (0, 6, 9)
"""One of them in English, one in Chinese or Korean, one in Japanese or Spanish."""


@_FIXTURE_PARAMETERS
def test_same_number_gives_same_working_session(fixture):
    assert make_session(0, fixture) == make_session(0, fixture)


@_FIXTURE_PARAMETERS
def test_facts_stand_only_in_compressed_zone(fixture):
    for number in _SESSION_NUMBERS:
        working = make_session(number, fixture)
        inside = render_transcript(working.zone)
        outside = render_transcript(
            working.messages[: working.start] + working.messages[working.end :]
        )
        assert all(fact.text in inside and fact.text not in outside for fact in working.facts)
        taken = sum(len(fact.text) for fact in working.facts)
        assert taken == pytest.approx(working.budget / 2, rel=0.05)


@_FIXTURE_PARAMETERS
def test_perfect_choice_of_lines_keeps_facts(fixture):
    chosen = [make_session(number, fixture) for number in _SESSION_NUMBERS]
    kept = sum(_count_best_kept_facts(working) for working in chosen)
    assert kept >= MIN_KEPT_SHARE * sum(len(working.facts) for working in chosen)


@_FIXTURE_PARAMETERS
def test_fact_like_output_exceeds_twice_budget(fixture):
    for number in _SESSION_NUMBERS:
        working = make_session(number, fixture)
        alike = {line for line in _list_output_lines(working) if re.search(r"\d|/|_", line)}
        assert sum(len(line) for line in alike) > 2 * working.budget


@_FIXTURE_PARAMETERS
def test_every_slot_is_filled_within_line(fixture):
    filler = TemplateFiller(random.Random(1), fixture)
    for section, formats in load_sections(fixture).items():
        for text in (filler.fill_template(line, 1) for line in formats):
            assert not re.search(r"\{[a-z]+\}", text), text
            marked = re.findall("«(.+)»", text)
            assert len(marked) == section.startswith("fact "), text


@_FIXTURE_PARAMETERS
def test_every_side_states_every_fact_kind(fixture):
    sides = {"user", "assistant"}
    facts = [fact for number in range(10) for fact in make_session(number, fixture).facts]
    for kind in FACT_KINDS:
        places = {fact.places[0] for fact in facts if fact.kind == kind}
        assert places > sides


def test_held_out_formats_share_no_text():
    first, other = (_find_format_shapes(fixture) for fixture in ("working", "other formats"))
    assert not first & other


def _find_format_shapes(fixture: FixtureName) -> set[str]:
    """Return the formats without their slots, if more than the slots remains."""
    lines = {line for lines in load_sections(fixture).values() for line in lines if "{" in line}
    shapes = {re.sub(r"\{[^{} ]+( [^{} ]+)?\}", "", line) for line in lines}
    return {shape for shape in shapes if re.search(r"\w{3}", shape)}


def _count_best_kept_facts(working: WorkingSession) -> int:
    pieces = [piece for message in working.zone for piece in _split_pieces(message)]
    holding: dict[str, int] = {}
    for fact in working.facts:
        piece = min((piece for piece in pieces if fact.text in piece), key=len)
        holding[piece] = holding.get(piece, 0) + 1
    room, kept = working.budget, 0
    for piece in sorted(holding, key=lambda piece: len(piece) / holding[piece]):
        room -= len(piece) + 1
        kept += holding[piece] if room >= 0 else 0
    return kept


def _split_pieces(message: TalkMessage) -> list[str]:
    lines = [line for text in list_texts(message) for line in text.split("\n")]
    return [piece for line in lines for piece in (line, *_SENTENCE.split(line))]


def _list_output_lines(working: WorkingSession) -> list[str]:
    outputs = [message["content"] for message in working.zone if message["role"] == "tool"]
    return [line for output in outputs for line in output.split("\n")]
