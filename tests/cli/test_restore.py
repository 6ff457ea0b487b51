"""The verb restore: list, preview, confirmation and undo."""

from __future__ import annotations

import pytest

from session_core import SessionDB
from tests.cli.command_user import CTRL_C
from tests.cli.homes import FRESH_SESSION_ID, LONG_SESSION_ID, list_live_ids, list_titles


@pytest.mark.requirement("verbs:undo")
def test_restore_lists_and_undoes_batches(answer, run, home):
    before = list_titles(home)
    result = answer("prune", "ghosts", "--yes")
    listed = answer("restore")
    assert set(listed) == {"batches", "next_cursor"}
    assert [batch["batch"] for batch in listed["batches"]] == [result["batch"]]
    assert "Done: 25 restored." in run("restore", result["batch"], "--yes").out
    assert list_titles(home) == before
    again = run("restore", result["batch"])
    assert (again.code, "was undone already" in again.err) == (4, True)


@pytest.mark.requirement("verbs:undo")
def test_restore_shows_items_and_asks(person, answer, home):
    before = list_titles(home)
    result = answer("prune", "ghosts", "--yes")
    with person("restore", result["batch"]) as seen:
        seen.until("Restore 25 items? [y/N]")
        text = " ".join(seen.screen.split())
        assert "Undoes `prune ghosts` of 20" in text
        assert "20261109_120000_905700" in text
        assert "and 5 more" in text
        assert list_titles(home) != before
        seen.type("y\n")
        assert seen.end() == 0
    assert list_titles(home) == before


@pytest.mark.requirement("verbs:undo")
def test_declined_restore_changes_no_data(answer, run, home):
    result = answer("prune", "ghosts", "--yes")
    before = list_titles(home)
    assert answer("restore", result["batch"], code=5)["outcome"] == "declined"
    only = answer("restore", result["batch"], "--plan-only")
    assert (only["outcome"], only["plan"], only["count"]) == ("planned", None, 25)
    assert (only["batch"], only["tool"]) == (result["batch"], "prune ghosts")
    assert len(only["items"]) == 20
    shown = run("restore", result["batch"], "--plan-only").out
    assert f"restore {result['batch']}" in shown
    assert "--plan " not in shown
    assert list_titles(home) == before


@pytest.mark.requirement("verbs:undo")
def test_destructive_restore_makes_plan(answer, home):
    result = answer(
        "compress", LONG_SESSION_ID, "--keep-last", "9", "--shape", "continuation", "--yes"
    )
    before = list_titles(home)
    (item,) = answer("restore", result["batch"], "--plan-only")["items"]
    assert item["id"] == LONG_SESSION_ID
    with SessionDB(home / "state.db") as db:
        db.append_message(result["session_id"], "user", "said since")
    planned = answer("restore", result["batch"], "--plan-only")
    assert "1 messages added since" in planned["warnings"][0]
    assert list_titles(home) == before
    assert answer("restore", "--plan", planned["plan"], "--yes")["outcome"] == "applied"
    assert len(list_live_ids(home, LONG_SESSION_ID)) == 120


@pytest.mark.requirement("verbs:undo")
def test_restore_asks_before_dropping_later_messages(person, answer, home):
    plan = answer(
        "compress", LONG_SESSION_ID, "--keep-last", "9", "--shape", "continuation", "--yes"
    )
    with SessionDB(home / "state.db") as db:
        db.append_message(plan["session_id"], "user", "said since")
    with person("restore", plan["batch"]) as seen:
        seen.until("[y/N]")
        assert "1 messages added since go to the trash" in seen.screen
        seen.type(CTRL_C)
        assert seen.end() == 130
    assert len(list_live_ids(home, plan["session_id"])) > 1
    with person("restore", plan["batch"]) as seen:
        seen.until("[y/N]")
        seen.type("y\n")
        assert seen.end() == 0
    assert len(list_live_ids(home, LONG_SESSION_ID)) == 120


@pytest.mark.requirement("verbs:undo")
def test_partial_restore_can_be_repeated(answer, run, home):
    result = answer("prune", "--title", "part 1", "--yes")
    taken = answer("edit", FRESH_SESSION_ID, "--title", "The ledger, part 1", "--yes")
    partly = run("restore", result["batch"], "--yes")
    assert partly.code == 6
    assert "1 skipped:" in partly.out
    answer("restore", taken["batch"], "--yes")
    assert run("restore", result["batch"], "--yes").code == 0
    assert "The ledger, part 1" in list_titles(home).values()
