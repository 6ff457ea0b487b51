"""An agent on a machine of a test: it appends, and follows what others append.

A line on the input appends it to a session. Each appended text is reported with the time at which
the call has returned, and each one that is heard with the time at which the feed has returned it.
With `hold` the next line begins a transaction that stays open.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from session_core import OpenedHome, open_home


def run_agent(address: str, session: str) -> None:
    """Append the lines of the input to a session, and follow the feed."""
    with open_home(address) as home:
        home.db.append_message(session, "user", f"{session} begins", create={"source": "cli"})
        cursor = home.db.read_changes().cursor
        stop = threading.Event()
        reader = threading.Thread(target=_follow, args=(home, cursor, stop))
        reader.start()
        _report("ready", session)
        for line in sys.stdin:
            if line.strip() == "hold":
                with home.db.transaction():
                    home.db.append_message(session, "user", "never")
                    _report("holds", session)
                    sys.stdin.readline()
                continue
            home.db.append_message(session, "user", line.strip())
            _report("appended", line.strip())
        stop.set()
        reader.join()


def _follow(home: OpenedHome, cursor: str, stop: threading.Event) -> None:
    while not stop.is_set():
        page = home.db.read_changes(cursor, timeout_s=60.0, stop=stop)
        cursor = page.cursor
        for event in page.events:
            if event.type == "message":
                _report("heard", event.text or "")


def _report(word: str, text: str) -> None:
    os.write(1, f"{word} {time.monotonic()} {text}\n".encode())


if __name__ == "__main__":
    run_agent(sys.argv[1], sys.argv[2])
