"""Every documented kind of secret in every disguise, and innocent text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_serve.redaction.redaction import MARK, find_secrets, redact
from tests.security.leaks import find_leaks, list_windows
from tests.security.secret_kinds import DISGUISES, KINDS, TEMPLATES, draw_sample
from tests.serve.planted_secrets import HARMLESS

SEEDS = range(5)
INNOCENTS = [
    *Path(__file__).with_name("innocents.txt").read_text(encoding="utf-8").splitlines(),
]
MOST_TAKEN = 6
"""Allowed false positives in 300 innocent texts."""


@pytest.mark.requirement("hostile:secrets")
def test_secret_kinds_match_claimed_number():
    assert set(TEMPLATES) == set(KINDS)
    assert len(KINDS) >= 150
    assert len(DISGUISES) >= 15


@pytest.mark.requirement("hostile:secrets")
@pytest.mark.parametrize("kind", KINDS)
def test_kind_is_redacted_in_every_disguise(kind):
    for seed in SEEDS:
        sample = draw_sample(kind, seed)
        secret = list_windows([sample])
        for name, disguise in DISGUISES.items():
            disguised = disguise(sample.text)
            # A line that was wrapped begins where the terminal does.
            text = disguised if name.startswith("wrapped") else f"before {disguised}"
            shown = redact(f"{text} after")
            assert find_leaks(shown, secret) == set(), (name, shown)
            assert MARK in shown
            assert shown.endswith(" after")


@pytest.mark.requirement("hostile:secrets")
def test_leak_detector_sees_every_disguise():
    """The leak finder sees through each disguise. Otherwise it would prove nothing."""
    for kind in KINDS:
        sample = draw_sample(kind, 0)
        for name, disguise in DISGUISES.items():
            assert find_leaks(disguise(sample.text), list_windows([sample])), (kind, name)


@pytest.mark.requirement("hostile:secrets")
def test_innocent_texts_are_left_alone():
    assert len(set(INNOCENTS)) == 300
    duration = [text for text in INNOCENTS if redact(text) != text]
    assert len(duration) <= MOST_TAKEN, duration
    assert [text for text in HARMLESS if redact(text) != text] == []


@pytest.mark.requirement("hostile:secrets")
def test_innocent_texts_in_json_are_left_alone():
    duration = [
        text
        for text in INNOCENTS
        if redact(json.dumps({"text": text})) != json.dumps({"text": text})
    ]
    assert len(duration) <= MOST_TAKEN, duration


SAMPLES = st.builds(draw_sample, st.sampled_from(KINDS), st.integers(0, 4))
DISGUISED = st.builds(
    lambda sample, disguise: disguise(sample.text),
    SAMPLES,
    st.sampled_from(sorted(DISGUISES)).map(DISGUISES.get),
)
PIECES = st.one_of(
    DISGUISED,
    SAMPLES.map(lambda sample: sample.text),
    st.sampled_from(INNOCENTS),
    st.sampled_from([" ", "\n", '"', "'", "=", ": ", "\\", "%", "\x1b[0m", "a", "_", "1", ","]),
    st.text(max_size=5),
)


@pytest.mark.requirement("hostile:secrets")
@settings(max_examples=300, deadline=None)
@given(pieces=st.lists(PIECES, max_size=6))
def test_redaction_changes_only_secrets(pieces):
    text = "".join(pieces)
    secrets = find_secrets(text)
    expected, place = "", 0
    for secret in secrets:
        assert place <= secret.start < secret.stop <= len(text)
        expected += f"{text[place : secret.start]}{MARK}: {secret.kind}]"
        place = secret.stop
    shown = redact(text)
    assert shown == expected + text[place:]
    # A mark changes the width of its line, and with it whether the next one continues it.
    if "\n" not in text and "\\n" not in text:
        assert redact(shown) == shown
