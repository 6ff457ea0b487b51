"""Fills the room that it has, and prints the errors and how it continued with more room.

The room ends by `disk`, a file system that is full until a ballast is removed, or by `limit`, the
longest file that this process may write.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

from session_core.errors import SessionError
from session_core.state.sqlite.session_db import SessionDB
from tests.faults.mutations import open_home

LIMIT_BYTES = 400_000
TEXT = "needle " * 400


def main(home: Path, how: str) -> None:
    """Append until it fails, make room, append again, and print the results."""
    ballast = home.parent / "ballast"
    ballast.write_bytes(bytes(400_000))
    if how == "limit":
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, hard))
    with open_home(home) as db:
        acknowledged: list[int] = []
        failures = [_fill_database(db, acknowledged), _fill_database(db, acknowledged)]
        ids = [row["id"] for row in db.get_messages("filled")]
        ballast.unlink()
        if how == "limit":
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))
        again = int(db.append_message("filled", "user", TEXT))
    print(json.dumps({"failures": failures, "acknowledged": acknowledged, "seen": ids}))
    print(again, flush=True)


def _fill_database(db: SessionDB, acknowledged: list[int]) -> str:
    for _ in range(2000):
        try:
            added = db.append_message("filled", "user", TEXT, create={"source": "cli"})
        except SessionError as error:
            return type(error).__name__
        acknowledged.append(int(added))
    return "never full"


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
