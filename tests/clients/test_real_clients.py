"""Real clients, each with its own home folder and without an account, list the server.

They run by hand, since each client has some hundred megabytes. `tests/README.md` has the command.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mcp_serve.cli.clients import config_files, formats
from mcp_serve.cli.clients.supported_clients import CLIENTS, UserEnvironment
from tests.clients.conftest import WAYS, open_connection
from tests.clients.packages import PACKAGES
from tests.node import find_node, install_modules
from tests.peers import ROOT

OWN = {
    "claude": ("mcp", "add", "-s", "{scope}", "sessions", "--"),
    "gemini": ("mcp", "add", "-s", "{scope}", "sessions"),
    "qwen": ("mcp", "add", "-s", "{scope}", "sessions"),
    "codex": ("mcp", "add", "sessions", "--"),
    "copilot": ("mcp", "add", "sessions", "--"),
    "opencode": ("mcp", "add", "sessions", "--"),
}
"""How each client that has a command for it adds a server by itself."""

NAMES = {"claude": "claude-code"}
"""What `install` calls those that it calls otherwise than their programs."""

PROGRAM = Path(sys.executable).with_name("mcp-sessions")

Run = Callable[..., Any]


@pytest.fixture(scope="session", autouse=True)
def clients() -> dict[str, Path]:
    """Where each client is. Made before any test hides the user's folder."""
    return {
        name: install_modules(package, scripts=True) / ".bin" / name
        for name, package in PACKAGES.items()
    }


@pytest.fixture
def ways(home: Path) -> Iterator[dict[str, dict[str, Any]]]:
    """How the server of a home is reached over each transport."""
    with ExitStack() as stack:
        yield {way: stack.enter_context(open_connection(home, way)) for way in WAYS}


@pytest.fixture
def own(tmp_path: Path) -> dict[str, str]:
    """The environment of a client, in which its home folder is empty."""
    folders = [str(find_node().parent), str(PROGRAM.parent), os.environ["PATH"]]
    kept = {"PATH": os.pathsep.join(folders)}
    return kept | {"HOME": str(tmp_path / "user"), "DISABLE_AUTOUPDATER": "1"}


@pytest.fixture
def run(clients: dict[str, Path], own: dict[str, str], tmp_path: Path) -> Run:
    """Run a client in an empty folder, and return its output."""

    def run(name: str, *arguments: str, within: str = ".") -> str:
        result = subprocess.run(
            [clients[name], *arguments],
            env=own,
            cwd=tmp_path / "user" / within,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=50,
            check=False,
        )
        print(result.stdout, result.stderr)
        assert result.returncode == 0
        return result.stdout + result.stderr

    return run


def format_bearer_header(asked: dict[str, Any]) -> str:
    return f"Authorization: Bearer {asked['token']}"


def write_configuration(path: Path, what: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(what), encoding="utf-8")


@pytest.fixture
def ours(own: dict[str, str], home: Path, tmp_path: Path) -> Run:
    """Register the home with a client by our verb."""

    def ours(verb: str, name: str, *more: str, within: str = ".") -> None:
        client = NAMES.get(name, name)
        asked = [verb, client, "--yes", *more, *(["--home", str(home)] * (verb == "install"))]
        subprocess.run([PROGRAM, *asked], env=own, cwd=tmp_path / "user" / within, check=True)

    return ours


def read_server_entry(name: str, user: Path, project: Path | None = None) -> dict[str, Any]:
    """Return the entry of the server in the file of a client."""
    client = next(item for item in CLIENTS if item.name == NAMES.get(name, name))
    path = client.find_file(UserEnvironment(user, "linux", {}), project)
    form = formats.choose_format(path)
    server: dict[str, Any] = formats.find_server(form, path.read_text(), client.table, "sessions")
    return server


def read_command_line(entry: dict[str, Any]) -> list[str]:
    return config_files.get_command_line(entry)


@pytest.mark.requirement("terminal:clients")
@pytest.mark.parametrize("name", OWN)
def test_install_matches_client_command(run, ours, tmp_path, name):
    user = tmp_path / "user"
    ours("install", name)
    by_us = read_server_entry(name, user)
    ours("uninstall", name)
    run(name, *(part.format(scope="user") for part in OWN[name]), *read_command_line(by_us))
    assert read_server_entry(name, user) == by_us


@pytest.mark.requirement("terminal:clients")
@pytest.mark.parametrize("name", ["claude", "gemini", "qwen"])
def test_project_install_matches_client_command(run, ours, tmp_path, name):
    user, project = tmp_path / "user", tmp_path / "user" / "shop"
    project.mkdir()
    ours("install", name, "--project", within="shop")
    by_us = read_server_entry(name, user, project)
    ours("uninstall", name, "--project", within="shop")
    adding = [part.format(scope="project") for part in OWN[name]]
    run(name, *adding, *read_command_line(by_us), within="shop")
    assert read_server_entry(name, user, project) == by_us


@pytest.mark.requirement("terminal:clients")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("claude", "Connected"),
        ("gemini", "- Connected"),
        ("qwen", "Connected"),
        ("opencode", "connected"),
        ("copilot", "sessions"),
    ],
)
def test_client_finds_server_until_uninstall(run, ours, tmp_path, name, said):
    trusting = {"security": {"folderTrust": {"enabled": False}}}
    if name in ("gemini", "qwen"):
        write_configuration(tmp_path / "user" / f".{name}" / "settings.json", trusting)
    ours("install", name)
    assert said in run(name, "mcp", "list")
    ours("uninstall", name)
    assert "sessions" not in run(name, "mcp", "list")


@pytest.mark.requirement("server:clients")
def test_claude_connects_over_each_transport(run, ways):
    server = ways["stdio"]
    run("claude", "mcp", "add", "stdio", "--", server["command"], *server["args"])
    for way in ("http", "sse"):
        asked = ways[way]
        given = ["--transport", way, way, asked["address"], "--header", format_bearer_header(asked)]
        run("claude", "mcp", "add", *given)
    result = run("claude", "mcp", "list")
    assert result.count("Connected") == 3, result


@pytest.mark.requirement("terminal:plugin")
def test_claude_installs_plugin(run):
    run("claude", "plugin", "validate", str(ROOT))
    run("claude", "plugin", "marketplace", "add", str(ROOT))
    run("claude", "plugin", "install", "mcp-sessions@mcp-sessions")
    details = run("claude", "plugin", "details", "mcp-sessions@mcp-sessions")
    assert all(name in details for name in ("recall", "tidy", "SessionEnd", "sessions"))
    result = run("claude", "mcp", "list")
    assert "plugin:mcp-sessions:sessions: mcp-sessions serve - ✔ Connected" in result
    run("claude", "plugin", "uninstall", "mcp-sessions@mcp-sessions")
    assert "sessions" not in run("claude", "mcp", "list")


@pytest.mark.requirement("terminal:plugin")
def test_end_of_claude_session_calls_keep(clients, run, own, tmp_path):
    """The program of the path is a script that writes its arguments down."""
    run("claude", "plugin", "marketplace", "add", str(ROOT))
    run("claude", "plugin", "install", "mcp-sessions@mcp-sessions")
    program, calls = tmp_path / "bin" / "mcp-sessions", tmp_path / "calls"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> "{calls}"\n', encoding="utf-8")
    program.chmod(0o755)
    path = os.pathsep.join([str(program.parent), own["PATH"]])
    line = [clients["claude"], "--print", "hello"]
    options = {"cwd": tmp_path / "user", "stdin": subprocess.DEVNULL, "timeout": 50}
    # Without an account the session ends at once, and with an error.
    subprocess.run(line, env=own | {"PATH": path}, check=False, **options)
    deadline = time.monotonic() + 10  # the hook runs in the background
    while "keep --quiet" not in calls.read_text().splitlines():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.requirement("server:clients")
def test_gemini_connects_over_each_transport(run, ways, tmp_path):
    asked = {
        "stdio": {"command": ways["stdio"]["command"], "args": ways["stdio"]["args"]},
        "http": {"url": ways["http"]["address"], "type": "http"},
        "sse": {"url": ways["sse"]["address"], "type": "sse"},
    }
    for way in ("http", "sse"):
        asked[way]["headers"] = {"Authorization": f"Bearer {ways[way]['token']}"}
    settings = {"security": {"folderTrust": {"enabled": False}}, "mcpServers": asked}
    write_configuration(tmp_path / "user" / ".gemini" / "settings.json", settings)
    result = run("gemini", "mcp", "list")
    assert result.count("- Connected") == 3, result


@pytest.mark.requirement("server:clients")
def test_opencode_connects_over_each_transport(run, ways, tmp_path):
    server = ways["stdio"]
    asked = {"stdio": {"type": "local", "command": [server["command"], *server["args"]]}}
    for way in ("http", "sse"):
        headers = {"Authorization": f"Bearer {ways[way]['token']}"}
        asked[way] = {"type": "remote", "url": ways[way]["address"], "headers": headers}
    write_configuration(tmp_path / "user" / "opencode.json", {"mcp": asked})
    result = run("opencode", "mcp", "list")
    assert result.count("connected") == 3, result


class AppServer:
    """Codex as an application embeds it: requests and their answers, a line each."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._id = 0

    def tell(self, method: str, **more: Any) -> None:
        """Send a line."""
        self._process.stdin.write(json.dumps({"method": method, **more}) + "\n")
        self._process.stdin.flush()

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request and return its answer."""
        self._id += 1
        self.tell(method, id=self._id, params=params)
        for line in self._process.stdout:
            data = json.loads(line)
            if data.get("id") == self._id and "method" not in data:
                return data["result"]
        raise AssertionError("it has ended")


@pytest.fixture
def codex(
    clients: dict[str, Path], own: dict[str, str], ours: Run, ways, tmp_path
) -> Iterator[AppServer]:
    """Start Codex, registered by `install`, and configured over HTTP too. It has no SSE."""
    http = ways["http"]
    ours("install", "codex", "--name", "stdio")
    config = tmp_path / "user" / ".codex" / "config.toml"
    config.write_text(
        f"{config.read_text()}"
        f'[mcp_servers.http]\nurl = "{http["address"]}"\nbearer_token_env_var = "TOKEN"\n'
    )
    with subprocess.Popen(
        [clients["codex"], "app-server"],
        env=own | {"TOKEN": http["token"]},
        cwd=tmp_path / "user",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
    ) as process:
        started = AppServer(process)
        about = {"name": "tests", "title": "tests", "version": "1"}
        started.ask("initialize", clientInfo=about)
        started.tell("initialized")
        try:
            yield started
        finally:
            process.stdin.close()
            process.wait(20)


@pytest.mark.requirement("server:clients")
def test_codex_calls_tools_and_reads_resources(codex, tmp_path):
    thread = codex.ask("thread/start", cwd=str(tmp_path / "user"))["thread"]["id"]
    data = codex.ask("mcpServerStatus/list", threadId=thread)["data"]
    counts = {item["name"]: (len(item["tools"]), len(item["resources"])) for item in data}
    assert counts == {"stdio": (11, 14), "http": (11, 14)}
    for way in counts:
        at = {"threadId": thread, "server": way}
        given = {"tool": "sessions_list", "arguments": {"limit": 2}}
        called = codex.ask("mcpServer/tool/call", **at, **given)
        assert len(called["structuredContent"]["sessions"]) == 2
        read = codex.ask("mcpServer/resource/read", **at, uri="sessions://stats")
        assert read["contents"][0]["mimeType"] == "application/json"
