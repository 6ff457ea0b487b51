"""Trees of Claude Code transcripts with realistic text and planted words.

The same shape gives the same tree.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tests.bench.text import HALF_WORD, TextWriter

RARE_WORD, PHRASE, CJK_PAIR, PREFIX = "zyxwvq", '"gateway restarts twice"', "数据", "gat*"
COMMON_WORD, THREE_WORDS = HALF_WORD, "gateway restarts twice"

_CJK_SHARE, _CJK_CHARS = 0.15, 240
_MEAN_CHARS = 740
_START, _SESSION_STEP_S, _MESSAGE_STEP_S = 1_760_000_000, 1500, 10
_PROJECTS = 40
_ROLES = ("user", "assistant", "tool", "assistant")
_RARE_STEP, _PHRASE_STEP = 70_000, 2000


@dataclass(frozen=True)
class TreeShape:
    """How many sessions, and how many messages in each."""

    name: str
    sessions: int
    messages: int


SHAPES = {
    False: (TreeShape("2,000 files", 2000, 100), TreeShape("20,000 files", 20_000, 10)),
    True: (TreeShape("30 files", 30, 100), TreeShape("60 files", 60, 10)),
}
"""The trees of a full and of a quick run."""


@dataclass(frozen=True)
class BuiltTree:
    """A tree on the disk: `home` is the home folder of its user."""

    name: str
    home: Path
    files: int
    text_bytes: int


def build_tree(folder: Path, shape: TreeShape) -> BuiltTree:
    """Write the tree of a shape, or return the one that is there."""
    home = folder / f"transcripts-{shape.sessions}-{shape.messages}"
    note = home / "text_bytes.json"
    if not note.exists():
        writer = TextWriter(7)
        size = sum(_write_session(home, writer, shape, number) for number in range(shape.sessions))
        note.write_text(json.dumps(size), encoding="ascii")
    return BuiltTree(shape.name, home, shape.sessions, json.loads(note.read_bytes()))


def write_long_session(path: Path, size: int) -> None:
    """Write one session of about so many bytes, by repeating its messages with other ids."""
    writer = TextWriter(11)
    texts = [_write_text(writer, _ROLES[number % 4], number) for number in range(400)]
    path.parent.mkdir(parents=True, exist_ok=True)
    session, number = str(uuid.UUID(int=1)), 0
    with path.open("wb", buffering=1 << 22) as file:
        while file.tell() < size:
            record = _make_record(writer, session, 0, number, texts[number % len(texts)])
            file.write(_encode_record(record))
            number += 1


def write_long_line(path: Path, size: int) -> None:
    """Write one session with a line of about so many bytes between two short ones."""
    writer = TextWriter(13)
    session = str(uuid.UUID(int=2))
    begin, end = (_make_record(writer, session, 1, number, RARE_WORD) for number in (0, 2))
    whole = _encode_record(_make_record(writer, session, 1, 1, RARE_WORD))
    head, tail = whole.split(RARE_WORD.encode())
    block = b"x" * (1 << 20)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(_encode_record(begin) + head)
        for _ in range(max(1, size // len(block))):
            file.write(block)
        file.write(tail + _encode_record(end))


def _write_session(home: Path, writer: TextWriter, shape: TreeShape, session: int) -> int:
    """Write one session and return the bytes of its text."""
    session_id = str(uuid.UUID(int=writer.random.getrandbits(128)))
    folder = home / ".claude" / "projects" / f"-src-project-{session % _PROJECTS}"
    folder.mkdir(parents=True, exist_ok=True)
    path, size = folder / f"{session_id}.jsonl", 0
    with path.open("wb") as file:
        for record, text in _make_records(writer, session_id, session, shape.messages):
            file.write(_encode_record(record))
            size += len(text.encode())
    ended = _START + session * _SESSION_STEP_S + shape.messages * _MESSAGE_STEP_S
    os.utime(path, (ended, ended))
    return size


def _make_records(
    writer: TextWriter, session_id: str, session: int, messages: int
) -> Iterator[tuple[dict[str, Any], str]]:
    parent = None
    for number in range(messages):
        text = _write_text(writer, _ROLES[number % 4], session * messages + number)
        record = _make_record(writer, session_id, session, number, text)
        yield record | {"parentUuid": parent}, text
        parent = record["uuid"]


def _write_text(writer: TextWriter, role: str, number: int) -> str:
    """Return the text of a message. Its number in the tree decides its planted words."""
    is_cjk = role != "tool" and writer.random.random() < _CJK_SHARE
    text = writer.write_cjk(_CJK_CHARS) if is_cjk else writer.write_message(role, _MEAN_CHARS)
    if number % 2:
        text += f" {HALF_WORD}"
    if number % _RARE_STEP == 1:
        text += f" {RARE_WORD}"
    if number % _PHRASE_STEP == _PHRASE_STEP - 1:
        text += " when the gateway restarts twice in a row"
    return text


def _make_record(
    writer: TextWriter, session_id: str, session: int, number: int, text: str
) -> dict[str, Any]:
    message = _make_message(writer, session, number, text)
    at = _START + session * _SESSION_STEP_S + number * _MESSAGE_STEP_S
    moment = datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")
    return {
        "isSidechain": False,
        "userType": "external",
        "cwd": f"/src/project-{session % _PROJECTS}",
        "sessionId": session_id,
        "version": "2.1.90",
        "gitBranch": "main",
        "type": message["role"],
        "message": message,
        "uuid": str(uuid.UUID(int=writer.random.getrandbits(128))),
        "timestamp": moment.replace("+00:00", "Z"),
    }


def _make_message(writer: TextWriter, session: int, number: int, text: str) -> dict[str, Any]:
    """Return a message with the blocks of its role. Each tool result follows its call."""
    role = _ROLES[number % 4]
    if role == "user":
        return {"role": "user", "content": text}
    if role == "tool":
        block = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": text}
        return {"role": "user", "content": [block]}
    blocks: list[Any] = [{"type": "text", "text": text}]
    if number % 4 == 1:
        call = {"type": "tool_use", "id": f"toolu_{number + 1}", "name": "Read"}
        blocks.append(call | {"input": {"file_path": writer.make_path()}})
    usage = {"input_tokens": 4, "output_tokens": 200, "cache_read_input_tokens": 20_000}
    made = {"id": f"msg_{session}_{number}", "model": "claude-opus", "usage": usage}
    return {"role": "assistant", "content": blocks} | made


def _encode_record(record: dict[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"
