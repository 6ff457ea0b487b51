"""The comparison of one random home of a version of Hermes."""

from __future__ import annotations

from pathlib import Path

from session_core.state.sqlite.session_db import SessionDB
from tests.interop.comparison import Comparison
from tests.interop.hermes import Hermes

CONVERSATIONS = 25


def compare(version: str, seed: int, questions: int, folder: Path) -> Comparison:
    """Make a home, ask a number of questions about it, and return the comparison."""
    with Hermes(version, folder / "home") as theirs:
        theirs.job("build_random", seed=seed, conversations=CONVERSATIONS)
        with SessionDB(folder / "home" / "state.db", read_only=True) as ours:
            comparison = Comparison(theirs, ours, seed)
            comparison.ask(questions)
            return comparison
