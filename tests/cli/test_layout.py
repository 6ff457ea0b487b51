"""Cutting and wrapping of text by terminal columns."""

from __future__ import annotations

import pytest

from mcp_serve.cli.layout import measure_width, truncate_text, wrap_line, wrap_text


def test_text_is_truncated_by_terminal_columns():
    assert truncate_text("予算の見直し", 9) == "予算の見…"
    assert truncate_text("short", 9) == "short"


@pytest.mark.parametrize("room", [12, 20, 40])
def test_words_are_wrapped_whole(room):
    text = "please look at the deploy script, it fails on foo_bar.baz again"
    lines = wrap_line(text, room)
    assert " ".join(line.strip() for line in lines) == text
    assert all(measure_width(line) <= room for line in lines)


def test_long_path_breaks_after_folder():
    lines = wrap_line("see ~/.config/Claude/claude_desktop_config.json", 24)
    assert lines == ["see", "~/.config/Claude/claude_", "desktop_config.json"]
    assert wrap_line("x" * 30, 12) == ["x" * 12, "x" * 12, "x" * 6]


def test_characters_without_blanks_fill_lines():
    assert wrap_line("ok 予算の見直し", 9) == ["ok 予算の", "見直し"]


def test_text_keeps_lines_and_indentation():
    text = "def f():\n    return 1\n\nend"
    assert list(wrap_text(text, 40)) == text.split("\n")
