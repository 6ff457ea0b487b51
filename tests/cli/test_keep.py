"""`mcp-sessions keep`, and the question of `install`, as a user without a home runs them."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import pytest

from mcp_serve.cli import keep
from session_core.errors import Changed
from tests.cli.command_user import CommandUser, strip_style
from tests.cli.fork_server import build_environment
from tests.serve.test_transcripts import CLAUDE, CODEX, write_codex
from tests.transcripts.trees import ClaudeTree, make_line


@pytest.fixture(name="tree", autouse=True)
def _tree() -> ClaudeTree:
    """Transcripts of two agents and no home."""
    tree = ClaudeTree(Path.home())
    tree.write(CLAUDE, ["which database for the ledger", "we chose postgres", "good"])
    write_codex(tree.home, CODEX, "rename the ledger table")
    return tree


def read_status(script) -> dict[str, object]:
    """Return the status as JSON."""
    return json.loads(script("keep", "status", "--json").out)


@pytest.mark.requirement("transcripts:keep")
def test_deleted_sessions_are_still_read(script, tree):
    result = script("keep", "on")
    assert result.code == 0
    assert "any secret in them" in result.out
    assert "kept-1.db" in result.out
    shutil.rmtree(tree.home / ".claude")
    shutil.rmtree(tree.home / ".codex")

    rows = json.loads(script("list", "--json").out)["sessions"]
    assert [(row["id"], row["kept"]) for row in rows] == [(CODEX, True), (CLAUDE, True)]
    assert not any("resume" in row for row in rows)
    assert CLAUDE in script("search", "chose", "postgres").out
    shown = script("show", CLAUDE[:8]).out
    assert "we chose postgres" in shown
    assert "claude-code has deleted it; this is the kept copy" in shown
    assert "claude-code, kept" in script("list").out
    refused = script("resume", CLAUDE)
    assert (refused.code, "has deleted session" in refused.err) == (1, True)


@pytest.mark.requirement("transcripts:keep")
def test_status_doctor_and_stats_report(script, tree):
    assert read_status(script)["on"] is False
    assert not list(tree.home.rglob("kept-*.db"))
    script("keep", "on")
    shutil.rmtree(tree.home / ".codex")

    status = read_status(script)
    counts = {name: status[name] for name in ("on", "sessions", "source_gone", "forgotten")}
    assert counts == {"on": True, "sessions": 2, "source_gone": 1, "forgotten": []}
    checks = json.loads(script("doctor", "--json").out)["checks"]
    (check,) = [check for check in checks if check["about"] == "keep"]
    assert check["says"].startswith("Keeping is on: 2 sessions kept, ")
    assert check["keep"]["source_gone"] == 1
    keep = json.loads(script("stats", "--json").out)["keep"]
    assert (keep["on"], keep["sessions"], keep["source_gone"]) == (True, 2, 1)
    assert "1 session, 1 deleted by the agent (keeping is on)" in script("stats").out


def test_doctor_reports_damaged_copies(script, tree):
    script("keep", "on")
    (kept,) = tree.home.rglob("kept-*.db")
    kept.write_bytes(b"garbage" * 2000)

    result = script("doctor", "--json")

    checks = json.loads(result.out)["checks"]
    (check,) = (check for check in checks if check["about"] == "keep")
    assert check["state"] == "failure"
    assert "is damaged; restore a backup" in check["says"]


def test_plan_names_copies_in_no_list(forks, script, tree):
    script("keep", "on")
    user = str(tree.home)
    environ = {**build_environment(user), "CLAUDE_CONFIG_DIR": f"{user}/elsewhere"}
    command = ("keep", "forget", "claude-code", "--plan-only", "--json")

    plan = json.loads(forks.run(command, environ, user, "").out)

    assert plan["items"] == []
    (warning,) = (line for line in plan["warnings"] if CLAUDE in line)
    assert "a folder that claude-code no longer uses" in warning


def test_hook_keeps_quietly(script, tree):
    script("keep", "on")
    tree.write(CLAUDE, ["one more line"])

    result = script("keep", "--quiet")
    assert (result.code, result.out, result.err) == (0, "", "")

    shutil.rmtree(tree.home / ".claude")
    assert "one more line" in script("show", CLAUDE).out


def test_hook_without_keeping_does_nothing(script, tree):
    result = script("keep", "--quiet")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert not list(tree.home.rglob("kept-*.db"))


@pytest.mark.requirement("transcripts:keep")
def test_forget_plans_asks_and_removes(script, tree):
    script("keep", "on")
    script("edit", CLAUDE, "--title", "a title of mine", "--yes")
    declined = script("keep", "forget", CLAUDE[:8])
    assert declined.code == 5
    assert "This cannot be undone." in declined.out
    assert "is not read any more until mcp-sessions keep on" in declined.out
    plan = json.loads(script("keep", "forget", CLAUDE, "--plan-only", "--json").out)
    assert (plan["outcome"], plan["count"]) == ("planned", 1)

    data = json.loads(script("keep", "forget", "--plan", plan["plan"], "--yes", "--json").out)

    assert (data["outcome"], data["removed"]) == ("applied", 1)
    assert [row["id"] for row in json.loads(script("list", "--json").out)["sessions"]] == [CODEX]
    assert read_status(script)["forgotten"][0]["id"] == CLAUDE
    (state,) = tree.home.rglob("transcripts")
    found = [
        (path.name, word)
        for path in state.rglob("*")
        if path.is_file()
        for word in (b"title of mine", b"postgres")
        if word in path.read_bytes()
    ]
    assert found == []
    assert script("keep", "on", CLAUDE[:8]).code == 0
    assert "we chose postgres" in script("show", CLAUDE).out


def test_change_during_question_leaves_labels(monkeypatch, script, tree):
    script("edit", CLAUDE, "--title", "a title of mine", "--yes")

    def write_subagent(question: str, *, yes: bool) -> bool:
        del question, yes
        path = tree.get_path(CLAUDE).with_suffix("") / "subagents" / "agent-a1.jsonl"
        path.parent.mkdir(parents=True)
        path.write_bytes(make_line("agent-a1", 0, "a subagent"))
        return script("list").code == 0

    monkeypatch.setattr(keep, "ask_confirmation", write_subagent)
    monkeypatch.setattr(keep, "choose_driver", lambda: None)  # this process has chosen
    parser = argparse.ArgumentParser()
    keep.add_arguments(parser)
    with pytest.raises(Changed):
        keep.run(parser.parse_args(["forget", CLAUDE], argparse.Namespace(json=False)))

    assert "a title of mine" in script("list").out


def test_forgotten_store_keeps_no_title(script, tree):
    script("edit", CLAUDE, "--title", "a title of mine", "--yes")
    tree.get_path(CLAUDE).unlink()
    tree.write("another", ["another session"])

    assert script("keep", "forget", "claude-code", "--yes").code == 0

    (labels,) = tree.home.rglob("labels.db")
    assert b"title of mine" not in labels.read_bytes()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("forget",), 2),
        (("forget", "x", "--plan", "p-22222222"), 2),
        (("forget", "nothing"), 3),
        (("forget", "--plan", "p-22222222", "--yes"), 3),
        (("on", "nothing"), 3),
        (("sometimes",), 2),
    ],
)
def test_wrong_arguments_have_exit_codes(script, words, code):
    assert script("keep", *words).code == code


def test_off_keeps_what_was_kept(script, tree):
    script("keep", "on")
    assert script("keep", "off").out.startswith("Keeping is off: 2 sessions kept")
    shutil.rmtree(tree.home / ".claude")
    assert "we chose postgres" in script("show", CLAUDE).out


@pytest.mark.requirement("transcripts:keep")
@pytest.mark.parametrize(("answer", "is_on"), [("y", True), ("n", False)])
def test_install_asks_once_to_keep(forks, script, tree, answer, is_on):
    person = CommandUser(forks, tree.home, tree.home / ".none")
    with person.at(120, "install", "cursor") as terminal:
        terminal.until("Apply this change? [y/N]")
        terminal.type("y\n")
        text = strip_style(terminal.until("Keep copies? [y/N]"))
        terminal.type(f"{answer}\n")
        terminal.until("Restart Cursor")
        assert terminal.end() == 0
    assert "any secret in them" in text
    assert "kept-1.db" in text
    assert read_status(script)["on"] is is_on
    assert read_status(script)["sessions"] == (2 if is_on else 0)

    with person.at(120, "install", "zed") as terminal:
        terminal.until("Apply this change? [y/N]")
        terminal.type("y\n")
        assert "Keep copies?" not in terminal.until("Restart Zed")
        assert terminal.end() == 0


def test_install_without_terminal_keeps_nothing(script, tree):
    assert script("install", "cursor", "--yes").code == 0
    assert not list(tree.home.rglob("kept-*.db"))
