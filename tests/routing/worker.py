"""A process with a store, for tests of several processes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from session_core import SessionDB, SessionSource, SessionStore


def arrive(store: SessionStore, number: int) -> None:
    """Route messages of a shared chat and of chats of its own. Reset some of the latter."""
    for turn in range(15):
        store.get_or_create_session(SessionSource(platform="telegram", chat_id="shared"))
        entry = store.get_or_create_session(
            SessionSource(platform="telegram", chat_id=f"{number}_{turn}")
        )
        store.update_session("agent:main:telegram:dm:shared", turn)
        if turn % 5 == 0:
            store.reset_session(entry.session_key)


def remove(store: SessionStore, number: int) -> None:
    """Add chats and remove every second one."""
    for turn in range(15):
        entry = store.get_or_create_session(
            SessionSource(platform="telegram", chat_id=f"{number}_{turn}")
        )
        if turn % 2:
            store.remove({entry.session_key: entry})


def main(verb: str, home: str, number: str, with_db: str) -> None:
    """Print "up", wait for the start, work, and print the session of the shared chat."""
    folder = Path(home) / "sessions"
    db = SessionDB(Path(home) / "state.db") if with_db == "db" else None
    store = SessionStore(folder, db=db)
    print("up", flush=True)
    sys.stdin.readline()
    {"arrive": arrive, "remove": remove}[verb](store, int(number))
    store.close()
    print(json.dumps(store.peek_session_id("agent:main:telegram:dm:shared")), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
