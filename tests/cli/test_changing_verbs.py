"""The verbs compress, edit, restore, trash and log."""

from __future__ import annotations

import shlex

import pytest

from mcp_serve.cli.demo_home import sample
from session_core import SessionDB, SessionFilter
from tests.cli.command_user import CTRL_C
from tests.cli.homes import FRESH_SESSION_ID, LONG_SESSION_ID, build_home


def list_live_ids(home, session):
    with SessionDB(home / "state.db", read_only=True) as db:
        return [row["id"] for row in db.get_messages(session)]


def list_titles(home):
    with SessionDB(home / "state.db", read_only=True) as db:
        found = db.list_sessions(SessionFilter(status="all"), limit=100).items
        return {each.id: each.title for each in found}


# -- compress ---------------------------------------------------------------------------------


@pytest.mark.requirement("verbs:compress")
def test_compress_shows_extractive_summary(person, home):
    before = list_live_ids(home, LONG_SESSION_ID)
    with person("compress", LONG_SESSION_ID, "--keep-last", "9") as seen:
        seen.until("Compress 108 messages? [y/N]")
        assert "Facts that the summary must keep:" in seen.screen
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
    done = answer("compress", LONG_SESSION_ID, "--keep-last", "9", "--yes")
    assert done["outcome"] == "applied"
    assert done["tokens_after"] < done["tokens_before"]
    assert done["retention"]["found"] >= done["retention"]["kept"] > 0
    assert answer("restore", done["batch"], "--yes")["outcome"] == "applied"
    assert list_live_ids(home, LONG_SESSION_ID) == before


@pytest.mark.requirement("verbs:compress")
def test_compress_uses_given_summary(answer, home, tmp_path):
    file = tmp_path / "mine.md"
    file.write_text("Ports were decided.", encoding="utf-8")
    for given in ((str(file), ""), ("-", "Ports were decided.")):
        done = answer(
            *("compress", LONG_SESSION_ID, "--keep-last", "9", "--summary", given[0], "--yes"),
            given=given[1],
        )
        with SessionDB(home / "state.db", read_only=True) as db:
            texts = [str(row["content"]) for row in db.get_messages(done["session_id"])]
        assert any("Ports were decided." in text for text in texts)
        answer("restore", done["batch"], "--yes")


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


# -- edit -------------------------------------------------------------------------------------


@pytest.mark.requirement("verbs:undo")
def test_edit_shows_before_and_after(person, home):
    with person("edit", FRESH_SESSION_ID, "--title", "Cooking", "--archive", columns=140) as seen:
        seen.until("Change 1 session? [y/N]")
        said = " ".join(seen.screen.split())
        assert "title: What to cook -> Cooking;" in said
        assert "archived: no -> yes" in said
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
    done = run("edit", FRESH_SESSION_ID, "--title", "Cooking", "--pin", "--archive", "--yes")
    assert (done.code, done.err) == (0, "")
    assert list_titles(home)[FRESH_SESSION_ID] == "Cooking"
    batch = done.out.split("restore ")[-1].strip()
    assert answer("restore", batch, "--yes")["restored"] == 1
    assert list_titles(home)[FRESH_SESSION_ID] == "What to cook"


def test_edit_json_has_session_and_batch(answer, run):
    assert set(answer("edit", FRESH_SESSION_ID, "--archive", "--yes")) == {"session", "batch"}
    assert answer("edit", FRESH_SESSION_ID, "--archive")["outcome"] == "nothing"
    assert run("edit", FRESH_SESSION_ID, "--archive").out == "Nothing to do.\n"


def test_edit_reopens_ended_session_after_yes(answer):
    old = "20260701_090000_0ld000"
    (item,) = answer("edit", old, "--reopen", "--plan-only")["items"]
    assert (item["id"], item["why"]) == (old, "status: ended (cli_close) -> open")
    assert answer("edit", old, "--reopen", "--yes")["session"]["status"] == "open"


# -- restore ----------------------------------------------------------------------------------


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


# -- trash and log ----------------------------------------------------------------------------


@pytest.mark.requirement("verbs:trash")
def test_trash_empty_deletes_batches(person, answer, run):
    done = answer("prune", "ghosts", "--yes")
    (batch,) = answer("trash", "list")["batches"]
    assert batch["batch"] == done["batch"]
    assert batch["bytes"] > 0
    assert "Nothing to do." in run("trash", "empty").out
    with person("trash", "empty", "--older-than", "0") as seen:
        seen.until("Permanently delete 1 batch? [y/N]")
        assert "this has no undo" in " ".join(seen.screen.split())
        seen.type("y\n")
        assert seen.end() == 0
    assert answer("trash", "list")["batches"] == []
    assert run("restore", done["batch"]).code == 4


def test_trash_empty_takes_single_batch(answer, run):
    kept = answer("prune", "ghosts", "--yes")["batch"]
    emptied = answer("prune", "--yes")["batch"]
    shown = run("trash", "empty", emptied, "--yes").out
    assert "Permanently delete 1 batch" in shown
    assert "has no undo" in " ".join(shown.split())
    assert [each["batch"] for each in answer("trash", "list")["batches"]] == [kept]
    assert run("restore", kept, "--yes").code == 0
    restored = answer("trash", "list")["batches"][0]
    assert (restored["batch"], restored["bytes"], restored["undone"]) == (kept, 0, True)
    assert "was restored" in " ".join(run("trash", "empty", kept).out.split())
    assert run("trash", "empty", "b-nothing").code == 3
    assert run("trash", "empty", kept, "--older-than", "0").code == 2


@pytest.mark.requirement("verbs:trash")
def test_log_shows_author_and_change(answer, run):
    answer("prune", "ghosts", "--yes")
    answer("edit", FRESH_SESSION_ID, "--pin", "--yes")
    first, second = answer("log")["lines"]
    assert (first["what"], first["who"]) == ("edit", "mcp-sessions (terminal)")
    assert (second["what"], second["counts"]["removed"]) == ("prune ghosts", 25)
    assert len(answer("log", "--limit", "1")["lines"]) == 1
    assert "removed 25" in run("log").out


@pytest.mark.requirement("verbs:trash")
def test_log_names_store_of_each_change(answer, run, home):
    build_home(home / "profiles" / "work", ghosts=2)
    answer("prune", "ghosts", "--yes")
    answer("prune", "ghosts", "--yes", "--store", "hermes:work")
    for verb, key in (
        (("restore",), "batches"),
        (("trash", "list"), "batches"),
        (("log",), "lines"),
    ):
        found = answer(*verb, "--all-profiles")[key]
        assert [each["store"] for each in found] == ["hermes", "hermes:work"]
        assert "work" in run(*verb, "--all-profiles").out


@pytest.mark.requirement("verbs:trash")
def test_reading_verbs_write_no_file(run, home, tmp_path):
    def files():  # who reads a log is noted in what all share of it
        found = (path for path in home.rglob("*") if path.suffix != ".db-shm")
        return {path: path.stat().st_mtime_ns for path in found}

    before = files()
    for verb in (("restore",), ("trash", "list"), ("log",)):
        assert run(*verb).code == 0
    assert files() == before
    assert not list((tmp_path / "user").iterdir())


@pytest.mark.requirement("verbs:help")
@pytest.mark.parametrize(
    "verb", ["prune", "finalize", "compress", "edit", "restore", "trash list", "trash empty", "log"]
)
def test_help_examples_are_parsed(run, verb, tmp_path):
    (tmp_path / "user" / "mine.md").write_text("Ports were decided.")
    examples = run(*verb.split(), "--help").out.partition("examples:")[2]
    lines = [line.strip() for line in examples.splitlines() if "mcp-sessions " in line]
    assert lines
    assert max(map(len, examples.splitlines())) < 80
    for line in lines:
        words = line.partition("mcp-sessions ")[2].partition("   ")[0].partition(" <")[0]
        done = run(*shlex.split(words))
        # Nobody is there to agree, and the plan and the batch that are named are nobody's.
        assert done.code in (0, 5) or (done.code == 3 and "23456789" in line), (line, done.err)


# -- what is worth compressing ----------------------------------------------------------------


@pytest.mark.requirement("verbs:compress")
def test_refused_compression_names_helpful_option(run):
    done = run("compress", FRESH_SESSION_ID)
    assert done.code == 0
    said = " ".join(done.out.split())
    assert "Nothing to do." in said
    assert "protect less with --keep-last: without it the last 30,000 tokens stay, of" in said
    assert "tokens stay" not in run("compress", FRESH_SESSION_ID, "--keep-last", "9").out


def test_compress_help_states_default_tail(run):
    said = " ".join(run("compress", "--help").out.split())
    assert "messages to keep at the end (default: the last 30,000 tokens)" in said


def test_demo_session_is_worth_compressing(script, tmp_path):
    clock = sample.SampleClock()
    with SessionDB(tmp_path / "demo" / "state.db", clock=clock) as db:
        sample.build_home(db, clock)
    done = script("--home", str(tmp_path / "demo"), "compress", sample.LONG_SESSION_ID, "--yes")
    assert (done.code, done.err) == (0, "")
    assert "% less" in done.out
