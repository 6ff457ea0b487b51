"""A real hermes-agent in its own process, and copies of the homes that it made."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.peers import make_peer_environment, peer_python

if TYPE_CHECKING:
    from typing_extensions import Self

SERVER = Path(__file__).with_name("hermes_server.py")


class Refused(Exception):
    """An error of this kind that Hermes raised."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class HermesServer:
    """A process that forks the drivers of a version."""

    def __init__(self, version: str) -> None:
        self._jobs, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [peer_python(f"h{version}"), SERVER, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=make_peer_environment(Path("/nowhere")),
            )
        self._turn = threading.Lock()

    def start(self, home: Path, arguments: Sequence[str], streams: Sequence[int]) -> int:
        """Start a driver with these standard streams, and return its process id."""
        job = {"arguments": [str(home), *arguments], "env": make_peer_environment(home)}
        return int(self._ask(job, streams))

    def wait(self, pid: int) -> None:
        """Wait until a driver has ended."""
        self._ask({"waits_for": pid}, ())

    def _ask(self, job: dict[str, Any], streams: Sequence[int]) -> bytes:
        with self._turn:
            socket.send_fds(self._jobs, [json.dumps(job).encode()], streams)
            answer = self._jobs.recv(20)
        assert answer, "the server of Hermes has ended"
        return answer

    def stop(self) -> None:
        """End the server. Drivers that run go on."""
        self._jobs.close()
        self._process.wait()


@cache
def get_server(version: str) -> HermesServer:
    """Return the server of a version, which runs until this process ends."""
    server = HermesServer(version)
    atexit.register(server.stop)
    return server


class Hermes:
    """A process with one `SessionDB` of Hermes, whose methods are called by name."""

    def __init__(self, version: str, home: Path, *arguments: str) -> None:
        self.version = version
        home.mkdir(parents=True, exist_ok=True)
        self._errors = home.with_name(f"{home.name}.stderr").open("w+", encoding="utf-8")
        reads_jobs, writes_jobs = os.pipe()
        reads_answers, writes_answers = os.pipe()
        streams = (reads_jobs, writes_answers, self._errors.fileno())
        self._server = get_server(version)
        try:
            self._pid = self._server.start(home, arguments, streams)
        finally:
            os.close(reads_jobs)
            os.close(writes_answers)
        self._jobs = os.fdopen(writes_jobs, "w", encoding="utf-8")
        self._answers = os.fdopen(reads_answers, encoding="utf-8")
        self._is_killed = False
        self._turn = threading.Lock()
        self.methods = frozenset(self.job("methods"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._errors, self._answers:
            if not self._is_killed:
                self.job("close")
                self._jobs.close()
                self._server.wait(self._pid)

    def kill(self) -> None:
        """End the process as `kill -9` does."""
        os.kill(self._pid, signal.SIGKILL)
        self._is_killed = True
        self._jobs.close()
        self._server.wait(self._pid)

    def has(self, method: str) -> bool:
        """Return True if this version has a method."""
        return method in self.methods

    def job(self, name: str, **arguments: Any) -> Any:
        """Run a job and return its result."""
        with self._turn:
            self._jobs.write(json.dumps({"job": name, **arguments}) + "\n")
            self._jobs.flush()
            line = self._answers.readline()
        answer = json.loads(line) if line else {"error": "the process ended"}
        if "error" in answer:
            self._errors.seek(0)
            raise AssertionError(f"{answer['error']}\n{self._errors.read()[-2000:]}")
        return answer["value"]

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of its `SessionDB`. Errors are raised as `Refused`."""
        (answer,) = self.job("calls", calls=[[method, args, kwargs]])
        if "error" in answer:
            raise Refused(*answer["error"])
        return decoded(answer["value"])

    def each(self, method: str, values: Iterable[Any], **kwargs: Any) -> dict[Any, Any]:
        """Call a method for each value, and return the answers by value."""
        values = list(values)
        answers = self.job("calls", calls=[[method, [value], kwargs] for value in values])
        return {
            value: decoded(answer["value"]) if "value" in answer else Refused(*answer["error"])
            for value, answer in zip(values, answers, strict=True)
        }

    def sql(self, statement: str, *values: Any) -> list[list[Any]]:
        """Run a statement on its connection."""
        rows: list[list[Any]] = decoded(self.job("sql", statements=[[statement, *values]])[0])
        return rows


def decoded(value: Any) -> Any:
    """Return an answer with decoded bytes."""
    if isinstance(value, dict):
        if set(value) == {"$bytes"}:
            return bytes.fromhex(value["$bytes"])
        return {key: decoded(item) for key, item in value.items()}
    return [decoded(item) for item in value] if isinstance(value, list) else value


def build(version: str, home: Path) -> Path:
    """Let this version make a realistic and damaged home."""
    with Hermes(version, home) as hermes:
        hermes.job("build")
    return home


def build_kinds(version: str, home: Path, *, damaged: bool) -> dict[str, Any]:
    """Let this version make a home with items for each kind of plan. Return the expectations."""
    with Hermes(version, home) as hermes:
        stated: dict[str, Any] = hermes.job("build_kinds", damaged=damaged)
    return stated


def copy(home: Path, to: Path) -> Path:
    """Copy a home whose databases are closed."""
    assert not list(home.glob("state.db-*"))
    return Path(shutil.copytree(home, to))
