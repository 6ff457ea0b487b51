"""A user without privileges who opens a home, and the results of reading and writing it.

It prints a mapping from each attempt to its result, or to the class and text of its error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from session_core import _sqlite3
from session_core.errors import SessionError
from session_core.state.sqlite.session_db import SessionDB

NOBODY_UID = 65534


def main(path: Path, who: str) -> None:
    """Read, write and close as another user, or as the same user."""
    _sqlite3.load_library()  # which the user `nobody` may be unable to read
    if who == "nobody" and os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY_UID)
        os.setuid(NOBODY_UID)
    came_to = {}
    db = None
    try:
        db = SessionDB(path, patience_s=0.0)
        came_to["read"] = _attempt_call(lambda: len(db.get_messages("chat")))
        came_to["immutable"] = _attempt_call(lambda: db.admin.immutable)
        came_to["write"] = _attempt_call(lambda: db.set_meta("key", "value"))
        came_to["read again"] = _attempt_call(lambda: len(db.get_messages("chat")))
        came_to["close"] = _attempt_call(db.close)
    except SessionError as error:
        came_to["open"] = [type(error).__name__, str(error)]
    print(json.dumps(came_to), flush=True)


def _attempt_call(step: Callable[[], object]) -> object:
    try:
        return step()
    except SessionError as error:
        return [type(error).__name__, str(error)]
    except Exception as error:  # noqa: BLE001 -- said by its name, and no test expects it
        return ["foreign", f"{type(error).__module__}.{type(error).__name__}: {error}"]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
