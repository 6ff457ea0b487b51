"""The verb edit: preview, confirmation and undo."""

from __future__ import annotations

import pytest

from tests.cli.command_user import CTRL_C
from tests.cli.homes import FRESH_SESSION_ID, list_titles


@pytest.mark.requirement("verbs:undo")
def test_edit_shows_before_and_after(person, home):
    with person("edit", FRESH_SESSION_ID, "--title", "Cooking", "--archive", columns=140) as seen:
        seen.until("Change 1 session? [y/N]")
        text = " ".join(seen.screen.split())
        assert "title: What to cook -> Cooking;" in text
        assert "archived: no -> yes" in text
        assert list_titles(home)[FRESH_SESSION_ID] == "What to cook"
        seen.type("y\n")
        assert seen.end() == 0
    assert list_titles(home)[FRESH_SESSION_ID] == "Cooking"
    assert "Undo with" in seen.screen


@pytest.mark.requirement("verbs:undo")
def test_declined_edit_changes_no_data(person, answer, run, home):
    before = list_titles(home)
    declined = answer("edit", FRESH_SESSION_ID, "--title", "Cooking", code=5)
    assert (declined["outcome"], declined["batch"]) == ("declined", None)
    only = run("edit", FRESH_SESSION_ID, "--title", "Cooking", "--plan-only")
    assert (only.code, "What to cook -> Cooking" in only.out) == (0, True)
    with person("edit", FRESH_SESSION_ID, "--title", "Cooking") as seen:
        seen.until("[y/N]")
        seen.type(CTRL_C)
        assert seen.end() == 130
    assert "Stopped; nothing was changed." in seen.screen
    assert list_titles(home) == before
    assert answer("log")["lines"] == []


@pytest.mark.requirement("verbs:undo")
def test_combined_edits_share_undo(answer, run, home):
    result = run("edit", FRESH_SESSION_ID, "--title", "Cooking", "--pin", "--archive", "--yes")
    assert (result.code, result.err) == (0, "")
    assert list_titles(home)[FRESH_SESSION_ID] == "Cooking"
    batch = result.out.split("restore ")[-1].strip()
    assert answer("restore", batch, "--yes")["restored"] == 1
    assert list_titles(home)[FRESH_SESSION_ID] == "What to cook"


def test_edit_json_has_session_and_batch(answer, run):
    assert set(answer("edit", FRESH_SESSION_ID, "--archive", "--yes")) == {"sessions", "batch"}
    assert answer("edit", FRESH_SESSION_ID, "--archive")["outcome"] == "nothing"
    assert run("edit", FRESH_SESSION_ID, "--archive").out == "Nothing to do.\n"


def test_edit_reopens_ended_session_after_yes(answer):
    old = "20260701_090000_0ld000"
    (item,) = answer("edit", old, "--reopen", "--plan-only")["items"]
    assert (item["id"], item["why"]) == (old, "status: ended (cli_close) -> open")
    assert answer("edit", old, "--reopen", "--yes")["sessions"][0]["status"] == "open"
