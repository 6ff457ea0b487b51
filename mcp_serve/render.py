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
from mcp_serve.arguments import iso
from mcp_serve.redaction.normalized_text import TERMINAL
from mcp_serve.redaction.redaction import redact, redact_cut
from session_core import Hit, MessageRow, SessionDB, SessionSummary, plain_text

if TYPE_CHECKING:
    from mcp_serve.homes import Home


HIDDEN = re.compile(
    "[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
"""What turns the direction of text around, or cannot be seen at all."""

_TERMINAL = re.compile(TERMINAL)
_BREAKS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""All of these but line ends and tabs."""


_HALVES = re.compile("[\ud800-\udfff]")
"""Halves of characters, as JSON may have them, which nobody can be sent."""


def textual(value: Any) -> str:
    """Return a value of a database as text, which columns of text do not always hold."""
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "replace")
    text = value if isinstance(value, str) else str(value)
    return text if text.isascii() else _HALVES.sub("\ufffd", text)


def plain(value: Any) -> str:
    """Return a value as one line without terminal sequences, control and hidden characters.

    What joins emoji (U+200D) is hidden too and taken out with the rest: a title is no worse for it.
    """
    text = textual(value)
    if not (text.isascii() and text.isprintable()):
        text = _BREAKS.sub(" ", HIDDEN.sub("", _TERMINAL.sub("", text)))
    return " ".join(text.split())


def harmless(text: str) -> str:
    """Return a text of several lines that a terminal takes for nothing but text."""
    return _CONTROLS.sub("", HIDDEN.sub("", text))


def shorten(text: str, most: int = 200) -> str:
    """Return a text, cut where it is long."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def both(data: Mapping[str, Any]) -> CallToolResult:
    """Return the result of a tool."""
    return CallToolResult(
        content=[TextContent(type="text", text=answer_size.render(data))],
        structured_content=dict(data),
    )


def said(**fields: Any) -> dict[str, Any]:
    """Return a mapping without what says nothing."""
    return {name: value for name, value in fields.items() if value not in (None, False)}


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
