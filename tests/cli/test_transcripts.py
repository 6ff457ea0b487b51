"""The command over transcripts of other agents, as a new user without a home runs it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.command_user import CTRL_C, CommandUser, strip_style
from tests.serve.test_transcripts import CLAUDE, CODEX, write_codex
from tests.thorough import mark_thorough
from tests.transcripts.conftest import read_everything
from tests.transcripts.trees import ClaudeTree, make_line


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
    result = script("search", "chose", "postgres")
    assert (result.code, CLAUDE in result.out) == (0, True)
    shown = script("show", CLAUDE[:8])
    assert "we chose postgres" in shown.out
    assert f"resume: claude --resume {CLAUDE}" in shown.out


def test_first_search_covers_every_transcript(script, tree):
    for number in range(300):
        tree.write(f"many-{number}", ["apples " * 400] * 8)
    tree.write("needle", ["the haystack has one needle"])
    data = json.loads(script("search", "needle", "--json").out)
    assert [hit["session_id"] for hit in data["hits"]] == ["needle"]
    assert "coverage" not in data


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
    result = script("install", "cursor", "--yes")
    assert "It can ask about claude-code: 1 session, newest" in result.out


@pytest.mark.parametrize(
    "words",
    [
        ("edit", CLAUDE, "--reopen", "--yes"),
        ("finalize", "--session", CLAUDE, "--yes"),
        ("compress", CLAUDE, "--yes"),
        ("prune", "--session", CLAUDE, "--yes"),
        ("prune", "--store", "claude-code", "--yes"),
    ],
)
def test_changing_verbs_refuse_transcripts(script, tree, words):
    before = read_everything(tree.projects)
    result = script(*words)
    assert result.code in (1, 2, 3)
    assert "transcript" in result.err
    assert read_everything(tree.projects) == before


@pytest.mark.requirement("transcripts:labels")
@pytest.mark.parametrize("store", [(), ("--store", "claude-code")])
def test_edit_of_transcript_is_restored(script, tree, store):
    before = read_everything(tree.projects)
    result = script("edit", CLAUDE[:8], "--title", "The ledger", "--archive", "--yes", *store)
    assert "title: none -> The ledger; archived: no -> yes" in result.out
    batch = result.out.split()[-1]
    assert "The ledger" in script("list", "--status", "archived", *store).out
    assert batch in script("restore", *store).out
    preview = script("restore", batch, "--plan-only", *store).out
    assert "title as before, archived as before" in preview
    assert "1 restored" in script("restore", batch, "--yes", *store).out
    assert "The ledger" not in script("list", "--status", "all", *store).out
    assert read_everything(tree.projects) == before


def test_log_lists_edits_of_transcripts(answer, script):
    script("edit", CLAUDE, "--title", "The ledger", "--yes")
    (line,) = answer("log")["lines"]
    assert (line["store"], line["what"]) == ("claude-code", "edit")
    assert line["counts"] == {"sessions": 1, "title": True}


def test_edit_of_several_has_one_undo(script):
    result = script("edit", CLAUDE[:8], "--store", "claude-code", "--pin", "--yes")
    assert result.code == 0
    refused = script("edit", CLAUDE, CODEX, "--archive", "--yes")
    assert refused.code == 2
    assert "one call changes one store" in refused.err


@pytest.mark.requirement("transcripts:raw")
def test_raw_export_is_byte_identical(script, tree, tmp_path):
    path = tree.get_path(CLAUDE)
    path.write_bytes(path.read_bytes() + b'{"torn": "\xff')
    assert script("export", CLAUDE[:8], "--raw", "--out", str(tmp_path / "one.jsonl")).code == 0
    assert (tmp_path / "one.jsonl").read_bytes() == path.read_bytes()
    folder = f"{tmp_path}/all/"
    assert script("export", "--store", "claude-code", "--raw", "--out", folder).code == 0
    assert (tmp_path / "all" / f"{CLAUDE}.jsonl").read_bytes() == path.read_bytes()
    many = script("export", "--store", "claude-code", "--raw")
    assert (many.code, "need a folder" in many.err) == (2, True)


@pytest.mark.requirement("transcripts:exported")
def test_exported_transcript_is_imported_into_home(script, tree, tmp_path):
    line = make_line(
        "sub", 0, "asked by the other", isSidechain=True, agentId="a1", sessionId=CLAUDE
    )
    child = tree.get_path(CLAUDE).with_suffix("") / "subagents" / "agent-a1.jsonl"
    child.parent.mkdir(parents=True)
    child.write_bytes(line)
    script("edit", CLAUDE, "--title", "The ledger", "--yes")
    file = str(tmp_path / "out.jsonl")
    assert script("export", CLAUDE, CODEX, "--out", file).code == 2
    assert "Wrote 2 sessions with 4 messages" in script("export", CLAUDE, "--out", file).out
    assert script("import", file, "--yes").code == 0
    (row,) = json.loads(script("list", "--store", "own", "--json").out)["sessions"]
    assert (row["title"], row["source"], row["messages"]) == ("The ledger", "claude-code", 3)
    page = json.loads(script("show", CLAUDE, "--store", "own", "--json").out)
    assert [message["text"] for message in page["messages"]][1:] == ["we chose postgres", "good"]


def test_id_in_two_stores_names_option(script, tmp_path):
    file = str(tmp_path / "out.jsonl")
    script("export", CLAUDE, "--out", file)
    script("import", file, "--yes")
    result = script("show", CLAUDE)
    assert (result.code, "several stores" in result.err) == (2, True)
    assert result.err.rstrip(".\n").endswith("; pass --store NAME")
    assert script("prune", "--session", CLAUDE, "--plan-only").code == 0


def test_transcript_is_exported_as_markdown(script):
    result = script("export", CLAUDE, "--format", "md")
    assert result.out.startswith(f"# {CLAUDE}\n\n- session: {CLAUDE}\n- source: claude-code\n")
    assert "## assistant · 2025-10-09" in result.out


@pytest.mark.requirement("transcripts:command")
def test_stats_of_transcripts_have_no_database(script):
    output = script("stats").out
    assert output.startswith("store        sessions  messages")
    assert "transcripts  " in output
    for word in ("own", "database", "trash", "gateway", "growth", "Sessions by source"):
        assert word not in output


def test_doctor_reports_damaged_labels(script, tree):
    script("edit", CLAUDE, "--title", "x", "--yes")
    (path,) = tree.home.rglob("labels.db")
    for file in path.parent.glob("labels.db*"):
        file.write_bytes(b"no database" * 1000)
    text = " ".join(script("doctor").out.split())
    assert "labels the file of labels" in text
    assert "claude-code 1 session, newest" in text


@pytest.mark.requirement("transcripts:command")
@pytest.mark.parametrize("verb", [(), ("install",), ("demo",), ("doctor",)])
@pytest.mark.parametrize("columns", [60, *map(mark_thorough, (80, 140))])
def test_first_screens_name_found_stores(forks, tree, verb, columns):
    person = CommandUser(forks, tree.home, tree.home / ".none")
    with person.at(columns, *verb) as terminal:
        if verb == ("install",):
            terminal.until("(Enter for none)")
            terminal.type("\n")
        code, seen = terminal.end(), terminal.seen
    lines = [line.rstrip() for line in strip_style(seen).splitlines()]
    assert code == 3 * (verb == ("doctor",))  # which misses the home that this user has named
    for store, title in (("claude-code", "which"), ("codex", "rename")):
        assert any(f"{store}" in line and "1 session, newest" in line for line in lines)
        assert title in strip_style(seen)
    assert all(len(line) <= columns for line in lines if "session" in line)


def test_list_without_home_has_no_store_column(script):
    lines = script("list").out.splitlines()
    assert lines[0].split() == ["active", "msgs", "title", "from", "project", "id"]


def test_missing_store_exits_with_3(script):
    result = script("list", "--store", "gemini")
    assert result.code == 3
    assert "existing: own, claude-code, codex" in result.err


def test_watch_prints_appended_lines(forks, tree):
    person = CommandUser(forks, tree.home, tree.home / ".none")
    with person.at(120, "watch") as terminal:
        terminal.until("Ctrl-C")
        tree.write(CLAUDE, ["one more line"])
        seen = terminal.until("one more line")
        terminal.type(CTRL_C)
        assert terminal.end() == 130
    assert f"claude-code  {CLAUDE}" in strip_style(seen)
