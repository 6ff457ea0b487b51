"""A fork server that runs verbs and scripts in processes that need not import the package.

The server imports all modules and opens no files. For each verb or script it forks and sets the
streams, the environment and the folder of the child.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fcntl import ioctl
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from typing_extensions import Self

_MAX_BYTES = 1 << 17
_ROOT = Path(__file__).parents[2]

_STREAMS = (
    ("r", -1, "surrogateescape"),
    ("w", -1, "surrogateescape"),
    ("w", 1, "backslashreplace"),
)
"""The modes with which Python opens its standard streams."""


@dataclass(frozen=True)
class CommandResult:
    """The result of a verb or a script."""

    code: int
    out: str
    err: str


_COMMAND = """\
#!{python} -IS
import json, os, socket, sys
try:
    jobs = socket.socket(fileno={jobs})
except OSError:
    os.execv(sys.executable, [sys.executable, "-m", "mcp_serve.cli.main", *sys.argv[1:]])
reading, writing = os.pipe()
job = {{"arguments": sys.argv[1:], "env": {{**os.environ}}, "folder": os.getcwd()}}
job["terminal"] = False
socket.send_fds(jobs, [json.dumps(job).encode()], [0, 1, 2, writing])
for inherited in 0, 1, 2, writing:
    os.close(inherited)
with open(reading) as answer:
    pid, code = answer
os._exit(int(code) % 256)
"""
"""A command that lets the fork server run its verb, or runs it itself without that descriptor."""


def build_environment(folder: Path | str) -> dict[str, str]:
    """Return an environment with this home directory."""
    named = {"LANG": "C.UTF-8", "TERM": "xterm", "PAGER": "cat"}
    return {"HOME": str(folder), "PATH": os.environ["PATH"], **named}


class VerbProcess:
    """A running verb."""

    def __init__(self, says: int) -> None:
        self._says = os.fdopen(says)
        self._pid = int(self._says.readline())
        self._code: int | None = None

    def tell(self, told: signal.Signals) -> None:
        """Send a signal to the verb."""
        os.kill(self._pid, told)

    def wait(self) -> int:
        """Wait for the verb; return its exit code."""
        if self._code is None:
            with self._says:
                self._code = int(self._says.readline())
        return self._code

    def end(self) -> None:
        """End the verb if it still runs."""
        if self._code is None:
            with suppress(ProcessLookupError):
                self.tell(signal.SIGKILL)
            self.wait()


class ForkServer:
    """The client side of the fork server."""

    def __init__(self) -> None:
        self._jobs, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=build_environment("/nowhere"),
                cwd=_ROOT,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._jobs.close()
        self._process.wait()

    def start(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        folder: Path | str,
        streams: Sequence[int],
        *,
        terminal: bool = False,
        script: str | None = None,
    ) -> VerbProcess:
        """Start a verb or a script; a terminal of its streams becomes its controlling terminal."""
        job = {"arguments": [*arguments], "env": {**env}, "folder": str(folder)}
        job |= {"terminal": terminal, "script": script}
        hears, says = os.pipe()
        try:
            socket.send_fds(self._jobs, [json.dumps(job).encode()], [*streams, says])
        finally:
            os.close(says)
        return VerbProcess(hears)

    def run_script(self, script: str, *arguments: object) -> CommandResult:
        """Run Python code with arguments, in the environment of the test."""
        words = [str(argument) for argument in arguments]
        return self.run(words, os.environ, _ROOT, script=script)

    def run(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        folder: Path | str,
        given: str = "",
        script: str | None = None,
    ) -> CommandResult:
        """Run a verb or a script with files as its streams, without a terminal to ask at."""
        with (
            tempfile.TemporaryFile() as stdin,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            stdin.write(given.encode())
            stdin.seek(0)
            streams = [each.fileno() for each in (stdin, out, err)]
            code = self.start(arguments, env, folder, streams, script=script).wait()
            said = []
            for each in (out, err):
                each.seek(0)
                said.append(each.read().decode())
        return CommandResult(code, *said)

    @property
    def jobs(self) -> int:
        """The descriptor that a shell must inherit for its commands."""
        return self._jobs.fileno()

    def write_command(self, path: Path) -> None:
        """Write the command for shells."""
        path.write_text(_COMMAND.format(python=sys.executable, jobs=self.jobs), encoding="utf-8")
        path.chmod(0o755)


# -- the process -------------------------------------------------------------------------------


def _import_verbs() -> None:
    """Do once what each verb would do again: import modules, compile patterns."""
    for module, _ in import_module("mcp_serve.cli.main").VERBS.values():
        import_module(module)
    for package in ("session_core", "session_core.maintenance", "session_core.compression"):
        public = import_module(package)
        for name in public.__all__:
            getattr(public, name)  # most are imported when they are used
    selectors = import_module("session_core.maintenance.select")
    for module in pkgutil.iter_modules(selectors.__path__, f"{selectors.__name__}."):
        import_module(module.name)
    with suppress(ImportError):  # no wheel of it for this system
        import_module("pysqlite3.dbapi2")
    redaction = import_module("mcp_serve.redaction.redaction")
    redaction.redact_cut(" ".join(shape.hints for shape in redaction.SHAPES) + "...")
    # A collection in a child would copy the pages of all these objects.
    gc.freeze()


def _serve_jobs(jobs: socket.socket) -> dict[str, Any]:
    """Fork for each job, and report its pid and its exit code; return the job in the child."""
    ended, notes = os.pipe()
    os.set_blocking(notes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(notes, warn_on_full_buffer=False)
    reports: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([jobs, ended], [], [])
        if ended in ready:
            os.read(ended, _MAX_BYTES)
            _report_ended(reports)
        if jobs not in ready:
            continue
        data, fds, _, _ = socket.recv_fds(jobs, _MAX_BYTES, 4)
        if not data:
            os._exit(0)
        says = fds.pop()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            jobs.close()
            for fd in (ended, notes, says, *reports.values()):
                os.close(fd)
            job: dict[str, Any] = json.loads(data)
            _receive_streams(job, fds)
            return job
        reports[pid] = says
        os.write(says, f"{pid}\n".encode())
        for fd in fds:
            os.close(fd)


def _report_ended(reports: dict[int, int]) -> None:
    """Report the exit codes of the jobs that have ended."""
    for pid in list(reports):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            says = reports.pop(pid)
            with suppress(BrokenPipeError):  # nobody waits for it
                os.write(says, f"{os.waitstatus_to_exitcode(status)}\n".encode())
            os.close(says)


def _receive_streams(job: Mapping[str, Any], fds: Sequence[int]) -> None:
    """Set the streams, the environment and the folder."""
    os.setsid()
    if job["terminal"]:
        ioctl(fds[0], termios.TIOCSCTTY, 0)
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
        os.close(fd)
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["env"])
    encoding = job["env"].get("PYTHONIOENCODING", "utf-8")
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(fd, mode, buffering, encoding=encoding, errors=errors, closefd=False)
        for fd, (mode, buffering, errors) in enumerate(_STREAMS)
    )


def _run_server() -> NoReturn:
    _import_verbs()
    job = _serve_jobs(socket.socket(fileno=int(sys.argv[1])))
    code: Any = 1
    try:
        code = _run_job(job)
    except SystemExit as error:
        code = error.code or 0
    except BaseException:  # noqa: BLE001 -- as Python tells what nobody has caught
        traceback.print_exc()
    _exit_process(code)


def _run_job(job: Mapping[str, Any]) -> int:
    """Run the verb or the script of a job, and return its exit code."""
    main = import_module("mcp_serve.cli.main")
    if job.get("script") is None:
        sys.argv = [main.__file__, *job["arguments"]]
        return int(main.main())
    sys.argv = ["-c", *job["arguments"]]
    exec(job["script"], {"__name__": "__main__"})  # noqa: S102 -- a script of the tests
    return 0


def _exit_process(code: int) -> NoReturn:
    """Exit without the slow teardown of modules."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _run_server()
