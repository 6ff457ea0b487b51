"""Render values of the library for answers: list rows, messages and hits.

Stored strings shown in one line lose terminal sequences, control characters and secrets. Message
text keeps its characters, since JSON quotes them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mcp_serve.arguments import format_time
from mcp_serve.plain_text import shorten_text, to_plain_line, to_text
from mcp_serve.redaction.redaction import redact, redact_cut
from session_core import extract_plain_text
from session_core.transcripts import TranscriptSummary
from session_core.types import MessageRow, SearchHit

if TYPE_CHECKING:
    from mcp_serve.stores.served_store import ServedStore, Summary


def drop_empty(**fields: Any) -> dict[str, Any]:
    """Return the fields that are neither None nor False."""
    return {name: value for name, value in fields.items() if value not in (None, False)}


def join_notes(*notes: str | None) -> dict[str, Any]:
    """Join the notes of an answer that are not empty."""
    return drop_empty(note=" ".join(filter(None, dict.fromkeys(notes))) or None)


_MAX_ID_CHARS = 500
_MAX_CALL_CHARS = 120
_MAX_TOOL_CHARS = 200
_MAX_NEXT_CHARS = 200
# The beginning of a message that is searched for secrets that start in its preview.
_OPENING_CHARS = 10_000

# The library ends a cut preview with this.
_ELLIPSIS = "..."

MAX_ROLE_CHARS = 40


def render_session(
    home: ServedStore, summary: Summary, pins: Collection[str] = (), *, detailed: bool = False
) -> dict[str, Any]:
    """Return the list row of a conversation.

    `pins` are the pins that no column holds.
    """
    return render_sessions(home, [summary], pins, detailed=detailed)[0]


def render_sessions(
    home: ServedStore,
    summaries: Sequence[Summary],
    pins: Collection[str] = (),
    *,
    detailed: bool = False,
) -> list[dict[str, Any]]:
    """Return the list rows of conversations, with their opening messages read at once."""
    uncertain = [summary for summary in summaries if _needs_preview_message(home, summary)]
    openings = home.read_preview_messages(uncertain) if uncertain else {}
    return [
        _render_row(home, summary, openings.get(summary.id), pins, detailed=detailed)
        for summary in summaries
    ]


def _render_row(
    home: ServedStore,
    summary: Summary,
    opening: MessageRow | None,
    pins: Collection[str],
    *,
    detailed: bool,
) -> dict[str, Any]:
    resume = home.build_resume_command(summary)
    return {
        "id": render_id(summary.id),
        **drop_empty(root_id=None if summary.root_id == summary.id else render_id(summary.root_id)),
        "title": render_line(home, summary.title),
        "preview": _render_preview(home, summary, opening),
        "source": render_line(home, summary.source) or "",
        "status": summary.status,
        "started_at": format_time(summary.started_at),
        "last_active_at": format_time(summary.last_active_at),
        **_render_end(home, summary),
        **({} if summary.messages is None else {"messages": summary.messages}),
        **drop_empty(
            project=render_line(home, summary.project, 1000),
            chat=render_line(home, getattr(summary, "chat", None)) or None,
        ),
        "pinned": getattr(summary, "pinned", False) or summary.id in pins,
        **drop_empty(
            store=home.find_shown_store(summary.source),
            resume=resume and render_line(home, shlex.join(resume), _MAX_ID_CHARS),
        ),
        **(_render_details(home, summary) if detailed else {}),
    }


def _render_details(home: ServedStore, summary: Summary) -> dict[str, Any]:
    """Return the fields that only a detailed row has."""
    return drop_empty(
        branch=render_line(home, summary.branch) or None,
        model=render_line(home, summary.model) or None,
        cost=round(summary.cost or 0, 6) or None,
        tokens=summary.tokens or None,
    )


def _render_end(home: ServedStore, summary: Summary) -> dict[str, Any]:
    """Return the end of a session, or for a transcript that its agent has deleted it."""
    if isinstance(summary, TranscriptSummary):
        return drop_empty(kept=summary.is_kept)
    return drop_empty(
        ended_at=format_time(summary.ended_at), end_reason=render_line(home, summary.end_reason)
    )


def render_preview(store: ServedStore, summary: Summary) -> str:
    """Return the preview of a conversation without secrets."""
    is_uncertain = _needs_preview_message(store, summary)
    opening = store.read_preview_messages([summary]).get(summary.id) if is_uncertain else None
    return _render_preview(store, summary, opening)


def _needs_preview_message(store: ServedStore, summary: Summary) -> bool:
    """Return True if a preview may end within a secret, so that its message is needed."""
    if not store.redacts or summary.preview_id is None:
        return False
    return store.has_long_previews or redact_cut(summary.preview) != redact(summary.preview)


def _render_preview(store: ServedStore, summary: Summary, row: MessageRow | None) -> str:
    """Return a preview without secrets.

    The row is the message of the preview, if that is needed.
    """
    if not store.redacts:
        return to_plain_line(summary.preview)
    redacted = redact_cut(summary.preview)
    if row is None:
        return to_plain_line(redacted)
    opening = extract_plain_text(row["content"]).lstrip()[:_OPENING_CHARS]
    shown = summary.preview.removesuffix(_ELLIPSIS)
    if not " ".join(opening.split()).startswith(shown):
        return to_plain_line(redacted)  # the message has changed, or begins with blanks only
    line = to_plain_line(redact(opening))
    return line if len(line) <= len(shown) else line[: len(shown)] + _ELLIPSIS


def render_id(value: Any) -> str:
    """Return an id or a key, of a very long one the beginning, which is a prefix for any tool."""
    return to_text(value)[:_MAX_ID_CHARS]


def render_line(home: ServedStore, value: Any, most: int = 200) -> str | None:
    """Return a stored value as one line without secrets and hidden characters."""
    if value is None:
        return None
    text = to_text(value)
    clean = _redact_short_line if len(text) <= _MAX_SHORT_CHARS else _redact_line
    return shorten_text(clean(text, home.redacts), most)


def _redact_line(text: str, redacts: bool) -> str:
    # Redact first: a secret wrapped over several lines is not recognised in one line.
    # The library may have cut it, and the beginning of a secret then ends it.
    return to_plain_line(redact_cut(text) if redacts else text)


# Roles, sources, tools and titles repeat in each answer.
_MAX_SHORT_CHARS = 200
_redact_short_line = lru_cache(maxsize=1024)(_redact_line)


def render_text(home: ServedStore, row: MessageRow, *, whole: bool) -> tuple[str, int]:
    """Return the text of a message without secrets, and the number of characters left out.

    Tool output and the arguments of tool calls are cut short unless `whole` is true.
    """
    # A label, so that a picture is not an empty message.
    labels = [f"[{part['kind']}]" for part in list_attachments(home, row["content"])]
    body = "\n".join([*_list_nonempty(extract_plain_text(row["content"])), *labels])
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
            attachments=list_attachments(home, row["content"]) or None,
        ),
    }


def render_hit(
    home: ServedStore, hit: SearchHit, snippet: str, reply: MessageRow | None
) -> dict[str, Any]:
    """Return a search hit, with the beginning of the reply to it."""
    reply_text = None if reply is None else extract_plain_text(reply["content"])
    return {
        "session_id": render_id(hit.session_id),
        "message_id": hit.message_id,
        "role": render_line(home, hit.role, MAX_ROLE_CHARS) or "",
        "at": format_time(hit.at),
        "snippet": snippet,
        **drop_empty(next=render_line(home, reply_text, _MAX_NEXT_CHARS)),
        "title": render_line(home, hit.title),
        "source": render_line(home, hit.source) or "",
        **drop_empty(compacted=hit.compacted, store=home.find_shown_store(hit.source)),
    }


_MAX_ATTACHMENTS = 20
_NAME_KEYS = ("filename", "file_name", "name", "title", "path")
_DATA_KEYS = ("data", "file_data", "url", "image_url", "base64")
_TEXT_KINDS = ("tool_use", "tool_result", "thinking", "reasoning", "refusal")


def list_attachments(home: ServedStore, content: Any) -> list[dict[str, Any]]:
    """Return the known kind, name and size of each part without text."""
    parts = content if isinstance(content, list) else []
    attachments = [
        part
        for part in parts
        if isinstance(part, Mapping) and find_attachment_kind(part) is not None
    ]
    return [_describe_part(home, part) for part in attachments[:_MAX_ATTACHMENTS]]


def find_attachment_kind(part: Mapping[str, Any]) -> str | None:
    """Return the kind of a part without text, or None."""
    kind = str(part.get("type") or "")
    if not kind or "text" in kind or kind in _TEXT_KINDS:
        return None
    return kind.removeprefix("input_").removesuffix("_url")


def _describe_part(home: ServedStore, part: Mapping[str, Any]) -> dict[str, Any]:
    inner = [part, *(value for value in part.values() if isinstance(value, Mapping))]
    name = _find_text(inner, _NAME_KEYS)
    return {
        "kind": render_line(home, find_attachment_kind(part), 40) or "",
        **drop_empty(name=render_line(home, name) or None, bytes=_measure_data(inner) or None),
    }


def _find_text(mappings: list[Mapping[str, Any]], keys: tuple[str, ...]) -> str | None:
    values = (mapping.get(key) for key in keys for mapping in mappings)
    return next((value for value in values if isinstance(value, str) and value), None)


def _measure_data(mappings: list[Mapping[str, Any]]) -> int:
    """Return the stated size, or the size of the data in base64, or 0."""
    sizes = (mapping.get(key) for key in ("size", "bytes") for mapping in mappings)
    stated = next((size for size in sizes if type(size) is int and size > 0), 0)
    data = _find_text(mappings, _DATA_KEYS)
    if stated or data is None or data.startswith(("http:", "https:", "file:")):
        return stated
    encoded = data.partition(",")[2] if data.startswith("data:") else data
    return len(encoded.rstrip("=")) * 3 // 4


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
    r"""Return the arguments of a tool call, with Unicode escapes of JSON decoded."""
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        if "\\u" not in arguments:
            return to_text(arguments)
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return to_text(arguments)
    return to_text(json.dumps(arguments, ensure_ascii=False))
