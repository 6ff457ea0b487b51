"""The command and its demo, as a person starts them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_serve.cli.screen import WIDTH, ago, columns, fit


@pytest.fixture(name="run")
def _run(tmp_path):
    """Start the command in a process of its own, with an empty user folder."""
    env = dict(os.environ, HOME=str(tmp_path), TMPDIR=str(tmp_path), PYTHONIOENCODING="utf-8")

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "mcp_serve.cli.main", *arguments],
            env=env,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )

    return run


def test_the_demo_lists_reads_and_searches_and_leaves_nothing_behind(run, tmp_path):
    done = run("demo")
    assert (done.returncode, done.stderr) == (0, "")
    for heading in ("A sample home", "Newest conversations", "The newest 50 messages", "Search"):
        assert heading in done.stdout
    assert list(tmp_path.glob("mcp-sessions-demo-*")) == []


def test_the_demo_finds_something_for_every_query_it_shows(run):
    done = run("demo")
    assert "nothing found" not in done.stdout
    assert "Decided: the schema of the orders table" in " ".join(done.stdout.split())


def test_the_demo_says_which_sqlite_is_used_and_where_a_real_home_would_be(run, tmp_path):
    done = run("demo")
    assert re.search(r"^SQLite +(bundled|standard) 3\.\d+", done.stdout, re.MULTILINE)
    assert re.search(rf"^Real home +{re.escape(str(tmp_path))[:40]}", done.stdout, re.MULTILINE)


def test_no_line_of_the_demo_is_wider_than_a_terminal_and_none_is_coloured(run):
    done = run("demo")
    assert [line for line in done.stdout.splitlines() if columns(line) > WIDTH] == []
    assert "\033" not in done.stdout


def test_a_kept_sample_home_stays_where_the_last_line_says(run):
    last = run("demo", "--keep").stdout.strip().splitlines()[-1]
    assert Path(last.rsplit(" ", 1)[-1], "state.db").is_file()


def test_the_version_is_that_of_the_distribution(run):
    assert re.fullmatch(r"mcp-sessions \d+\.\d+\.\d+\n", run("--version").stdout)


def test_help_has_an_example(run):
    done = run("--help")
    assert done.returncode == 0
    assert "mcp-sessions demo --keep" in done.stdout


@pytest.mark.parametrize("arguments", [("dance",), ("demo", "--loud")])
def test_wrong_usage_exits_with_2_and_says_how_it_is_used(run, arguments):
    done = run(*arguments)
    assert done.returncode == 2
    assert "usage: mcp-sessions" in done.stderr


def test_text_is_cut_by_columns_not_by_characters():
    assert fit("予算の見直し", 9) == "予算の..."
    assert fit("short", 9) == "short"


@pytest.mark.parametrize(
    ("seconds", "said"), [(5, "now"), (90, "1 min"), (7300, "2 h"), (200_000, "2 d")]
)
def test_ages_are_said_in_the_largest_unit(seconds, said):
    assert ago(seconds) == said
