"""Which stores of other agents are on a machine."""

from __future__ import annotations

from pathlib import Path

from session_core.transcripts import list_transcript_stores
from session_core.transcripts.places import find_index_folder, remember_stores


def make_folders(home: Path, *names: str) -> dict[str, str]:
    """Make folders below a home and return its environment."""
    for name in names:
        (home / name).mkdir(parents=True)
    return {"HOME": str(home)}


def test_stores_are_those_with_folders(tmp_path: Path):
    env = make_folders(tmp_path, ".claude/projects", ".codex/archived_sessions", ".qwen")

    assert list_transcript_stores(env) == ["claude-code", "codex"]


def test_agent_variables_name_other_folders(tmp_path: Path):
    env = make_folders(tmp_path, "a/projects", "b/sessions", "c/.gemini/antigravity-cli/brain")
    named = {"CLAUDE_CONFIG_DIR": "a", "CODEX_HOME": "b", "GEMINI_CLI_HOME": "c"}
    env |= {name: str(tmp_path / folder) for name, folder in named.items()}

    assert list_transcript_stores(env) == ["claude-code", "codex", "antigravity"]


def test_moved_store_stays_listed(tmp_path: Path):
    env = make_folders(tmp_path, ".claude/projects", ".codex/sessions")
    remember_stores(find_index_folder(env), ["claude-code"])
    for agent, name in ((".claude", "projects"), (".codex", "sessions")):
        (tmp_path / agent / name).rename(tmp_path / agent / "moved")

    assert list_transcript_stores(env) == ["claude-code"]
