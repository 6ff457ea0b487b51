"""A server that forks drivers, under the Python of a hermes-agent: `hermes_server.py SOCKET`.

It has imported the libraries that Hermes imports, which takes most of the time of a start, and
nothing of Hermes itself, which reads its home while it is imported.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import importlib.metadata
import json
import os
import socket
import sys
import tempfile
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import hermes_driver

_USED = ("hermes_state", "gateway.config", "gateway.session", "agent.context_compressor")
_MAX_BYTES = 1 << 17


def serve_jobs(jobs: socket.socket) -> None:
    """Fork drivers and wait for them, as the jobs ask, until the socket is closed."""
    while True:
        data, fds, _, _ = socket.recv_fds(jobs, _MAX_BYTES, 3)
        if not data:
            return
        job = json.loads(data)
        if "waits_for" in job:
            os.waitpid(job["waits_for"], 0)
            jobs.send(b"ended")
            continue
        pid = os.fork()
        if pid == 0:
            jobs.close()
            _run_driver(job, fds)
        for fd in fds:
            os.close(fd)
        jobs.send(str(pid).encode())


def import_libraries() -> None:
    """Import the libraries that Hermes imports, without its own modules."""
    for name in _list_libraries():
        with suppress(Exception):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _list_libraries() -> list[str]:
    """Return the modules that another process has imported after Hermes."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        with tempfile.TemporaryDirectory() as home:
            os.environ["HOME"] = os.environ["HERMES_HOME"] = home
            for name in _USED:
                with suppress(Exception):
                    importlib.import_module(name)
            os.write(writing, json.dumps(list(sys.modules)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        names = json.loads(answer.read())
    os.waitpid(pid, 0)
    files = importlib.metadata.files("hermes-agent") or ()
    own = {Path(file).parts[0].removesuffix(".py") for file in files}
    return [name for name in names if name.partition(".")[0] not in own]


def _run_driver(job: dict[str, Any], fds: list[int]) -> NoReturn:
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
        os.close(fd)
    os.environ.clear()
    os.environ.update(job["env"])
    sys.argv = [hermes_driver.__file__, *job["arguments"]]
    if len(sys.argv) > 2:
        # Other programs read the command line of this process.
        os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 -- itself
    code = 0
    try:
        hermes_driver.main()
    except BaseException:  # noqa: BLE001 -- as Python prints an uncaught error
        traceback.print_exc()
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    import_libraries()
    serve_jobs(socket.socket(fileno=int(sys.argv[1])))
