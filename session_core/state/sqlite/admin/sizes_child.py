"""Child process that counts the pages of every table and prints them as JSON.

The standard SQLite library may have `dbstat` if the library of the parent lacks it, and two
libraries must not open one file in one process. The child exits with its parent, which holds its
standard input open, since the count of a large home takes minutes.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from session_core import _sqlite3
from session_core.state.sqlite.admin.sizes import count_pages
from session_core.state.sqlite.connection import Connection, make_file_uri


def count_table_bytes(path: Path) -> dict[str, int] | None:
    """Count the bytes of every table and index by name, or return None without `dbstat`."""
    _sqlite3.choose_sqlite("standard")
    connection = _sqlite3.connect(make_file_uri(path, "mode=ro"), busy_timeout_s=1)
    try:
        return count_pages(Connection(connection))
    finally:
        connection.close()


def _end_with_parent() -> None:
    # Returns when the parent closes the pipe, also if it was killed.
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    print(json.dumps(count_table_bytes(Path(sys.argv[1]))))  # noqa: T201 -- the parent reads the output
