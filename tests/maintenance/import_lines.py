"""Files to import: sessions as lines of an export, well formed or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.maintenance.transfer_homes import Place


def make_line(session_id: str, messages: int = 1, **more: Any) -> dict[str, Any]:
    """Return a session as Hermes exports it."""
    said = [
        {"id": number, "role": "user", "content": f"{session_id} {number}", "timestamp": 5.0}
        for number in range(1, messages + 1)
    ]
    return {"id": session_id, "source": "cli", "started_at": 1.0, "messages": said, **more}


def make_table(name: str, row: dict[str, Any], *, shared: bool = False) -> dict[str, Any]:
    return {"table": name, "columns": [*row], "rows": [[*row.values()]], "shared": shared}


def make_line_with_table(
    session_id: str, name: str, row: dict[str, Any], **more: Any
) -> dict[str, Any]:
    """Return a session with a row of another table."""
    return make_line(session_id) | {
        "mcp_sessions": {"version": 1, "tables": [make_table(name, row, **more)]}
    }


def write_lines(file: Path, *lines: Any) -> Path:
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    file.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return file


def list_reasons(home: Place, session_id: str) -> list[Any]:
    return [
        message["content"] for message in home.db.get_messages(session_id, include_inactive=True)
    ]


def make_long_line(file: Path, messages: int = 400) -> Path:
    lines = make_line("long", messages)
    for line in lines["messages"]:
        line["content"] += " x" * 1000
    return write_lines(file, lines)
