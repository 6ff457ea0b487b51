"""Text to copy is shown uncut on every terminal width."""

from __future__ import annotations

import re
import shlex

import pytest
from rich.cells import cell_len

from mcp_serve.cli.terminal import measure_width, truncate_text, wrap_line, wrap_text
from session_core import SessionDB, SessionSource, SessionStore
from tests.cli.command_user import CommandUser, find_wide_lines
from tests.cli.homes import FRESH_SESSION_ID, LONG_SESSION_ID, build_home
from tests.thorough import mark_thorough

WIDTHS = pytest.mark.parametrize("columns", [60, *map(mark_thorough, (80, 140))])

CHATS = ("-1001234567890", "-1001234567891")
"""Two groups whose keys differ in the last character."""

NAME = "Ops at night, with everybody"


@pytest.fixture(name="keys")
def _keys(home):
    """The keys of two named chats in the home."""
    keys = []
    with SessionDB(home / "state.db") as db, SessionStore(home / "sessions", db=db) as store:
        for chat in CHATS:
            source = SessionSource(
                platform="telegram", chat_id=chat, chat_type="group", chat_name=NAME
            )
            keys.append(store.get_or_create_session(source).session_key)
    return keys


@pytest.fixture(name="screen")
def _screen(person):
    """Run a verb in a pseudo-terminal and return its screen."""

    def screen(columns, *arguments, code=0):
        with person(*arguments, columns=columns) as seen:
            assert seen.end() == code, seen.screen
        return seen.screen

    return screen


@pytest.mark.requirement("terminal:widths")
@WIDTHS
def test_routes_show_whole_keys_and_ids(screen, keys, answer, columns):
    seen = screen(columns, "routes")
    assert [key for key in keys if key not in seen] == []
    assert [route for route in answer("routes")["routes"] if route["session_id"] not in seen] == []
    assert seen.count(NAME) == len(CHATS)


@pytest.mark.requirement("terminal:widths")
@WIDTHS
def test_log_shows_whole_plan_handles(screen, answer, columns):
    plan = answer("prune", "ghosts", "--yes")
    answer("edit", FRESH_SESSION_ID, "--pin", "--yes")
    answer("restore", plan["batch"], "--yes")
    seen = screen(columns, "log")
    words = seen.split()
    assert {plan["plan"], plan["batch"]} <= set(words)
    assert words.count("(terminal)") == 3
    assert "…" not in seen


@pytest.mark.requirement("terminal:widths")
@WIDTHS
def test_batch_handles_are_whole(screen, answer, columns):
    batchs = [answer("prune", what, "--yes")["batch"] for what in ("ghosts", "sessions")]
    answer("restore", batchs[0], "--yes")
    for verb in (("restore",), ("trash", "list")):
        seen = screen(columns, *verb).split()
        assert batchs[1] in seen
    assert {"(restored)", batchs[0]} <= set(seen)


@pytest.mark.requirement("terminal:widths")
@WIDTHS
def test_ids_of_any_length_are_whole(screen, home, answer, columns):
    work = home / "profiles" / "a-profile-with-a-long-name"
    build_home(work)
    long = "cron_7d1c8f1e-2a6b-4c3d-9e8f-0a1b2c3d4e5f_20261118_090909"
    with SessionDB(work / "state.db") as db:
        db.append_message(long, "user", "the nightly run", create={"source": "cron"})
    seen = screen(columns, "list", "--all-profiles", "--limit", "100").split()
    sessions = answer("list", "--all-profiles", "--limit", "100")["sessions"]
    assert [item["id"] for item in sessions if item["id"] not in seen] == []
    assert seen.count(f"hermes:{work.name}") == sum("long" in each["store"] for each in sessions)


@pytest.mark.requirement("terminal:widths")
@WIDTHS
def test_plan_ids_are_whole(screen, answer, keys, home, columns):
    with SessionDB(home / "state.db") as db:
        for entry in answer("routes")["routes"]:
            db.end_session(entry["session_id"], "cli_close")
    seen = screen(columns, "prune", "all", "--plan-only").split()
    items = answer("prune", "all", "--plan-only")["items"]
    assert [item["id"] for item in items if item["id"] not in seen] == []


@pytest.mark.requirement("terminal:widths")
@pytest.mark.parametrize("columns", [80, mark_thorough(60), mark_thorough(140)])
def test_doctor_fix_command_is_whole(screen, home, columns):
    seen = screen(columns, "doctor")
    lines = [line.strip().removeprefix("-> ") for line in seen.splitlines()]
    assert [line for line in lines if line.startswith("mcp-sessions") and "prune ghosts" in line]
    assert all(cell_len(line) <= columns or "mcp-sessions " in line for line in seen.splitlines())


@pytest.mark.requirement("terminal:widths")
@WIDTHS
def test_welcome_advice_is_whole(screen, home, columns):
    text = " ".join(screen(columns).split())
    install = f"mcp-sessions install --home {home}"
    assert f"{install} register the server with a client; lists your clients" in text
    assert "mcp-sessions demo try the program with a sample home" in text


@WIDTHS
def test_client_list_fits_terminal(person, columns):
    with person("install", columns=columns) as seen:
        seen.until("(Enter for none)")
        assert find_wide_lines(seen.screen.partition("Register")[0], columns) == []
        seen.type("\n")
        assert seen.end() == 0


@pytest.mark.requirement("terminal:widths")
@WIDTHS
def test_next_command_has_own_line(screen, columns):
    for verb in (
        ("prune", "--plan-only"),
        ("compress", LONG_SESSION_ID, "--keep-last", "9", "--plan-only"),
    ):
        last = screen(columns, *verb).splitlines()[-1]
        assert shlex.split(last)[0] == "mcp-sessions"
        assert re.fullmatch(r"p-\w+", shlex.split(last)[-1])


def test_pipe_lines_have_no_trailing_blanks(run, answer):
    answer("prune", "ghosts", "--yes")
    for verb in (("list",), ("routes",), ("log",), ("trash", "list"), ("stats",), ("restore",)):
        lines = run(*verb).out.splitlines()
        assert len(lines) > 1
        assert [line for line in lines if line != line.rstrip()] == []


def test_batch_expires_in_thirty_days(run, answer):
    answer("prune", "ghosts", "--yes")
    assert "in 30 d" in run("trash", "list").out


def test_control_characters_are_escaped_on_screens(forks, tmp_path):
    person = CommandUser(forks, tmp_path, tmp_path / "odd")
    odd, shown = "odd\nid\x1b[2J\u202eend", "odd\\nid\\u001b[2J\\u202eend"
    row = {"source": "cli\nx", "model": f"model\n{odd}", "cwd": f"/src/app\n{odd}"}
    with SessionDB(person.home / "state.db") as db:
        db.append_message(odd, "user", "one question", create=row)
        db.set_session_title(odd, "one\ttitle")
        plan = person.run("--json", "finalize", "--session", odd, "--plan-only")
    assert '"odd\\nid' in plan.out
    verbs = [("list",), ("search", "question"), ("show", odd)]
    for verb in [*verbs, ("finalize", "--session", odd, "--plan-only")]:
        result = person.run(*verb)
        assert (result.code, shown in result.out) == (0, True), (verb, result.out)
        assert not {"\x1b", "\u202e", "\t"} & set(result.out)
        assert not [line for line in result.out.splitlines() if line.startswith("id")]


def test_text_is_truncated_by_terminal_columns():
    assert truncate_text("予算の見直し", 9) == "予算の見…"
    assert truncate_text("short", 9) == "short"


@pytest.mark.parametrize("room", [12, 20, 40])
def test_words_are_wrapped_whole(room):
    text = "please look at the deploy script, it fails on foo_bar.baz again"
    lines = wrap_line(text, room)
    assert " ".join(line.strip() for line in lines) == text
    assert all(measure_width(line) <= room for line in lines)


def test_long_path_breaks_after_folder():
    lines = wrap_line("see ~/.config/Claude/claude_desktop_config.json", 24)
    assert lines == ["see", "~/.config/Claude/claude_", "desktop_config.json"]
    assert wrap_line("x" * 30, 12) == ["x" * 12, "x" * 12, "x" * 6]


def test_characters_without_blanks_fill_lines():
    assert wrap_line("ok 予算の見直し", 9) == ["ok 予算の", "見直し"]


def test_text_keeps_lines_and_indentation():
    text = "def f():\n    return 1\n\nend"
    assert list(wrap_text(text, 40)) == text.split("\n")
