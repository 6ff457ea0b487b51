"""One search over several homes: steps, weights and pages."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack

import pytest

from session_core import SessionDB
from session_core.state import MergedPosition, MergedSearch
from session_core.state.merged_search import ALL_TIES, NO_TIES, STEPS, _Edge, _Rank

NOW = 1_700_000_000.0


@pytest.fixture(name="homes")
def _homes(tmp_path):
    """Three empty homes."""
    with ExitStack() as opened:
        yield [
            opened.enter_context(SessionDB(tmp_path / name / "state.db"))
            for name in ("a", "b", "c")
        ]


def append(db, session, text, at=NOW):
    """Append a message of the user to a session."""
    create = {"source": "cli", "started_at": at}
    return db.append_message(session, "user", text, timestamp=at, create=create)


def search(homes, query, limit=100, position=None, **options):
    """Return one page over all homes."""
    mode, order = options.get("mode", "words"), options.get("order", "relevance")
    newest_ms = None if position is None else position.newest_ms
    with ExitStack() as snapshots:
        searches = []
        for db in homes:
            snapshots.enter_context(db.snapshot())
            searches.append(db.admin.open_search(query, moment=NOW, newest_ms=newest_ms, **options))
        merged = MergedSearch(
            searches, query, mode=mode, order=order, newest_ms=int(time.time() * 1000)
        )
        return merged.read_page(position, limit)


def read_pages(homes, query, limit, **options):
    """Return the hits of all pages, each with its home."""
    page = search(homes, query, limit, **options)
    hits = list(page.hits)
    while page.position is not None:
        text = page.position.encode(int(NOW) * 1000)
        position = MergedPosition.decode(text, int(NOW) * 1000)
        page = search(homes, query, limit, position, **options)
        hits += page.hits
    return [(hit.store, hit.hit.session_id, hit.hit.message_id) for hit in hits]


@pytest.mark.requirement("stores:shares")
def test_step_is_chosen_over_all_homes(homes):
    append(homes[0], "loose", "only apples")
    append(homes[1], "strict", "apples and pears")
    page = search(homes, "apples pears")
    assert page.matched == "all"
    assert [hit.hit.session_id for hit in page.hits] == ["strict"]


@pytest.mark.requirement("stores:shares")
def test_rare_word_of_all_homes_weighs_more(homes):
    for number in range(60):
        append(homes[0], f"filler{number}", "we talked about the ledger at length")
    append(homes[0], "rare", "something about quinces")
    append(homes[1], "common", "something about ledger")
    append(homes[1], "other", "nothing of interest")
    page = search(homes, "what about the ledger and the quinces")
    assert page.matched == "any"
    assert page.hits[0].hit.session_id == "rare"


@pytest.mark.requirement("stores:shares")
def test_title_is_found_without_its_words(homes):
    append(homes[0], "plans", "let us begin")
    homes[0].set_session_title("plans", "Migration of the Ledger")
    append(homes[1], "other", "let us begin")
    page = search(homes, "ledger migration")
    assert page.matched == "title"
    (hit,) = page.hits
    assert (hit.hit.session_id, hit.hit.title) == ("plans", "Migration of the Ledger")
    assert search(homes, "migr ledg").matched != "title"


@pytest.mark.requirement("stores:pages")
@pytest.mark.parametrize("order", ["relevance", "newest", "oldest"])
def test_times_out_of_order_lose_no_hit(homes, order):
    dice = random.Random(order)
    for db in homes:
        for number in range(230):
            at = dice.choice([NOW - number, NOW - 86400 * dice.randrange(3), NOW + 9e9])
            append(db, f"s{number % 9}", f"apple {number}", at)
    for per, count in (("message", 690), ("conversation", 27)):
        hits = read_pages(homes, "apple", 31, order=order, per=per)
        assert len(hits) == len(set(hits)) == count


@pytest.mark.requirement("stores:pages")
def test_equal_times_fill_many_pages(homes):
    for db in homes:
        for number in range(250):
            append(db, f"s{number}", "apple")
    hits = read_pages(homes, "apple", 40, per="message")
    assert len(hits) == len(set(hits)) == 750


def test_position_survives_its_text():
    dice = random.Random(3)
    for number in range(300):
        edges = [
            dice.choice([None, _Edge(dice.randrange(2**42), dice.randrange(9), tie)])
            for tie in dice.sample([NO_TIES, ALL_TIES, 5, 2**27, 2**40], 2)
        ]
        after = dice.choice([None, _Rank(-dice.randrange(2**32), dice.randrange(2**28))])
        weights = tuple(dice.randrange(256) for _ in range(dice.randrange(13)))
        step = STEPS[number % len(STEPS)]
        position = MergedPosition(step, number % 2 == 0, 5 + number, *edges, after, weights)
        assert MergedPosition.decode(position.encode(1000), 1000) == position
