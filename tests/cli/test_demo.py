"""The verb `demo`, in a terminal and in a pipe."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from mcp_serve.cli import sample_home
from mcp_serve.cli.demo import FILE_WIDTH
from mcp_serve.cli.terminal import format_elapsed, format_remaining
from tests.cli.command_user import (
    COMMAND,
    CTRL_C,
    STYLE,
    PseudoTerminal,
    find_processes,
    find_wide_lines,
    strip_style,
)
from tests.cli.fork_server import build_environment
from tests.thorough import mark_thorough
from tests.transcripts.trees import ClaudeTree, format_time, make_line


@pytest.fixture(name="mine")
def _mine(tmp_path):
    """An empty folder."""
    path = tmp_path / "person"
    path.mkdir()
    return path


def make_environment(folder):
    """Return an environment with this home directory and temporary folder."""
    return build_environment(folder) | {"TMPDIR": str(folder), "PYTHONIOENCODING": "utf-8"}


@pytest.fixture(name="env")
def _env(mine):
    return make_environment(mine)


@pytest.fixture(name="shown", scope="module")
def _shown(forks, tmp_path_factory):
    """The output of the demo in a pipe and its folder, shared by several tests."""
    folder = tmp_path_factory.mktemp("person")
    path = ClaudeTree(folder).write("mine", [])
    at = format_time(time.time())
    path.write_bytes(make_line("mine", 0, "a question of my own", timestamp=at))
    result = forks.run(["demo"], make_environment(folder), folder)
    assert (result.code, result.err) == (0, "")
    return result.out, folder


@pytest.fixture(name="run")
def _run(forks, env, mine):
    """Run the command with an empty user folder."""
    return lambda *arguments, **more: forks.run(arguments, env | more, mine)


@pytest.fixture(name="screen")
def _screen(forks, env, mine):
    """Start the command in a terminal."""
    given = {"env": env | {"TERM": "xterm"}, "folder": mine}
    return lambda *arguments, **more: PseudoTerminal(forks, *arguments, **given, **more)


@pytest.mark.requirement("terminal:demo")
def test_demo_runs_full_tour_and_cleans_up(
    shown,
):
    said, folder = shown
    for call in (
        'sessions_list {"limit": 6}',
        f'sessions_read {{"session": "{sample_home.LONG_SESSION_ID}", "limit": 50}}',
        'sessions_search {"query": "pager"}',
        "sessions_stats {}",
        'sessions_prune {"what": "all"}',
        'sessions_prune {"plan": "p-',
        'sessions_restore {"batch": "b-',
    ):
        assert re.search(rf"^{re.escape(call)}.* [\d,.]+ ms$", said, re.MULTILINE), call
    assert "nothing found" not in said
    assert "Decided: the schema of the orders table" in " ".join(said.split())
    tour, _, end = said.partition("Sessions of other agents on this machine")
    assert ("a question of my own" in tour, "a question of my own" in end) == (False, True)
    assert list(folder.glob("mcp-sessions-demo-*")) == []
    assert find_processes(str(folder)) == []


@pytest.mark.requirement("terminal:demo")
def test_demo_restores_pruned_sessions(shown):
    counts = re.findall(r"^(\d+) sessions .*messages$", shown[0], re.MULTILINE)
    assert len(counts) == 2
    assert int(counts[0]) < int(counts[1])


def test_demo_finds_damage_and_plans_fixes(shown):
    text = " ".join(shown[0].split())
    assert "empty sessions -> sessions_prune(what='ghosts')" in text
    assert "1 route to a missing session -> sessions_prune(what='routes')" in text
    assert "which does not exist" in text.partition("A plan of")[2]


def test_demo_reports_sqlite_and_real_home(shown):
    said, folder = shown
    assert re.search(r"^SQLite +(bundled|standard) 3\.\d+", said, re.MULTILINE)
    assert f"Realhome{folder}" in "".join(said.partition("A sample home")[0].split())


def test_demo_ends_with_next_command(shown):
    assert shown[0].rstrip().splitlines()[-1] == "  mcp-sessions install"


def test_demo_numbers_add_up(shown):
    text = " ".join(shown[0].split())
    planned, removed = (
        int(re.search(words, text)[1]) for words in (r"A plan of (\d+) items", r"(\d+) removed")
    )
    assert planned == removed
    assert re.search(r"^ active  from +msgs  title$", shown[0], re.MULTILINE)


@pytest.mark.parametrize("width", [80, *map(mark_thorough, (60, 140))])
def test_demo_fits_terminal_with_style(screen, width):
    with screen("demo", columns=width) as seen:
        assert seen.end() == 0
        text = seen.seen
    assert find_wide_lines(text, width) == []
    assert STYLE.search(text)
    assert "\x1b" not in strip_style(text)


def test_demo_has_no_style_in_pipe(shown):
    assert find_wide_lines(shown[0], FILE_WIDTH) == []
    assert "\033" not in shown[0]


@pytest.mark.requirement("terminal:demo")
@pytest.mark.parametrize(
    "told", [signal.SIGTERM, *map(mark_thorough, (signal.SIGINT, signal.SIGHUP))]
)
def test_terminated_demo_leaves_no_folder_or_process(screen, mine, told):
    with screen("demo") as seen:
        seen.until("Where was that said?")
        seen.tell(told)
        assert seen.end() == 130
    assert list(mine.iterdir()) == []
    assert find_processes(str(mine)) == []


def test_demo_keep_leaves_sample_home(run):
    told = dict(re.findall(r"export (\w+)=(.+)", run("demo", "--keep").out))
    assert Path(told["MCP_SESSIONS_HOME"], "state.db").is_file()
    assert list(Path(told["MCP_SESSIONS_HOME"], ".mcp-sessions", "state.db").iterdir())
    assert "Schema change for orders" in run("list", **told).out


@pytest.mark.requirement("terminal:demo")
def test_demo_serves_sample_home_to_client(env, mine):
    async def ask():
        first, *rest = COMMAND
        started = StdioServerParameters(command=first, args=[*rest, "demo", "--serve"], env=env)
        async with Client(stdio_client(started), cache=None) as client:
            answer = await client.call_tool("sessions_list", {"query": "orders"})
            return [session["title"] for session in answer.structured_content["sessions"]]

    assert anyio.run(ask) == ["Schema change for orders"]
    assert list(mine.iterdir()) == []


def test_demo_serves_http_until_ctrl_c(screen, mine):
    with screen("demo", "--serve") as seen:
        said = seen.until("demo --serve\n")
        address = re.search(r"http://127\.0\.0\.1:\d+/mcp", said)[0]
        token = re.search(r"Bearer ([\w-]+)", said)[1]
        allowed = {"Authorization": f"Bearer {token}"}
        assert request_status(address, {}) == 401
        assert request_status(address, allowed) != 401
        seen.type(CTRL_C)
        assert seen.end() == 0
    assert list(mine.iterdir()) == []
    assert find_processes(str(mine)) == []


def request_status(address, headers):
    """Return the status of the response to a request."""
    try:
        with urlopen(Request(address, headers=headers)) as answer:  # noqa: S310 -- our own server
            return answer.status
    except HTTPError as error:
        with error:
            return error.code


def test_version_matches_distribution(run):
    assert re.fullmatch(r"mcp-sessions \d+\.\d+\.\d+\n", run("--version").out)


def test_main_help_has_example(run):
    result = run("--help")
    assert result.code == 0
    assert "mcp-sessions demo --keep" in result.out
    examples = run("demo", "--help").out.partition("examples:")[2]
    assert "mcp-sessions demo --serve" in examples


@pytest.mark.parametrize("arguments", [("dance",), ("demo", "--loud")])
def test_wrong_usage_exits_with_usage_code(run, arguments):
    result = run(*arguments)
    assert result.code == 2
    assert "usage: mcp-sessions" in result.err


@pytest.mark.parametrize(
    ("seconds", "said"), [(5, "now"), (90, "1 min"), (7300, "2 h"), (200_000, "2 d")]
)
def test_age_uses_largest_unit(seconds, said):
    assert format_elapsed(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "said"), [(5, "now"), (86_400 * 30 - 1, "30 d"), (100, "2 min"), (86_399, "1 d")]
)
def test_remaining_time_uses_nearest_unit(seconds, said):
    assert format_remaining(seconds) == said
