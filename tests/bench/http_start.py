"""The time that a server over HTTP takes to its first answer, compared with a bare server."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench import serving
from tests.bench.rows import Answer, BenchRow
from tests.bench.server_start import START, compute_medians, make_bare_comparison_row

_RETRY_DELAY_S = 0.002
_TIMEOUT_S = 60.0
_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}


def measure_http_start(home: Path, *, quick: bool) -> Iterator[BenchRow]:
    """Yield the time to the first answer. Hermes has no HTTP server."""
    programs = {"ours": serving.make_own_program(home), "bare": serving.make_bare_program(home)}
    began: dict[str, list[Answer]] = {who: [] for who in programs}
    for turn in range(2 if quick else 9):
        for who in sorted(programs, reverse=turn % 2 == 1):
            began[who].append(_measure_start(programs[who]))
    yield make_bare_comparison_row(
        "start over HTTP to the first answer", "ms", START, compute_medians(began)
    )


def _measure_start(program: serving.ServerProgram) -> Answer:
    port = _find_free_port()
    began = time.perf_counter()
    http_program = serving.make_http_program(program, port)
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        http_program.command, env=http_program.env, stdout=quiet, stderr=quiet
    ) as process:
        try:
            while not _has_answer(port):
                if process.poll() is not None or time.perf_counter() > began + _TIMEOUT_S:
                    raise RuntimeError(f"{http_program.command[0]} does not answer over HTTP")
                time.sleep(_RETRY_DELAY_S)
            return {"ms": (time.perf_counter() - began) * 1000}
        finally:
            process.terminate()


def _has_answer(port: int) -> bool:
    """Whether the handshake is answered."""
    asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": serving.HANDSHAKE_PARAMS}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        connection.request("POST", "/mcp", json.dumps(asked), _HEADERS)
        answer = connection.getresponse()
        return answer.status == http.HTTPStatus.OK and b"serverInfo" in _read_until_data(answer)
    except ConnectionError:
        return False
    finally:
        connection.close()


def _read_until_data(answer: http.client.HTTPResponse) -> bytes:
    """Read as far as the line with the data: the stream may stay open."""
    for line in iter(answer.readline, b""):
        if b"jsonrpc" in line:
            return line
    return b""


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
