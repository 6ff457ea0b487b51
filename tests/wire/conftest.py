"""The command as a client starts it: a real process with standard input and output."""

from __future__ import annotations

import json
import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.cli.fork_server import get_fork_server
from tests.homes import fill_database, make_hermes_database

TOKEN = "a-token-of-the-tests-and-of-nobody-else"

ServeCommand = Callable[..., list[str]]

MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module", name="served_home")
def _served_home(tmp_path_factory) -> Path:
    """A Hermes home with conversations, shared by the tests of a module."""
    path: Path = tmp_path_factory.mktemp("home")
    make_hermes_database(path / "state.db")
    fill_database(path / "state.db", 6, 12)
    return path


def serve_command(home: Path, *more: str) -> list[str]:
    """Return the command line that serves a home."""
    return [sys.executable, "-m", "mcp_serve.cli.main", "serve", "--home", str(home), *more]


def fork_command(home: Path, *more: str) -> list[str]:
    """Return the command line that serves a home in a process that has imported everything."""
    return [str(get_fork_server().command), "serve", "--home", str(home), *more]


def make_environment(home: Path) -> dict[str, str]:
    """Return an environment without access to the real folders of the user."""
    return dict(os.environ, HOME=str(home.parent), MCP_SESSIONS_STATE=str(home.parent / "state"))


@pytest.fixture(scope="module", params=["auto", "legacy"], name="client")
async def _client(request, served_home: Path):
    """A client of the SDK for each protocol version, with one process for a module."""
    first, *rest = serve_command(served_home)
    server = StdioServerParameters(command=first, args=rest, env=make_environment(served_home))
    async with Client(stdio_client(server), mode=request.param, cache=None) as client:
        yield client


@contextmanager
def start_listening(
    line: list[str], env: dict[str, str]
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start a server over HTTP and yield its port. The server ends afterwards."""
    process = subprocess.Popen(
        line, env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        text = process.stderr.readline()
        host = line[line.index("--host") + 1] if "--host" in line else "127.0.0.1"
        result = re.fullmatch(rf"listening on http://{re.escape(host)}:(\d+)/mcp\n", text)
        assert result, text + process.stderr.read()
        yield process, int(result[1])
    finally:
        process.kill()
        process.wait()
        for stream in (process.stderr, process.stdout):
            stream.read()  # to its end, since a forked server ends just after its command
            stream.close()


@contextmanager
def serve_home(
    home: Path, *more: str, token: str | None = TOKEN, serve: ServeCommand = fork_command
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Serve a home over HTTP on a free port."""
    env = make_environment(home) | ({"MCP_SESSIONS_TOKEN": token} if token else {})
    with start_listening([*serve(home), "--http", "--port", "0", *more], env) as started:
        yield started


class RawProcess:
    """A process that receives raw lines."""

    def __init__(self, line: list[str], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            line,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._id = 0

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self._lines.put(line)

    def send(self, message: Any) -> None:
        """Write one line."""
        text = message if isinstance(message, str) else json.dumps(message)
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def line(self) -> dict[str, Any]:
        """Return the next line, which must be a message of the protocol."""
        result: dict[str, Any] = json.loads(self._lines.get(timeout=30))
        return result

    def ask(self, method: str, *, meta: Any = None, **params: Any) -> dict[str, Any]:
        """Send a request and return its answer."""
        self._id += 1
        arguments = params | ({"_meta": meta} if meta else {})
        self.send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": arguments})
        while True:
            result = self.line()
            if result.get("id") == self._id:
                return result

    def begin(self, version: str = "2025-11-25") -> dict[str, Any]:
        """Initialize like an older client."""
        info = {"name": "raw", "version": "1"}
        arguments = {"protocolVersion": version, "capabilities": {}, "clientInfo": info}
        answer = self.ask("initialize", **arguments)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def end(self, timeout: float = 30) -> int:
        """Close its input and return its exit code."""
        self.process.stdin.close()
        return self.process.wait(timeout)

    def kill(self) -> None:
        """End the process in any state."""
        self.process.kill()
        self.process.wait()
        self._reader.join()  # a forked server ends just after its command
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()


@contextmanager
def start_raw_process(
    home: Path, *more: str, serve: ServeCommand = fork_command
) -> Iterator[RawProcess]:
    """A process that receives raw lines."""
    started = RawProcess(serve(home, *more), make_environment(home))
    try:
        yield started
    finally:
        started.kill()
