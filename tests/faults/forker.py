"""A program that forks while a thread of it writes: the child must end, the parent must go on."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from session_core.errors import SessionError
from session_core.state.sqlite.session_db import SessionDB


def main(path: Path) -> None:
    """Fork inside a transaction of another thread, and print the results of the child."""
    db = SessionDB(path)
    begun, over = threading.Event(), threading.Event()

    def hold() -> None:
        with db.transaction():
            db.set_meta("forked", "yes")
            begun.set()
            over.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    begun.wait(30)
    pid = os.fork()
    if pid == 0:
        try:
            db.get_meta("forked")
        except SessionError as error:
            print(type(error).__name__, flush=True)
        db.close()
        sys.exit(0)
    _, status = os.waitpid(pid, 0)
    print(f"child ended with {status}", flush=True)
    over.set()
    thread.join()
    db.set_meta("after", "yes")
    print("parent wrote" if db.get_meta("forked") == "yes" else "parent lost it", flush=True)
    db.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
