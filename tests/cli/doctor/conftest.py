"""Fixtures that run `doctor` on damaged homes and configured clients."""

from __future__ import annotations

import hashlib
import json

import pytest

from mcp_serve.cli import sample_home
from session_core import SessionDB
from tests.cli.command_user import (
    PseudoTerminal,
)
from tests.cli.fork_server import build_environment

CLIENT_FILES = {
    "cursor": ".cursor/mcp.json",
    "gemini": ".gemini/settings.json",
    "qwen": ".qwen/settings.json",
    "copilot": ".copilot/mcp-config.json",
    "claude-code": ".claude.json",
}


NO_TOKEN = {"MCP_SESSIONS_TOKEN": "short"}


def build_damaged_home(home):
    """Make a home with all the damage of the sample."""
    home.mkdir(parents=True)
    clock = sample_home.SampleClock()
    with SessionDB(home / "state.db", clock=clock) as db:
        sample_home.build_home(db, clock)
        sample_home.add_routes(home, db, clock)
    return home


@pytest.fixture(name="sick", scope="module")
def _sick(tmp_path_factory):
    return build_damaged_home(tmp_path_factory.mktemp("sick") / "home")


@pytest.fixture(name="user")
def _user(tmp_path):
    path = tmp_path / "person"
    path.mkdir()
    return path


@pytest.fixture(name="env")
def _env(user):
    ours = {"PYTHONIOENCODING": "utf-8", "MCP_SESSIONS_STATE": str(user / "state")}
    return build_environment(user) | ours


@pytest.fixture(name="serve")
def _serve(forks):
    """The command line of a server."""
    return [str(forks.command), "serve"]


@pytest.fixture(name="run")
def _run(forks, env, user):
    return lambda *arguments, **more: forks.run(["doctor", *arguments], env | more, user)


@pytest.fixture(name="screen")
def _screen(forks, env, user):
    """Start the doctor in a terminal."""
    given = {"env": env | {"TERM": "xterm"}, "folder": user}
    return lambda *arguments, **more: PseudoTerminal(forks, "doctor", *arguments, **given, **more)


@pytest.fixture(name="look_in")
def _look_in(look, user):
    """Run the checks without starting servers, and return them by subject."""
    write_client_configuration(user, "cursor", "/nowhere/mcp-sessions", "serve")
    return lambda *arguments, **more: look(*arguments, **more)[1]


@pytest.fixture(name="look")
def _look(run):
    """Run it with `--json`, and return its exit code and the checks by subject."""

    def look(*arguments, **more):
        result = run(*arguments, "--json", **more)
        assert result.err == ""
        found = {}
        for check in json.loads(result.out)["checks"]:
            found.setdefault(check["about"], []).append(check)
        return result.code, found

    return look


def write_client_configuration(user, name, *command):
    """Write a command into the configuration of a client."""
    path = user / CLIENT_FILES[name]
    path.parent.mkdir(parents=True, exist_ok=True)
    entry = {"command": command[0], "args": [*command[1:]]}
    path.write_text(json.dumps({"mcpServers": {"sessions": entry}}))


def write_program(user, name, text):
    """Create a program whose arguments look like our command."""
    path = user / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path), "mcp-sessions"


def read_tree(folder):
    """Return the contents of every file except those of SQLite next to a database."""
    return {
        str(path.relative_to(folder)): path.is_file() and hashlib.sha256(path.read_bytes()).digest()
        for path in folder.rglob("*")
        if not path.name.endswith(("-wal", "-shm"))
    }
