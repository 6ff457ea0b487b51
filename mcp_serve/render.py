"""Render values of the library for answers: list rows, messages, hits and tool results.

Stored strings shown in one line lose terminal sequences, control characters and secrets. Message
text keeps its characters, since JSON quotes them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mcp.types import CallToolResult, TextContent

from mcp_serve import answer_size
from mcp_serve.arguments import format_time
from mcp_serve.plain_text import shorten_text, to_plain_line, to_text
from mcp_serve.redaction.redaction import redact, redact_cut
from session_core import extract_plain_text
from session_core.transcripts import TranscriptSummary
from session_core.types import MessageRow, SearchHit

if TYPE_CHECKING:
    from mcp_serve.served_store import ServedStore, Summary


def make_tool_result(data: Mapping[str, Any]) -> CallToolResult:
    """Return a tool result; its text and its structured content hold the same data."""
    # Some hosts show their model the text, others the structured content.
    return CallToolResult(
        content=[TextContent(type="text", text=answer_size.render_json(data))],
        structured_content=dict(data),
    )


def drop_empty(**fields: Any) -> dict[str, Any]:
    """Return the fields that are neither None nor False."""
    return {name: value for name, value in fields.items() if value not in (None, False)}


_MAX_ID_CHARS = 500
_MAX_CALL_CHARS = 120
_MAX_TOOL_CHARS = 200
# The beginning of a message that is searched for secrets that start in its preview.
_OPENING_CHARS = 10_000

# The library ends a cut preview with this.
_ELLIPSIS = "..."

MAX_ROLE_CHARS = 40


def render_session(
    home: ServedStore, summary: Summary, pins: Collection[str] = ()
) -> dict[str, Any]:
    """Return the list row of a conversation; `pins` are the pins that no column holds."""
    return {
        "id": render_id(summary.id),
        **drop_empty(root_id=None if summary.root_id == summary.id else render_id(summary.root_id)),
        "title": render_line(home, summary.title),
        "preview": render_preview(home, summary),
        "source": render_line(home, summary.source) or "",
        "status": summary.status,
        "started_at": format_time(summary.started_at),
        "last_active_at": format_time(summary.last_active_at),
        **_render_end(home, summary),
        **({} if summary.messages is None else {"messages": summary.messages}),
        **drop_empty(project=render_line(home, summary.project, 1000)),
        "pinned": getattr(summary, "pinned", False) or summary.id in pins,
        **drop_empty(store=home.find_row_store(summary.source)),
    }


def _render_end(home: ServedStore, summary: Summary) -> dict[str, Any]:
    """Return the end of a session, or how its agent resumes it: a transcript has no end."""
    if isinstance(summary, TranscriptSummary):
        return drop_empty(resume=summary.resume and render_line(home, shlex.join(summary.resume)))
    return drop_empty(
        ended_at=format_time(summary.ended_at), end_reason=render_line(home, summary.end_reason)
    )


def render_preview(store: ServedStore, summary: Summary) -> str:
    """Return the preview of a conversation without secrets."""
    if not store.redacts:
        return to_plain_line(summary.preview)
    # The library cuts previews. If a preview may end within a secret, the message decides.
    redacted = redact_cut(summary.preview)
    if redacted == redact(summary.preview) or summary.preview_id is None:
        return to_plain_line(redacted)
    row = store.get_message(summary.id, summary.preview_id)
    text = "" if row is None else extract_plain_text(row["content"]).lstrip()
    opening = text[:_OPENING_CHARS]
    shown_chars = len(summary.preview) - len(_ELLIPSIS)
    if " ".join(opening.split())[:shown_chars] != summary.preview[:shown_chars]:
        return to_plain_line(redacted)  # the message has changed, or begins with blanks only
    line = to_plain_line(redact(opening))
    return line if len(line) <= shown_chars else line[:shown_chars] + _ELLIPSIS


def render_id(value: Any) -> str:
    """Return an id or a key, shortened only beyond the length that any tool accepts."""
    return shorten_text(to_text(value), _MAX_ID_CHARS)


def render_line(home: ServedStore, value: Any, most: int = 200) -> str | None:
    """Return a stored value as one line without secrets and hidden characters."""
    if value is None:
        return None
    # Redact first: a secret wrapped over several lines is not recognised in one line.
    return shorten_text(to_plain_line(home.redact(to_text(value))), most)


def render_text(home: ServedStore, row: MessageRow, *, whole: bool) -> tuple[str, int]:
    """Return the text of a message without secrets, and the number of characters left out.

    Tool output and the arguments of tool calls are cut short unless `whole` is true.
    """
    body = "\n".join(
        [*_list_nonempty(extract_plain_text(row["content"])), *_list_attachments(row["content"])]
    )
    body = home.redact(body)
    if row["role"] == "tool" and not whole:
        return body[:_MAX_TOOL_CHARS], max(0, len(body) - _MAX_TOOL_CHARS)
    cut_chars, parts = 0, _list_nonempty(body)
    for function in _list_functions(row):
        arguments = home.redact(_render_call_arguments(function))
        max_chars = len(arguments) if whole else _MAX_CALL_CHARS
        cut_chars += max(0, len(arguments) - max_chars)
        parts.append(f"[calls {_render_tool_name(home, function)} {arguments[:max_chars]}]")
    return "\n".join(parts), cut_chars


def render_message(
    home: ServedStore, row: MessageRow, text: str, cut_chars: int, session_id: str | None = None
) -> dict[str, Any]:
    """Return a message with the given part of its text and the number of characters left out."""
    return {
        "id": row["id"],
        "role": render_line(home, row["role"], MAX_ROLE_CHARS) or "",
        "text": text,
        "at": format_time(row["timestamp"]),
        **drop_empty(
            tool=render_line(home, row.get("tool_name")) or _render_tool_names(home, row),
            compacted=bool(row.get("compacted")),
            session_id=None if session_id is None else render_id(session_id),
            cut_chars=cut_chars or None,
        ),
    }


def render_hit(home: ServedStore, hit: SearchHit, snippet: str) -> dict[str, Any]:
    """Return a search hit."""
    return {
        "session_id": render_id(hit.session_id),
        "message_id": hit.message_id,
        "role": render_line(home, hit.role, MAX_ROLE_CHARS) or "",
        "at": format_time(hit.at),
        "snippet": snippet,
        "title": render_line(home, hit.title),
        "source": render_line(home, hit.source) or "",
        **drop_empty(compacted=hit.compacted, store=home.find_row_store(hit.source)),
    }


def _list_attachments(content: Any) -> list[str]:
    """Return a label for each part without text, so that a picture is not an empty message."""
    parts = content if isinstance(content, list) else []
    kinds = (part.get("type") for part in parts if isinstance(part, Mapping))
    return [
        f"[{str(kind).removeprefix('input_').removesuffix('_url')}]"
        for kind in kinds
        if kind and "text" not in str(kind) and kind not in ("tool_use", "tool_result")
    ]


def _list_nonempty(text: str) -> list[str]:
    return [text] if text else []


def _render_tool_names(home: ServedStore, row: MessageRow) -> str | None:
    names = (_render_tool_name(home, function) for function in _list_functions(row))
    return shorten_text(", ".join(dict.fromkeys(names))) or None


def _list_functions(row: MessageRow) -> Iterator[Mapping[str, Any]]:
    calls = row.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            yield function


def _render_tool_name(home: ServedStore, function: Mapping[str, Any]) -> str:
    return render_line(home, function.get("name") or "tool") or "tool"


def _render_call_arguments(function: Mapping[str, Any]) -> str:
    r"""Return the arguments of a tool call; \\u escapes of JSON are decoded."""
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        if "\\u" not in arguments:
            return to_text(arguments)
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return to_text(arguments)
    return to_text(json.dumps(arguments, ensure_ascii=False))
