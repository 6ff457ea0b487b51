"""Plain text: stored values neither hide characters nor command a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_serve.plain_text import shorten_text, to_plain_line, to_plain_text, to_text


@pytest.mark.requirement("faces:odd-values")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"caf\xc3\xa9 \xff", "café \ufffd"),
        (bytearray(b"x"), "x"),
        (5, "5"),
        (None, "None"),
        ("half \ud83d", "half \ufffd"),
        ("🚀", "🚀"),
    ],
)
def test_value_of_any_type_becomes_text(value: Any, text: str):
    assert to_text(value) == text
    to_text(value).encode()


@pytest.mark.requirement("faces:quoted")
@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("  one\r\n two\tthree\u2028four ", "one two three four"),
        ("\x1b[31mred\x1b[0m text", "red text"),
        ("\x1b]0;owned\x07title", "title"),
        ("\u202edesrever\u202c", "desrever"),
        ("zero\u200bwidth \U000e0041tag", "zerowidth tag"),
        ("soft\u00adhyphen", "softhyphen"),
        ("a\x00b\x9cc", "a b c"),
        ("数据 é", "数据 é"),
    ],
)
def test_line_has_no_hidden_characters(value: str, line: str):
    assert to_plain_line(value) == line


def test_plain_text_keeps_lines_and_tabs():
    text = "one\n\ttwo \x1b[31m\u202ethree\r\n\x07\x9b4"
    assert to_plain_text(text) == "one\n\ttwo [31mthree\n4"


@pytest.mark.parametrize(
    ("text", "short"),
    [("12345", "12345"), ("123456", "1234…"), ("123  6", "123…"), ("", "")],
)
def test_shortened_text_has_at_most_limit(text: str, short: str):
    assert shorten_text(text, 5) == short
