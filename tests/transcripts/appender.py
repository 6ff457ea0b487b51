"""Appends messages to a transcript as its agent does: one at each line of standard input.

Run as `python -m tests.transcripts.appender FORMAT PATH`. It answers each line after the write.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from session_core import _sqlite3

_AT = "2026-11-06T07:00:00.000Z"
_AT_MS = 1_793_858_500_000

Appender = Callable[[int, str], None]


def make_record(name: str, number: int, text: str) -> dict[str, Any]:
    """Return the record of a message by the user in a format of lines."""
    block = {"type": "text", "text": text}
    records: dict[str, dict[str, Any]] = {
        "claude-code": {
            "type": "user",
            "uuid": f"new-{number}",
            "sessionId": "0a0a0a0a-1111-4222-8333-444455556666",
            "timestamp": _AT,
            "message": {"role": "user", "content": text},
        },
        "codex": {
            "timestamp": _AT,
            "type": "response_item",
            "payload": {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": text}],
            },
        },
        "gemini": {"id": f"new{number}", "timestamp": _AT, "type": "user", "content": [block]},
        "antigravity": {
            "step_index": 100 + number,
            "source": "USER_EXPLICIT",
            "type": "USER_INPUT",
            "status": "DONE",
            "created_at": _AT,
            "content": f"<USER_REQUEST>\n{text}\n</USER_REQUEST>",
        },
        "qwen": {
            "uuid": f"new-{number}",
            "sessionId": "9e9e9e9e-1111-4222-8333-444455556666",
            "timestamp": _AT,
            "type": "user",
            "message": {"role": "user", "parts": [{"text": text}]},
        },
        "copilot": {
            "type": "user.message",
            "data": {"content": text},
            "id": f"new{number}",
            "timestamp": _AT,
        },
        "openclaw-lines": {
            "type": "message",
            "id": f"new{number}",
            "timestamp": _AT,
            "message": {"role": "user", "content": [block], "timestamp": _AT_MS + number},
        },
    }
    return records[name]


@contextmanager
def open_appender(name: str, path: Path) -> Iterator[Appender]:
    """Return a function that appends one message, as the agent of a format stores it."""
    if name in ("opencode", "openclaw"):
        uri = f"{path.as_uri()}?mode=rw"
        with closing(_sqlite3.connect(uri, busy_timeout_s=5)) as connection:
            connection.execute("PRAGMA journal_mode=WAL").fetchall()
            insert = _insert_opencode if name == "opencode" else _insert_openclaw
            yield lambda number, text: insert(connection, number, text)
        return
    with path.open("ab", buffering=0) as file:

        def append(number: int, text: str) -> None:
            file.write(json.dumps(make_record(name, number, text)).encode() + b"\n")

        yield append


def _insert_opencode(connection: _sqlite3.Connection, number: int, text: str) -> None:
    at = _AT_MS + number
    row = (f"msg_z{number:04}", 100 + number, at, at, json.dumps({"text": text}))
    connection.execute("INSERT INTO session_message VALUES (?, 'ses_1', 'user', ?, ?, ?, ?)", row)


def _insert_openclaw(connection: _sqlite3.Connection, number: int, text: str) -> None:
    record = json.dumps(make_record("openclaw-lines", number, text))
    row = (100 + number, record, _AT_MS + number)
    connection.execute("INSERT INTO transcript_events VALUES ('3c3c', ?, ?, ?)", row)


def main(name: str, path: str) -> None:
    """Append a message for each line, and answer it."""
    with open_appender(name, Path(path)) as append:
        print("ready", flush=True)
        for number, line in enumerate(sys.stdin):
            append(number, line.strip())
            print("written", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
