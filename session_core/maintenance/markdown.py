"""A session as a person reads it: who said what and when, calls of tools in a line each.

What was compacted or taken back is there as well, and says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from session_core.compression import shapes
from session_core.compression.condense import condense, describe
from session_core.maintenance.sources import Source
from session_core.models import Raw, SessionSummary
from session_core.state.content import decode, decode_json, plain_text

_FENCE = re.compile(r"\s*(```|~~~)")
_HEADING = re.compile(r"(?=#{1,6}(\s|\Z))")
_SPACE = re.compile(r"\s+")


def session(source: Source, summary: SessionSummary) -> Iterator[str]:
    """Yield the text of a session in parts; its source and folder are those of its summary."""
    row = dict(zip(source.columns, map(_plain, source.values), strict=True))
    yield f"# {_line(row['title'] or row['id'])}\n\n"
    yield "".join(f"- {name}: {_line(value)}\n" for name, value in _facts(row, summary))
    for image in source.pages():
        rows = [dict(zip(image.columns, map(_plain, values), strict=True)) for values in image.rows]
        for message, short in zip(rows, condense(map(_decoded, rows)), strict=True):
            yield _message(message, short)
    yield "\n"


def _facts(row: Mapping[str, Any], summary: SessionSummary) -> Iterator[tuple[str, Any]]:
    yield "session", row["id"]
    ended = _time(row["ended_at"]) if row["ended_at"] is not None else None
    facts = {
        "source": summary.source,
        "model": row.get("model"),
        "project": summary.project,
        "came from": row.get("parent_session_id"),
        "began": _time(row["started_at"]),
        "ended": f"{ended} ({row['end_reason']})" if ended and row["end_reason"] else ended,
    }
    yield from ((name, value) for name, value in facts.items() if value)


def _message(row: Mapping[str, Any], short: Mapping[str, Any]) -> str:
    mark = ""
    if row.get("compacted"):
        mark = " · compacted"
    elif row.get("active") == 0:
        mark = " · taken back"
    name = f" {_line(row['tool_name'])}" if row.get("tool_name") else ""
    said = _text(short)
    calls = "".join(f"- calls `{_code(describe(call))}`\n" for call in shapes.calls(short))
    body = "\n\n".join(part for part in (said, calls.rstrip()) if part)
    return f"\n## {_line(row['role'])}{name} · {_time(row['timestamp'])}{mark}\n\n{body}\n"


def _text(message: Mapping[str, Any]) -> str:
    """Return what was said, in which no line is taken for one of our headings."""
    fenced = False
    lines = []
    for line in plain_text(message.get("content")).strip("\n").split("\n"):
        if _FENCE.match(line):
            fenced = not fenced
        lines.append(
            line if fenced else _HEADING.sub(r"\\", line, count=1) if line[:1] == "#" else line
        )
    return "\n".join([*lines, "```"] if fenced else lines)


def _decoded(row: Mapping[str, Any]) -> dict[str, Any]:
    calls = decode_json(row.get("tool_calls"))
    return {**row, "content": decode(row.get("content")), "tool_calls": calls}


def _plain(value: Any) -> Any:
    return value.stored.decode("utf-8", "replace") if isinstance(value, Raw) else value


def _time(at: Any) -> str:
    try:
        return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (TypeError, ValueError, OverflowError, OSError):
        return "at an unknown time"


def _line(value: Any) -> str:
    return _SPACE.sub(" ", str(value)).strip()


def _code(text: str) -> str:
    return text.replace("`", "'")
