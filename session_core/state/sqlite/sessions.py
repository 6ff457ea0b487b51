"""Session rows: created, filled, ended, reopened, and what a session is at one moment."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, cast

from session_core.errors import InvalidInput, NotFound, Unsupported
from session_core.models import Revision, SessionRow
from session_core.state.content import clean_text
from session_core.state.sqlite import blocks, lineage
from session_core.state.sqlite.handle import Handle
from session_core.state.sqlite.store import Store

SQL = blocks.load("sessions")

_KEPT = ("source", "user_id", "started_at")
"""What a second `create_session` never changes."""

_FILLED = (
    "session_key",
    "chat_id",
    "chat_type",
    "thread_id",
    "display_name",
    "origin_json",
    "model",
    "model_config",
    "system_prompt",
    "parent_session_id",
    "cwd",
    "git_branch",
    "git_repo_root",
    "profile_name",
)
"""What it fills where it is empty."""

_UPDATED = (
    *_FILLED,
    "user_id",
    "pinned",
    "handoff_state",
    "handoff_platform",
    "handoff_error",
    "billing_provider",
    "billing_base_url",
    "billing_mode",
    "compression_failure_cooldown_until",
    "compression_failure_error",
    "compression_fallback_streak",
)

_PEER = ("source", "user_id", "session_key", "chat_id", "chat_type", "thread_id")


class Sessions(Store):
    """Session rows."""

    def get_meta(self, key: str) -> str | None:
        """Return a value of `state_meta`."""
        return cast(
            "str | None",
            self._read(
                lambda handle: (
                    handle.value(SQL["get_meta"], (key,)) if handle.has("state_meta") else None
                )
            ),
        )

    def set_meta(self, key: str, value: str) -> None:
        """Store a value in `state_meta`."""
        self._write(lambda handle: handle.run(SQL["set_meta"], (key, value)))

    def create_session(
        self,
        session_id: str,
        source: str,
        *,
        model: str | None = None,
        parent_session_id: str | None = None,
        started_at: float | None = None,
        **fields: Any,
    ) -> str:
        """Create a session, or fill what is empty in the one that is there; return its id.

        A field that this home has no column for is left out.

        Raises:
            InvalidInput: a field is unknown, or the id is empty.
            NotFound: the parent is not there.
        """
        given = {
            **fields,
            "source": source,
            "model": model,
            "parent_session_id": parent_session_id,
            "started_at": self._clock() if started_at is None else started_at,
        }
        values = _checked(session_id, given)
        self._write(lambda handle: insert(handle, values))
        return session_id

    def get_session(self, session_id: str) -> SessionRow | None:
        """Return a session's row."""
        return self._read(lambda handle: get(handle, session_id))

    def resolve_session_id(self, session: str) -> str | None:
        """Return the id that `session` is, or is the only prefix of."""

        def look(handle: Handle) -> str | None:
            if get(handle, session) is not None:
                return session
            found = handle.values(SQL["find_by_prefix"], {"prefix": session}) if session else []
            return found[0][0] if len(found) == 1 else None

        return self._read(look)

    def update_session(self, session_id: str, **fields: Any) -> bool:
        """Overwrite columns of a session; return whether it is there.

        Raises:
            InvalidInput: a field is unknown.
            Unsupported: this home has no column for it.
        """
        values = _encoded(fields, _UPDATED)

        def step(handle: Handle) -> bool:
            for name in values:
                if not handle.has("sessions", name):
                    raise Unsupported(f"the sessions of this home have no {name}")
            if not values:
                return get(handle, session_id) is not None
            return update(handle, session_id, values)

        return self._write(step)

    def end_session(self, session_id: str, end_reason: str | None) -> bool:
        """End a session unless it has ended already: the first reason wins."""
        now = self._clock()

        def step(handle: Handle) -> bool:
            handle.cache.pop(("revision", session_id), None)
            values = {"id": session_id, "now": now, "reason": end_reason}
            return handle.run(SQL["end_session"], values) > 0

        return self._write(step)

    def promote_to_session_reset(self, session_id: str, reason: str = "session_reset") -> bool:
        """End a session by a reset, also one that was only closed by its agent."""
        now = self._clock()

        def step(handle: Handle) -> bool:
            handle.cache.pop(("revision", session_id), None)
            values = {"id": session_id, "now": now, "reason": reason}
            return handle.run(SQL["promote_session"], values) > 0

        return self._write(step)

    def reopen_session(self, session_id: str) -> bool:
        """Forget that a session has ended."""

        def step(handle: Handle) -> bool:
            handle.cache.pop(("revision", session_id), None)
            return handle.run(SQL["reopen_session"], (session_id,)) > 0

        return self._write(step)

    def set_session_archived(self, session_id: str, archived: bool) -> int:
        """Archive a whole conversation or bring it back; return how many rows changed."""

        def step(handle: Handle) -> int:
            return sum(
                handle.run(SQL["set_archived"], {"id": member, "archived": int(archived)})
                for member in lineage.family(handle, session_id)
            )

        return self._write(step)

    def set_expiry_finalized(self, session_id: str, finalized: bool = True) -> bool:
        """Note that the hooks of an expired session were called."""

        def step(handle: Handle) -> bool:
            if not handle.has("sessions", "expiry_finalized"):
                raise Unsupported("the sessions of this home have no expiry_finalized")
            return update(handle, session_id, {"expiry_finalized": int(finalized)})

        return self._write(step)

    def record_gateway_session_peer(
        self,
        session_id: str,
        *,
        source: str,
        user_id: str | None = None,
        session_key: str | None = None,
        chat_id: str | None = None,
        chat_type: str | None = None,
        thread_id: str | None = None,
        display_name: str | None = None,
        origin_json: str | None = None,
    ) -> bool:
        """Store which chat a session belongs to; the last two only where they are given."""
        if not source:
            raise InvalidInput("a session needs a source, such as 'telegram'")
        peer = (source, user_id, session_key, chat_id, chat_type, thread_id)
        named = {"display_name": display_name, "origin_json": origin_json}
        given = {name: value for name, value in named.items() if value is not None}
        values = _encoded({**dict(zip(_PEER, peer, strict=True)), **given}, (*_PEER, *named))

        def step(handle: Handle) -> bool:
            here = {name: value for name, value in values.items() if handle.has("sessions", name)}
            return update(handle, session_id, here)

        return self._write(step)

    def revision(self, session_id: str) -> Revision:
        """Return what the session is now, in one statement.

        Raises:
            NotFound: there is no such session.
        """
        return self._read(lambda handle: revision(handle, session_id))


def get(handle: Handle, session_id: str) -> SessionRow | None:
    """Return a session's row."""
    return cast("SessionRow | None", handle.row(SQL["get_session"], (session_id,)))


def require(handle: Handle, session_id: str) -> SessionRow:
    """Return a session's row, or say that it is not there and what may have been meant."""
    row = get(handle, session_id)
    if row is None:
        raise missing(handle, session_id)
    return row


def missing(handle: Handle, session_id: str) -> NotFound:
    """Return the error for an unknown id, with ids that begin like it."""
    near: list[Any] = []
    for length in range(min(len(str(session_id)), 20), 0, -1):
        near = handle.values(SQL["find_by_prefix"], {"prefix": str(session_id)[:length]})
        if near:
            break
    return NotFound(
        f"no session {session_id!r}; list the sessions for their ids",
        nearest=[row[0] for row in near],
    )


def checked_fields(session_id: str, fields: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Return the values of a new session from the fields that `create_session` takes."""
    given = dict(fields)
    given.setdefault("source", "unknown")
    if given.get("started_at") is None:
        given["started_at"] = now
    return _checked(session_id, given)


def insert(handle: Handle, values: Mapping[str, Any]) -> None:
    """Insert a session, or fill what is empty in the one that is there."""
    here = [name for name in values if handle.has("sessions", name)]
    filled = [name for name in here if name in _FILLED]
    resolution = (
        "UPDATE SET "
        + ", ".join(f"{name} = coalesce(sessions.{name}, excluded.{name})" for name in filled)
        if filled
        else "NOTHING"
    )
    handle.run(
        f"INSERT INTO sessions ({', '.join(here)}) VALUES ({', '.join('?' * len(here))}) "  # noqa: S608 -- names from the fixed tuples above
        f"ON CONFLICT(id) DO {resolution}",
        [values[name] for name in here],
    )


def update(handle: Handle, session_id: str, values: Mapping[str, Any]) -> bool:
    """Overwrite columns, whose names come from the fixed tuples above."""
    handle.cache.pop(("revision", session_id), None)
    assignments = ", ".join(f"{name} = ?" for name in values)
    return (
        handle.run(
            f"UPDATE sessions SET {assignments} WHERE id = ?",  # noqa: S608 -- fixed names
            [*values.values(), session_id],
        )
        > 0
    )


def revision(handle: Handle, session_id: str) -> Revision:
    """Return the revision of a session, counted once for as long as nobody else commits."""
    known = handle.cache.get(("revision", session_id))
    if known is None:
        row = handle.values(handle.sql(SQL["get_revision"]), {"id": session_id})
        if not row:
            raise missing(handle, session_id)
        known = handle.cache["revision", session_id] = Revision(*row[0])
    return cast("Revision", known)


def _checked(session_id: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    if not session_id or not isinstance(session_id, str) or clean_text(session_id) != session_id:
        raise InvalidInput("a session needs an id, which is text")
    if not fields.get("source"):
        raise InvalidInput("a session needs a source, such as 'cli'")
    started_at = fields.get("started_at")
    if not isinstance(started_at, (int, float)) or not abs(started_at) < math.inf:
        raise InvalidInput("a session starts at a number of seconds")
    values = _encoded(fields, (*_KEPT, *_FILLED))
    return {"id": session_id, **{k: v for k, v in values.items() if v is not None}}


def _encoded(fields: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    for name in fields:
        if name not in known:
            raise InvalidInput(f"unknown field {name!r}; known are {', '.join(sorted(known))}")
    values = dict(fields)
    for name in ("model_config", "origin_json"):
        if isinstance(values.get(name), (Mapping, list)):
            values[name] = json.dumps(values[name])
    return {
        name: clean_text(value) if isinstance(value, str) else value
        for name, value in values.items()
    }
