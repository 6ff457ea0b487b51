"""Appends to a session of a home in PostgreSQL until a line comes, and reports each append.

`stored` is an append that has returned. `unknown` and `failed` are errors. After them the writer
looks for its own id, and appends again if it is missing, which ends with `found`.
"""

from __future__ import annotations

import os
import select
import sys
from itertools import count

from session_core import Busy, StateDatabase, StorageError, open_home


def append_until_told(address: str, session: str) -> None:
    """Append messages, each with an id of its own, until the input has a line."""
    with open_home(address) as home:
        for number in count():
            if select.select([sys.stdin], [], [], 0)[0]:
                break
            _append_once(home.db, session, f"{session} {number}")


def _append_once(db: StateDatabase, session: str, token: str) -> None:
    has_failed = False
    while True:
        try:
            if not (has_failed and db.has_platform_message_id(session, token)):
                db.append_message(
                    session,
                    "user",
                    token,
                    platform_message_id=token,
                    create={"source": "cli"},
                )
        except (Busy, StorageError) as error:
            has_failed = True
            _report("unknown" if "unknown" in str(error) else "failed", token)
        else:
            _report("found" if has_failed else "stored", token)
            return


def _report(word: str, token: str) -> None:
    os.write(1, f"{word} {token}\n".encode())


if __name__ == "__main__":
    append_until_told(sys.argv[1], sys.argv[2])
