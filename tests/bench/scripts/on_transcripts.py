"""Measure the transcript store on a generated tree: `python -m tests.bench.scripts.on_transcripts`.

The tree is a home folder of Claude Code with realistic text, built once for a folder. Each time is
given with the processor time beside it, which other work on the machine does not change.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from session_core import _sqlite3
from session_core.transcripts.store import TranscriptStore
from tests.bench.text import HALF_WORD, TextWriter

RARE_WORD, PHRASE, CJK_PAIR, PREFIX = "zyxwvq", '"gateway restarts twice"', "数据", "gat*"
_CJK_SHARE = 0.15
_START = 1_760_000_000
_SESSION_SPAN_S = 9_000


def build_tree(home: Path, sessions: int, messages: int) -> int:
    """Write the transcripts and return the characters of their texts."""
    writer, size = TextWriter(7), 0
    for number in range(sessions):
        session_id = str(uuid.UUID(int=writer.random.getrandbits(128)))
        folder = home / ".claude" / "projects" / f"-work-project-{number % 40}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{session_id}.jsonl"
        started = _START + number * _SESSION_SPAN_S
        with path.open("wb") as file:
            for line, length in _make_lines(writer, session_id, number, messages, started):
                file.write(line)
                size += length
        os.utime(path, (started + messages * 60, started + messages * 60))
    return size


def _make_lines(
    writer: TextWriter, session_id: str, session: int, messages: int, started: float
) -> Iterator[tuple[bytes, int]]:
    parent = None
    for number in range(messages):
        role = ("user", "assistant", "tool", "assistant")[number % 4]
        text = _write_text(writer, role, session * messages + number)
        content: Any = [{"type": "text", "text": text}]
        if role == "tool":
            content = [{"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": text}]
        elif role == "user":
            content = text
        message: dict[str, Any] = {"role": "user" if role == "tool" else role, "content": content}
        if role == "assistant":
            usage = {"input_tokens": 4, "output_tokens": 200, "cache_read_input_tokens": 20_000}
            message |= {"id": f"msg_{session}_{number}", "model": "claude-opus", "usage": usage}
            if number % 4 == 1:
                call = {"type": "tool_use", "id": f"toolu_{number + 1}", "name": "Read"}
                content.append({**call, "input": {"file_path": writer.make_path()}})
        at = datetime.fromtimestamp(started + number * 60, timezone.utc)
        record = {
            "parentUuid": parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": f"/src/project-{session % 40}",
            "sessionId": session_id,
            "version": "2.1.90",
            "gitBranch": "main",
            "type": message["role"],
            "message": message,
            "uuid": str(uuid.UUID(int=writer.random.getrandbits(128))),
            "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        parent = record["uuid"]
        yield json.dumps(record, ensure_ascii=False).encode() + b"\n", len(text)


def _write_text(writer: TextWriter, role: str, number: int) -> str:
    is_cjk = role != "tool" and writer.random.random() < _CJK_SHARE
    text = writer._write_cjk(240) if is_cjk else writer.write_message(role, 740)
    if number % 2:
        text += f" {HALF_WORD}"
    if number % 70_000 == 69_999:
        text += f" {RARE_WORD}"
    if number % 2000 == 1999:
        text += " when the gateway restarts twice in a row"
    return text


def measure(call: Callable[[], Any], times: int = 15) -> str:
    """Return the median milliseconds of a call and of its processor time, after a first one."""
    call()
    spans = [_measure_span(call) for _ in range(times)]
    return _format_ms(*(statistics.median(column) for column in zip(*spans, strict=True)))


def measure_once(call: Callable[[], Any]) -> str:
    """Return the milliseconds of one call and of its processor time."""
    return _format_ms(*_measure_span(call))


def _measure_span(call: Callable[[], Any]) -> tuple[float, float]:
    begun, processor = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - begun, time.process_time() - processor


def _format_ms(wall: float, processor: float) -> str:
    return f"{wall * 1000:8.1f} ms {processor * 1000:8.1f} ms cpu"


def drop_cache(folder: Path) -> None:
    """Ask the system to forget the pages of all files below a folder."""
    for path in folder.rglob("*.jsonl"):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def run(home: Path) -> dict[str, Any]:
    """Return all figures of one tree, whose index is built anew."""
    state = home / "state"
    for path in state.glob("index*"):
        path.unlink()
    environ = {"HOME": str(home)}
    figures: dict[str, Any] = {}
    opened: list[TranscriptStore] = []

    def open_and_list() -> None:
        opened.append(TranscriptStore(state, environ=environ))
        opened[0].list_sessions(limit=20)

    def index_all() -> None:
        while True:
            slices.append(_measure_span(lambda: left.append(opened[0].work(2.0)))[0])
            if not left[-1]:
                return

    slices: list[float] = []
    left: list[bool] = []
    figures["first list"] = measure_once(open_and_list)
    figures["whole index"] = measure_once(index_all)
    figures["longest call of work"] = f"{max(slices):.2f} s"
    store = opened[0]
    store.close()
    figures["index MB"] = round(sum(p.stat().st_size for p in state.glob("index*")) / 1e6, 1)
    store = TranscriptStore(state, environ=environ)
    figures["second open, list"] = measure_once(lambda: store.list_sessions(limit=20))
    figures["list"] = measure(lambda: store.list_sessions(limit=20))
    figures["nothing new"] = measure(lambda: store._indexer.refresh(0.3))
    with TranscriptStore(state, environ=environ) as watched:
        watched.start_watch()
        figures["nothing new, watched"] = measure(lambda: watched._indexer.refresh(0.3))
    session = store.list_sessions(limit=5).items[-1].id
    figures["page of 50"] = measure(lambda: store.read_window(session, limit=50))
    queries = {"rare": RARE_WORD, "common": HALF_WORD, "phrase": PHRASE, "prefix": PREFIX}
    queries |= {"cjk pair": CJK_PAIR, "three words": "gateway restarts twice"}
    queries["question"] = "what did we decide about the gateway restarts?"
    for name, query in queries.items():
        figures[f"{name}"] = measure(lambda query=query: store.search(query, limit=10))
    drop_cache(home / ".claude")
    figures["common cold"] = measure_once(lambda: store.search(HALF_WORD, limit=10))
    figures["substring"] = measure(lambda: store.search("ateway restart", mode="substring"), 3)
    store.close()
    figures["peak memory MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return figures


def main() -> None:
    """Build the tree if it is missing, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("--sessions", type=int, default=2000)
    parser.add_argument("--messages", type=int, default=100)
    parser.add_argument("--sqlite", choices=("standard", "bundled"), default="standard")
    options = parser.parse_args()
    _sqlite3.choose_sqlite(options.sqlite)
    if not (options.home / ".claude").exists():
        size = build_tree(options.home, options.sessions, options.messages)
        print(f"built {size / 1e6:.0f} MB of text")
    for name, figure in run(options.home).items():
        print(f"{name:24} {figure}")


if __name__ == "__main__":
    main()
