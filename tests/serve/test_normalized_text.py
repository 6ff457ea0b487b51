"""The normalized view of a text for redaction, and its mapping to the original."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_serve.redaction.normalized_text import NormalizedText, can_view_differ, is_disguised

UNITS = {
    "%41": "A",
    "%C3%A4": "ä",
    "%E5%AF%86": "密",
    "%F0%9F%9A%80": "🚀",
    "\\u0041": "A",
    "\\\\\\\\u5bc6": "密",
    "\\x41": "A",
    '\\"': '"',
    "\\\\/": "/",
    "\\n": "\n",
    "&#65;": "A",
    "&#x41;": "A",
    "&quot;": '"',
    "\x1b[01;31m": "",
    "\x1b[K": "",
    "\x1b]8;;https://example.org\x07": "",
    "\x1b(B": "",
    "\x9b31m": "",
    "[01;31m[K": "",
    "\x00": "",
    "\u200b": "",
    "\ufe0f": "",
    "\u034f": "",
    "\u202e": "",
    "\U000e0041": "",
    "a\x08": "",
} | {letter: letter for letter in "aZ_-.=/ ;密é🚀"}
"""Disguised texts and their plain reading."""


@pytest.mark.requirement("hostile:normalized")
@settings(max_examples=400)
@given(units=st.lists(st.sampled_from(sorted(UNITS)), max_size=25))
def test_view_maps_back_to_text(units):
    text = "".join(units) + "z"
    view = NormalizedText(text)
    assert view.text == "".join(UNITS[unit] for unit in units) + "z"
    place = start = 0
    for unit in units:
        if UNITS[unit]:
            assert view.locate(place, place + 1) == (start, start + len(unit))
        place, start = place + len(UNITS[unit]), start + len(unit)


@pytest.mark.requirement("hostile:normalized")
@settings(max_examples=400)
@given(text=st.text(st.sampled_from('aA4%u0\\n"/\x1b[m31;&#x\u200b\ufe0f\x08 \n'), max_size=60))
def test_random_view_maps_into_text(text):
    view = NormalizedText(text)
    view.join_lines()
    spans = [view.locate(place, place + 1) for place in range(len(view.text))]
    assert all(0 <= start < stop <= len(text) for start, stop in spans)
    assert spans == sorted(spans)
    if view.text != text:
        assert can_view_differ(text)


@pytest.mark.requirement("hostile:normalized")
@given(text=st.text(st.characters(codec="ascii", categories=["L", "N", "Zs"])))
def test_plain_text_needs_no_view(text):
    assert NormalizedText(text).text is text
    assert not is_disguised(text)


@pytest.mark.requirement("hostile:normalized")
@pytest.mark.parametrize("times", [1, 2, 3])
def test_json_within_json_is_decoded(times):
    text = "päss\nword"
    for _ in range(times):
        text = json.dumps(text)
    assert NormalizedText(text).text.strip('"') == "päss\nword"


@pytest.mark.requirement("hostile:normalized")
@pytest.mark.parametrize("width", [60, 64, 76, 80, 97, 120, 143])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n  ", "\n> "])
def test_wrapped_token_is_joined(width, end):
    token = "Zx9Qw3Rt7Yp1Lk5Jh8Gf2Ds6Az4Xc0Vb9Nm3"
    line = ("words " * 40)[: width - 20] + token
    view = NormalizedText(line[:width] + end + line[width:] + " and more")
    assert view.join_lines()
    assert token in view.text


@pytest.mark.requirement("hostile:normalized")
@pytest.mark.parametrize(
    "text",
    [
        "a short line\nZx9Qw3Rt7 and more",
        f"a line that its author has broken after these words {'and words ' * 4}\nother words",
        f"AWS_SECRET_ACCESS_KEY={'Zx9Qw3Rt7Yp1' * 4}\nS3_BUCKET=bucket1",
        f"src/a.py:12: {'error ' * 12}here\nsrc/b.py:13: error",
        f"2026-11-19 12:00:00 {'words ' * 12}end\n2026-11-19 12:00:01 words",
    ],
)
def test_separate_lines_are_not_joined(text):
    view = NormalizedText(text)
    assert not view.join_lines()
    assert view.text == text
