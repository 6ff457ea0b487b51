"""A process that writes to a Hermes home as its gateway does, with the tokenizer of the CJK index.

It gets a database and the extension, appends until its input ends, and prints a line at the start
and a report at the end.
"""

from __future__ import annotations

import json
import select
import sys
import time

from session_core import _sqlite3

WAIT_S = 2.0
"""How long it waits for the write lock; a lock that is held for longer fails the test."""


def append_until_told(path: str, extension: str) -> dict[str, float]:
    """Append messages to a session, one transaction each, until the input ends."""
    _sqlite3.choose_sqlite("bundled")
    connection = _sqlite3.connect(f"file:{path}?mode=rw", busy_timeout_s=WAIT_S)
    connection.enable_load_extension(True)  # noqa: FBT003 -- its only argument
    connection.load_extension(extension)
    connection.enable_load_extension(False)  # noqa: FBT003 -- its only argument
    now = time.time()
    session = ("live", "cli", now)
    connection.execute("INSERT INTO sessions (id, source, started_at) VALUES (?, ?, ?)", session)
    count, longest = 0, 0.0
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0.002)[0]:
        begun = time.monotonic()
        connection.execute("BEGIN IMMEDIATE")
        longest = max(longest, time.monotonic() - begun)
        row = ("live", "user", f"serow number {count} 鬣羚", time.time())
        connection.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)", row
        )
        counted = "UPDATE sessions SET message_count = message_count + 1 WHERE id = 'live'"
        connection.execute(counted)
        connection.execute("COMMIT")
        count += 1
    found = {
        "appended": count,
        "longest_wait_s": longest,
        "stored": _read_value(
            connection, "SELECT count(*) FROM messages WHERE session_id = 'live'"
        ),
        "indexed": _count_matches(connection, "messages_fts"),
        "indexed_cjk": _count_matches(connection, "messages_fts_cjk"),
    }
    check = "INSERT INTO messages_fts_cjk(messages_fts_cjk, rank) VALUES ('integrity-check', 1)"
    connection.execute(check)
    connection.close()
    return found


def _count_matches(connection: _sqlite3.Connection, index: str) -> int:
    return _read_value(connection, f"SELECT count(*) FROM {index} WHERE {index} MATCH 'serow'")  # noqa: S608


def _read_value(connection: _sqlite3.Connection, sql: str) -> int:
    return int(connection.execute(sql).fetchone()[0])


if __name__ == "__main__":
    print(json.dumps(append_until_told(*sys.argv[1:])))
