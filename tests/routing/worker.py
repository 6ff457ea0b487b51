"""A process of its own on a store, for tests of several at once."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from session_core import SessionDB, SessionSource, SessionStore


def arrive(store: SessionStore, number: int) -> None:
    """Let messages of one chat of all and of chats of its own come in, and reset one of them."""
    for turn in range(15):
        store.get_or_create_session(SessionSource(platform="telegram", chat_id="shared"))
        entry = store.get_or_create_session(
            SessionSource(platform="telegram", chat_id=f"{number}_{turn}")
        )
        store.update_session("agent:main:telegram:dm:shared", turn)
        if turn % 5 == 0:
            store.reset_session(entry.session_key)


def remove(store: SessionStore, number: int) -> None:
    """Add a chat and take another one away, over and over."""
    for turn in range(15):
        entry = store.get_or_create_session(
            SessionSource(platform="telegram", chat_id=f"{number}_{turn}")
        )
        if turn % 2:
            store.remove({entry.session_key: entry})


def main(verb: str, home: str, number: str, with_db: str) -> None:
    """Say that it is up, wait for the start, work, and say which session the shared chat is in."""
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
