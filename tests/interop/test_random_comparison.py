"""A tenth of the random comparison with Hermes. `python -m tests.interop` runs all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.comparison import REASONS
from tests.interop.random_homes import compare

DIFFERENCES = Path(__file__).parents[2] / "docs" / "hermes-differences.md"
QUESTIONS = 280


@pytest.mark.requirement("homes:random-comparison")
def test_every_difference_to_hermes_is_explained(version: str, tmp_path: Path) -> None:
    comparison = compare(version, 1000, QUESTIONS, tmp_path)

    assert comparison.unexplained == []
    assert comparison.asked == QUESTIONS
    assert comparison.agreed > QUESTIONS / 3
    assert set(comparison.explained) <= set(REASONS)


@pytest.mark.requirement("homes:random-comparison")
@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_has_documentation_section(reason: str) -> None:
    assert f"## {reason}\n" in DIFFERENCES.read_text(encoding="utf-8")
