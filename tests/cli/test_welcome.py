"""The command without a verb: a server in a pipe, a welcome in a terminal."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from session_core import SessionDB
from tests.cli.command_user import COMMAND, CommandUser


@pytest.fixture(name="env")
def _env(tmp_path):
    return {"HOME": str(tmp_path / "person"), "PATH": os.environ["PATH"]}


@pytest.fixture(name="screen_of")
def _screen_of(forks, tmp_path):
    """Return the screen of the command without a verb."""

    def screen_of(home):
        code, seen = CommandUser(forks, tmp_path, tmp_path / "none").sees(80, "--home", str(home))
        assert code == 0, seen
        return seen

    return screen_of


@pytest.mark.requirement("wire:bare")
def test_bare_command_serves_home_without_terminal(env, tmp_path):
    home = tmp_path / "home"
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        },
    }
    result = subprocess.run(
        [*COMMAND, "--home", str(home)],
        input=json.dumps(hello) + "\n",
        env=env,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout)["result"]["serverInfo"]["name"] == "mcp-sessions"


@pytest.mark.requirement("wire:bare")
def test_welcome_shows_home_and_next_commands(screen_of, tmp_path):
    seen = screen_of(tmp_path / "none")
    assert f"Sessions in {tmp_path / 'none'} (--home)" in seen
    assert "none yet" in seen
    assert "mcp-sessions install" in seen
    assert not (tmp_path / "none").exists()


@pytest.mark.requirement("wire:bare")
def test_welcome_strips_control_characters_from_titles(screen_of, tmp_path):
    with SessionDB(tmp_path / "state.db") as db:
        db.append_message("s1", "user", "hello \x1b[31mred", create={"source": "cli"})
    seen = screen_of(tmp_path)
    assert "hello red" in seen
    assert "active  title" in seen
    assert "\x1b" not in seen


@pytest.mark.requirement("wire:bare")
def test_welcome_reports_unreadable_home(screen_of, tmp_path):
    (tmp_path / "state.db").mkdir()
    seen = screen_of(tmp_path)
    assert "cannot be read" in seen
    assert "mcp-sessions install" in seen
