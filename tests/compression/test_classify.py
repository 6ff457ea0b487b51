"""The kinds of single sentences, in seven languages."""

from __future__ import annotations

from pathlib import Path

import pytest

from session_core.compression.extractive import classify, passages
from session_core.compression.extractive.passages import Speaker
from session_core.compression.extractive.written_form import StatementKind

_SENTENCES = Path(__file__).with_name("kinds.txt").read_text(encoding="utf-8").splitlines()[1:]
_DECISIONS = frozenset(("decision", "changed"))
_TELLING_KINDS = frozenset(("rule", "task", "done", "problem")) | _DECISIONS


def classify_sentence(text: str, speaker: Speaker) -> StatementKind | None:
    """Return the kind of the only passage of a message."""
    (passage,) = passages.split_speech(text, speaker, 0)
    return classify.classify_passage(passage).kind


@pytest.mark.parametrize("line", _SENTENCES)
def test_sentence_has_its_kind(line: str) -> None:
    _, who, kind, text = line.split(" ", 3)
    found = classify_sentence(text, "user" if who == "u" else "assistant")
    if kind == "other":
        assert found not in _TELLING_KINDS
    else:
        assert found in (_DECISIONS if kind == "decision" else {kind})


def test_list_fragment_reports_nothing() -> None:
    assert classify_sentence("set up a shelf for the returns.", "assistant") == "task"
    assert classify_sentence("Set up the shelf for the returns.", "assistant") == "done"


def test_german_noun_at_the_end_is_no_instruction() -> None:
    assert classify_sentence("Statistik: im Mai 312 Ausleihen.", "assistant") != "task"


def test_absent_failure_is_no_problem() -> None:
    assert classify_sentence("No parcels lost.", "assistant") != "problem"
    assert classify_sentence("Two parcels lost.", "assistant") == "problem"
