"""The command on a Hermes home with an index that this process cannot write."""

from __future__ import annotations

import json

import pytest

from session_core import SessionDB
from tests.cjk import INDEX, add_cjk_index
from tests.cli.homes import PastClock
from tests.homes import make_hermes_database


@pytest.fixture(name="home")
def _home(tmp_path):
    """A Hermes home with an old conversation and the index, without its extension."""
    path, clock = tmp_path / "home" / "state.db", PastClock()
    make_hermes_database(path, 30)
    with SessionDB(path, clock=clock) as db:
        clock.days = 120
        db.append_message("old", "user", "hello", create={"source": "cli"})
        db.end_session("old", "idle")
        clock.days = 60
        db.create_session("ghost", "tui")
        db.end_session("ghost", "tui_close")
        clock.days = 0
        db.append_message("fresh", "user", "hello", create={"source": "cli"})
    add_cjk_index(path)
    return path.parent


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("prune", "--yes"), "Use --load-extension"),
        (("prune", "--load-extension", "--yes"), "does not exist"),
        (("compress", "fresh"), "Use --load-extension"),
    ],
)
def test_message_change_is_refused_with_blocked_index(run, words, reason):
    refused = run(*words)
    assert refused.code == 1
    text = " ".join(refused.err.split())
    assert f"{INDEX}, which needs the tokenizer cjk_unicode61" in text
    assert reason in text
    assert "Traceback" not in text


def test_ghosts_are_pruned_with_blocked_index(run, answer):
    result = answer("prune", "ghosts", "--yes")
    assert result["removed"] == 1
    assert run("restore", result["batch"], "--yes").code == 0
    assert {line["id"] for line in answer("list")["sessions"]} >= {"fresh", "old"}


def test_stats_and_doctor_report_blocked_index(run, answer):
    findings = {finding["code"]: finding for finding in answer("stats")["findings"]}
    assert INDEX in findings["blocked_index"]["what"]
    assert "unreadable" not in findings
    checks = json.loads(run("doctor", "--json").out)["checks"]
    (check,) = [each for each in checks if each.get("code") == "blocked_index"]
    assert "--load-extension" in check["next"]
    assert INDEX in " ".join(run("stats").out.split())
