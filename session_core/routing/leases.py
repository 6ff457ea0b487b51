"""Who is at work in the session of a chat, as its entry says: an agent, or whoever ends it.

Newer releases of Hermes note a turn under the same names. A note counts for nothing once the
process that made it is dead, or so long after it that whoever made it has forgotten it.

What is noted of the ends of sessions where entries may not be marked: on a Hermes home.

Here it is kept by the process; `session_core.ledger.hook_deliveries` keeps it in a file.
"""

from __future__ import annotations

import os
import platform
import threading
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from session_core import processes
from session_core.routing.entries import SessionEntry, parse_optional_time, to_local_time


class EntryLease:
    """Something that is noted in an entry, beside what is known of it by name."""

    def __init__(self, name: str, since: str, lasts: timedelta, *more: str) -> None:
        self.names = name, since, *more
        self._name = name
        self._since = since
        self._lasts = lasts

    def find_holder(self, entry: SessionEntry, now: datetime) -> str | None:
        """Return the token of who is at it, None where nobody is any more."""
        token, since = entry.extra.get(self._name), entry.extra.get(self._since)
        return find_live_holder(token, since, now, lasts=self._lasts)

    def put(self, entry: SessionEntry, token: str, now: datetime) -> None:
        """Note who is at it from now on."""
        entry.extra |= {self._name: token, self._since: to_local_time(now).isoformat()}

    def clear(self, entry: SessionEntry, token: str | None = None) -> bool:
        """Note that nobody is at it, or that this one is not; return whether that is new."""
        found = entry.extra.get(self._name)
        if found is None or token not in {None, found}:
            return False
        for name in self.names:
            entry.extra.pop(name, None)
        return True


TURN_LEASE = EntryLease("active_turn_token", "active_turn_started_at", timedelta(hours=6))
"""An agent is at work."""

_CLAIM_DURATION = timedelta(hours=1)

BEGUN_FIELD = "expiry_told_of"
"""Of which use of the session a hook has begun to be told that it has ended."""

END_CLAIM = EntryLease("expiry_claim", "expiry_claimed_at", _CLAIM_DURATION, BEGUN_FIELD)
"""Somebody tells that the session has ended."""


def find_live_holder(
    token: Any, since: Any, now: datetime, *, lasts: timedelta = _CLAIM_DURATION
) -> str | None:
    """Return the token of who has noted something, None where nobody is at it any more."""
    noted_at = parse_optional_time(since)
    if not isinstance(token, str) or noted_at is None:
        return None
    # A clock that was set back a little makes nobody dead; far ahead of it nothing is noted.
    return token if abs(to_local_time(now) - noted_at) < lasts and _is_alive(token) else None


def create_token() -> str:
    """Return a token of this process that nobody has."""
    return format_token(uuid.uuid4().hex[:8])


def format_token(nonce: str) -> str:
    """Return the token of this process with a nonce; a process that was forked has its own."""
    pid = os.getpid()
    return (
        f"pid={pid}:start={_get_start_time(pid)}:host={_get_host_name()}:"
        f"agent=mcp-sessions:nonce={nonce}"
    )


def _is_alive(token: str) -> bool:
    """Whether the process of a token may live; of those elsewhere nothing is known."""
    parts = dict(part.partition("=")[::2] for part in token.split(":"))
    if parts.get("agent") != "mcp-sessions" or parts.get("host") != _get_host_name():
        return True
    pid = parts.get("pid", "")
    return not pid.isdecimal() or processes.is_alive(int(pid), parts.get("start"))


@cache
def _get_start_time(pid: int) -> float | None:
    return processes.get_start_time(pid)


@cache
def _get_host_name() -> str:
    """Return what tells apart where processes have their numbers: machines and containers."""
    space = ""
    with suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 -- text
    return f"{platform.node()} {space}".replace(":", "").replace("=", "").strip()


Mark = dict[str, Any]

MarkChange = Callable[[Mark], "Mark | None"]
"""Is given what is noted, and returns what is to be; None where nothing is to change."""


class DeliveryMarks:
    """Marks by session that end with their process; each step is atomic."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._noted: dict[str, Mark] = {}

    def get(self, session_id: str) -> Mark:
        """Return what is noted of a session."""
        with self._lock:
            return dict(self._noted.get(session_id, {}))

    def change(self, session_id: str, change: MarkChange) -> bool:
        """Change what is noted of a session; return whether it was."""
        with self._lock:
            noted = change(dict(self._noted.get(session_id, {})))
            if noted is not None:
                self._noted[session_id] = noted
            return noted is not None

    def forget(self, session_id: str) -> None:
        """Forget what is noted of a session, which goes on."""
        with self._lock:
            self._noted.pop(session_id, None)

    def keep_only(self, session_ids: Collection[str]) -> None:
        """Forget what is noted of all others."""
        with self._lock:
            self._noted = {key: noted for key, noted in self._noted.items() if key in session_ids}

    def close(self) -> None:
        """Let go of what is open; what was noted stays."""
