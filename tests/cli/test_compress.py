"""The verb compress: summary, facts, undo, and advice."""

from __future__ import annotations

import pytest

from mcp_serve.cli import sample_home
from session_core import SessionDB
from tests.cli.homes import FRESH_SESSION_ID, LONG_SESSION_ID, list_live_ids


@pytest.mark.requirement("verbs:compress")
def test_compress_shows_extractive_summary(person, home):
    before = list_live_ids(home, LONG_SESSION_ID)
    with person("compress", LONG_SESSION_ID, "--keep-last", "9") as seen:
        seen.until("Compress 108 messages? [y/N]")
        assert "Statements that the summary must keep:" in seen.screen
        assert "The summary, made without a model:" in seen.screen
        assert list_live_ids(home, LONG_SESSION_ID) == before
        seen.type("y\n")
        assert seen.end() == 0
    assert "% less" in seen.screen
    assert "decision" in seen.screen
    assert len(list_live_ids(home, LONG_SESSION_ID)) < len(before)


@pytest.mark.requirement("verbs:compress")
def test_compress_reports_facts_and_is_undone(answer, home):
    before = list_live_ids(home, LONG_SESSION_ID)
    result = answer("compress", LONG_SESSION_ID, "--keep-last", "9", "--yes")
    assert result["outcome"] == "applied"
    assert result["tokens_after"] < result["tokens_before"]
    assert result["retention"]["found"] >= result["retention"]["kept"] > 0
    assert answer("restore", result["batch"], "--yes")["outcome"] == "applied"
    assert list_live_ids(home, LONG_SESSION_ID) == before


@pytest.mark.requirement("verbs:compress")
def test_compress_uses_given_summary(answer, home, tmp_path):
    file = tmp_path / "mine.md"
    file.write_text("Ports were decided.", encoding="utf-8")
    for given in ((str(file), ""), ("-", "Ports were decided.")):
        result = answer(
            *("compress", LONG_SESSION_ID, "--keep-last", "9", "--summary", given[0], "--yes"),
            given=given[1],
        )
        with SessionDB(home / "state.db", read_only=True) as db:
            texts = [str(row["content"]) for row in db.get_messages(result["session_id"])]
        assert any("Ports were decided." in text for text in texts)
        answer("restore", result["batch"], "--yes")


@pytest.mark.requirement("verbs:compress")
def test_compress_plan_accepts_external_summary(answer, run):
    plan = answer(
        "compress", LONG_SESSION_ID, "--keep-last", "9", "--method", "summary", "--plan-only"
    )
    assert {"from_id", "to_id", "must_survive", "digest"} <= set(plan["brief"])
    given = ("compress", "--plan", plan["plan"], "--summary", "-")
    assert run(*given, given="Ports.").code == 5
    plan = answer(
        "compress", LONG_SESSION_ID, "--keep-last", "9", "--method", "summary", "--plan-only"
    )
    given = ("compress", "--plan", plan["plan"], "--summary", "-")
    assert answer(*given, "--yes", given="Ports.")["outcome"] == "applied"


@pytest.mark.requirement("verbs:compress")
def test_refused_compression_names_helpful_option(run):
    result = run("compress", FRESH_SESSION_ID)
    assert result.code == 0
    text = " ".join(result.out.split())
    assert "Nothing to do." in text
    assert "protect less with --keep-last: without it the last 30,000 tokens stay, of" in text
    assert "tokens stay" not in run("compress", FRESH_SESSION_ID, "--keep-last", "9").out


def test_compress_help_states_default_tail(run):
    text = " ".join(run("compress", "--help").out.split())
    assert "messages to keep at the end (default: the last 30,000 tokens)" in text


def test_demo_session_is_worth_compressing(script, tmp_path):
    clock = sample_home.SampleClock()
    with SessionDB(tmp_path / "demo" / "state.db", clock=clock) as db:
        sample_home.build_home(db, clock)
    result = script(
        "--home", str(tmp_path / "demo"), "compress", sample_home.LONG_SESSION_ID, "--yes"
    )
    assert (result.code, result.err) == (0, "")
    assert "% less" in result.out
