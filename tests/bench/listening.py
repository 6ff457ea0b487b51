"""How long a server over HTTP takes to its first answer, beside a bare one of the SDK."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench import serving
from tests.bench.rows import Answer, Row
from tests.bench.starting import START, by_bare, medians

_AGAIN_S = 0.002
_TIMEOUT_S = 60.0
_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}


def start_rows(home: Path, *, quick: bool) -> Iterator[Row]:
    """Yield how long it takes to the first answer; Hermes has no HTTP."""
    programs = {"ours": serving.ours(home), "bare": serving.bare(home)}
    began: dict[str, list[Answer]] = {who: [] for who in programs}
    for turn in range(2 if quick else 9):
        for who in sorted(programs, reverse=turn % 2 == 1):
            began[who].append(_begin(programs[who]))
    yield by_bare("start over HTTP to the first answer", "ms", START, medians(began))


def _begin(program: serving.Program) -> Answer:
    port = _free_port()
    began = time.perf_counter()
    told = serving.over_http(program, port)
    quiet = subprocess.DEVNULL
    with subprocess.Popen(told.command, env=told.env, stdout=quiet, stderr=quiet) as process:
        try:
            while not _answers(port):
                if process.poll() is not None or time.perf_counter() > began + _TIMEOUT_S:
                    raise RuntimeError(f"{told.command[0]} does not answer over HTTP")
                time.sleep(_AGAIN_S)
            return {"ms": (time.perf_counter() - began) * 1000}
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    """Whether the handshake is answered."""
    asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": serving.HANDSHAKE}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        connection.request("POST", "/mcp", json.dumps(asked), _HEADERS)
        answer = connection.getresponse()
        return answer.status == http.HTTPStatus.OK and b"serverInfo" in _until_told(answer)
    except ConnectionError:
        return False
    finally:
        connection.close()


def _until_told(answer: http.client.HTTPResponse) -> bytes:
    """Read as far as the line with the data: the stream may stay open."""
    for line in iter(answer.readline, b""):
        if b"jsonrpc" in line:
            return line
    return b""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
