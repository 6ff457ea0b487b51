"""Appends as fast as it can until it is killed, and prints each id after its call has returned.

A line on the input has a home and a number of threads. The appending child is forked, so that a
cycle does not start an interpreter. After its death `dead` is printed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from session_core.state.sqlite.session_db import SessionDB


def serve_children() -> None:
    """Run one child after another, until the input ends."""
    for line in sys.stdin:
        path, threads = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                _append_in_threads(Path(path), threads)
            finally:
                os._exit(1)
        os.waitpid(pid, 0)
        os.write(1, b"dead\n")


def _append_in_threads(path: Path, threads: int) -> None:
    os.write(1, f"{os.getpid()}\n".encode())
    db = SessionDB(path)
    writers = [
        threading.Thread(target=_append_messages, args=(db, name)) for name in range(threads)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()


def _append_messages(db: SessionDB, name: int) -> None:
    create = {"source": "cli"}
    call = {"id": "call", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    while True:
        added = db.append_messages(
            f"session {name}",
            [
                {"role": "user", "content": "needle"},
                {"role": "assistant", "content": "", "tool_calls": [call]},
            ],
            create=create,
        )
        one = db.append_message("shared", "user", "needle", create=create)
        os.write(1, "".join(f"{number}\n" for number in (*added.ids, one)).encode())


if __name__ == "__main__":
    serve_children()
