"""A process that runs a step and stops in the middle, to be killed there.

It prints `there` when it reaches the stage.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from session_core import SessionDB, StateDatabase
from session_core.ledger.execute import run_step
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import StateFolder
from session_core.ledger.types import TrashItem

STAGES = ("before", "writing", "prepared", "changed", "committed", "done")


def main(path: Path, batch: str, stage: str) -> None:
    """Delete a session in a step, and stop at a stage."""

    def stop(at: str) -> None:
        if at == stage:
            print("there", flush=True)
            sys.stdin.readline()

    def before(db: StateDatabase) -> Iterator[TrashItem]:
        stop("before")
        yield from keep(db, large=stage == "writing")
        stop("writing")

    def change(db: StateDatabase) -> dict[str, int]:
        stop("prepared")
        result = {"removed": db.delete_sessions(["a"])}
        stop("changed")
        return result

    with SessionDB(path) as db, Ledger(StateFolder(path)) as ledger:

        @contextmanager
        def within() -> Iterator[None]:
            with db.transaction():
                yield
            stop("committed")

        run_step(db, ledger, batch, before=before, change=change, members=["a"], within=within)
        stop("done")


def keep(db: StateDatabase, *, large: bool = False) -> Iterator[TrashItem]:
    """Yield the rows of the session, and on request more than one piece of trash."""
    yield TrashItem("sessions", dict(db.get_session("a") or {}))
    for row in db.get_messages("a"):
        yield TrashItem("messages", dict(row))
    if large:
        yield TrashItem("file", os.urandom(5 << 20))


SCRIPT = """
import sys
from pathlib import Path
from tests.ledger.worker import main
main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
"""
"""What the process runs, with the path of a database, a batch and a stage."""
