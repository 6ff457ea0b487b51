"""Words of the index: each search term finds exactly the texts that contain it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from session_core import _sqlite3
from session_core.state.query import Leaf
from session_core.transcripts.format import Message, ToolCall
from session_core.transcripts.index import SQL
from session_core.transcripts.words import build_expression, build_text, build_words


@pytest.fixture
def index() -> Iterator[_sqlite3.Connection]:
    """The table of words as the index has it, in memory."""
    connection = _sqlite3.connect("file::memory:", busy_timeout_s=0)
    connection.execute(SQL["create_words"])
    yield connection
    connection.close()


def is_found(index: _sqlite3.Connection, text: str, leaf: Leaf) -> bool:
    """Return True if a search for a leaf finds a text."""
    index.execute("INSERT INTO words(words) VALUES ('delete-all')")
    index.execute("INSERT INTO words (rowid, text) VALUES (1, ?)", (build_words(text),))
    expression = build_expression(leaf)
    return bool(index.execute("SELECT 1 FROM words WHERE words MATCH ?", (expression,)).fetchall())


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("Deploy the SERVER", "server"),
        ("Das Café öffnet", "cafe"),
        ("error in src/app.py:12", "app.py"),
        ("the quick brown fox", "quick brown"),
        ("数据库的架构", "数据库"),
        ("数据库的架构", "架"),
        ("数据库的架构", "的"),
        ("部署server之后", "server"),
        ("部署server之后", "部署server"),
        ('say "no"', '"no"'),
    ],
)
def test_term_finds_text_with_it(index: _sqlite3.Connection, text: str, term: str):
    assert is_found(index, text, Leaf(term))


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("servers", "server"),
        ("brown quick", "quick brown"),
        ("数据的库", "数据库"),
        ("架构", "构架"),
        ("app-py", "apppy"),
    ],
)
def test_term_finds_no_other_text(index: _sqlite3.Connection, text: str, term: str):
    assert not is_found(index, text, Leaf(term))


def test_prefix_continues_last_word_only(index: _sqlite3.Connection):
    assert is_found(index, "deploy servers", Leaf("deploy serv", prefix=True))
    assert not is_found(index, "deploying servers", Leaf("deploy serv", prefix=True))


@pytest.mark.parametrize("text", ["", "!?", "…", " \n"])
def test_term_without_word_has_no_expression(text: str):
    assert build_expression(Leaf(text)) is None


def test_text_has_tool_and_argument_values():
    call = ToolCall(
        "c1", "run_tests", '{"path": "src/app", "deep": [{"n": 7, "on": true}], "x": null}'
    )
    message = Message("assistant", "now", tool_calls=(call,), tool_name="shell")
    assert build_text(message) == "now\nshell\nrun_tests\nsrc/app\n7"
    assert build_text(Message("user", "only text")) == "only text"


def test_broken_arguments_are_searched_as_text():
    nested = '{"a": ' * 40 + '"hidden"' + "}" * 40
    calls = (ToolCall("c1", "f", '{"cut": "wom'), ToolCall("c2", "g", nested))
    assert build_text(Message("assistant", "", tool_calls=calls)) == 'f\n{"cut": "wom\ng'
