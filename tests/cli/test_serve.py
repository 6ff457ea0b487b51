"""Starting `serve` and `doctor`."""

from __future__ import annotations

import subprocess

import pytest

from tests.cli.command_user import COMMAND, CTRL_C
from tests.cli.fork_server import build_environment


@pytest.fixture(name="run")
def _run(forks, tmp_path):
    """Run the command with an empty home directory and no input."""
    return lambda *arguments: forks.run(arguments, build_environment(tmp_path), tmp_path)


@pytest.mark.requirement("wire:command")
def test_home_option_works_on_both_sides(run, tmp_path):
    for arguments in (
        ("--home", str(tmp_path / "h"), "doctor"),
        ("doctor", "--home", str(tmp_path / "h")),
    ):
        result = run(*arguments)
        assert (result.code, result.err) == (3, "")  # nothing is there
        assert "~/h (--home)" in result.out


@pytest.mark.requirement("wire:token-alone")
def test_doctor_token_is_printed_alone(run):
    first, again = run("doctor", "--token"), run("doctor", "--token")
    assert first.code == 0
    assert first.out == again.out
    assert len(first.out.strip()) >= 40
    assert len(first.out.split()) == 1


@pytest.mark.requirement("wire:command")
def test_serve_ends_with_closed_input(tmp_path):
    result = subprocess.run(
        [*COMMAND, "serve", "--home", str(tmp_path / "h")],
        env=build_environment(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert not (tmp_path / "h").exists()


@pytest.mark.requirement("wire:command")
@pytest.mark.parametrize("more", [["--confirm=maybe"], ["--port", "x"], ["--nope"]])
def test_wrong_option_exits_as_usage(run, more):
    assert run("serve", *more).code == 2


@pytest.mark.requirement("wire:command")
def test_unknown_store_exits_as_unknown_id(run, tmp_path):
    result = run("serve", "--home", str(tmp_path), "--store", "work")
    assert result.code == 3
    assert "no store 'work'" in result.err


@pytest.mark.requirement("wire:command")
@pytest.mark.parametrize("given", [["--host", "::1"], ["--port", "0"], ["--no-token"]])
def test_http_options_need_http(run, given):
    result = run("serve", *given)
    assert (result.code, result.out) == (2, "")
    assert f"{given[0]} applies only to HTTP; add --http" in result.err


def test_serve_at_terminal_explains_itself(person):
    with person("serve", columns=60) as seen:
        seen.until("mcp-sessions serve --http")
        seen.type(CTRL_C)
        assert seen.end() == 130
    assert "over MCP on standard input and output, until Ctrl-C" in " ".join(seen.screen.split())
