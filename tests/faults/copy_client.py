"""Copies homes in forked children, each of which may be killed at any write.

A line on the input has both homes, the watched files, the calls that kill, and a log or none. The
child reports its pid, and `done` after the copy; after its end `dead` is reported.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

from session_core import open_home
from session_core.maintenance import copy_home
from session_core.maintenance.transfer import digests
from tests.faults.points import KILL

PIECE_BYTES = 700
"""So small that a session of some messages has several pieces."""


def serve_children() -> None:
    """Run one child after another, until the input ends."""
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                _copy(job)
            finally:
                os._exit(1)
        os.write(1, f"{pid}\n".encode())
        os.waitpid(pid, 0)
        os.write(1, b"dead\n")


def _copy(job: dict[str, Any]) -> None:
    digests.ROOM_BYTES = PIECE_BYTES
    library = ctypes.CDLL(None)
    for path in job["watched"]:
        library.faults_watch(path.encode())
    for syscall, nth in job["kills"]:
        library.faults_inject(syscall.encode(), nth, 0, KILL)
    library.faults_arm(os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    with open_home(job["source"]) as source, open_home(job["target"]) as target:
        copy_home(source.db, target.db)
        os.write(1, b"done\n")


if __name__ == "__main__":
    serve_children()
