"""A program of ours next to a holder: it reads or writes, and then ends in a given way.

It runs on the given SQLite, which may differ from the library of the holder. `careless` is not a
program of ours: it opens for writing and closes, as most programs do.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import cast

from session_core import _sqlite3
from session_core.state.sqlite.connection import make_file_uri
from session_core.state.sqlite.session_db import SessionDB


def main(home: Path, does: str, ends: str, library: _sqlite3.SqliteChoice) -> None:
    """Do one thing, print that it is done, wait for a line, and end."""
    _sqlite3.choose_sqlite(library)
    path = home / "state.db"
    if does == "careless":
        connection = _sqlite3.connect(make_file_uri(path, "mode=rw"), busy_timeout_s=10)
        connection.execute("SELECT count(*) FROM messages").fetchone()
        connection.close()
        print("done", flush=True)
        return
    db = SessionDB(path, read_only=does == "reads alone")
    if does == "begins":
        db.append_message("shared", "user", "hello", create={"source": "cli"})
    db.get_messages("chat")
    if does == "writes":
        db.append_message("chat", "assistant", "written beside a holder")
    if does == "fails to write":
        try:
            db.append_message("nobody", "user", "refused")
        except LookupError:
            db.get_messages("chat")
    if does == "is stuck":
        _start_stuck_thread(db)
    if ends == "close":
        db.close()
    print("done", flush=True)
    sys.stdin.readline()
    if ends == "reopen":
        db.close()
        db = SessionDB(path)
        db.message_count()


def _start_stuck_thread(db: SessionDB) -> None:
    """Leave a thread in the middle of a change that never ends."""
    begun = threading.Event()

    def hold() -> None:
        with db.transaction():
            db.append_message("chat", "user", "never committed")
            begun.set()
            threading.Event().wait()

    threading.Thread(target=hold, daemon=True).start()
    begun.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], cast("_sqlite3.Choice", sys.argv[4]))
