"""Another program that has the database open, with or without its locks, and commits on demand.

It reads one word a line and answers each: `commit` appends a message, `drop NAME` opens and closes
a file as a careless program does, `lock` and `unlock` hold the write lock, `count` prints the
number of messages that it sees.
"""

from __future__ import annotations

import sys
from pathlib import Path

from session_core import _sqlite3
from session_core.state.sqlite.connection import make_file_uri


def main(path: Path) -> None:
    """Hold a database until the input ends."""
    connection = _sqlite3.connect(make_file_uri(path, "mode=rw"), busy_timeout_s=10)
    connection.execute("PRAGMA foreign_keys=ON")
    _commit_message(connection)
    print("ready", flush=True)
    for line in sys.stdin:
        word, _, name = line.strip().partition(" ")
        if word == "drop":
            with (path.parent / name).open("rb") as careless:
                careless.read(1)
        elif word == "commit":
            _commit_message(connection)
        elif word == "lock":
            connection.execute("BEGIN IMMEDIATE")
        elif word == "unlock":
            connection.execute("ROLLBACK")
        (count,) = connection.execute("SELECT count(*) FROM messages").fetchone()
        print(count, flush=True)


def _commit_message(connection: _sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('chat', 'user', ?, 1)",
        ("held in the log",),
    )
    connection.execute(
        "UPDATE sessions SET message_count = message_count + 1 WHERE id = 'chat'",
    )
    connection.execute("COMMIT")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
