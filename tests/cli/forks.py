"""Verbs as processes of their own, without the second that each takes to import what it needs.

A process imports all of it and opens nothing; for each verb it forks, with a terminal or as a
script has it, and says how that ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import termios
from collections.abc import Sequence
from dataclasses import dataclass
from fcntl import ioctl
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Ran:
    """How a verb went."""

    code: int
    out: str
    err: str


class Forks:
    """The process, from the side of a test."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "xterm", "PAGER": "cat"},
            cwd=Path(__file__).parents[2],
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            pass

    @property
    def answers(self) -> int:
        """What can be waited for until a verb has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def start(self, arguments: Sequence[str], given: str = "", terminal: str | None = None) -> None:
        """Begin a verb; `terminal` is the name of one."""
        job = {
            "arguments": list(arguments),
            "home": os.environ["HOME"],
            "given": given,
            "terminal": terminal,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()

    def ended(self) -> Ran:
        """Wait for the end of a verb."""
        assert self._process.stdout is not None
        return Ran(**json.loads(self._process.stdout.readline()))


def _serve() -> None:
    for name in ("main", "prune", "finalize", "compress", "edit", "restore", "trash", "log"):
        import_module(f"mcp_serve.cli.{name}")
    for name in ("maintenance.maintenance", "compression.compressor", "state.sqlite.db"):
        import_module(f"session_core.{name}")
    for line in sys.stdin:
        print(json.dumps(_ran(json.loads(line))), flush=True)


def _ran(job: dict[str, Any]) -> dict[str, Any]:
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        given.write(job["given"].encode())
        given.seek(0)
        pid = os.fork()
        if pid == 0:
            _become(job, given, out, err)
        _, status = os.waitpid(pid, 0)
        said = []
        for each in (out, err):
            each.seek(0)
            said.append(each.read().decode())
    return {"code": os.waitstatus_to_exitcode(status), "out": said[0], "err": said[1]}


def _become(job: dict[str, Any], *files: IO[bytes]) -> NoReturn:
    """Be the verb, and nothing else ever after."""
    code = 99
    try:
        os.chdir(job["home"])
        os.environ["HOME"] = job["home"]
        fds = [each.fileno() for each in files]
        if job["terminal"]:
            os.setsid()
            fds = [os.open(job["terminal"], os.O_RDWR)] * 3
            ioctl(fds[0], termios.TIOCSCTTY, 0)
        for target, fd in enumerate(fds):
            os.dup2(fd, target)
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(fd, mode, encoding="utf-8") for fd, mode in enumerate(("r", "w", "w"))
        )
        code = import_module("mcp_serve.cli.main").main(job["arguments"])
    except SystemExit as error:
        code = int(error.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
