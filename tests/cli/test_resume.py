"""The verb `resume`: continue a session of another agent, in its agent and its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serve.test_transcripts import CLAUDE, CODEX, write_codex
from tests.transcripts.trees import ClaudeTree


@pytest.fixture(autouse=True)
def _tree() -> None:
    """Write sessions of two agents and no home."""
    tree = ClaudeTree(Path.home())
    tree.write(CLAUDE, ["which database for the ledger", "we chose postgres"])
    write_codex(tree.home, CODEX, "rename the ledger table")


@pytest.mark.requirement("transcripts:command")
def test_resume_prints_folder_and_command(script):
    assert script("resume", CODEX, "--json").code == 0
    printed = script("resume", CLAUDE[:8])
    assert printed.out.splitlines()[-1] == f"claude --resume {CLAUDE}"


def test_resume_refuses_unknown_sessions(script):
    assert script("resume", "nowhere").code == 3
