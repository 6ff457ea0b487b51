"""Session rows: created, filled, ended, reopened, and what a session is at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, cast

from session_core.errors import InvalidInput, NotFound, Unsupported
from session_core.models import Revision, SessionRow
from session_core.state import arguments
from session_core.state.sqlite import blocks, columns, lineage
from session_core.state.sqlite.handle import Handle
from session_core.state.sqlite.opening import MARK
from session_core.state.sqlite.store import Store

SQL = blocks.load("sessions")


class Sessions(Store):
    """Session rows."""

    def home_id(self) -> str | None:
        """Return the name that a home of our own has had since it was made; others have none."""
        return self._read(lambda handle: meta(handle, MARK))

    def get_meta(self, key: str) -> str | None:
        """Return a value of `state_meta`."""
        return self._read(lambda handle: meta(handle, key))

    def set_meta(self, key: str, value: str) -> None:
        """Store a value in `state_meta`."""
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidInput("what is stored in state_meta is text, and so is its key")
        self._write(partial(_change_meta, sql=SQL["set_meta"], values=(key, value)))

    def delete_meta(self, key: str) -> bool:
        """Forget a value of `state_meta`; return whether it was there."""
        return self._write(partial(_change_meta, sql=SQL["delete_meta"], values=(key,)))

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
            InvalidInput: a field is unknown, the id is empty, or the parent came from the session.
            NotFound: the parent is not there.
        """
        given = {
            **fields,
            "source": source,
            "model": model,
            "parent_session_id": parent_session_id,
            "started_at": self._clock() if started_at is None else started_at,
        }
        values = columns.of_new_session(session_id, given)
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
            InvalidInput: a field is unknown, or the parent came from the session.
            NotFound: the parent is not there.
            Unsupported: this home has no column for it.
        """
        values = columns.encoded(fields, columns.UPDATED)

        def step(handle: Handle) -> bool:
            for name in values:
                if not handle.has("sessions", name):
                    raise Unsupported(f"the sessions of this home have no {name}")
            there = is_there(handle, session_id)
            if there and values.get("parent_session_id") is not None:
                require(handle, values["parent_session_id"])
            return there and (not values or update(handle, session_id, values))

        return self._write(step)

    def end_session(self, session_id: str, end_reason: str | None) -> bool:
        """End a session unless it has ended already: the first reason wins."""
        columns.check_reason(end_reason)

        def step(handle: Handle) -> bool:
            handle.touched(session_id)
            values = {"id": session_id, "now": self._clock(), "reason": end_reason}
            return handle.run(SQL["end_session"], values) > 0

        return self._write(step)

    def promote_to_session_reset(self, session_id: str, reason: str = "session_reset") -> bool:
        """End a session by a reset, also one that was only closed by its agent."""
        columns.check_reason(reason)

        def step(handle: Handle) -> bool:
            handle.touched(session_id)
            values = {"id": session_id, "now": self._clock(), "reason": reason}
            return handle.run(SQL["promote_session"], values) > 0

        return self._write(step)

    def reopen_session(self, session_id: str) -> bool:
        """Forget that a session has ended."""

        def step(handle: Handle) -> bool:
            handle.touched(session_id)
            return handle.run(SQL["reopen_session"], (session_id,)) > 0

        return self._write(step)

    def set_session_archived(self, session_id: str, archived: bool) -> int:
        """Archive a whole conversation or bring it back; return how many rows changed."""
        arguments.check_flag("archived", archived)

        def step(handle: Handle) -> int:
            return sum(
                handle.run(SQL["set_archived"], {"id": member, "archived": int(archived)})
                for member in lineage.family(handle, session_id)
            )

        return self._write(step)

    def set_expiry_finalized(self, session_id: str, finalized: bool = True) -> bool:
        """Note that the hooks of an expired session were called."""
        arguments.check_flag("finalized", finalized)

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
        columns.check_source(source)
        peer = (source, user_id, session_key, chat_id, chat_type, thread_id)
        named = {"display_name": display_name, "origin_json": origin_json}
        given = {name: value for name, value in named.items() if value is not None}
        values = columns.encoded(
            {**dict(zip(columns.PEER, peer, strict=True)), **given}, (*columns.PEER, *named)
        )

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


def is_there(handle: Handle, session_id: str) -> bool:
    """Whether there is such a session."""
    return handle.value(SQL["has_session"], (session_id,)) is not None


def meta(handle: Handle, key: str) -> str | None:
    """Return a value of `state_meta`."""
    return handle.value(SQL["get_meta"], (key,)) if handle.has("state_meta") else None


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
        f"no session {session_id!r:.100}; list the sessions for their ids",
        nearest=[row[0] for row in near],
    )


def checked_fields(session_id: str, fields: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Return the values of a new session from the fields that `create_session` takes."""
    if not isinstance(fields, Mapping):
        raise InvalidInput("a new session is a mapping of the fields that create_session takes")
    given = dict(fields)
    given.setdefault("source", "unknown")
    if given.get("started_at") is None:
        given["started_at"] = now
    return columns.of_new_session(session_id, given)


def _change_meta(handle: Handle, sql: str, values: tuple[str, ...]) -> bool:
    if not handle.has("state_meta"):
        raise Unsupported("this home has no table state_meta; open it once with a newer Hermes")
    return handle.run(sql, values) > 0


def insert(handle: Handle, values: Mapping[str, Any]) -> None:
    """Insert a session, or fill what is empty in the one that is there."""
    parent = values.get("parent_session_id")
    if parent is not None and lineage.parent_of(handle, values["id"]) is None:
        lineage.check_parent(handle, values["id"], parent)
        require(handle, parent)
    here = [name for name in values if handle.has("sessions", name)]
    filled = [name for name in here if name in columns.FILLED]
    resolution = (
        "UPDATE SET "
        + ", ".join(f"{name} = coalesce(sessions.{name}, excluded.{name})" for name in filled)
        if filled
        else "NOTHING"
    )
    handle.run(
        f"INSERT INTO sessions ({', '.join(here)}) VALUES ({', '.join('?' * len(here))}) "  # noqa: S608 -- names from columns.py
        f"ON CONFLICT(id) DO {resolution}",
        [values[name] for name in here],
    )


def update(handle: Handle, session_id: str, values: Mapping[str, Any]) -> bool:
    """Overwrite columns, whose names come from the fixed tuples of columns.py."""
    parent = values.get("parent_session_id")
    if parent is not None and lineage.parent_of(handle, session_id) != parent:
        lineage.check_parent(handle, session_id, parent)
    handle.touched(session_id)
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
