"""Search: the order of hits, and questions that no message answers in the same words."""

from __future__ import annotations

import pytest

from session_core import StateDatabase
from tests.contract.searching import add_message_text, list_message_ids


@pytest.mark.requirement("search:questions")
def test_search_ranks_full_matches_before_partial(db: StateDatabase) -> None:
    both = add_message_text(db, "one", "deploy the parser")
    begun = add_message_text(db, "two", "deployment of parsers")
    some = add_message_text(db, "three", "the parser alone")
    first = db.search("deploy parser")
    assert (list_message_ids(first), first.matched) == ([both], "all")
    second = db.search("deploym parser")
    assert (list_message_ids(second), second.matched) == ([begun], "prefix")
    third = db.search("parser quetzal")
    assert (set(list_message_ids(third)), third.matched) == ({both, begun, some}, "any")


def test_search_ranks_more_matching_words_higher(db: StateDatabase) -> None:
    one = add_message_text(db, "one", "red apples are on the shelf over there")
    three = add_message_text(db, "two", "red apples and green pears are over there")
    two = add_message_text(db, "three", "red apples and green plums are over there")
    assert list_message_ids(db.search("apples green pears xylophone"))[:1] == [three]
    assert set(list_message_ids(db.search("apples green pears xylophone"))) == {one, two, three}


@pytest.mark.requirement("search:questions")
def test_search_question_finds_answer_in_different_words(db: StateDatabase) -> None:
    answer = add_message_text(
        db, "one", "We decided that the orders schema keeps one row a line item."
    )
    add_message_text(db, "two", "The schema of the wiki is fine.")
    add_message_text(
        db, "three", "What did we decide about the orders schema? I could not find it."
    )
    assert list_message_ids(db.search("what did we decide about the orders schema?"))[0] == answer


def test_search_ranks_newer_and_shorter_messages_first(db: StateDatabase) -> None:
    old = add_message_text(db, "a", "ledger", timestamp=1_000.0)
    new = add_message_text(db, "b", "ledger", timestamp=1_000_000_000.0)
    padded = add_message_text(
        db, "c", "ledger " + "padding words " * 400, timestamp=1_000_000_000.0
    )
    assert list_message_ids(db.search("ledger")) in ([new, padded, old], [new, old, padded])


def test_search_scores_age_from_given_moment(db: StateDatabase) -> None:
    for session_id, at in (("a", 1e9), ("b", 1.1e9)):
        say = {"timestamp": at, "create": {"source": "cli"}}
        db.append_message(session_id, "user", "apples", **say)
    newest, older = db.search("apples").hits
    assert newest.score > older.score
    (later,) = db.search("apples", moment=1.2e9, limit=1).hits
    assert later.score < newest.score
    first, second = (db.search("apples", session=name, moment=1.1e9).hits[0] for name in "ba")
    assert first.score == newest.score
    assert second.score == older.score


@pytest.mark.requirement("search:questions")
def test_search_hit_names_its_reply(db: StateDatabase) -> None:
    add_message_text(db, "s", "which port?")
    add_message_text(db, "s", "", "assistant", tool_calls=[{"id": "1", "function": {"name": "x"}}])
    add_message_text(db, "t", "elsewhere", "assistant")
    reply = add_message_text(db, "s", "9090", "assistant")
    last = add_message_text(db, "s", "which port again?")

    hits = db.search("port", per="message").hits

    assert {hit.message_id: hit.reply_id for hit in hits if hit.message_id == last} == {last: None}
    assert [hit.reply_id for hit in hits if hit.message_id != last] == [reply]


def test_search_hit_names_multi_part_reply(db: StateDatabase) -> None:
    question = add_message_text(db, "s", "which port")
    parts = [{"type": "text", "text": "9090"}, {"type": "text", "text": "as before"}]
    reply = add_message_text(db, "s", parts, "assistant")
    (hit,) = db.search("which port", per="message").hits
    assert (hit.message_id, hit.reply_id) == (question, reply)


@pytest.mark.requirement("search:questions")
def test_search_finds_reply_in_long_session(db: StateDatabase) -> None:
    messages = [{"role": "assistant", "content": f"line {number}"} for number in range(70)]
    db.append_messages("s", messages, create={"source": "cli"})
    add_message_text(db, "s", "which port?")
    add_message_text(db, "t", "elsewhere", "assistant")
    reply = add_message_text(db, "s", "9090", "assistant")
    add_message_text(db, "s", "which port again?")

    hits = db.search("port", per="message").hits

    assert {hit.reply_id for hit in hits} == {reply, None}


@pytest.mark.requirement("search:questions")
def test_question_counts_words_of_title(db: StateDatabase) -> None:
    for session in ("plain", "titled"):
        add_message_text(db, session, "the port is 9100")
    db.set_session_title("titled", "Metrics exporter")
    hits = db.search("which port does the metrics exporter use?").hits
    assert [hit.session_id for hit in hits] == ["titled", "plain"]


@pytest.mark.requirement("search:questions")
def test_question_counts_words_of_near_messages(db: StateDatabase) -> None:
    add_message_text(db, "far", "about the exporter")
    for _ in range(9):
        add_message_text(db, "far", "something else")
    add_message_text(db, "near", "about the exporter")
    for session in ("near", "far"):
        add_message_text(db, session, "the port is 9100", "assistant")
    hits = db.search("which port does the exporter use?").hits
    assert [hit.session_id for hit in hits] == ["near", "far"]


@pytest.mark.requirement("search:questions")
def test_question_leaves_out_far_weaker_hits(db: StateDatabase) -> None:
    for number in range(6):
        add_message_text(db, f"weak {number}", "the port of Lisbon")
    add_message_text(db, "best", "the metrics exporter listens on port 9100")
    result = db.search("which port does the metrics exporter listen on?")
    assert (result.hits[0].session_id, len(result.hits)) == ("best", 3)
    assert result.next_cursor is None
    assert result.hits[-1].score >= result.least_score > 0


@pytest.mark.requirement("search:questions")
def test_search_adds_up_words_of_conversation(db: StateDatabase) -> None:
    first = add_message_text(db, "one", "the boiler makes noises")
    for _ in range(9):
        add_message_text(db, "one", "something else")
    add_message_text(db, "one", "call the plumber on Friday", "assistant")
    add_message_text(db, "two", "the boiler is off")
    add_message_text(db, "three", "boilers and plumbers")
    result = db.search("boiler plumber noises")
    assert (result.matched, [hit.session_id for hit in result.hits]) == ("conversation", ["one"])
    assert list_message_ids(result) == [first]


@pytest.mark.requirement("search:questions")
def test_common_word_counts_in_few_conversations(db: StateDatabase) -> None:
    add_message_text(db, "whole", "the boiler makes noises")
    add_message_text(db, "whole", "something else")
    add_message_text(db, "whole", "an invoice came")
    add_message_text(db, "half", "the boiler is off")
    rows = [{"role": "user", "content": f"invoice {number}"} for number in range(1100)]
    db.append_messages("many", rows, create={"source": "cli"})
    for query in ("boiler invoice", "boiler noises invoice"):
        result = db.search(query)
        assert (result.matched, [hit.session_id for hit in result.hits]) == (
            "conversation",
            ["whole"],
        )
    assert db.search("noises plumber invoice").matched == "any"
    assert db.search("boiler plumber invoice off").matched == "any"


@pytest.mark.requirement("search:questions")
def test_title_adds_word_to_conversation(db: StateDatabase) -> None:
    for session in ("titled", "other"):
        add_message_text(db, session, "call the plumber")
    db.set_session_title("titled", "Boiler")
    result = db.search("boiler plumber")
    assert (result.matched, [hit.session_id for hit in result.hits]) == ("conversation", ["titled"])
