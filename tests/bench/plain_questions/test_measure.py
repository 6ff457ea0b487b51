"""Plain questions are answered in the first call, over small homes and trees of four agents."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.plain_questions.__main__ import measure_set
from tests.thorough import mark_thorough

MOST_TOKENS = {"home": 550, "agents": 650, "single": 550}


@pytest.mark.requirement("search:questions")
@pytest.mark.parametrize("name", ["home", "agents", mark_thorough("single")])
def test_questions_are_answered_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.setenv("HOME", str(tmp_path))
    counts = measure_set(tmp_path, name, 3000)
    missed = "\n".join(counts.render_lines())
    assert len(counts.not_among_first) <= 4, missed
    assert len(counts.not_in_answer) <= 4, missed
    assert counts.tokens // counts.asked <= MOST_TOKENS[name], missed
