"""What is otherwise in a home than in the look before: titles, compressions, routes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mcp_serve import rows
from mcp_serve.answers import said
from mcp_serve.times import iso
from session_core import SessionSummary

if TYPE_CHECKING:
    from mcp_serve.homes import Home


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen in one look."""

    lines: Mapping[str, SessionSummary]
    followed: Mapping[str, SessionSummary]
    compacted: Mapping[str, int]
    routes: Mapping[str, str]
    pins: frozenset[str]
    """Pins of ours, where no row has them."""


def touched(before: Seen, after: Seen) -> set[str]:
    """Return the sessions whose row says otherwise, but for what their messages change in it."""
    rows = {**after.followed, **after.lines}
    otherwise = {
        session
        for session, line in {**before.followed, **before.lines}.items()
        if session not in rows or _lasting(rows[session]) != _lasting(line)
    }
    return otherwise | (before.pins ^ after.pins)


def relisted(before: Seen, after: Seen) -> bool:
    """Whether other conversations are the newest than before, or some have another name."""
    return _names(before) != _names(after)


def differences(home: Home, before: Seen, after: Seen) -> list[tuple[str, dict[str, Any]]]:
    """Return what is otherwise than in the look before, each with its session."""
    at = iso(home.now())
    found: list[tuple[str, dict[str, Any]]] = []

    def note(kind: str, session: str, **more: Any) -> None:
        event = {"type": kind, "at": at, "session_id": session}
        found.append((session, event | said(profile=home.profile, **more)))

    known = {line.root_id for line in before.lines.values()}
    seen = {**before.followed, **before.lines}
    for session, line in {**after.followed, **after.lines}.items():
        was = seen.get(session)
        if was is not None and was.title != line.title:
            note("title_changed", session, title=rows.one_line(home, line.title))
        more = after.compacted[session] > before.compacted.get(session, after.compacted[session])
        goes_on = was is None and session in after.lines and line.root_id in known
        if more or goes_on:
            note("compressed", session)
    for key, session in after.routes.items():
        if before.routes.get(key) != session:
            note("route_changed", session, session_key=key)
    for key in before.routes.keys() - after.routes.keys():
        note("route_changed", before.routes[key], session_key=key, reason="removed")
    return found


def _lasting(line: SessionSummary) -> SessionSummary:
    return replace(line, messages=0, last_active_at=0.0, preview="")


def _names(seen: Seen) -> dict[str, str]:
    return {session: line.title or line.preview for session, line in seen.lines.items()}
