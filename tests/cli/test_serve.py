"""Starting `serve` and `doctor`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cli.command_user import CTRL_C


@pytest.fixture(name="run")
def _run(tmp_path):
    """Start the command in a new process with an empty home directory and no input."""
    ours = ("MCP_SESSIONS_HOME", "MCP_SESSIONS_STATE", "HERMES_HOME", "MCP_SESSIONS_TOKEN")
    env = {name: value for name, value in os.environ.items() if name not in ours}

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "mcp_serve.cli.main", *arguments],
            env=env | {"HOME": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )

    return run


@pytest.mark.requirement("wire:command")
def test_home_option_works_on_both_sides(run, tmp_path):
    for arguments in (
        ("--home", str(tmp_path / "h"), "doctor"),
        ("doctor", "--home", str(tmp_path / "h")),
    ):
        done = run(*arguments)
        assert (done.returncode, done.stderr) == (3, "")  # nothing is there
        assert "~/h (--home)" in done.stdout


@pytest.mark.requirement("wire:token-alone")
def test_doctor_token_is_printed_alone(run):
    first, again = run("doctor", "--token"), run("doctor", "--token")
    assert first.returncode == 0
    assert first.stdout == again.stdout
    assert len(first.stdout.strip()) >= 40
    assert len(first.stdout.split()) == 1


@pytest.mark.requirement("wire:command")
def test_serve_ends_with_closed_input(run, tmp_path):
    done = run("serve", "--home", str(tmp_path / "h"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / "h").exists()


@pytest.mark.requirement("wire:command")
@pytest.mark.parametrize("more", [["--confirm=maybe"], ["--port", "x"], ["--nope"]])
def test_wrong_option_exits_as_usage(run, more):
    assert run("serve", *more).returncode == 2


@pytest.mark.requirement("wire:command")
def test_unknown_store_exits_as_unknown_id(run, tmp_path):
    done = run("serve", "--home", str(tmp_path), "--store", "work")
    assert done.returncode == 3
    assert "no store 'work'" in done.stderr


@pytest.mark.requirement("wire:command")
@pytest.mark.parametrize("given", [["--host", "::1"], ["--port", "0"], ["--no-token"]])
def test_http_options_need_http(run, given):
    done = run("serve", *given)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{given[0]} applies only to HTTP; add --http" in done.stderr


def test_serve_at_terminal_explains_itself(person):
    with person("serve", columns=60) as seen:
        seen.until("mcp-sessions serve --http")
        seen.type(CTRL_C)
        assert seen.end() == 130
    assert "over MCP on standard input and output, until Ctrl-C" in " ".join(seen.screen.split())
