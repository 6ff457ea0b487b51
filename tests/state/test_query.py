"""Parsing of typed queries, and their matches."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_core.state import query, search_text
from session_core.state.query import And, Leaf, Not, Or, Query

A, B, C = Leaf("a1"), Leaf("b1"), Leaf("c1")


@pytest.mark.parametrize(
    ("typed", "kind", "node"),
    [
        ("", "empty", None),
        ("a1", "words", A),
        ("a1 b1 a1", "words", And((A, B))),
        ("a1*", "syntax", Leaf("a1", prefix=True)),
        ('"a1 b1"', "syntax", Leaf("a1 b1")),
        ('"a1 b1"* c1', "syntax", And((Leaf("a1 b1", prefix=True), C))),
        ("\u201ca1 b1\u201d", "syntax", Leaf("a1 b1")),
        ("a1 AND b1", "syntax", And((A, B))),
        ("a1 OR b1", "syntax", Or((A, B))),
        ("a1 NOT b1", "syntax", And((A, Not(B)))),
        ("a1 AND NOT b1", "syntax", And((A, Not(B)))),
        ("a1 b1 OR c1", "syntax", Or((And((A, B)), C))),
        ("a1 AND (b1 OR c1)", "syntax", And((A, Or((B, C))))),
        ("a1 and b1", "words", And((A, Leaf("and"), B))),
        ("f(a1) b1", "words", And((Leaf("f(a1)"), B))),
        ("a1 AND", "text", And((A, Leaf("AND")))),
        ("NOT a1", "text", And((Leaf("NOT"), A))),
        ("a1 OR NOT b1", "text", And((A, Leaf("OR"), Leaf("NOT"), B))),
        ('"a1', "text", A),
        ('a1"b1"', "text", And((A, Leaf("b1")))),
        ("->", "literal", Leaf("->")),
        ("*", "literal", Leaf("*")),
    ],
)
def test_query_is_parsed(typed: str, kind: str, node: object) -> None:
    understood = query.parse_query(typed)
    assert (understood.kind, understood.node) == (kind, node)


@given(st.text(max_size=300))
def test_random_text_is_parsed(typed: str) -> None:
    assert isinstance(query.parse_query(typed), Query)


@pytest.mark.parametrize(
    "typed", ["(" * 3000, "a AND " * 2000, "(a OR " * 400, '"' * 4001, "x" * 9999]
)
def test_huge_query_is_parsed(typed: str) -> None:
    assert len(query.parse_query(typed).text) <= query.MAX_QUERY_LENGTH


@given(st.text(alphabet='ab"()* ANDORT:^-', max_size=40))
def test_expression_quotes_user_text(typed: str) -> None:
    node = query.parse_query(typed).node
    if node is None:
        return
    text = query.build_match_expression(node, lambda leaf: query.quote_fts_string(leaf.text)) or ""
    outside = re.sub(r'"(?:[^"]|"")*"', "", text)
    assert re.fullmatch(r"(?:AND|OR|NOT|[()\s])*", outside)


def test_expression_excludes_only_exact_words() -> None:
    expressions = {"a1": '"a1"', "b1": '"b1"', "c1": None}
    node = And((A, Not(And((B, C)))))
    assert query.build_match_expression(node, lambda leaf: expressions[leaf.text]) == '"a1"'
    assert (
        query.build_match_expression(And((A, Not(B))), lambda leaf: expressions[leaf.text])
        == '("a1" NOT ("b1"))'
    )
    assert query.build_match_expression(Or((A, C)), lambda leaf: expressions[leaf.text]) is None


@pytest.mark.parametrize(
    ("typed", "text", "matches"),
    [
        ("cat", "a cat.", True),
        ("cat", "concatenate", False),
        ("cat*", "category", True),
        ("cat*", "concat", False),
        ("foo_bar.baz", "see foo_bar.baz", True),
        ("foo_bar", "foobar", False),
        ('"a b"', "a, b", True),
        ('"a b"', "a x b", False),
        ("a NOT b", "a c", True),
        ("a NOT b", "a b", False),
        ("数据", "使用数据库", True),
        ("数据", "数\n据", True),
        ("数据", "据数", False),
        ("python", "使用python开发", True),
        ("café", "CAFE", True),
        ("cafe\u0301", "café", True),
        ("ΟΔΟΣ", "οδός", True),
        ("✅", "done✅", True),
    ],
)
def test_query_matches_text(typed: str, text: str, matches: bool) -> None:
    node = query.parse_query(typed).node
    assert node is not None
    assert query.is_match(node, search_text.fold_text(text)) is matches


class CountingText(str):
    """A text that counts how often a word is compared at one of its places."""

    __slots__ = ("looks",)
    looks: int

    def startswith(self, *given: Any) -> bool:
        """Count the call."""
        self.looks += 1
        return super().startswith(*given)


@pytest.mark.parametrize(
    ("text", "phrase", "place"),
    [
        ("大" * 3000 + "x学", "大" * 300 + "学", None),
        ("na " * 3000 + "hey", "na " * 300 + "hey", (8100, 9003)),
    ],
)
def test_phrase_is_found_in_single_pass(
    text: str, phrase: str, place: tuple[int, int] | None
) -> None:
    watched = CountingText(text)
    watched.looks = 0
    assert query.LeafMatcher(Leaf(phrase)).find(watched) == place
    assert 3000 < watched.looks < 10_000


PIECES = st.lists(st.sampled_from(["a", "b", "ab", "大", "学", " ", "-", "é"]), max_size=24)


@given(PIECES, PIECES, st.booleans())
def test_phrase_matches_consecutive_words(text: list[str], phrase: list[str], prefix: bool) -> None:
    leaf, text_words = Leaf("".join(phrase), prefix), search_text.split_words("".join(text))
    words = leaf.words
    rows = [text_words[at : at + len(words)] for at in range(len(text_words) - len(words) + 1)]
    expected = any(
        row == words or (prefix and row[:-1] == words[:-1] and row[-1].startswith(words[-1]))
        for row in rows
        if words
    )
    found = query.LeafMatcher(leaf).find(search_text.fold_text("".join(text)))
    assert (found is not None) is expected


@given(st.text(max_size=60))
def test_fold_is_idempotent(text: str) -> None:
    once = search_text.fold_text(text)
    assert search_text.fold_text(once) == once or any(
        unicodedata.category(character) == "Lu" for character in once
    )


def test_search_text_skips_images() -> None:
    parts = '\x00json:[{"type": "image_url", "image_url": {"url": "data:x"}}, {"text": "hi"}]'
    assert search_text.build_search_text(parts, None, None) == "hi"
    assert search_text.build_search_text('\x00json:{"answer": {"is": 42}}', None, None) == "42"
    assert (
        search_text.build_search_text("\x00json:{broken", "tool", None) == "\x00json:{broken\ntool"
    )
    assert search_text.build_search_text(None, None, "not json") == "not json"
    assert search_text.build_search_text(b"bytes", None, None) == "bytes"


def test_snippet_shows_words_close_together() -> None:
    words = [query.compile_leaf(Leaf("ledger")), query.compile_leaf(Leaf("balance"))]
    text = "ledger " + "x " * 300 + "the ledger is in balance now " + "y " * 300 + "balance"
    cut = search_text.cut_snippet(text, words)
    assert "the ledger is in balance now" in cut
    assert len(cut) <= search_text.SNIPPET_LENGTH + 2
    assert (cut[0], cut[-1]) == ("…", "…")


def test_snippet_of_short_text_is_complete() -> None:
    assert search_text.cut_snippet("one\n two", []) == "one two"


@given(st.text(max_size=600), st.text(max_size=10))
def test_snippet_of_random_text_is_bounded(text: str, word: str) -> None:
    assert (
        len(search_text.cut_snippet(text, [query.compile_leaf(Leaf(word))], word))
        <= search_text.SNIPPET_LENGTH + 2
    )


@pytest.mark.parametrize(
    ("word", "form"),
    [("decided", "decide"), ("drop", "dropped"), ("kept", "kept"), ("policies", "policy"),
     ("running", "run"), ("summaries", "summarization"), ("errors", "error")],
)  # fmt: skip
def test_word_has_other_forms(word: str, form: str) -> None:
    assert form in query.list_word_forms(word)


def test_question_is_split_into_pieces() -> None:
    pieces = list(query.split_pieces("what's in foo_bar.py 数据库", 2))
    assert pieces == ["数据", "据库", "what", "in", "foo_bar.py", "foo", "bar", "py"]


@pytest.mark.parametrize(
    ("typed", "text", "excluded"),
    [
        ("apples -pears", "apples", ["pears"]),
        ("-pears apples -plums", "apples", ["pears", "plums"]),
        ("-pears", "-pears", []),
        ("git commit -m", "git commit -m", []),
        ("apples --pears", "apples --pears", []),
        ("below -5 degrees", "below -5 degrees", []),
        ('"apples -pears"', '"apples -pears"', []),
    ],
)
def test_minus_sign_excludes_words(typed: str, text: str, excluded: list[str]) -> None:
    parsed = query.parse_query(typed)
    assert (parsed.text, [leaf.text for leaf in parsed.excluded]) == (text, excluded)
