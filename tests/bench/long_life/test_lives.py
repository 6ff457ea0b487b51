"""The lives of the bench are consistent. These tests use no summariser."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import pytest

from session_core import SessionDB
from tests.bench.long_life import lives
from tests.bench.long_life.facts import (
    LongLife,
    PlantedFact,
    find_first_alternative,
    get_message_text,
    is_kept,
    is_stale,
    list_open_tasks,
    list_valid_facts,
    normalize_text,
)
from tests.bench.long_life.script import LIVES_FOLDER, list_scripts
from tests.thorough import is_in_share, mark_thorough

LIVES = lives.list_long_lives()
BLIND_LIVES = lives.list_blind_lives()
EACH_LIFE = pytest.mark.parametrize("life", LIVES + BLIND_LIVES, ids=lambda life: life.name)


def list_facts(life: LongLife) -> list[PlantedFact]:
    return [fact for part in life.parts for fact in part.facts]


def list_texts(life: LongLife) -> dict[tuple[int, int], str]:
    """Return the comparable text of each message by part and index."""
    return {
        (part.number, index): normalize_text(get_message_text(message))
        for part in life.parts
        for index, message in enumerate(part.messages)
    }


def test_lives_have_promised_size() -> None:
    facts = [fact for life in LIVES for fact in list_facts(life)]
    assert len(LIVES) == 10
    assert len(facts) > 1000
    assert min(Counter(fact.kind for fact in facts).values()) >= 40
    assert {part.language for life in LIVES for part in life.parts} == {
        *("de", "en", "es", "fr"),
        *("ja", "ru", "zh"),
    }


def test_blind_lives_have_promised_size() -> None:
    assert len(BLIND_LIVES) == 7
    for life in BLIND_LIVES:
        kinds = Counter(fact.kind for fact in list_facts(life))
        assert kinds.total() > 45
        assert min(kinds["correction"], kinds["error_fix"]) >= 3
        assert kinds["task_done"] >= 5


@EACH_LIFE
def test_part_sizes_stay_in_range(life: LongLife) -> None:
    sizes = [sum(len(get_message_text(m)) for m in part.messages) for part in life.parts]
    assert len(life.parts) == 6 or (life in BLIND_LIVES and len(life.parts) == 3)
    assert all(25_000 <= size <= 60_000 for size in sizes)
    assert all(60 <= len(part.messages) <= 150 for part in life.parts)
    assert all(15 <= len(part.facts) <= 30 for part in life.parts)


@EACH_LIFE
def test_needles_stand_where_facts_say(life: LongLife) -> None:
    texts = list_texts(life)
    for fact in list_facts(life):
        for needle, index in zip(fact.needles, fact.message_indexes, strict=True):
            assert find_first_alternative(needle[:1], texts[fact.part_number, index])


@pytest.mark.parametrize(
    "life",
    [life if is_in_share(life.name, 3) else mark_thorough(life) for life in LIVES + BLIND_LIVES],
    ids=lambda life: life.name,
)
def test_needles_occur_first_in_facts(life: LongLife) -> None:
    texts = list_texts(life)
    early = [
        (fact.fact_id, needle)
        for fact in list_facts(life)
        for needle, index in zip(fact.needles, fact.message_indexes, strict=True)
        for place, text in texts.items()
        if place < (fact.part_number, index) and find_first_alternative(needle, text)
    ]
    assert early == []


@EACH_LIFE
def test_part_keeps_all_facts(life: LongLife) -> None:
    for part in life.parts:
        text = "\n".join(map(get_message_text, part.messages))
        assert [fact.fact_id for fact in part.facts if not is_kept(fact, text)] == []


@EACH_LIFE
def test_references_name_earlier_facts(life: LongLife) -> None:
    places = {fact.fact_id: fact.part_number for fact in list_facts(life)}
    assert len(places) == len(list_facts(life))
    for fact in list_facts(life):
        targets = fact.replaced_ids + fact.closed_ids + fact.dropped_ids
        assert all(places[target] <= fact.part_number for target in targets)
        assert fact.kind == "task_done" or not fact.closed_ids


@EACH_LIFE
def test_corrections_are_not_stale(life: LongLife) -> None:
    texts = list_texts(life)
    corrections = [fact for fact in list_facts(life) if fact.kind == "correction"]
    assert corrections
    for fact in corrections:
        before = [text for place, text in texts.items() if place[0] <= fact.part_number]
        assert any(find_first_alternative(fact.stale_needles, text) for text in before)
        stated = "\n".join(texts[fact.part_number, index] for index in fact.message_indexes)
        assert not is_stale(fact, stated)


@EACH_LIFE
def test_old_statements_alone_are_stale(life: LongLife) -> None:
    by_id = {fact.fact_id: fact for fact in list_facts(life)}
    texts = list_texts(life)
    for fact in by_id.values():
        for old in (by_id[fact_id] for fact_id in fact.replaced_ids if fact.stale_needles):
            stated = "\n".join(texts[old.part_number, index] for index in old.message_indexes)
            if find_first_alternative(fact.stale_needles, stated):
                assert is_stale(fact, stated)


@EACH_LIFE
def test_timestamps_grow_over_three_months(life: LongLife) -> None:
    stamps = [message["timestamp"] for part in life.parts for message in part.messages]
    assert all(earlier < later for earlier, later in pairwise(stamps))
    assert stamps[-1] - stamps[0] > 90 * 86_400


@EACH_LIFE
def test_tool_calls_have_results(life: LongLife) -> None:
    for part in life.parts:
        assert part.messages[-1]["role"] == "assistant"
        for message, following in pairwise(part.messages):
            assert message["role"] in ("user", "assistant", "tool")
            (call_id,) = [call["id"] for call in message.get("tool_calls", ())] or [None]
            assert following.get("tool_call_id") == call_id
            for call in message.get("tool_calls", ()):
                assert isinstance(json.loads(call["function"]["arguments"]), dict)
                assert call["function"]["name"] == following["tool_name"]


@EACH_LIFE
def test_speakers_take_turns(life: LongLife) -> None:
    for part in life.parts:
        pairs = pairwise(message["role"] for message in part.messages)
        assert not {("user", "user"), ("assistant", "assistant")} & set(pairs)


@EACH_LIFE
def test_session_database_takes_each_message(life: LongLife, tmp_path) -> None:
    with SessionDB(tmp_path / "state.db") as db:
        db.create_session(life.name, "cli")
        for part in life.parts:
            db.append_messages(life.name, part.messages)
        assert len(db.get_messages(life.name)) == sum(len(part.messages) for part in life.parts)


def test_same_code_builds_same_lives() -> None:
    script = next(list_scripts(LIVES_FOLDER))
    assert lives.build_life(script) == LIVES[0]


def test_open_tasks_follow_the_script() -> None:
    life = next(life for life in LIVES if life.name == "dns_move")
    assert [fact.fact_id for fact in list_open_tasks(life, 1)] == ["T2", "T3", "T4"]
    assert [fact.fact_id for fact in list_open_tasks(life, 6)] == ["T15", "T16", "T17", "T18"]


def test_replaced_facts_are_no_longer_valid() -> None:
    life = next(life for life in LIVES if life.name == "dns_move")
    before, after = ({f.fact_id for f in list_valid_facts(life, number)} for number in (3, 4))
    assert before - after == {"D4", "D7"}


def test_questions_name_valid_facts() -> None:
    by_name = {life.name: life for life in LIVES}
    counts = Counter(question.life_name for question in lives.list_questions())
    assert set(counts.values()) == {10}
    assert len(counts) == 3
    for question in lives.list_questions():
        life = by_name[question.life_name]
        assert set(question.fact_ids) <= {fact.fact_id for fact in list_facts(life)}
        tasks = {fact.fact_id for fact in list_open_tasks(life, 6)}
        assert {fact_id for fact_id in question.fact_ids if fact_id[0] == "T"} in (set(), tasks)
