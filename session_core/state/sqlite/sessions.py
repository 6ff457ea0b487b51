"""Session rows: created, filled, ended, reopened, and what a session is at one moment.

The columns of a session's row that a caller sets: which there are, and what fits into them.

Titles: one conversation each, numbered along a lineage, moved from an ancestor.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import isfinite
from typing import Any, cast

from session_core.errors import InvalidInput, NotFound, TitleTaken, Unsupported
from session_core.state import titles, validation
from session_core.state.content import clean_text, dump
from session_core.state.sqlite import lineage, sql_blocks
from session_core.state.sqlite.connection import Handle
from session_core.state.sqlite.connections import Store
from session_core.state.sqlite.opening import MARK
from session_core.state.validation import check_line
from session_core.types import Revision, SessionRow

SQL = sql_blocks.load("sessions")


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
        values = of_new_session(session_id, given)
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
        values = encoded(fields, UPDATED)

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
        check_reason(end_reason)

        def step(handle: Handle) -> bool:
            handle.touched(session_id)
            values = {"id": session_id, "now": self._clock(), "reason": end_reason}
            return handle.run(SQL["end_session"], values) > 0

        return self._write(step)

    def promote_to_session_reset(self, session_id: str, reason: str = "session_reset") -> bool:
        """End a session by a reset, also one that was only closed by its agent."""
        check_reason(reason)

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
        validation.check_flag("archived", archived)

        def step(handle: Handle) -> int:
            return sum(
                handle.run(SQL["set_archived"], {"id": member, "archived": int(archived)})
                for member in lineage.family(handle, session_id)
            )

        return self._write(step)

    def set_expiry_finalized(self, session_id: str, finalized: bool = True) -> bool:
        """Note that the hooks of an expired session were called."""
        validation.check_flag("finalized", finalized)

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
        check_source(source)
        peer = (source, user_id, session_key, chat_id, chat_type, thread_id)
        named = {"display_name": display_name, "origin_json": origin_json}
        given = {name: value for name, value in named.items() if value is not None}
        values = encoded({**dict(zip(PEER, peer, strict=True)), **given}, (*PEER, *named))

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
    return of_new_session(session_id, given)


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
    filled = [name for name in here if name in FILLED]
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


KEPT = ("source", "user_id", "started_at")
"""What a second `create_session` never changes."""

FILLED = (
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

UPDATED = (
    *FILLED,
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

PEER = ("source", "user_id", "session_key", "chat_id", "chat_type", "thread_id")

_NUMBERS = (
    "started_at",
    "pinned",
    "compression_failure_cooldown_until",
    "compression_fallback_streak",
)
_JSON = ("model_config", "origin_json")


def encoded(fields: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """Return what is stored for fields, of which only `known` ones are taken.

    Raises:
        InvalidInput: a field is unknown, or its value does not fit.
    """
    for name in fields:
        if name not in known:
            raise InvalidInput(f"unknown field {name!r}; known are {', '.join(sorted(known))}")
    return {name: _encoded(name, value) for name, value in fields.items()}


def of_new_session(session_id: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is stored for a new session, without what is empty.

    Raises:
        InvalidInput: a field is unknown, its value does not fit, or one is missing.
    """
    if not session_id or not isinstance(session_id, str) or clean_text(session_id) != session_id:
        raise InvalidInput("a session needs an id, which is text")
    check_source(fields.get("source"))
    values = encoded(fields, (*KEPT, *FILLED))
    return {"id": session_id, **{k: v for k, v in values.items() if v is not None}}


def check_source(source: Any) -> None:
    """Refuse what is no source."""
    if not isinstance(source, str) or not source:
        raise InvalidInput("a session needs a source, which is text, such as 'cli'")


def check_reason(end_reason: Any) -> None:
    """Refuse what is no reason; that there is none is one."""
    if end_reason is not None and not isinstance(end_reason, str):
        raise InvalidInput("the reason for which a session ended is text, such as 'cli_close'")
    check_line("end_reason", end_reason)


def _encoded(name: str, value: Any) -> str | float | None:
    if name in _NUMBERS:
        return _number(name, value)
    if name in _JSON and isinstance(value, (Mapping, list)):
        return dump(value) if value else None
    if value is None or isinstance(value, int):  # a number of a chat, say, reads as its digits
        return value
    if not isinstance(value, str):
        raise InvalidInput(f"{name} is text")
    return clean_text(value)


def _number(name: str, value: Any) -> float | None:
    if value is None or isinstance(value, int):
        return value
    if not isinstance(value, float) or not isfinite(value):
        raise InvalidInput(f"{name} is a number")
    return value


class Titles(Store):
    """Titles of sessions."""

    sanitize_title = staticmethod(titles.clean)

    def set_session_title(self, session_id: str, title: str | None) -> bool:
        """Set or clear a title; it moves from an ancestor of the same conversation.

        Raises:
            TitleTaken: another conversation has it.
            InvalidInput: it is too long.
        """
        cleaned = titles.clean(title)

        def step(handle: Handle) -> bool:
            if handle.row(SQL["get_title"], (session_id,)) is None:
                return False
            if cleaned is not None:
                _make_free(handle, session_id, cleaned)
            return handle.run(SQL["set_title"], {"id": session_id, "title": cleaned}) > 0

        return self._write(step)

    def set_auto_title_if_empty(self, session_id: str, title: str) -> bool:
        """Set a title where there is none; return whether it was set."""
        cleaned = titles.clean(title)
        if cleaned is None:
            return False

        def step(handle: Handle) -> bool:
            if handle.row(SQL["get_title"], (session_id,)) != {"title": None}:
                return False
            _make_free(handle, session_id, cleaned)
            return handle.run(SQL["set_title"], {"id": session_id, "title": cleaned}) > 0

        return self._write(step)

    def get_session_title(self, session_id: str) -> str | None:
        """Return the title of a session."""
        return self._read(
            lambda handle: cast("str | None", handle.value(SQL["get_title"], (session_id,)))
        )

    def get_session_by_title(self, title: str) -> SessionRow | None:
        """Return the session with exactly this title."""
        return self._read(
            lambda handle: cast("SessionRow | None", handle.row(SQL["get_by_title"], (title,)))
        )

    def resolve_session_by_title(self, title: str) -> str | None:
        """Return the newest session of the lineage of this title, else the one that has it."""
        validation.check_text("title", title, needed=True)

        def look(handle: Handle) -> str | None:
            found = _beginning(handle, title)
            numbered = (row for row in found if titles.continues(row[0], title))
            exact = (row for row in found if row[0] == title)
            _, session_id = next(numbered, None) or next(exact, (None, None))
            return session_id

        return self._read(look)

    def get_next_title_in_lineage(self, base_title: str) -> str:
        """Return the next free title: "Trip", then "Trip #2".

        Raises:
            InvalidInput: there is nothing left of the title, or it is too long.
        """
        base = titles.clean(base_title)
        if base is None:
            raise InvalidInput("a lineage needs a title to number")

        def look(handle: Handle) -> str:
            found = _beginning(handle, titles.stem(base))
            return titles.following(base, [row[0] for row in found])

        return self._read(look)


def _beginning(handle: Handle, base: str) -> list[tuple[str, str]]:
    """Return titles that may be of the lineage of `base`, with their sessions, newest first."""
    return handle.values(SQL["list_titles_beginning"], {"begin": titles.beginning(base)})


def _make_free(handle: Handle, session_id: str, title: str) -> None:
    """Take the title from an ancestor of the conversation, or say who has it."""
    holder = handle.value(SQL["get_holder"], {"title": title, "id": session_id})
    if holder is None:
        return
    if holder not in lineage.ancestors(handle, session_id):
        raise TitleTaken(title, holder)
    handle.run(SQL["set_title"], {"id": holder, "title": None})
