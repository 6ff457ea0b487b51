"""Store conversations in a home, or as the transcripts of the agents that they belong to."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from session_core import SessionDB, _sqlite3
from tests.bench.plain_questions.questions import Conversation
from tests.transcripts.trees import format_time

_SCHEMA = (Path(__file__).parents[2] / "transcripts/formats/opencode/version1.sql").read_text(
    "utf-8"
)


def store_in_home(folder: Path, conversations: list[Conversation]) -> list[str]:
    """Store conversations in a home of our own, and return the ids of their sessions."""
    ids = [f"{at:05}-home" for at in range(len(conversations))]
    with SessionDB(folder / "state.db") as db:
        for at, item in enumerate(conversations):
            with db.transaction():
                db.create_session(ids[at], source="cli", started_at=item.get_time(0))
                if item.title is not None:
                    db.set_session_title(ids[at], f"{item.title} {at}")
                rows = [
                    {"role": role, "content": text, "timestamp": item.get_time(number)}
                    for number, (role, text) in enumerate(item.turns)
                ]
                db.append_messages(ids[at], rows)
    return ids


def store_as_transcripts(home: Path, conversations: list[Conversation]) -> list[str]:
    """Write conversations as transcripts of their agents, and return the session ids."""
    ids = [str(uuid.uuid5(uuid.NAMESPACE_OID, str(at))) for at in range(len(conversations))]
    writers = {"claude-code": _write_claude_code, "codex": _write_codex, "gemini": _write_gemini}
    stored = []
    for at, item in enumerate(conversations):
        if item.agent == "opencode":
            stored.append((at, item))
            ids[at] = f"ses_{at}"
        else:
            path = writers[item.agent](home, ids[at], item)
            # Gemini CLI names a session by eight characters.
            ids[at] = ids[at][:8] if item.agent == "gemini" else ids[at]
            end = item.get_time(len(item.turns))
            os.utime(path, (end, end))
    _write_opencode(home, stored)
    return ids


def _write_lines(path: Path, lines: Iterable[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def _write_claude_code(home: Path, session: str, item: Conversation) -> Path:
    lines: list[dict[str, Any]] = []
    for number, (role, text) in enumerate(item.turns):
        content: Any = text
        if role == "tool":
            content = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": text}]
        said = "assistant" if role == "assistant" else "user"
        lines.append(
            {
                "type": said,
                "uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{session}/{number}")),
                "sessionId": session,
                "timestamp": format_time(item.get_time(number)),
                "cwd": "/src/app",
                "message": {"role": said, "content": content},
            }
        )
    if item.title is not None:
        lines.append({"type": "custom-title", "customTitle": item.title, "sessionId": session})
    return _write_lines(home / ".claude/projects/-src-app" / f"{session}.jsonl", lines)


def _write_codex(home: Path, session: str, item: Conversation) -> Path:
    payloads: list[tuple[str, dict[str, Any]]] = [
        ("session_meta", {"id": session, "cwd": "/src/app", "cli_version": "0.150.0"})
    ]
    for role, text in item.turns:
        if role == "tool":
            payload = {"type": "function_call_output", "call_id": "call_1", "output": text}
        else:
            kind = "output_text" if role == "assistant" else "input_text"
            content = [{"type": kind, "text": text}]
            payload = {"type": "message", "role": role, "content": content}
        payloads.append(("response_item", payload))
    lines = [
        {"timestamp": format_time(item.get_time(number)), "type": kind, "payload": payload}
        for number, (kind, payload) in enumerate(payloads)
    ]
    name = f"rollout-2026-10-09T12-00-00-{session}.jsonl"
    return _write_lines(home / ".codex/sessions/2026/10/09" / name, lines)


def _write_gemini(home: Path, session: str, item: Conversation) -> Path:
    begun = format_time(item.get_time(0))
    lines: list[dict[str, Any]] = [{"sessionId": session, "startTime": begun, "kind": "main"}]
    for number, (role, text) in enumerate(item.turns):
        line = {"id": f"{session}-{number}", "timestamp": format_time(item.get_time(number))}
        kind = "user" if role == "user" else "gemini"
        content = [{"text": text}] if role == "user" else text
        lines.append({**line, "type": kind, "content": content})
    name = f"session-2026-10-09T12-00-{session[:8]}.jsonl"
    return _write_lines(home / ".gemini/tmp/app/chats" / name, lines)


def _write_opencode(home: Path, stored: list[tuple[int, Conversation]]) -> None:
    folder = home / ".local/share/opencode"
    folder.mkdir(parents=True, exist_ok=True)
    connection: Any = _sqlite3.connect(f"file:{folder / 'opencode.db'}", busy_timeout_s=5)
    try:
        creations = [part for part in _SCHEMA.split(";\n") if part.startswith("CREATE")]
        connection.executescript(";\n".join(creations) + ";")
        connection.execute("BEGIN")
        for at, item in stored:
            _insert_opencode_session(connection, at, item)
        connection.execute("COMMIT")
    finally:
        connection.close()


def _insert_opencode_session(connection: Any, at: int, item: Conversation) -> None:
    session, begun = f"ses_{at}", int(item.get_time(0) * 1000)
    title = item.title or "New session - 2026-11-03T10:00:00.000Z"
    connection.execute(
        "INSERT INTO session (id, directory, title, version, time_created, time_updated)"
        " VALUES (?, '/src/app', ?, '1.18.33', ?, ?)",
        (session, title, begun, begun),
    )
    for number, (role, text) in enumerate(item.turns):
        moment, message = int(item.get_time(number) * 1000), f"msg_{at}_{number:03}"
        said = "user" if role == "user" else "assistant"
        times = {"created": moment, "completed": moment}
        row = json.dumps({"role": said, "time": times, "modelID": "m-large"})
        connection.execute(
            "INSERT INTO message VALUES (?, ?, ?, ?, ?)", (message, session, moment, moment, row)
        )
        part = json.dumps({"type": "text", "text": text})
        connection.execute(
            "INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)",
            (f"prt_{at}_{number:03}", message, session, moment, moment, part),
        )
