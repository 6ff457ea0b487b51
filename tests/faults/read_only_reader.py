"""A reader of a home on a read-only mount, which reports its results on request.

The results are the number of messages, the number of new messages in the feed, and whether the file
is read as immutable; or the error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from session_core.errors import SessionError
from session_core.state.sqlite.session_db import SessionDB


def main(path: Path) -> None:
    """Look as often as a line comes in."""
    db = SessionDB(path, read_only=True)
    cursor = None
    for _ in sys.stdin:
        came_to: list[Any]
        try:
            changes = db.read_changes(cursor)
            cursor = changes.cursor
            came_to = [db.message_count(), len(changes.events), db.admin.immutable]
        except SessionError as error:
            came_to = [type(error).__name__]
        print(json.dumps(came_to), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
