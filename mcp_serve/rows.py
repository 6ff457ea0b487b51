"""How the values of the library are said: a list row, a message, a hit."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mcp_serve.answers import said
from mcp_serve.quoting import plain, shorten, textual
from mcp_serve.redaction import redact, redact_cut
from mcp_serve.times import iso
from session_core import Hit, MessageRow, SessionDB, SessionSummary, plain_text

if TYPE_CHECKING:
    from mcp_serve.homes import Home

_NAME_CHARACTERS = 500
_CALL_CHARACTERS = 120
_TOOL_CHARACTERS = 200
_OPENING = 10_000
"""So much of a message is searched for secrets that begin in its preview."""

_CUT = "..."
"""How the library ends a preview that it has cut."""

ROLE_CHARACTERS = 40


def session(home: Home, found: SessionSummary, pins: Collection[str] = ()) -> dict[str, Any]:
    """Return a list row: one conversation; `pins` are those that no column has."""
    return {
        "id": name(found.id),
        **said(root_id=None if found.root_id == found.id else name(found.root_id)),
        "title": one_line(home, found.title),
        "preview": preview(home.db, found, redacts=home.redacts),
        "source": one_line(home, found.source) or "",
        "status": found.status,
        "started_at": iso(found.started_at),
        "last_active_at": iso(found.last_active_at),
        **said(ended_at=iso(found.ended_at), end_reason=one_line(home, found.end_reason)),
        "messages": found.messages,
        **said(project=one_line(home, found.project, 1000)),
        "pinned": found.pinned or found.id in pins,
        **said(profile=home.profile),
    }


def preview(db: SessionDB, found: SessionSummary, *, redacts: bool = True) -> str:
    """Return the preview of a conversation without secrets.

    The library cuts previews. If one may end within a secret, the message itself decides.
    """
    if not redacts:
        return plain(found.preview)
    safe = redact_cut(found.preview)
    if safe == redact(found.preview) or found.preview_id is None:
        return plain(safe)
    row = db.get_message(found.preview_id)
    text = "" if row is None else plain_text(row["content"]).lstrip()
    opening = text[:_OPENING]
    seen = len(found.preview) - len(_CUT)
    if " ".join(opening.split())[:seen] != found.preview[:seen]:
        return plain(safe)  # the message was changed meanwhile, or begins with blanks alone
    shown = plain(redact(opening))
    return shown if len(shown) <= seen else shown[:seen] + _CUT


def name(value: Any) -> str:
    """Return an id or a key as it is: no call takes one that is cut here."""
    return shorten(textual(value), _NAME_CHARACTERS)


def one_line(home: Home, value: Any, most: int = 200) -> str | None:
    """Return a stored value as one line without secrets and hidden signs.

    Secrets go first: a line has no breaks any more by which a wrapped one is recognised.
    """
    return None if value is None else shorten(plain(home.redact(textual(value))), most)


def shown(home: Home, row: MessageRow, *, whole: bool) -> tuple[str, int]:
    """Return what a message says, without secrets, and how many characters are left out of it.

    Unless the `whole` is asked for, what a tool answered is cut short, and what it was called with.
    """
    body = "\n".join([*_some(plain_text(row["content"])), *_pictures(row["content"])])
    body = home.redact(body)
    if row["role"] == "tool" and not whole:
        return body[:_TOOL_CHARACTERS], max(0, len(body) - _TOOL_CHARACTERS)
    left, parts = 0, _some(body)
    for function in _called(row):
        said_to_it = home.redact(_arguments(function))
        most = len(said_to_it) if whole else _CALL_CHARACTERS
        left += max(0, len(said_to_it) - most)
        parts.append(f"[calls {_tool(home, function)} {said_to_it[:most]}]")
    return "\n".join(parts), left


def message(
    home: Home, row: MessageRow, text: str, left: int, session_id: str | None = None
) -> dict[str, Any]:
    """Return a message with the part of its text that is shown, and how much is left out."""
    return {
        "id": row["id"],
        "role": one_line(home, row["role"], ROLE_CHARACTERS) or "",
        "text": text,
        "at": iso(row["timestamp"]),
        **said(
            tool=one_line(home, row.get("tool_name")) or _names(home, row),
            compacted=bool(row.get("compacted")),
            session_id=None if session_id is None else name(session_id),
            cut_chars=left or None,
        ),
    }


def hit(home: Home, found: Hit, snippet: str) -> dict[str, Any]:
    """Return a found message."""
    return {
        "session_id": name(found.session_id),
        "message_id": found.message_id,
        "role": one_line(home, found.role, ROLE_CHARACTERS) or "",
        "at": iso(found.at),
        "snippet": snippet,
        "title": one_line(home, found.title),
        "source": one_line(home, found.source) or "",
        **said(compacted=found.compacted, profile=home.profile),
    }


def _pictures(content: Any) -> list[str]:
    """Name what is no text, so that a message with only a picture says something."""
    parts = content if isinstance(content, list) else []
    kinds = (part.get("type") for part in parts if isinstance(part, Mapping))
    return [
        f"[{str(kind).removeprefix('input_').removesuffix('_url')}]"
        for kind in kinds
        if kind and "text" not in str(kind) and kind not in ("tool_use", "tool_result")
    ]


def _some(text: str) -> list[str]:
    return [text] if text else []


def _names(home: Home, row: MessageRow) -> str | None:
    names = (_tool(home, function) for function in _called(row))
    return shorten(", ".join(dict.fromkeys(names))) or None


def _called(row: MessageRow) -> Iterator[Mapping[str, Any]]:
    calls = row.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            yield function


def _tool(home: Home, function: Mapping[str, Any]) -> str:
    return one_line(home, function.get("name") or "tool") or "tool"


def _arguments(function: Mapping[str, Any]) -> str:
    """Return what a tool was called with, in its own script: JSON may have that in codes."""
    given = function.get("arguments")
    if isinstance(given, str):
        if "\\u" not in given:
            return textual(given)
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return textual(given)
    return textual(json.dumps(given, ensure_ascii=False))
