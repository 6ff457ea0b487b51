"""The sessions of the retention bench are what they claim to be."""

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
    """Whether the sessions are those with other seeds and other fillers."""
    return request.param


@pytest.fixture(params=TURNS)
def session(request: pytest.FixtureRequest, fixture: formats.FixtureName) -> work.WorkingSession:
    """One session, made once."""
    return one(request.param, fixture)


def test_the_same_number_gives_the_same_session(session, fixture):
    assert work.make_session(session.number, fixture) == session


def test_each_number_gives_another_session():
    openings = {
        json.dumps(session.zone[:4])
        for fixture in ("working", "held out")
        for session in _make_sessions(fixture)
    }
    assert len(openings) == 2 * len(TURNS)


def test_a_summary_has_a_fifth_of_the_zone_and_the_facts_are_half_of_it(session):
    written = (
        len(_join_text(session.zone)) - sum(1 for m in session.zone for _ in talk.list_texts(m)) + 1
    )
    assert session.budget == written // 5
    assert sum(len(fact.text) for fact in session.facts) / session.budget == pytest.approx(
        0.5, abs=0.01
    )


def test_each_fact_stands_word_for_word_in_a_text_of_the_zone(session):
    texts = [text for message in session.zone for text in talk.list_texts(message)]
    for fact in session.facts:
        assert sum(text.count(fact.text) for text in texts) >= len(fact.places)


def test_no_fact_stands_outside_of_the_zone(session):
    outside = _join_text(session.messages[: session.start] + session.messages[session.end :])
    assert [fact.text for fact in session.facts if fact.text in outside] == []


def test_no_fact_is_kept_because_another_one_is(session):
    found = [fact.text for fact in session.facts]
    assert [text for text in found if sum(text in other for other in found) > 1] == []


def test_no_fact_is_so_short_that_it_stands_somewhere_by_chance(session):
    assert min(len(fact.text) for fact in session.facts) >= 6


def test_the_zone_is_what_is_chosen_to_be_compressed(session):
    limits = ranges.CompressionLimits(protect_first=work.HEAD - 1, keep_last=work.TAIL)
    chosen = ranges.choose_range(session.messages, limits)
    assert isinstance(chosen, ranges.MessageRange)
    assert (chosen.start, chosen.end) == (session.start, session.end)


def test_each_call_is_answered_right_behind_it_and_each_answer_was_called_for(session):
    waiting: list[tuple[str, str]] = []
    for message in session.messages:
        if message["role"] == "tool":
            assert (message["tool_call_id"], message["tool_name"]) == waiting.pop(0)
        else:
            assert waiting == []
            calls = message.get("tool_calls", [])
            waiting = [(call["id"], call["function"]["name"]) for call in calls]
    assert waiting == []


def test_each_call_has_an_id_of_its_own(session):
    calls = [call for message in session.messages for call in message.get("tool_calls", [])]
    assert len({call["id"] for call in calls}) == len(calls)


def test_arguments_are_json(session):
    for message in session.messages:
        for call in message.get("tool_calls", []):
            assert isinstance(json.loads(call["function"]["arguments"]), dict)


def test_nobody_speaks_twice_in_a_row(session):
    roles = [message["role"] for message in session.messages]
    assert all(one != other or one == "tool" for one, other in pairwise(roles))


def test_most_of_the_zone_is_answers_of_tools(session):
    answers = sum(len(m["content"]) for m in session.zone if m["role"] == "tool")
    assert 0.6 < answers / talk.count_characters(session.zone) < 0.9


def test_every_kind_is_said_by_both_sides_and_by_tools(fixture):
    facts = [fact for session in _make_sessions(fixture) for fact in session.facts]
    assert {fact.kind for fact in facts} == set(work.FACT_KINDS)
    assert {fact.language for fact in facts} == {"en", "de", "zh", "ja"}
    for kind in work.FACT_KINDS:
        where = {fact.places[0] for fact in facts if fact.kind == kind}
        assert {"user", "assistant"} < where


def test_some_facts_are_said_again_and_most_only_once(fixture):
    places = [len(fact.places) for session in _make_sessions(fixture) for fact in session.facts]
    assert 0.05 < sum(count > 1 for count in places) / len(places) < 0.3


def test_files_are_read_again(fixture):
    again = 0
    for session in _make_sessions(fixture):
        read = [m["content"] for m in session.zone if m.get("tool_name") == "read_file"]
        again += len(read) - len(set(read))
    assert again >= len(TURNS)


def test_the_zone_holds_more_paths_than_the_facts_are(session):
    files = {word for word in _join_text(session.zone).split() if "/" in word and "." in word}
    facts = {fact.text for fact in session.facts}
    assert len(files - facts) > len(facts)


@pytest.mark.parametrize("section", WORDS)
def test_the_held_out_sessions_have_words_of_their_own(section):
    seen, unseen = (formats.load_sections(fixture)[section] for fixture in ("working", "held out"))
    assert seen
    assert unseen
    assert not set(seen) & set(unseen)


def test_the_held_out_sessions_share_no_fact_with_the_others():
    seen, unseen = (
        {fact.text for session in _make_sessions(fixture) for fact in session.facts}
        for fixture in ("working", "held out")
    )
    assert not seen & unseen


def test_every_slot_of_every_format_can_be_filled(fixture):
    sections = formats.load_sections(fixture)
    filler = formats.TemplateFiller(random.Random(1), fixture)
    for name, lines in sections.items():
        for line in lines:
            filled = filler.fill_template(line, 1)
            assert filled.count("«") == filled.count("»") == (name.startswith(("fact", "again")))
