"""Scripts are parsed strictly, and marks never reach the shown text."""

from __future__ import annotations

import pytest

from tests.bench.long_life.script import (
    BLIND_LIVES_FOLDER,
    LIVES_FOLDER,
    list_scripts,
    parse_script,
)


def test_script_error_names_the_line() -> None:
    with pytest.raises(ValueError, match="a line must begin with"):
        parse_script(["name: x", "== 2026-01-01 2026-01-02", "? what"])


def test_script_shows_no_marks() -> None:
    texts = [
        line.text + line.arguments
        for script in (*list_scripts(LIVES_FOLDER), *list_scripts(BLIND_LIVES_FOLDER))
        for part in script.parts
        for line in part.lines
    ]
    assert [text for text in texts if "{K" in text or "|" in text[-1:]] == []


def test_mark_adds_needle_and_alternatives() -> None:
    script = parse_script(
        [
            "name: x",
            "language: en",
            "words: a",
            "files: b",
            "== 2026-01-01 2026-01-02",
            "> The {K1:port is 8443|8443}, please.",
            "@K1 stale: 8080 | 8081",
        ]
    )
    (part,) = script.parts
    assert part.lines[0].text == "The port is 8443, please."
    assert part.facts["K1"].needles == [("port is 8443", "8443")]
    assert part.facts["K1"].stale == ("8080", "8081")
