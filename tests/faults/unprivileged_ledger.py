"""A user who cannot write the ledger, with the results of a step and of reading.

It prints a mapping from each attempt to its result, or to the class and text of its error.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from session_core import _sqlite3
from session_core.errors import SessionError
from session_core.ledger.execute import resume_steps, run_step
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import StateFolder
from session_core.ledger.types import TrashItem
from session_core.state.sqlite.session_db import SessionDB

NOBODY_UID = 65534
LIMIT_BYTES = 900_000


def main(home: Path, root: Path, who: str) -> None:
    """Remove a session in a step, as the user `nobody` or without space for its trash."""
    _sqlite3.load_library()  # which the user `nobody` may be unable to read
    if who == "nobody" and os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY_UID)
        os.setuid(NOBODY_UID)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if who == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, hard))
    came_to = {}
    path = home / "state.db"
    with SessionDB(path, patience_s=1.0) as db:
        with Ledger(StateFolder(path, root=root), patience_s=1.0) as ledger:
            came_to["read"] = _attempt_call(lambda: len(ledger.list_batches().items))
            came_to["step"] = _attempt_call(lambda: _remove_session(db, ledger))
            came_to["there"] = db.get_session("chat") is not None
            if who == "limit":
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))
                came_to["resumed"] = _attempt_call(lambda: len(resume_steps(db, ledger)))
                came_to["left"] = _attempt_call(
                    lambda: [len(ledger.list_unsettled_steps()), ledger.count_trash_bytes()]
                )
                came_to["again"] = _attempt_call(lambda: _remove_session(db, ledger))
                came_to["kept"] = _attempt_call(lambda: len(ledger.list_batches().items))
        print(json.dumps(came_to), flush=True)


def _remove_session(db: SessionDB, ledger: Ledger) -> int:
    return run_step(
        db,
        ledger,
        ledger.add_batch("sessions_prune").id,
        before=lambda db: [
            TrashItem("sessions", db.get_session("chat")),
            TrashItem("file", os.urandom(3 << 20)),
        ],
        change=lambda db: db.delete_sessions(["chat"]),
    )


def _attempt_call(step: Callable[[], object]) -> object:
    try:
        return step()
    except SessionError as error:
        return [type(error).__name__, str(error)]
    except Exception as error:  # noqa: BLE001 -- said by its name, and no test expects it
        return ["foreign", f"{type(error).__module__}.{type(error).__name__}: {error}"]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
