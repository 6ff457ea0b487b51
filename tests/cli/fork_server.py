"""A fork server that runs verbs and scripts in processes that need not import the package.

The server imports all modules and opens no files. Each verb or script comes over a connection of
its own: the server forks, sets the streams, the environment and the folder of the child, and
reports its pid and its exit code. It kills the child if the connection ends before.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fcntl import ioctl
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, TextIO

from rich.cells import cell_len

_MAX_BYTES = 1 << 17
_ROOT = Path(__file__).parents[2]

_NEEDING_EXTRAS = ("session_core.adapters.", "session_core.state.postgres.")

_LATE_IMPORTS = (
    *("anyio._backends._asyncio", "anyio._core._subprocesses", "anyio._core._tempfile"),
    *("encodings.utf_8_sig", "jsonschema", "mcp.client.stdio", "rich.logging", "tomlkit"),
)
"""What the modules of other projects import when it is used."""

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
import json, os, signal, socket, sys
verb = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
verb.connect({address!r})
job = {{"arguments": sys.argv[1:], "env": {{**os.environ}}, "folder": os.getcwd()}}
job |= {{"terminal": False, "script": None, "module": {module!r}, "teardown": False}}
socket.send_fds(verb, [json.dumps(job).encode()], [0, 1, 2])
for inherited in 0, 1, 2:
    os.close(inherited)
pid = int(verb.recv(99))
for told in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
    signal.signal(told, lambda told, _: os.kill(pid, told))
code = int(verb.recv(99))
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""
"""A command that lets the fork server run its verb, or a module, and passes signals on to it."""


def build_environment(folder: Path | str) -> dict[str, str]:
    """Return an environment with this home directory and with the command on the path."""
    named = {"LANG": "C.UTF-8", "TERM": "xterm", "PAGER": "cat"}
    path = f"{get_fork_server().command.parent}{os.pathsep}{os.environ['PATH']}"
    return {"HOME": str(folder), "PATH": path, **named}


class VerbProcess:
    """A running verb."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._pid = int(connection.recv(_MAX_BYTES))
        self._code: int | None = None

    def tell(self, told: signal.Signals) -> None:
        """Send a signal to the verb."""
        os.kill(self._pid, told)

    def wait(self) -> int:
        """Wait for the verb, and return its exit code."""
        if self._code is None:
            with self._connection:
                self._code = int(self._connection.recv(_MAX_BYTES))
        return self._code

    def is_running(self) -> bool:
        """Return True if the verb has not ended."""
        return self._code is None and not select.select([self._connection], [], [], 0)[0]

    def end(self) -> None:
        """End the verb if it still runs."""
        if self._code is None:
            with suppress(ProcessLookupError):
                self.tell(signal.SIGKILL)
            self.wait()


@dataclass(frozen=True)
class ScriptProcess:
    """A running script, with pipes as its input and output."""

    verb: VerbProcess
    stdin: TextIO
    stdout: TextIO

    def kill(self) -> None:
        """Kill the script, and wait until it has ended."""
        self.verb.end()

    def is_running(self) -> bool:
        """Return True if the script has not ended."""
        return self.verb.is_running()


class ForkServer:
    """The client side of the fork server."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._folder = Path(tempfile.mkdtemp(prefix="forks_"))
        self._address = str(self._folder / "jobs")
        self.command = self._folder / "mcp-sessions"
        """A program that has its verbs run by this server."""
        self._write_command(self.command)
        end, self._running = os.pipe()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self._address)
            listener.listen(128)
            inherited = listener.fileno(), end
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, *map(str, inherited)],
                pass_fds=inherited,
                env={"HOME": "/nowhere", "PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
                cwd=_ROOT,
            )
        os.close(end)

    def close(self) -> None:
        """End the server and its verbs, unless in a fork of the process that started it."""
        if self._owner == os.getpid():
            os.close(self._running)
            self._process.wait()
            shutil.rmtree(self._folder)

    def start(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        folder: Path | str,
        streams: Sequence[int],
        *,
        terminal: bool = False,
        script: str | None = None,
        teardown: bool = False,
    ) -> VerbProcess:
        """Start a verb or a script. A terminal of its streams becomes its controlling terminal.

        With `teardown` it exits as Python does, in all the steps.
        """
        job = {"arguments": [*arguments], "env": {**env}, "folder": str(folder)}
        job |= {"terminal": terminal, "script": script, "module": None, "teardown": teardown}
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(self._address)
        socket.send_fds(connection, [json.dumps(job).encode()], [*streams])
        return VerbProcess(connection)

    def run_script(self, script: str, *arguments: object) -> CommandResult:
        """Run Python code with arguments, in the environment of the test."""
        words = [str(argument) for argument in arguments]
        return self.run(words, os.environ, _ROOT, script=script)

    @contextmanager
    def start_script(self, script: str, *arguments: object) -> Iterator[ScriptProcess]:
        """Run Python code with pipes in the environment of the test. Kill it after the block."""
        words = [str(argument) for argument in arguments]
        (stdin, given), (said, stdout) = os.pipe(), os.pipe()
        with (
            os.fdopen(given, "w", encoding="utf-8") as into,
            os.fdopen(said, encoding="utf-8") as out,
        ):
            verb = self.start(words, os.environ, _ROOT, [stdin, stdout, 2], script=script)
            os.close(stdin)
            os.close(stdout)
            try:
                yield ScriptProcess(verb, into, out)
            finally:
                verb.end()

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

    def write_module_command(self, module: str) -> str:
        """Return the path of a program that runs a module as `python -m` does."""
        path = self._folder / module
        if not path.exists():
            self._write_command(path, module)
        return str(path)

    def _write_command(self, path: Path, module: str | None = None) -> None:
        text = _COMMAND.format(python=sys.executable, address=self._address, module=module)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)


@cache
def get_fork_server() -> ForkServer:
    """Return the fork server of this process, started at the first call."""
    server = ForkServer()
    atexit.register(server.close)
    return server


# -- the process -------------------------------------------------------------------------------


def _import_verbs() -> None:
    """Do the work that each verb would repeat: import modules, compile patterns."""
    for package in ("session_core", "mcp_serve"):
        folders = import_module(package).__path__
        for module in pkgutil.walk_packages(folders, f"{package}."):
            if not module.name.startswith(_NEEDING_EXTRAS):
                import_module(module.name)
    for package in ("session_core", "session_core.maintenance", "session_core.compression"):
        public = import_module(package)
        for name in public.__all__:
            getattr(public, name)  # most are imported when they are used
    for name in _LATE_IMPORTS:
        import_module(name)
    with suppress(ImportError):  # no wheel of it for this system
        import_module("pysqlite3.dbapi2")
    cell_len("\N{CJK UNIFIED IDEOGRAPH-4E00}")  # loads a table of widths
    redaction = import_module("mcp_serve.redaction.redaction")
    redaction.redact_cut(" ".join(shape.hints for shape in redaction.SHAPES) + "...")
    # A collection in a child would copy the pages of all these objects.
    gc.freeze()


def _serve_jobs(listener: socket.socket, end: int) -> dict[str, Any]:
    """Fork for each connection until `end` is closed, and return its job in the child."""
    noted, notes = os.pipe()
    os.set_blocking(notes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(notes, warn_on_full_buffer=False)
    running: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([listener, end, noted, *running.values()], [], [])
        if noted in ready:
            os.read(noted, _MAX_BYTES)
            _report_ended(running)
        for pid, connection in running.items():
            if connection in ready or end in ready:
                os.kill(pid, signal.SIGKILL)
        if end in ready:
            os._exit(0)
        job = _fork_for_job(listener, running) if listener in ready else None
        if job is not None:
            for fd in (end, noted, notes):
                os.close(fd)
            return job


def _fork_for_job(
    listener: socket.socket, running: dict[int, socket.socket]
) -> dict[str, Any] | None:
    """Fork for the next connection, and return its job in the child, None in the server."""
    connection, _ = listener.accept()
    data, fds, _, _ = socket.recv_fds(connection, _MAX_BYTES, len(_STREAMS))
    if not data:
        connection.close()
        return None
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for inherited in (listener, connection, *running.values()):
            inherited.close()
        job: dict[str, Any] = json.loads(data)
        _receive_streams(job, fds)
        return job
    for fd in fds:
        os.close(fd)
    running[pid] = connection
    _report(connection, pid)
    return None


def _report_ended(running: dict[int, socket.socket]) -> None:
    """Report the exit codes of the children that have ended."""
    for pid in list(running):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with running.pop(pid) as connection:
                _report(connection, os.waitstatus_to_exitcode(status))


def _report(connection: socket.socket, number: int) -> None:
    with suppress(BrokenPipeError):  # the client has gone
        connection.send(str(number).encode())


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
    job = _serve_jobs(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
    code: Any = 1
    try:
        code = _run_job(job)
    except SystemExit as error:
        code = error.code or 0
    except BaseException:  # noqa: BLE001 -- as Python reports an uncaught error
        traceback.print_exc()
    if job["teardown"]:
        sys.exit(code)
    _exit_process(code)


def _run_job(job: Mapping[str, Any]) -> int:
    """Run the verb, the script or the module of a job, and return its exit code."""
    main = import_module("mcp_serve.cli.main")
    if job["module"]:
        sys.argv = [job["module"], *job["arguments"]]
        runpy.run_module(job["module"], run_name="__main__")
        return 0
    if job["script"] is None:
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
