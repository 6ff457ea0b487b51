"""The command over transcripts of other agents, as a new user without a home runs it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.command_user import CTRL_C, CommandUser, strip_style
from tests.serve.test_transcripts import CLAUDE, CODEX, write_codex
from tests.transcripts.conftest import read_everything
from tests.transcripts.trees import ClaudeTree


@pytest.fixture(name="tree", autouse=True)
def _tree() -> ClaudeTree:
    """Transcripts of two agents and no home."""
    tree = ClaudeTree(Path.home())
    tree.write(CLAUDE, ["which database for the ledger", "we chose postgres", "good"])
    write_codex(tree.home, CODEX, "rename the ledger table")
    return tree


@pytest.mark.requirement("transcripts:command")
def test_bare_command_shows_found_stores(forks, tmp_path, script):
    user = os.environ["HOME"]
    code, seen = CommandUser(forks, user, Path(user) / ".none").sees(80)
    assert code == 0
    assert "Sessions of other agents on this machine" in seen
    assert "claude-code  1 session, newest" in seen
    assert "which database for the ledger" in seen


@pytest.mark.requirement("transcripts:command")
def test_list_search_and_show_need_no_home(script):
    listed = json.loads(script("list", "--json").out)["sessions"]
    assert [row["id"] for row in listed] == [CODEX, CLAUDE]
    found = script("search", "chose", "postgres")
    assert (found.code, CLAUDE in found.out) == (0, True)
    shown = script("show", CLAUDE[:8])
    assert "we chose postgres" in shown.out
    assert f"resume: claude --resume {CLAUDE}" in shown.out


def test_first_search_covers_every_transcript(script, tree):
    for number in range(300):
        tree.write(f"many-{number}", ["apples " * 400] * 8)
    tree.write("needle", ["the haystack has one needle"])
    found = json.loads(script("search", "needle", "--json").out)
    assert [hit["session_id"] for hit in found["hits"]] == ["needle"]
    assert "coverage" not in found


def test_doctor_names_stores_and_newest_titles(script):
    checks = json.loads(script("doctor", "--json").out)["checks"]
    says = {check["about"]: check["says"] for check in checks if check["about"] == "codex"}
    assert "sessions" in {check["about"] for check in checks}
    first = next(check for check in checks if check["about"] == "claude-code")
    assert first["says"].startswith("1 session, newest")
    assert first["says"].endswith("which database for the ledger")
    assert says


def test_doctor_and_stats_report_moved_store(script, tree):
    script("stats")
    tree.projects.rename(tree.projects.with_name("sessions-v2"))
    checks = json.loads(script("doctor", "--json").out)["checks"]
    (check,) = [check for check in checks if check.get("code") == "unknown_layout"]
    assert (check["about"], check["state"]) == ("claude-code", "warning")
    assert "the agent may keep its sessions elsewhere now" in script("stats").out


def test_stats_show_each_store(script):
    shown = script("stats").out
    assert "(claude-code)" in shown
    assert "(codex)" in shown


def test_install_names_found_stores(script):
    done = script("install", "cursor", "--yes")
    assert "It can ask about claude-code: 1 session, newest" in done.out


@pytest.mark.requirement("transcripts:command")
def test_resume_prints_folder_and_command(script, tmp_path, tree):
    assert script("resume", CODEX, "--json").code == 0
    printed = script("resume", CLAUDE[:8])
    assert printed.out.splitlines()[-1] == f"claude --resume {CLAUDE}"


def test_resume_refuses_unknown_sessions(script):
    assert script("resume", "nowhere").code == 3


@pytest.mark.parametrize(
    "words",
    [
        ("edit", CLAUDE, "--title", "x", "--yes"),
        ("finalize", "--session", CLAUDE, "--yes"),
        ("compress", CLAUDE, "--yes"),
        ("prune", "--session", CLAUDE, "--yes"),
        ("prune", "--store", "claude-code", "--yes"),
    ],
)
def test_changing_verbs_refuse_transcripts(script, tree, words):
    before = read_everything(tree.projects)
    done = script(*words)
    assert done.code in (1, 2)
    assert "transcript" in done.err
    assert read_everything(tree.projects) == before


def test_missing_store_exits_with_3(script):
    done = script("list", "--store", "gemini")
    assert done.code == 3
    assert "existing: own, claude-code, codex" in done.err


def test_watch_prints_appended_lines(forks, tree):
    person = CommandUser(forks, tree.home, tree.home / ".none")
    with person.at(120, "watch") as terminal:
        terminal.until("Ctrl-C")
        tree.write(CLAUDE, ["one more line"])
        seen = terminal.until("one more line")
        terminal.type(CTRL_C)
        assert terminal.end() == 130
    assert f"claude-code  {CLAUDE}" in strip_style(seen)
