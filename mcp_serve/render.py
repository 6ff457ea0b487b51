"""What others have said, made harmless where it stands in one line.

Texts of messages are quoted by JSON itself and stay as they are.

A result has two halves with the same data: hosts show their model one or the other.

How the values of the library are said: a list row, a message, a hit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mcp.types import CallToolResult, TextContent

from mcp_serve import answer_size
from mcp_serve.arguments import format_time
from mcp_serve.redaction.normalized_text import TERMINAL
from mcp_serve.redaction.redaction import redact, redact_cut
from session_core import MessageRow, SearchHit, SessionDB, SessionSummary, extract_plain_text

if TYPE_CHECKING:
    from mcp_serve.homes import ServedHome


HIDDEN = re.compile(
    "[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
"""What turns the direction of text around, or cannot be seen at all."""

_TERMINAL_PATTERN = re.compile(TERMINAL)
_BREAKS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""All of these but line ends and tabs."""


_SURROGATES = re.compile("[\ud800-\udfff]")
"""Halves of characters, as JSON may have them, which nobody can be sent."""


def to_text(value: Any) -> str:
    """Return a value of a database as text, which columns of text do not always hold."""
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "replace")
    text = value if isinstance(value, str) else str(value)
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def to_plain_line(value: Any) -> str:
    """Return a value as one line without terminal sequences, control and hidden characters.

    What joins emoji (U+200D) is hidden too and taken out with the rest: a title is no worse for it.
    """
    text = to_text(value)
    if not (text.isascii() and text.isprintable()):
        text = _BREAKS.sub(" ", HIDDEN.sub("", _TERMINAL_PATTERN.sub("", text)))
    return " ".join(text.split())


def to_plain_text(text: str) -> str:
    """Return a text of several lines that a terminal takes for nothing but text."""
    return _CONTROLS.sub("", HIDDEN.sub("", text))


def shorten_text(text: str, most: int = 200) -> str:
    """Return a text, cut where it is long."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def make_tool_result(data: Mapping[str, Any]) -> CallToolResult:
    """Return the result of a tool."""
    return CallToolResult(
        content=[TextContent(type="text", text=answer_size.render_json(data))],
        structured_content=dict(data),
    )


def drop_empty(**fields: Any) -> dict[str, Any]:
    """Return a mapping without what says nothing."""
    return {name: value for name, value in fields.items() if value not in (None, False)}


_MAX_ID_CHARS = 500
_MAX_CALL_CHARS = 120
_MAX_TOOL_CHARS = 200
_OPENING_CHARS = 10_000
"""So much of a message is searched for secrets that begin in its preview."""

_ELLIPSIS = "..."
"""How the library ends a preview that it has cut."""

MAX_ROLE_CHARS = 40


def render_session(
    home: ServedHome, found: SessionSummary, pins: Collection[str] = ()
) -> dict[str, Any]:
    """Return a list row: one conversation; `pins` are those that no column has."""
    return {
        "id": render_id(found.id),
        **drop_empty(root_id=None if found.root_id == found.id else render_id(found.root_id)),
        "title": render_line(home, found.title),
        "preview": render_preview(home.db, found, redacts=home.redacts),
        "source": render_line(home, found.source) or "",
        "status": found.status,
        "started_at": format_time(found.started_at),
        "last_active_at": format_time(found.last_active_at),
        **drop_empty(
            ended_at=format_time(found.ended_at), end_reason=render_line(home, found.end_reason)
        ),
        "messages": found.messages,
        **drop_empty(project=render_line(home, found.project, 1000)),
        "pinned": found.pinned or found.id in pins,
        **drop_empty(profile=home.profile),
    }


def render_preview(db: SessionDB, found: SessionSummary, *, redacts: bool = True) -> str:
    """Return the preview of a conversation without secrets.

    The library cuts previews. If one may end within a secret, the message itself decides.
    """
    if not redacts:
        return to_plain_line(found.preview)
    safe = redact_cut(found.preview)
    if safe == redact(found.preview) or found.preview_id is None:
        return to_plain_line(safe)
    row = db.get_message(found.preview_id)
    text = "" if row is None else extract_plain_text(row["content"]).lstrip()
    opening = text[:_OPENING_CHARS]
    seen = len(found.preview) - len(_ELLIPSIS)
    if " ".join(opening.split())[:seen] != found.preview[:seen]:
        return to_plain_line(safe)  # the message was changed meanwhile, or begins with blanks alone
    shown = to_plain_line(redact(opening))
    return shown if len(shown) <= seen else shown[:seen] + _ELLIPSIS


def render_id(value: Any) -> str:
    """Return an id or a key as it is: no call takes one that is cut here."""
    return shorten_text(to_text(value), _MAX_ID_CHARS)


def render_line(home: ServedHome, value: Any, most: int = 200) -> str | None:
    """Return a stored value as one line without secrets and hidden signs.

    Secrets go first: a line has no breaks any more by which a wrapped one is recognised.
    """
    return None if value is None else shorten_text(to_plain_line(home.redact(to_text(value))), most)


def render_text(home: ServedHome, row: MessageRow, *, whole: bool) -> tuple[str, int]:
    """Return what a message says, without secrets, and how many characters are left out of it.

    Unless the `whole` is asked for, what a tool answered is cut short, and what it was called with.
    """
    body = "\n".join(
        [*_list_nonempty(extract_plain_text(row["content"])), *_list_attachments(row["content"])]
    )
    body = home.redact(body)
    if row["role"] == "tool" and not whole:
        return body[:_MAX_TOOL_CHARS], max(0, len(body) - _MAX_TOOL_CHARS)
    left, parts = 0, _list_nonempty(body)
    for function in _list_functions(row):
        said_to_it = home.redact(_render_call_arguments(function))
        most = len(said_to_it) if whole else _MAX_CALL_CHARS
        left += max(0, len(said_to_it) - most)
        parts.append(f"[calls {_render_tool_name(home, function)} {said_to_it[:most]}]")
    return "\n".join(parts), left


def render_message(
    home: ServedHome, row: MessageRow, text: str, left: int, session_id: str | None = None
) -> dict[str, Any]:
    """Return a message with the part of its text that is shown, and how much is left out."""
    return {
        "id": row["id"],
        "role": render_line(home, row["role"], MAX_ROLE_CHARS) or "",
        "text": text,
        "at": format_time(row["timestamp"]),
        **drop_empty(
            tool=render_line(home, row.get("tool_name")) or _render_tool_names(home, row),
            compacted=bool(row.get("compacted")),
            session_id=None if session_id is None else render_id(session_id),
            cut_chars=left or None,
        ),
    }


def render_hit(home: ServedHome, found: SearchHit, snippet: str) -> dict[str, Any]:
    """Return a found message."""
    return {
        "session_id": render_id(found.session_id),
        "message_id": found.message_id,
        "role": render_line(home, found.role, MAX_ROLE_CHARS) or "",
        "at": format_time(found.at),
        "snippet": snippet,
        "title": render_line(home, found.title),
        "source": render_line(home, found.source) or "",
        **drop_empty(compacted=found.compacted, profile=home.profile),
    }


def _list_attachments(content: Any) -> list[str]:
    """Name what is no text, so that a message with only a picture says something."""
    parts = content if isinstance(content, list) else []
    kinds = (part.get("type") for part in parts if isinstance(part, Mapping))
    return [
        f"[{str(kind).removeprefix('input_').removesuffix('_url')}]"
        for kind in kinds
        if kind and "text" not in str(kind) and kind not in ("tool_use", "tool_result")
    ]


def _list_nonempty(text: str) -> list[str]:
    return [text] if text else []


def _render_tool_names(home: ServedHome, row: MessageRow) -> str | None:
    names = (_render_tool_name(home, function) for function in _list_functions(row))
    return shorten_text(", ".join(dict.fromkeys(names))) or None


def _list_functions(row: MessageRow) -> Iterator[Mapping[str, Any]]:
    calls = row.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            yield function


def _render_tool_name(home: ServedHome, function: Mapping[str, Any]) -> str:
    return render_line(home, function.get("name") or "tool") or "tool"


def _render_call_arguments(function: Mapping[str, Any]) -> str:
    """Return what a tool was called with, in its own script: JSON may have that in codes."""
    given = function.get("arguments")
    if isinstance(given, str):
        if "\\u" not in given:
            return to_text(given)
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return to_text(given)
    return to_text(json.dumps(given, ensure_ascii=False))
