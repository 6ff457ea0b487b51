"""Opens hostile homes: a process that has imported everything, and forks for each home.

It reads one line of JSON for each home: its path, the environment and the verbs. The child has
little memory and time, and its output goes into files next to the home.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time

from mcp_serve.cli.main import main
from tests.cli.fork_server import _import_verbs

MEMORY, SECONDS = 1_500_000_000, 60


def run_child(job) -> None:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.environ.clear()
    os.environ.update(job["env"])
    for name, number in (("out", 1), ("err", 2)):
        os.dup2(os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for verb in job["verbs"]:
        try:
            code = main([*verb, "--home", job["home"]])
        except SystemExit as end:
            code = end.code
        print(f"CODE {verb[0]} {code}", flush=True)


def wait_for(pid: int) -> str:
    """Wait for a child. Kill it if it takes too long."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return str(status)
        time.sleep(0.01)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "too slow"


if __name__ == "__main__":
    _import_verbs()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            run_child(json.loads(line))
            sys.stdout.flush()
            os._exit(0)
        print(wait_for(pid), flush=True)
