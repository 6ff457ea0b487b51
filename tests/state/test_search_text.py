"""A word is found in all its spellings and scripts, indexed or not."""

from __future__ import annotations

import tempfile
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session_core import SessionDB
from session_core.state import search_text
from session_core.state.query import Leaf, LeafMatcher
from session_core.state.search_text import SNIPPET_LENGTH, cut_snippet
from session_core.state.sqlite import fts
from tests.homes import make_hermes_database

NFC, NFD = (
    lambda text: unicodedata.normalize("NFC", text),
    lambda text: unicodedata.normalize("NFD", text),
)
PAIRS = [
    ("ήταν λόγος της απόφασης", ("ΛΟΓΟΣ", "λογος", "λόγος", "ΑΠΟΦΑΣΗΣ", "αποφασ*")),
    ("ёлка стоит, мой дом", ("елка", "ЕЛКА", "ёлка", NFD("ёлка"), "мои")),
    ("Việt Nam, crème brûlée", ("viet", "VIỆT", NFD("việt"), "creme", '"creme brulee"')),
    ("Straße, İstanbul, ŁÓDŹ", ("STRASSE", "istanbul", "łódz")),
    (NFD("한국어 문장"), ("한국어", "한국", NFD("한국"), "문장")),
    (NFC("한국어 문장"), (NFD("한국어"), NFD("문장"))),
    ("שָׁלוֹם עולם", ("שלום", "עוֹלָם")),
    ("كِتَابٌ أحمد", ("كتاب", "احمد", "كِتاب")),
    ("हिन्दी क़लम", ("हिन्दी", "कलम", NFD("क़लम"))),
    ("ﾃﾞｰﾀﾍﾞｰｽ \uff21\uff22\uff23", ("データベース", "abc", NFD("データ"))),
    ("葛󠄀城 ⼈", ("葛城", "人")),
    ("ქართული ᲥᲐᲠᲗᲣᲚᲘ 𞤀𞤁𞤂", ("ქართული", "𞤢𞤣𞤤")),
    ("🤔 👍🏽 fine", ("🤔", "👍", "🤔 fine")),
    ("foo_bar.baz é.b", ("foo_bar.baz", '"foo bar"', "e.b")),
]
EACH = [pytest.param(text, item, id=item) for text, several in PAIRS for item in several]

ALPHABETS = (
    "abC019_.-",
    "éÉßıİłØñ",
    "λόΣςάΑώ",
    "ёЁйИщь",
    "אָבּשׁם",
    "كَبأآيى",
    "कि़ख्मुझ",
    "ไทยมีกุ่",
    "한국가ㄱ",
    "がかﾃﾞー⼈人数据",
    "🤔👍🏽\u200d\ufe0f",
)
WORDS = st.sampled_from(ALPHABETS).flatmap(lambda some: st.text(some, min_size=1, max_size=5))
SPACES = st.sampled_from([" ", ", ", "", "-", "\n", "…"])
TEXTS = st.lists(st.tuples(WORDS, SPACES), min_size=1, max_size=6).map(
    lambda pairs: "".join(word + space for word, space in pairs)
)
CHANGES: st.SearchStrategy[Callable[[str], str]] = st.sampled_from(
    [str, NFC, NFD, str.upper, str.lower, str.title, search_text.fold_text]
)


@pytest.fixture
def db(home_path: Path) -> Iterator[SessionDB]:
    with SessionDB(home_path / "state.db") as opened:
        yield opened


def index_everything(db: SessionDB) -> None:
    while db._write(fts.index_batch):
        pass


def list_hits(db: SessionDB, query: str, mode: str = "words") -> list[int]:
    """Return the hits of all pages of a search."""
    hits, cursor = [], None
    while True:
        answer = db.search(query, mode=mode, per="message", cursor=cursor)  # type: ignore[arg-type]
        hits += [hit.message_id for hit in answer.hits]
        cursor = answer.next_cursor
        if cursor is None:
            return sorted(hits)


@pytest.mark.parametrize(("text", "asked"), EACH)
def test_word_is_found_in_every_spelling(db: SessionDB, text: str, asked: str) -> None:
    ids = [
        *db.append_messages(
            "s", [{"role": "user", "content": content} for content in (text, "other")], create={}
        ).ids
    ]
    assert list_hits(db, asked) == ids[:1]
    index_everything(db)
    assert list_hits(db, asked) == ids[:1]


@pytest.mark.parametrize(
    ("text", "asked"),
    [("がく", "かく"), ("มี", "มา"), ("कि", "का"), ("한", "하"), ("foobar", "foo"), ("कि", "क")],
)
def test_different_word_is_not_found(db: SessionDB, text: str, asked: str) -> None:
    db.append_message("s", "user", text, create={})
    assert not db.search(f'"{asked}"').hits
    index_everything(db)
    assert not db.search(f'"{asked}"').hits


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=4), st.data())
def test_indexing_changes_no_answers(texts: list[str], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder, SessionDB(Path(folder, "state.db")) as db:
        db.append_messages("s", [{"role": "user", "content": text} for text in texts], create={})
        queries = []
        for _ in range(4):
            text = data.draw(st.sampled_from(texts))
            start = data.draw(st.integers(0, len(text) - 1))
            piece = data.draw(CHANGES)(text[start : start + data.draw(st.integers(1, 8))])
            queries += [piece, piece + "*", '"' + piece.replace('"', "") + '"']
        searches = [(query, mode) for query in queries for mode in ("words", "substring")]
        before = [list_hits(db, *search) for search in searches]
        index_everything(db)
        assert dict(zip(searches, before, strict=True)) == {
            search: list_hits(db, *search) for search in searches
        }


@given(TEXTS)
def test_fold_ignores_unicode_normal_form(text: str) -> None:
    folded = search_text.fold_text(text)
    assert search_text.fold_text(folded) == folded
    assert search_text.fold_text(NFD(text)) == search_text.fold_text(NFC(text)) == folded


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("ήταν λόγος", "ΛΌΓΟΣ"),
        (NFD("мой"), "мой"),
        ("한국어", NFD("한국어")),
        (NFD("한국어"), "한국어"),
        (NFD("한국어"), "한국"),
        ("שלום", "שָׁלוֹם"),
    ],
)
def test_hermes_search_tries_stored_spellings(tmp_path: Path, text: str, asked: str) -> None:
    make_hermes_database(tmp_path / "state.db", 22)
    with SessionDB(tmp_path / "state.db") as db:
        (first, _) = db.append_messages(
            "s", [{"role": "user", "content": content} for content in (text, "other")], create={}
        ).ids
        assert list_hits(db, asked) == [first]
        assert list_hits(db, asked, "substring") == [first]


FILLER = "lorem ipsum dolor sit amet " * 40


def find(*words: str) -> list[LeafMatcher]:
    return [LeafMatcher(Leaf(word)) for word in words]


def test_short_text_is_whole_line():
    assert cut_snippet("one\n\n  two\tthree ", find("two")) == "one two three"


def test_snippet_shows_most_words_together():
    text = f"{FILLER}the ferry {FILLER}a timetable {FILLER}the ferry timetable {FILLER}"
    snippet = cut_snippet(text, find("ferry", "timetable"))
    assert "the ferry timetable" in snippet
    assert (snippet[0], snippet[-1]) == ("…", "…")
    assert len(snippet) <= SNIPPET_LENGTH + 2


def test_first_of_equal_places_is_shown():
    text = f"{FILLER}first ferry {FILLER}second ferry {FILLER}"
    assert "first ferry" in cut_snippet(text, find("ferry"))


def test_literal_query_outweighs_two_words():
    text = f"{FILLER}port and ferry here {FILLER}the ticket-77 {FILLER}"
    assert "port and ferry" in cut_snippet(text, find("ferry", "port"))
    assert "ticket-77" in cut_snippet(text, find("ferry", "port"), "ticket-7")


def test_snippet_begins_with_whole_word():
    words = " ".join(f"word{number:04}" for number in range(200))
    first, *_ = cut_snippet(words, find("word0150")).removeprefix("…").split()
    assert first in words.split()


def test_text_without_match_shows_its_begin():
    snippet = cut_snippet(FILLER, find("ferry"))
    assert snippet.startswith("lorem ipsum")
    assert snippet.endswith("…")


@pytest.mark.parametrize("sign", ["ﬃ", "e\u0301", "\u200b", "ẞ"])
def test_folded_characters_shift_no_snippet(sign: str):
    text = f"{(sign + ' ') * 2000}the ferry leaves {FILLER}"
    assert "the ferry leaves" in cut_snippet(text, find("ferry"))


def test_snippet_of_very_long_text_has_word():
    text = f"{'ﬁ ' * 20_000}{'ferry ' * 60}{'ﬁ ' * 20_000}"
    assert "ferry ferry" in cut_snippet(text, find("ferry"))
