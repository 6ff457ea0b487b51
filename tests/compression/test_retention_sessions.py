"""The sessions of the retention bench have the content that they claim."""

from __future__ import annotations

import json
import random
from functools import cache
from itertools import pairwise

import pytest

from session_core.compression import ranges
from tests.bench import formats, talk
from tests.bench import working_sessions as work

TURNS = range(0, 10, 3)
"""One English session, and one of each other language."""
WORDS = ("word", "person", "tech", "project", "service", "login", "domain")

one = cache(work.make_session)


def _join_text(messages: list[talk.TalkMessage]) -> str:
    return "\n".join(text for message in messages for text in talk.list_texts(message))


def _make_sessions(fixture: formats.FixtureName) -> list[work.WorkingSession]:
    return [one(number, fixture) for number in TURNS]


@pytest.fixture(params=["working", "held out"], ids=["working", "held-out"])
def fixture(request: pytest.FixtureRequest) -> formats.FixtureName:
    """Whether the sessions have other seeds and other fillers."""
    return request.param


@pytest.fixture(params=TURNS)
def session(request: pytest.FixtureRequest, fixture: formats.FixtureName) -> work.WorkingSession:
    """One session, built once."""
    return one(request.param, fixture)


def test_same_seed_gives_same_session(session, fixture):
    assert work.make_session(session.number, fixture) == session


def test_different_seeds_give_different_sessions():
    openings = {
        json.dumps(session.zone[:4])
        for fixture in ("working", "held out")
        for session in _make_sessions(fixture)
    }
    assert len(openings) == 2 * len(TURNS)


def test_facts_fill_half_of_summary_budget(session):
    written = (
        len(_join_text(session.zone)) - sum(1 for m in session.zone for _ in talk.list_texts(m)) + 1
    )
    assert session.budget == written // 5
    assert sum(len(fact.text) for fact in session.facts) / session.budget == pytest.approx(
        0.5, abs=0.01
    )


def test_zone_contains_facts_verbatim(session):
    texts = [text for message in session.zone for text in talk.list_texts(message)]
    for fact in session.facts:
        assert sum(text.count(fact.text) for text in texts) >= len(fact.places)


def test_facts_are_absent_outside_zone(session):
    outside = _join_text(session.messages[: session.start] + session.messages[session.end :])
    assert [fact.text for fact in session.facts if fact.text in outside] == []


def test_facts_do_not_contain_other_facts(session):
    texts = [fact.text for fact in session.facts]
    assert [text for text in texts if sum(text in other for other in texts) > 1] == []


def test_facts_are_long_enough(session):
    assert min(len(fact.text) for fact in session.facts) >= 6


def test_zone_matches_chosen_range(session):
    limits = ranges.CompressionLimits(protect_first=work.HEAD - 1, keep_last=work.TAIL)
    chosen = ranges.choose_range(session.messages, limits)
    assert isinstance(chosen, ranges.MessageRange)
    assert (chosen.start, chosen.end) == (session.start, session.end)


def test_calls_and_results_are_adjacent_pairs(session):
    waiting: list[tuple[str, str]] = []
    for message in session.messages:
        if message["role"] == "tool":
            assert (message["tool_call_id"], message["tool_name"]) == waiting.pop(0)
        else:
            assert waiting == []
            calls = message.get("tool_calls", [])
            waiting = [(call["id"], call["function"]["name"]) for call in calls]
    assert waiting == []


def test_call_ids_are_unique(session):
    calls = [call for message in session.messages for call in message.get("tool_calls", [])]
    assert len({call["id"] for call in calls}) == len(calls)


def test_call_arguments_are_json(session):
    for message in session.messages:
        for call in message.get("tool_calls", []):
            assert isinstance(json.loads(call["function"]["arguments"]), dict)


def test_speakers_alternate(session):
    roles = [message["role"] for message in session.messages]
    assert all(one != other or one == "tool" for one, other in pairwise(roles))


def test_zone_is_mostly_tool_results(session):
    answers = sum(len(m["content"]) for m in session.zone if m["role"] == "tool")
    assert 0.6 < answers / talk.count_characters(session.zone) < 0.9


def test_fact_kinds_come_from_every_speaker(fixture):
    facts = [fact for session in _make_sessions(fixture) for fact in session.facts]
    assert {fact.kind for fact in facts} == set(work.FACT_KINDS)
    assert {fact.language for fact in facts} == {"en", "de", "zh", "ja"}
    for kind in work.FACT_KINDS:
        where = {fact.places[0] for fact in facts if fact.kind == kind}
        assert {"user", "assistant"} < where


def test_few_facts_are_repeated(fixture):
    places = [len(fact.places) for session in _make_sessions(fixture) for fact in session.facts]
    assert 0.05 < sum(count > 1 for count in places) / len(places) < 0.3


def test_sessions_reread_files(fixture):
    again = 0
    for session in _make_sessions(fixture):
        read = [m["content"] for m in session.zone if m.get("tool_name") == "read_file"]
        again += len(read) - len(set(read))
    assert again >= len(TURNS)


def test_zone_has_more_paths_than_facts(session):
    files = {word for word in _join_text(session.zone).split() if "/" in word and "." in word}
    facts = {fact.text for fact in session.facts}
    assert len(files - facts) > len(facts)


@pytest.mark.parametrize("section", WORDS)
def test_held_out_sessions_use_own_words(section):
    seen, unseen = (formats.load_sections(fixture)[section] for fixture in ("working", "held out"))
    assert seen
    assert unseen
    assert not set(seen) & set(unseen)


def test_held_out_sessions_share_no_facts():
    seen, unseen = (
        {fact.text for session in _make_sessions(fixture) for fact in session.facts}
        for fixture in ("working", "held out")
    )
    assert not seen & unseen


def test_format_slots_can_be_filled(fixture):
    sections = formats.load_sections(fixture)
    filler = formats.TemplateFiller(random.Random(1), fixture)
    for name, lines in sections.items():
        for line in lines:
            filled = filler.fill_template(line, 1)
            assert filled.count("«") == filled.count("»") == (name.startswith(("fact", "again")))
