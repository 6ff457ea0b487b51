"""The verb restore: list, preview, confirmation and undo."""

from __future__ import annotations

import pytest

from session_core import SessionDB
from tests.cli.command_user import CTRL_C
from tests.cli.homes import FRESH_SESSION_ID, LONG_SESSION_ID, list_live_ids, list_titles


@pytest.mark.requirement("verbs:undo")
def test_restore_lists_and_undoes_batches(answer, run, home):
    before = list_titles(home)
    done = answer("prune", "ghosts", "--yes")
    listed = answer("restore")
    assert set(listed) == {"batches", "next_cursor"}
    assert [each["batch"] for each in listed["batches"]] == [done["batch"]]
    assert "Done: 25 restored." in run("restore", done["batch"], "--yes").out
    assert list_titles(home) == before
    again = run("restore", done["batch"])
    assert (again.code, "was undone already" in again.err) == (4, True)


@pytest.mark.requirement("verbs:undo")
def test_restore_shows_items_and_asks(person, answer, home):
    before = list_titles(home)
    done = answer("prune", "ghosts", "--yes")
    with person("restore", done["batch"]) as seen:
        seen.until("Restore 25 items? [y/N]")
        said = " ".join(seen.screen.split())
        assert "Undoes `prune ghosts` of 20" in said
        assert "20261109_120000_905700" in said
        assert "and 5 more" in said
        assert list_titles(home) != before
        seen.type("y\n")
        assert seen.end() == 0
    assert list_titles(home) == before


@pytest.mark.requirement("verbs:undo")
def test_declined_restore_changes_no_data(answer, run, home):
    done = answer("prune", "ghosts", "--yes")
    before = list_titles(home)
    assert answer("restore", done["batch"], code=5)["outcome"] == "declined"
    only = answer("restore", done["batch"], "--plan-only")
    assert (only["outcome"], only["plan"], only["count"]) == ("planned", None, 25)
    assert (only["batch"], only["tool"]) == (done["batch"], "prune ghosts")
    assert len(only["items"]) == 20
    shown = run("restore", done["batch"], "--plan-only").out
    assert f"restore {done['batch']}" in shown
    assert "--plan " not in shown
    assert list_titles(home) == before


@pytest.mark.requirement("verbs:undo")
def test_destructive_restore_makes_plan(answer, home):
    done = answer(
        "compress", LONG_SESSION_ID, "--keep-last", "9", "--shape", "continuation", "--yes"
    )
    before = list_titles(home)
    (item,) = answer("restore", done["batch"], "--plan-only")["items"]
    assert item["id"] == LONG_SESSION_ID
    with SessionDB(home / "state.db") as db:
        db.append_message(done["session_id"], "user", "said since")
    planned = answer("restore", done["batch"], "--plan-only")
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
    done = answer("prune", "--title", "part 1", "--yes")
    taken = answer("edit", FRESH_SESSION_ID, "--title", "The ledger, part 1", "--yes")
    partly = run("restore", done["batch"], "--yes")
    assert partly.code == 6
    assert "1 skipped:" in partly.out
    answer("restore", taken["batch"], "--yes")
    assert run("restore", done["batch"], "--yes").code == 0
    assert "The ledger, part 1" in list_titles(home).values()
