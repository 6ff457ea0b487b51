"""MCP servers as a client starts them, spoken to in lines: ours, a bare one, that of Hermes."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tests.peers import make_peer_environment, peer_python

if TYPE_CHECKING:
    from typing_extensions import Self

HERMES = ("hermes-0.19.0-mcp", "hermes-agent[mcp]==0.19.0")

_BARE_SCRIPT = Path(__file__).parent / "scripts" / "bare.py"
_TIMEOUT_S = 180.0

HANDSHAKE_PARAMS = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}


@dataclass(frozen=True)
class ServerProgram:
    """How a server is started."""

    command: tuple[str, ...]
    env: dict[str, str]


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool."""

    tool: str
    arguments: dict[str, Any]


EMPTY_CALL = ToolCall("do_nothing", {})


def make_own_program(home: Path) -> ServerProgram:
    """Return the installed command, which serves a home."""
    command = str(Path(sys.executable).with_name("mcp-sessions"))
    env = make_peer_environment(
        home, {"MCP_SESSIONS_STATE": str(home.with_name(f"{home.name}-kept"))}
    )
    return ServerProgram((command, "serve", "--home", str(home)), env)


def make_bare_program(home: Path) -> ServerProgram:
    """Return a server of the SDK that has nothing of ours."""
    return ServerProgram((sys.executable, str(_BARE_SCRIPT)), make_peer_environment(home))


def make_http_program(program: ServerProgram, port: int) -> ServerProgram:
    """Return the same, ours or the bare one, over HTTP and without a token."""
    ours = "serve" in program.command
    more = ("--http", "--no-token", "--port", str(port)) if ours else (str(port),)
    return ServerProgram((*program.command, *more), program.env)


def make_hermes_program(home: Path) -> ServerProgram:
    """Return the server of Hermes, with the home in its environment."""
    command = (str(peer_python(*HERMES)), "-m", "hermes_cli.main", "mcp", "serve")
    return ServerProgram(command, make_peer_environment(home))


class StdioServer:
    """A server that runs, after its handshake."""

    def __init__(self, program: ServerProgram) -> None:
        began = time.perf_counter()
        self._process = subprocess.Popen(
            program.command,
            env=program.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        self._read = bytearray()
        self._id = 0
        self.send_request("initialize", **HANDSHAKE_PARAMS)
        self.answered_ms = (time.perf_counter() - began) * 1000
        self._send_message({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def call_tool(self, call: ToolCall) -> str:
        """Call a tool and return the text of its answer."""
        answer = self.send_request("tools/call", name=call.tool, arguments=call.arguments)
        text: str = answer["content"][0]["text"]
        if answer.get("isError"):
            raise RuntimeError(f"{call.tool}: {text}")
        return text

    def send_request(self, method: str, **params: Any) -> Any:
        """Send a request and return its result."""
        self._id += 1
        self._send_message({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        while (answer := json.loads(self._read_line())).get("id") != self._id or "method" in answer:
            continue
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def measure_resident_mb(self) -> float:
        """Return how much of its memory is in use."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))

    def _send_message(self, message: dict[str, Any]) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")

    def _read_line(self) -> bytes:
        if self._process.stdout is None:
            raise RuntimeError("the server was started with pipes")
        out = self._process.stdout.fileno()
        while b"\n" not in self._read:
            ready, _, _ = select.select([out], [], [], _TIMEOUT_S)
            found = os.read(out, 1 << 16) if ready else b""
            if not found:
                raise RuntimeError("the server ended" if ready else "the server says nothing")
            self._read += found
        line, _, self._read = self._read.partition(b"\n")
        return bytes(line)
