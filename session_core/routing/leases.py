"""Leases in entries: which process runs a turn in a session or delivers its end.

Newer releases of Hermes store a turn under the same names. A lease is void after it has expired or
its process has died.

`DeliveryMarks` keeps the records of delivered ends of a Hermes home in memory, because Hermes'
entries may not carry them. `session_core.ledger.hermes_delivery_marks` stores them in a file.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from session_core import processes
from session_core.routing.entries import SessionEntry, parse_optional_time, to_local_time


class EntryLease:
    """A lease in the `extra` fields of an entry: token, start time and further fields."""

    def __init__(self, name: str, since: str, duration: timedelta, *other_names: str) -> None:
        self.names = name, since, *other_names
        self.token_name = name
        self._since = since
        self._duration = duration

    def find_holder(self, entry: SessionEntry, now: datetime) -> str | None:
        """Return the token of the live holder, or None if there is none."""
        token = entry.extra.get(self.token_name)
        if token is None:
            return None
        return find_live_holder(token, entry.extra.get(self._since), now, duration=self._duration)

    def put(self, entry: SessionEntry, token: str, now: datetime) -> None:
        """Store a token as the holder, starting now."""
        entry.extra |= {self.token_name: token, self._since: to_local_time(now).isoformat()}

    def clear(self, entry: SessionEntry, token: str | None = None) -> bool:
        """Remove the lease of `token`, or of any holder if it is None.

        Return True if a lease was removed.
        """
        holder = entry.extra.get(self.token_name)
        if holder is None or token not in {None, holder}:
            return False
        for name in self.names:
            entry.extra.pop(name, None)
        return True


TURN_LEASE = EntryLease("active_turn_token", "active_turn_started_at", timedelta(hours=6))
"""The lease of an agent that is at work in the session."""

_CLAIM_DURATION = timedelta(hours=1)

BEGUN_FIELD = "expiry_told_of"
"""The use of the session (its `updated_at`) whose finalize call has begun."""

END_CLAIM = EntryLease("expiry_claim", "expiry_claimed_at", _CLAIM_DURATION, BEGUN_FIELD)
"""The claim of a process that delivers the end of the session."""


def find_live_holder(
    token: Any, since: Any, now: datetime, *, duration: timedelta = _CLAIM_DURATION
) -> str | None:
    """Return the token if it has not expired and its process may be alive, else None."""
    taken_at = parse_optional_time(since)
    if not isinstance(token, str) or taken_at is None:
        return None
    # A clock that was set back a little voids no lease; a time far in the future does.
    return token if abs(to_local_time(now) - taken_at) < duration and _is_alive(token) else None


def create_token() -> str:
    """Return a new unique token of this process."""
    return format_token(uuid.uuid4().hex[:8])


def format_token(nonce: str) -> str:
    """Return the token of this process with a nonce.

    A forked process has another token, because the token contains the process id.
    """
    # The start time and the host distinguish this process from others with the same number.
    pid = os.getpid()
    return (
        f"pid={pid}:start={_get_start_time(pid)}:host={processes.identify_host()}:"
        f"agent=mcp-sessions:nonce={nonce}"
    )


def _is_alive(token: str) -> bool:
    """Return True if the process of a token may be alive.

    A process of another host, or of another program, may always be alive.
    """
    parts = dict(part.partition("=")[::2] for part in token.split(":"))
    # A token of Hermes, or of another machine or container, cannot be checked.
    if parts.get("agent") != "mcp-sessions" or parts.get("host") != processes.identify_host():
        return True
    pid = parts.get("pid", "")
    return not pid.isdecimal() or processes.is_alive(int(pid), parts.get("start"))


@cache
def _get_start_time(pid: int) -> float | None:
    return processes.get_start_time(pid)


DeliveryMark = dict[str, Any]

MarkChange = Callable[[DeliveryMark], "DeliveryMark | None"]
"""Takes a mark and returns the new mark, or None to leave it unchanged."""


class DeliveryMarks:
    """Delivery marks by session id, in memory. Each change is atomic."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._marks: dict[str, DeliveryMark] = {}

    def get(self, session_id: str) -> DeliveryMark:
        """Return the mark of a session."""
        with self._lock:
            return dict(self._marks.get(session_id, {}))

    def change(self, session_id: str, change: MarkChange) -> bool:
        """Replace the mark of a session by the result of `change`.

        Return False if `change` returns None, which leaves the mark as it is.
        """
        with self._lock:
            mark = change(dict(self._marks.get(session_id, {})))
            if mark is not None:
                self._marks[session_id] = mark
            return mark is not None

    def forget(self, session_id: str) -> None:
        """Remove the mark of a session that was reopened."""
        with self._lock:
            self._marks.pop(session_id, None)

    def keep_only(self, session_ids: Collection[str]) -> None:
        """Remove the marks of all other sessions."""
        with self._lock:
            self._marks = {key: mark for key, mark in self._marks.items() if key in session_ids}

    def close(self) -> None:
        """Close open files.

        The marks are kept.
        """
