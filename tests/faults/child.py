"""The processes in which mutations are made to fail, forked from a process with all imports.

A line on the input has a mutation, a home, the watched files and the calls that fail. The child is
forked, its process id is printed, and it waits for the next line, so that strace can be attached
meanwhile. Then it opens, changes and closes the home and prints the result: `ack` after the call
has returned, `error` and the class if it raised an error of the library, `foreign` for any other
error, and `end` when everything is closed.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from session_core import _sqlite3
from session_core.errors import SessionError
from tests.faults.compression import COMPRESSION_MUTATIONS
from tests.faults.hook_mutations import HOOK_MUTATIONS
from tests.faults.labs import keep_entry_points
from tests.faults.ledger import LEDGER_MUTATIONS
from tests.faults.maintenance import MAINTENANCE_MUTATIONS
from tests.faults.mutations import DATABASE_MUTATIONS, open_home
from tests.faults.routes import ROUTE_MUTATIONS, RouteHome

_PR_SET_PTRACER = 0x59616D61
_ANY_PROCESS = ctypes.c_ulong(-1)


def serve_children() -> None:
    """Run one child after another, until the input ends."""
    keep_entry_points()
    gc.collect()
    gc.freeze()  # else a collection in a child copies all pages of the modules
    for line in sys.stdin:
        job = json.loads(line)
        go_read, go_write = os.pipe()
        out_read, out_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.dup2(out_write, 1)
            os.dup2(out_write, 2)
            _run_child(job, go_read)
        os.close(go_read)
        os.close(out_write)
        print(pid, flush=True)
        sys.stdin.readline()
        os.write(go_write, b"g")
        os.close(go_write)
        with os.fdopen(out_read, encoding="utf-8") as out:
            lines = out.read().splitlines()
        os.waitpid(pid, 0)
        print(json.dumps(lines), flush=True)


def _run_child(job: dict[str, Any], go: int) -> None:
    # Where a process may be traced by its parents alone, strace is not one of them.
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _ANY_PROCESS, 0, 0, 0)
    os.read(go, 1)
    _arm_library(job)
    try:
        run_mutation(job["name"], job["home"])
    finally:
        os._exit(0)


def _arm_library(job: dict[str, Any]) -> None:
    """Pass the watched files and the calls that fail to the preloaded library."""
    library = ctypes.CDLL(None)
    for path in job["watched"]:
        library.faults_watch(path.encode())
    for syscall, nth, lasts, error in job["inject"]:
        if library.faults_inject(syscall.encode(), nth, lasts, error):
            raise AssertionError(f"the library knows no call {syscall}")
    library.faults_arm(os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND))


def run_mutation(name: str, home: str) -> None:
    """Open a home, change it, close it."""
    opened: list[Any] = []
    open_it: Callable[[Path], Any] = open_home if name in DATABASE_MUTATIONS else RouteHome
    with_ledger: dict[str, Any] = {
        **LEDGER_MUTATIONS,
        **COMPRESSION_MUTATIONS,
        **MAINTENANCE_MUTATIONS,
        **HOOK_MUTATIONS,
    }
    if name in with_ledger:
        open_it = with_ledger[name].opens
    # A file that is written next to another and renamed has a watched name.
    tempfile._name_sequence = map(str, itertools.count())

    def change() -> None:
        opened.append(open_it(Path(home)))
        act_on: Callable[[Any], object] = {**DATABASE_MUTATIONS, **ROUTE_MUTATIONS, **with_ledger}[
            name
        ].act
        act_on(opened[0])

    _attempt_step(change, "ack")
    if opened:
        _attempt_step(opened[0].close, "closed")
    _report_line("end")


def _attempt_step(step: Callable[[], object], word: str) -> None:
    try:
        step()
    except SessionError as error:
        _report_line(f"error {type(error).__name__}: {error}")
    except BaseException as error:  # noqa: BLE001 -- the one thing that must not happen
        traceback.print_exc()
        sys.stderr.flush()
        _report_line(f"foreign {type(error).__name__}: {error}")
    else:
        _report_line(word)


def _report_line(line: str) -> None:
    os.write(1, f"> {line}\n".encode())


if __name__ == "__main__":
    _sqlite3.choose_sqlite(cast("_sqlite3.Choice", sys.argv[1]))
    serve_children()
