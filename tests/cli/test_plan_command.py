"""Changing verbs: plan, question, result, errors and Ctrl-C."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from rich.cells import cell_len

from session_core import SessionDB, SessionFilter, SessionSource, SessionStore
from tests.cli.command_user import CTRL_C
from tests.cli.homes import FRESH_SESSION_ID, LONG_SESSION_ID
from tests.homes import connect
from tests.thorough import mark_thorough


def list_session_ids(home):
    with SessionDB(home / "state.db", read_only=True) as db:
        return set(db.find_sessions(SessionFilter(status="all")))


# -- the question -----------------------------------------------------------------------------


@pytest.mark.requirement("verbs:question")
def test_plan_is_applied_after_yes(person, home):
    with person("prune", "ghosts") as seen:
        seen.until("Remove 25 empty sessions? [y/N]")
        assert "20261109_120000_905700" in seen.screen
        assert "and 5 more" in seen.screen
        assert "Can be undone for 30 days" in seen.screen
        assert len(list_session_ids(home)) == 31
        seen.type("y\n")
        assert seen.end() == 0
    assert "Done: 25 removed." in seen.screen
    assert len(list_session_ids(home)) == 6


@pytest.mark.requirement("verbs:question")
def test_no_closes_plan_without_change(person, home):
    before = list_session_ids(home)
    with person("prune") as seen:
        seen.until("[y/N]")
        seen.type("\n")
        assert seen.end() == 5
    assert list_session_ids(home) == before
    assert "Declined: nothing was changed, and the plan is closed." in seen.screen


@pytest.mark.requirement("verbs:question")
def test_declined_plan_is_refused(run, answer):
    declined = answer("prune", code=5)
    assert declined["outcome"] == "declined"
    result = run("prune", "--plan", declined["plan"], "--yes")
    assert result.code == 4
    assert "closed" in result.err


@pytest.mark.requirement("verbs:question")
def test_plan_is_declined_without_terminal(run, home):
    before = list_session_ids(home)
    for verb in (
        ("prune",),
        ("finalize", "abandoned"),
        ("compress", LONG_SESSION_ID, "--keep-last", "9"),
        ("edit", FRESH_SESSION_ID, "--pin"),
    ):
        result = run(*verb)
        assert result.code == 5
        assert "there is no terminal to ask at" in result.err
    assert list_session_ids(home) == before


@pytest.mark.requirement("verbs:question")
def test_ctrl_c_at_question_keeps_plan_open(person, answer):
    with person("prune") as seen:
        seen.until("[y/N]")
        seen.type(CTRL_C)
        assert seen.end() == 130
    assert "nothing was changed. Continue with" in seen.screen
    plan = seen.screen.split("--plan ")[-1].split()[0]
    assert answer("prune", "--plan", plan, "--yes")["removed"] == 3


# -- plans and scripts ------------------------------------------------------------------------


@pytest.mark.requirement("verbs:plans")
def test_plan_handle_is_applied_later(person, run, answer, home):
    before = list_session_ids(home)
    result = run("prune", "--plan-only")
    assert result.code == 0
    assert list_session_ids(home) == before
    handle = result.out.split("--plan ")[-1].split()[0]
    with person("prune", "--plan", handle) as seen:
        seen.until("Remove 3 conversations? [y/N]")
        seen.type("y\n")
        assert seen.end() == 0
    assert len(list_session_ids(home)) == len(before) - 3
    assert answer("prune", "--plan", handle)["outcome"] == "applied"


@pytest.mark.requirement("verbs:plans")
def test_plan_limit_shows_every_item(run, answer, home):
    before = list_session_ids(home)
    first = answer("prune", "ghosts", "--dry-run")
    assert (first["count"], len(first["items"])) == (25, 20)
    again = answer("prune", "--plan", first["plan"], "--plan-only", "--limit", "25")
    assert again["plan"] == first["plan"]
    assert again["items"][:20] == first["items"]
    assert len({item["id"] for item in again["items"]}) == 25
    shown = run("prune", "--plan", first["plan"], "--plan-only", "--limit", "3").out
    assert "and 22 more; --limit 25 shows all" in shown
    assert list_session_ids(home) == before


@pytest.mark.requirement("verbs:json")
@pytest.mark.parametrize(
    ("verb", "counted"),
    [
        (("prune", "ghosts"), ("removed", 25)),
        (("prune", "all"), ("removed", 28)),
        (("finalize", "abandoned"), ("finalized", 1)),
        (("finalize", "--session", FRESH_SESSION_ID, "--reason", "done"), ("finalized", 1)),
    ],
    ids=lambda verb: " ".join(map(str, verb)),
)
def test_json_has_tool_keys(answer, verb, counted):
    plan = answer(*verb, "--plan-only")
    planned = {"outcome", "plan", "expires_at", "count", "items", "protected", "bytes", "warnings"}
    planned.add("totals")
    assert set(plan) == planned | ({"next_cursor"} if verb[0] == "prune" else set())
    result = answer(*verb[:1], "--plan", plan["plan"], "--yes")
    name, count = counted
    assert set(result) == planned | {name, "skipped", "remaining", "batch"}
    assert (result["outcome"], result[name], result["remaining"]) == ("applied", count, 0)


def test_compact_index_needs_no_merge(answer, run):
    plan = answer("prune", "index", "--yes")
    assert (plan["outcome"], plan["plan"]) == ("nothing", None)
    shown = " ".join(run("prune", "index").out.split())
    assert "Nothing to do." in shown
    assert "which is not worth it" in shown


@pytest.mark.requirement("verbs:json")
def test_json_is_alone_on_stdout_despite_question(run):
    script = run("prune", "--json")
    assert json.loads(script.out)["outcome"] == "declined"
    assert "Remove 3 conversations" in script.err


@pytest.mark.requirement("verbs:json")
def test_empty_plan_exits_with_success(run, answer):
    assert answer("prune", "--source", "telegram")["outcome"] == "nothing"
    assert run("prune", "--title", "nowhere").out == "Nothing to do.\n"
    assert run("prune", "--source", "nowhere").out.startswith("No source 'nowhere'; existing: ")


@pytest.mark.requirement("verbs:codes")
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("prune", "everything"), 2, "is not one of sessions, ghosts"),
        (("prune", "--trash", "/nowhere"), 2, "folder not found: /nowhere"),
        (("prune", "--plan", "p-nope", "--plan-only"), 3, "there is no plan"),
        (("prune", "--plan", "p-nope"), 3, "there is no plan"),
        (("prune", "--session", "nobody"), 3, "nobody"),
        (("prune", "trash", "--source", "cli"), 2, "trash takes no filter"),
        (("prune", "--older-than", "soon"), 2, "--older-than/--before: 'soon' is not a valid time"),
        (("prune", "--min-messages", "-1"), 2, ">= 0"),
        (("prune", "--max-cost", "nan"), 2, "must be a number >= 0"),
        (("prune", "--limit", "0"), 2, ">= 1"),
        (("prune", "--title", "x" * 3000), 2, "--title must have at most 2,000 characters"),
        (("prune", "--title", "a", "--title", "b"), 2, "may be given only once"),
        (("prune", "--source", "x" * 300), 2, "--source must have at most 200 characters"),
        (("prune", "--trash", ""), 2, "must not be empty"),
        *(
            (("prune", f"--{name}", ""), 2, f"--{name}: must not be empty")
            for name in ("project", "source", "title", "cwd", "model", "user", "end-reason")
        ),
        (("finalize", "abandoned", "--project", ""), 2, "--project: must not be empty"),
        (("finalize", "abandoned", "--source", ""), 2, "--source: must not be empty"),
        (("finalize",), 2, "to finalize with --session, or expired, orphaned or abandoned"),
        (("finalize", "--reason", "x" * 200), 2, "--reason must have at most 100 characters"),
        (("compress",), 2, "name the session"),
        (
            ("compress", LONG_SESSION_ID, "--keep-last", "-1"),
            2,
            "--keep-last: must be an integer >= 0, got -1",
        ),
        (("compress", LONG_SESSION_ID, "--method", "summary"), 2, "--plan-only"),
        (("compress", LONG_SESSION_ID, "--summary", "/nowhere"), 2, "cannot read the summary"),
        (
            ("edit", FRESH_SESSION_ID, "--title", "x" * 600),
            2,
            "--title must have at most 500 characters",
        ),
        (("edit", FRESH_SESSION_ID, "--title", "The ports", "--yes"), 1, "is already in use"),
        (("log", "--limit", "-3"), 2, ">= 1"),
        (("trash", "empty", "--older-than", "-1"), 2, "is not a valid time"),
        (("restore", "b-nope"), 3, "there is no batch"),
        (("restore", "--yes"), 2, "--yes needs a BATCH"),
        (("restore", "b-nope", "--plan-only"), 3, "there is no batch"),
        (("edit", "nobody", "--pin"), 3, "nobody"),
        (("edit", FRESH_SESSION_ID), 2, "nothing to edit; give --title"),
        (("edit", FRESH_SESSION_ID, "--pin", "--unpin"), 2, "not allowed with"),
        (("prune", "--all-profiles"), 2, "one --store"),
        (("trash",), 2, "list|empty"),
    ],
)
def test_error_is_reported_by_line_and_code(run, arguments, code, says):
    result = run(*arguments)
    assert result.code == code
    assert says in result.err
    assert "Traceback" not in result.err


@pytest.mark.requirement("verbs:plans")
def test_plan_refuses_additional_arguments(run, plan_of):
    plan = plan_of("prune")
    result = run("prune", "ghosts", "--plan", plan, "--yes")
    assert (result.code, "WHAT cannot be passed with --plan" in result.err) == (2, True)


@pytest.mark.requirement("verbs:plans")
def test_plan_of_another_verb_is_refused(run, plan_of):
    result = run("finalize", "--plan", plan_of("prune"), "--yes")
    assert (result.code, "pass it to `mcp-sessions prune`" in result.err) == (2, True)


@pytest.mark.requirement("verbs:plans")
def test_trash_empty_refuses_prune_plans(run, plan_of, home):
    before = list_session_ids(home)
    result = run("trash", "empty", "--plan", plan_of("prune", "ghosts"), "--yes")
    assert (result.code, "is a plan to prune ghosts" in result.err) == (2, True)
    assert list_session_ids(home) == before


@pytest.mark.requirement("verbs:plans")
def test_apply_skips_sessions_changed_since_plan(run, answer, home):
    plan = answer("prune", "--plan-only")
    with SessionDB(home / "state.db") as db:
        db.append_message(plan["items"][0]["id"], "user", "one more")
    result = run("prune", "--plan", plan["plan"], "--yes")
    assert result.code == 0
    assert "Done: 2 removed." in result.out
    assert "1 skipped:" in result.out


@pytest.mark.thorough  # a command waits 20 seconds for a lock
@pytest.mark.requirement("verbs:codes")
def test_locked_store_exits_as_busy(person, plan_of, home):
    plan = plan_of("prune")
    with connect(home / "state.db") as connection:
        connection.execute("BEGIN IMMEDIATE")
        with person("prune", "--plan", plan, "--yes") as seen:
            assert seen.end() == 4
    assert "mcp-sessions: " in seen.screen


# -- which sessions ---------------------------------------------------------------------------


@pytest.mark.requirement("verbs:filters")
def test_every_filter_limits_prune(answer):
    def chosen(*arguments):
        result = answer("prune", "--plan-only", *arguments)
        return [item["title"] for item in result["items"]]

    assert chosen("--title", "part 1") == ["The ledger, part 1"]
    assert chosen("--older-than", "143") == []
    assert len(chosen("--older-than", "140")) == 3
    assert chosen("--before", "2000-01-01") == []
    assert len(chosen("--until", "142 days ago")) == len(chosen("--before", "141 days ago"))
    assert len(chosen("--until", "142 days ago")) > len(chosen("--before", "142 days ago"))
    assert chosen("--older-than", "30d", "--since", "2d") == []
    assert len(chosen("--max-messages", "4")) == 3
    assert chosen("--min-messages", "5") == []
    assert chosen("--source", "tui", "--older-than", "30d") == []
    assert len(chosen("--source", "tui", "--source", "cli", "--older-than", "30d")) == 3
    assert chosen("--status", "archived") == []
    assert chosen("--keep", "part 1", "--keep", "part 0") == ["The ledger, part 2"]
    assert chosen("--model", "nobody's") == []


@pytest.mark.requirement("verbs:filters")
def test_named_session_is_pruned_despite_age(answer):
    fresh = "20261109_120003_905703"
    result = answer("prune", "--session", fresh, "--yes")
    assert (result["removed"], result["items"]) == (1, [])


@pytest.mark.requirement("verbs:trash-elsewhere")
def test_trash_folder_option_supports_restore(answer, home, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    result = answer("prune", "--trash", str(other), "--yes")
    assert [path.suffix for path in other.glob("*.db")] == [".db"]
    assert answer("restore", result["batch"], "--yes")["restored"] == 3
    assert len(list_session_ids(home)) == 31


@pytest.mark.requirement("verbs:trash-elsewhere")
def test_missing_trash_folder_names_continuation(person, run, home, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    before = list_session_ids(home)
    with person("prune", "--trash", str(other)) as terminal:
        terminal.until("[y/N]")
        other.rmdir()
        terminal.type("y\n")
        assert terminal.end() == 1
    assert "is missing; mount its disk" in terminal.screen
    assert "No step was done; the home is consistent. Continue with" in terminal.screen
    plan = terminal.screen.split("--plan ")[-1].split()[0]
    assert list_session_ids(home) == before
    other.mkdir()
    assert run("prune", "--plan", plan, "--trash", str(other), "--yes").code == 0


# -- how it looks -----------------------------------------------------------------------------


@pytest.mark.requirement("verbs:screens")
@pytest.mark.parametrize("columns", [60, *map(mark_thorough, (80, 140))])
def test_plan_lines_fit_terminal(person, columns):
    def check(*arguments):
        with person(*arguments, columns=columns) as seen:
            assert seen.end() == 0, seen.screen
        long = [line for line in seen.screen.splitlines() if cell_len(line.rstrip()) > columns]
        assert [line for line in long if "mcp-sessions --home" not in line] == []
        return seen.screen

    shown = check("prune", "--plan-only")
    assert all(each in shown for each in ("20260701_090001_0ld001", "2026-"))
    check("prune", "all", "--yes")
    check("finalize", "abandoned", "--plan-only")
    check("compress", LONG_SESSION_ID, "--keep-last", "9", "--yes")
    check("edit", FRESH_SESSION_ID, "--title", "Cooking", "--pin", "--yes")
    assert "b-" in check("restore")
    check("trash", "list")
    check("trash", "empty", "--older-than", "0", "--plan-only")
    check("log")


@pytest.mark.requirement("verbs:screens")
def test_plan_has_no_style_in_pipe(run):
    result = run("prune", "--yes")
    assert "\x1b" not in result.out + result.err
    assert result.err == ""


# -- errors while it works --------------------------------------------------------------------


def test_failed_step_names_plan_and_continuation(run, plan_of, home):
    plan = plan_of("prune", "--session", "20260701_090000_0ld000", "--older-than", "0")
    before = list_session_ids(home)
    with connect(home / "state.db") as connection:
        connection.execute(
            "CREATE TRIGGER stop BEFORE DELETE ON messages "
            "BEGIN SELECT raise(rollback, 'no deletes today'); END"
        )
    failed = run("prune", "--plan", plan, "--yes")
    assert (failed.code, list_session_ids(home)) == (1, before)
    assert f"plan {plan} failed: " in failed.err
    assert "No step was done; the home is consistent. Continue with" in failed.err
    assert f"prune --plan {plan}" in failed.err
    with connect(home / "state.db") as connection:
        connection.execute("DROP TRIGGER stop")
    assert run("prune", "--plan", plan, "--yes").code == 0
    assert list_session_ids(home) != before


FAILING_DISK = """
import sys
from mcp_serve.cli.main import main
from session_core.maintenance.apply.session_remover import SessionRemover

def fail(*_):
    raise OSError(5, "Input/output error")

SessionRemover._delete_session_rows = fail
sys.exit(main(sys.argv[1:]))
"""


def test_input_output_error_names_plan(plan_of, home):
    plan = plan_of("prune", "--session", "20260701_090000_0ld000", "--older-than", "0")
    words = ("prune", "--home", str(home), "--plan", plan, "--yes")
    failed = subprocess.run(
        [sys.executable, "-c", FAILING_DISK, *words], capture_output=True, text=True, check=False
    )
    assert failed.returncode == 1
    assert f"plan {plan} failed: [Errno 5] Input/output error" in failed.stderr
    assert f"prune --plan {plan}" in failed.stderr


# -- Ctrl-C while it works --------------------------------------------------------------------


@pytest.mark.requirement("verbs:ctrl-c")
def test_ctrl_c_stops_between_resumable_steps(run, person, answer, plan_of, home):
    with SessionDB(home / "state.db") as db:
        for number in range(200):
            db.append_message("20260701_090000_0ld000", "user", f"{number} " + "x" * 2000)
    before = list_session_ids(home)
    plan = plan_of("prune", "--session", "20260701_090000_0ld000", "--older-than", "0")
    with person("prune", "--plan", plan, "--yes") as seen:
        with connect(home / "state.db") as connection:
            connection.execute("BEGIN IMMEDIATE")
            seen.until("Removing")
            seen.type(CTRL_C)
            seen.until("Stopping after this step")
            connection.rollback()
        assert seen.end() == 130
    assert "Stopped: 0 removed; 1 remaining." in seen.screen
    assert f"--plan {plan}" in seen.screen
    assert "Undo this part with" in seen.screen
    assert list_session_ids(home) == before
    within = home / "within"
    within.mkdir()
    stuck = run("prune", "--plan", plan, "--trash", str(within))
    assert (stuck.code, "choose a trash folder elsewhere" in stuck.err) == (6, True)
    assert "Applied in part; the home is consistent." in stuck.err
    result = answer("prune", "--plan", plan)
    assert (result["outcome"], result["removed"]) == ("applied", 1)
    assert answer("restore", result["batch"], "--yes")["outcome"] == "applied"
    assert list_session_ids(home) == before


def test_quiet_change_prints_nothing(run):
    result = run("prune", "ghosts", "--yes", "--quiet")
    assert (result.code, result.out, result.err) == (0, "", "")
    again = run("prune", "ghosts", "-yq")
    assert (again.code, again.out) == (0, "")


def test_quiet_question_still_shows_plan(person):
    with person("prune", "ghosts", "-q") as seen:
        seen.until("[y/N]")
        seen.type("y\n")
        assert seen.end() == 0
    assert "Done" not in seen.screen


def test_titles_and_prefixes_name_sessions(run):
    shown = run("prune", "--session", "The ledger, part 1", "--plan-only")
    assert (shown.code, "Remove 1 conversation" in shown.out) == (0, True)
    for words in (
        ("compress", "The ports", "--keep-last", "9"),
        ("finalize", "--session", "What to cook"),
        ("edit", FRESH_SESSION_ID[:-2], "--pin"),
    ):
        assert run(*words, "--plan-only").code == 0, words
    result = run("prune", "--session", "20260701_0900", "--plan-only")
    assert (result.code, "several sessions begin with" in result.err) == (2, True)


def test_plan_names_chats_that_protect(run, home):
    chat = SessionSource(platform="telegram", chat_id="7", chat_name="Ops")
    with SessionDB(home / "state.db") as db, SessionStore(home / "sessions", db=db) as store:
        session = store.get_or_create_session(chat).session_id
        db.append_message(session, "user", "deploy", create={"source": "telegram"})
    shown = run("prune", "--session", session, "--plan-only")
    assert "a chat is routed to it" in shown.out
    assert "Ops" in shown.out
