"""A process beside a compressor: it says something all the time, holds a home open, or compresses.

`python -m tests.compression.speaker DATABASE SESSION WHAT`: `speaks` says what it has appended once
its input ends, `holds` waits for that end, `compresses` says `asked` when its summary is asked for,
which it never answers.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

from session_core import Compressor, Ledger, SessionDB, StateFolder

LONG = " They went along the river and looked for the ferry, quay_17." * 3
BREATH_S = 0.01
"""Nobody appends without a breath; the lock is passed on only by chance."""


def main(path: Path, session_id: str, what: str) -> None:
    """Do one thing until the input ends."""
    with SessionDB(path) as db:
        if what == "speaks":
            _speak(db, session_id)
        elif what == "holds":
            db.append_message(session_id, "user", "I am here")
            print("there", flush=True)
            sys.stdin.read()
        else:
            with Ledger(StateFolder(path)) as ledger:
                Compressor(db, ledger).compress(session_id, _never, keep_last=2)


def _speak(db: SessionDB, session_id: str) -> None:
    """Append turns with a call in each, one message at a time."""
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    print("there", flush=True)
    said: list[list[Any]] = []
    while not over.is_set() or len(said) % 4:
        role, columns = _part(len(said))
        content = f"said {len(said)}.{LONG}"
        said.append([int(db.append_message(session_id, role, content, **columns)), content])
        over.wait(BREATH_S)
    print(json.dumps(said), flush=True)


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
