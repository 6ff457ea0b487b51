"""Trees of Claude Code transcripts, made from plain messages."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from session_core.transcripts.transcript_store import TranscriptStore

START = 1_760_000_000.0


class ClaudeTree:
    """The folder of an agent in a home folder, with sessions that grow line by line."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.projects = home / ".claude" / "projects"
        self.projects.mkdir(parents=True, exist_ok=True)
        self.state = home / "state"

    def open_store(self) -> TranscriptStore:
        """Return a store over this home, with its index in the home."""
        return TranscriptStore(self.state, environ={"HOME": str(self.home)})

    def get_path(self, session: str, project: str = "-src-app") -> Path:
        """Return the path of a session."""
        return self.projects / project / f"{session}.jsonl"

    def write(self, session: str, texts: Iterable[str], project: str = "-src-app") -> Path:
        """Append messages to a session, the first by the user, and return its path."""
        path = self.get_path(session, project)
        path.parent.mkdir(parents=True, exist_ok=True)
        count = path.read_bytes().count(b"\n") if path.exists() else 0
        with path.open("ab") as file:
            for number, text in enumerate(texts, count):
                file.write(make_line(session, number, text))
        return path


def make_line(session: str, number: int, text: str, **fields: Any) -> bytes:
    """Return the line of a message. The number decides on its role, its time and its uuid."""
    role = "assistant" if number % 2 else "user"
    content: Any = [{"type": "text", "text": text}] if role == "assistant" else text
    record = {
        "type": role,
        "uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{session}/{number}")),
        "sessionId": session,
        "timestamp": format_time(START + 60 * number),
        "cwd": "/src/app",
        "gitBranch": "main",
        "message": {"role": role, "content": content},
        **fields,
    }
    return json.dumps(record).encode() + b"\n"


def format_time(seconds: float) -> str:
    """Return a time as Claude Code writes it."""
    from datetime import datetime, timezone  # noqa: PLC0415

    moment = datetime.fromtimestamp(seconds, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def write_two_agents(tree: ClaudeTree) -> None:
    """Write sessions of equal times in the stores of two agents."""
    for name in "abc":
        tree.write(name, [f"apples in {name}"])
    for name in "de":
        path = tree.home / ".qwen" / "projects" / "-src" / "chats" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        line = {"uuid": name, "sessionId": name, "timestamp": format_time(START), "type": "user"}
        line |= {"cwd": "/src", "message": {"role": "user", "parts": [{"text": f"apples {name}"}]}}
        path.write_text(json.dumps(line) + "\n")
