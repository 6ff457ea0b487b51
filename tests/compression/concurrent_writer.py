"""A process next to a compressor that appends messages, holds a home open, or compresses.

`python -m tests.compression.concurrent_writer DATABASE SESSION MODE`: `speaks` prints the appended
messages at the end of its input, `holds` waits for that end, and `compresses` prints `asked` when
its summarizer is called, which never returns.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

from session_core import Compressor, Ledger, SessionDB, StateFolder

LONG = " They went along the river and looked for the ferry, quay_17." * 3
# SQLite passes on its write lock only by chance; without pauses the compressor would never get it.
PAUSE_S = 0.01


def main(path: Path, session_id: str, mode: str) -> None:
    """Do one thing until the end of the input."""
    with SessionDB(path) as db:
        if mode == "speaks":
            _speak(db, session_id)
        elif mode == "holds":
            db.append_message(session_id, "user", "I am here")
            print("there", flush=True)
            sys.stdin.read()
        else:
            with Ledger(StateFolder(path)) as ledger:
                Compressor(db, ledger).compress(session_id, _never, keep_last=2)


def _speak(db: SessionDB, session_id: str) -> None:
    """Append turns with a call in each, one message at a time."""
    stopped = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stopped.set()), daemon=True).start()
    print("there", flush=True)
    appended: list[list[Any]] = []
    while not stopped.is_set() or len(appended) % 4:
        role, columns = _part(len(appended))
        content = f"said {len(appended)}.{LONG}"
        appended.append([int(db.append_message(session_id, role, content, **columns)), content])
        stopped.wait(PAUSE_S)
    print(json.dumps(appended), flush=True)


def _part(number: int) -> tuple[str, dict[str, Any]]:
    name = f"call_{number // 4}"
    call = {"id": name, "type": "function", "function": {"name": "look", "arguments": "{}"}}
    parts: list[tuple[str, dict[str, Any]]] = [
        ("user", {}),
        ("assistant", {"tool_calls": [call]}),
        ("tool", {"tool_call_id": name, "tool_name": "look"}),
        ("assistant", {}),
    ]
    return parts[number % 4]


def _never(_: object) -> str:
    print("asked", flush=True)
    threading.Event().wait()
    raise AssertionError


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
