"""Session rows, their columns and titles: create, fill, end, reopen and revise.

A title belongs to one conversation, is numbered along a lineage, and moves from an ancestor.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import isfinite
from typing import Any, cast

from session_core._typing import Unpack
from session_core.errors import InvalidInput, NotFound, TitleTaken, Unsupported
from session_core.state import sql_blocks, titles, validation
from session_core.state.columns import NewSessionColumns, SessionColumnUpdates
from session_core.state.content import clean_text, dump_json
from session_core.state.sqlite import lineage
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.store import SqliteOperations
from session_core.state.validation import check_line
from session_core.types import Revision, SessionRow

SQL = sql_blocks.load_blocks("sessions")

_NAME_END = "@"
"""Ends the name of a session in an id with other parts, as in `NAME@APP@USER`."""


class SqliteSessions(SqliteOperations):
    """Session rows and the values of `state_meta`."""

    def get_meta(self, key: str) -> str | None:
        """Return a value of `state_meta`, or None."""
        return self._read(lambda handle: find_meta(handle, key))

    def set_meta(self, key: str, value: str) -> None:
        """Store a value in `state_meta`."""
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidInput("a key and a value of state_meta must be text")
        self._write(partial(change_meta, sql=SQL["set_meta"], values=(key, value)))

    def delete_meta(self, key: str) -> bool:
        """Delete a value of `state_meta` and return True if it existed."""
        return self._write(partial(change_meta, sql=SQL["delete_meta"], values=(key,)))

    def create_session(
        self,
        session_id: str,
        source: str,
        *,
        model: str | None = None,
        parent_session_id: str | None = None,
        started_at: float | None = None,
        **fields: Unpack[NewSessionColumns],
    ) -> str:
        """Create a session, or fill the empty columns of an existing session, and return its id.

        `append_message(create=…)` creates a session together with its first message.

        Args:
            session_id: the id of the session.
            source: the program or platform of the session, for example `cli` or `telegram`.
            model: the model of the session.
            parent_session_id: the session that this session continues or branches from.
            started_at: the start in seconds since the epoch; by default, now.
            fields: other columns, for example `cwd`, `user_id` or `model_config`. A field without a
                column in this home is ignored.

        Raises:
            InvalidInput: a field is unknown, the id is empty, or the parent is a descendant.
            NotFound: the parent does not exist.
        """
        columns = {
            **fields,
            "source": source,
            "model": model,
            "parent_session_id": parent_session_id,
            "started_at": self._clock() if started_at is None else started_at,
        }
        values = encode_new_session(session_id, columns)
        self._write(lambda handle: insert_or_fill_session(handle, values))
        return session_id

    def get_session(self, session_id: str) -> SessionRow | None:
        """Return the row of a session, or None.

        A row is a mapping of columns to values. `summarize_session` returns the line of a list.
        """
        return self._read(lambda handle: find_session(handle, session_id))

    def resolve_session_id(self, session: str) -> str | None:
        """Return the id equal to `session`, or the only id that begins with it.

        Return None if no id or several ids begin with it. The only id `SESSION@…` comes before
        longer names, and a session comes before its subagents `ID#…`.
        """

        def find_unique_id(handle: Connection) -> str | None:
            # A whole id may also be the beginning of others.
            if find_session(handle, session) is not None:
                return session
            for prefix in (f"{session}{_NAME_END}", session) if session else ():
                rows = handle.fetch_tuples(SQL["find_by_prefix"], {"prefix": prefix})
                if len(rows) == 1:
                    return cast("str", rows[0][0])
            return None

        return self._read(find_unique_id)

    def update_session(self, session_id: str, **fields: Unpack[SessionColumnUpdates]) -> bool:
        """Overwrite columns of a session and return True if it exists.

        Args:
            session_id: the session.
            fields: the new values by column, for example `model="…"` or `cwd="…"`. None empties a
                column.

        Raises:
            InvalidInput: a field is unknown, or the parent is a descendant.
            NotFound: the parent does not exist.
            Unsupported: this home has no column for it.
        """
        values = encode_fields(fields, UPDATED_COLUMNS)

        def update_existing_session(handle: Connection) -> bool:
            # Unlike at its creation, a value that this home cannot store is an error.
            for name in values:
                if not handle.has_column("sessions", name):
                    raise Unsupported(f"the sessions of this home have no {name}")
            exists = has_session(handle, session_id)
            if exists and values.get("parent_session_id") is not None:
                require_session(handle, values["parent_session_id"])
            return exists and (not values or update_session(handle, session_id, values))

        return self._write(update_existing_session)

    def end_session(self, session_id: str, end_reason: str | None) -> bool:
        """End a session unless it has already ended.

        The first end reason is kept. Return True if this call has ended the session.
        """
        check_reason(end_reason)

        def end_open_session(handle: Connection) -> bool:
            # The end is part of the revision, which is cached.
            handle.forget_session_counts(session_id)
            values = {"id": session_id, "now": self._clock(), "reason": end_reason}
            return handle.execute_update(SQL["end_session"], values) > 0

        return self._write(end_open_session)

    def promote_to_session_reset(self, session_id: str, reason: str = "session_reset") -> bool:
        """End a session by a reset, even if its agent has only closed it."""
        check_reason(reason)

        def end_by_reset(handle: Connection) -> bool:
            handle.forget_session_counts(session_id)
            values = {"id": session_id, "now": self._clock(), "reason": reason}
            return handle.execute_update(SQL["promote_session"], values) > 0

        return self._write(end_by_reset)

    def reopen_session(self, session_id: str) -> bool:
        """Reopen an ended session.

        Return True if the session exists.
        """

        def clear_end(handle: Connection) -> bool:
            handle.forget_session_counts(session_id)
            return handle.execute_update(SQL["reopen_session"], (session_id,)) > 0

        return self._write(clear_end)

    def set_session_archived(self, session_id: str, archived: bool) -> int:
        """Archive or unarchive a whole conversation and return the number of changed rows."""
        validation.check_flag("archived", archived)

        def update_archived_flags(handle: Connection) -> int:
            return sum(
                handle.execute_update(
                    SQL["set_archived"], {"id": member, "archived": int(archived)}
                )
                for member in lineage.list_family(handle, session_id)
            )

        return self._write(update_archived_flags)

    def set_expiry_finalized(self, session_id: str, finalized: bool = True) -> bool:
        """Record that the hooks of an expired session were called."""
        validation.check_flag("finalized", finalized)

        def update_finalized_flag(handle: Connection) -> bool:
            if not handle.has_column("sessions", "expiry_finalized"):
                raise Unsupported("the sessions of this home have no expiry_finalized")
            return update_session(handle, session_id, {"expiry_finalized": int(finalized)})

        return self._write(update_finalized_flag)

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
        """Store the chat of a session.

        `display_name` and `origin_json` keep their values if they are not given.
        """
        check_source(source)
        peer = (source, user_id, session_key, chat_id, chat_type, thread_id)
        optional = {"display_name": display_name, "origin_json": origin_json}
        present = {name: value for name, value in optional.items() if value is not None}
        values = encode_fields(
            {**dict(zip(PEER_COLUMNS, peer, strict=True)), **present}, (*PEER_COLUMNS, *optional)
        )

        def update_peer_columns(handle: Connection) -> bool:
            stored = {
                name: value for name, value in values.items() if handle.has_column("sessions", name)
            }
            return update_session(handle, session_id, stored)

        return self._write(update_peer_columns)

    def get_revision(self, session_id: str) -> Revision:
        """Return the present revision of a session, read in one statement.

        Raises:
            NotFound: the session does not exist.
        """
        return self._read(lambda handle: get_revision(handle, session_id))


def find_session(handle: Connection, session_id: str) -> SessionRow | None:
    """Return the row of a session, or None."""
    return cast("SessionRow | None", handle.fetch_row(SQL["get_session"], (session_id,)))


def has_session(handle: Connection, session_id: str) -> bool:
    """Return True if the session exists."""
    return handle.fetch_value(SQL["has_session"], (session_id,)) is not None


def find_meta(handle: Connection, key: str) -> str | None:
    """Return a value of `state_meta`, or None."""
    return handle.fetch_value(SQL["get_meta"], (key,)) if handle.has_column("state_meta") else None


def require_session(handle: Connection, session_id: str) -> SessionRow:
    """Return the row of a session, or raise `NotFound` with similar ids."""
    row = find_session(handle, session_id)
    if row is None:
        raise make_not_found(handle, session_id)
    return row


def check_session(handle: Connection, session_id: str) -> None:
    """Raise `NotFound` with similar ids if the session does not exist."""
    if not has_session(handle, session_id):
        raise make_not_found(handle, session_id)


def make_not_found(handle: Connection, session_id: str) -> NotFound:
    """Return the error for an unknown id, with ids that have the longest common prefix."""
    rows: list[Any] = []
    # The longest prefix with any match gives the most similar ids.
    text = str(session_id)
    for length in (len(text), *range(min(len(text), 20), 0, -1)):
        rows = handle.fetch_tuples(SQL["find_by_prefix"], {"prefix": text[:length]})
        if rows:
            break
    return NotFound(
        f"no session {session_id!r:.100}; list the sessions for their ids",
        nearest=[row[0] for row in rows],
    )


def encode_create_arguments(
    session_id: str, fields: Mapping[str, Any], now: float
) -> dict[str, Any]:
    """Encode a new session from the arguments of `create_session`."""
    if not isinstance(fields, Mapping):
        raise InvalidInput("a new session must be a mapping of the fields of create_session")
    columns = dict(fields)
    columns.setdefault("source", "unknown")
    if columns.get("started_at") is None:
        columns["started_at"] = now
    return encode_new_session(session_id, columns)


def change_meta(handle: Connection, sql: str, values: tuple[str, ...]) -> bool:
    """Change one key of `state_meta` and return True if a row changed."""
    if not handle.has_column("state_meta"):
        raise Unsupported("this home has no table state_meta; open it once with a newer Hermes")
    return handle.execute_update(sql, values) > 0


def insert_or_fill_session(handle: Connection, values: Mapping[str, Any]) -> None:
    """Insert a session, or fill the empty columns of an existing session."""
    parent = values.get("parent_session_id")
    # An existing parent is kept, so only a new one is checked.
    if parent is not None and lineage.find_parent(handle, values["id"]) is None:
        lineage.check_parent(handle, values["id"], parent)
        require_session(handle, parent)
    # Homes of older schemas lack some columns.
    names = [name for name in values if handle.has_column("sessions", name)]
    filled = [name for name in names if name in FILLED_COLUMNS]
    if not has_session(handle, values["id"]):
        handle.execute_update(
            f"INSERT INTO sessions ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})",  # noqa: S608 -- column names of fixed tuples
            [values[name] for name in names],
        )
    elif filled:
        changes = ", ".join(f"{name} = coalesce({name}, ?)" for name in filled)
        handle.execute_update(
            f"UPDATE sessions SET {changes} WHERE id = ?",  # noqa: S608 -- column names of fixed tuples
            [*(values[name] for name in filled), values["id"]],
        )


def update_session(handle: Connection, session_id: str, values: Mapping[str, Any]) -> bool:
    """Overwrite columns of a session and return True if it exists.

    The names of the columns go into the SQL unescaped, so pass only known names.
    """
    parent = values.get("parent_session_id")
    if parent is not None and lineage.find_parent(handle, session_id) != parent:
        lineage.check_parent(handle, session_id, parent)
    handle.forget_session_counts(session_id)
    assignments = ", ".join(f"{name} = ?" for name in values)
    return (
        handle.execute_update(
            f"UPDATE sessions SET {assignments} WHERE id = ?",  # noqa: S608 -- column names of fixed tuples
            [*values.values(), session_id],
        )
        > 0
    )


def get_revision(handle: Connection, session_id: str) -> Revision:
    """Return the revision of a session, cached until another connection commits."""
    revision = find_revision(handle, session_id)
    if revision is None:
        raise make_not_found(handle, session_id)
    return revision


def find_revision(handle: Connection, session_id: str) -> Revision | None:
    """Return the revision like `get_revision`, or None if the session does not exist."""
    revision = handle.cache.get(("revision", session_id))
    if revision is None:
        row = handle.fetch_tuples(handle.expand_sql(SQL["get_revision"]), {"id": session_id})
        if row:
            revision = handle.cache["revision", session_id] = Revision(*row[0])
    return cast("Revision | None", revision)


FIXED_COLUMNS = ("source", "user_id", "started_at")
"""Columns that a second `create_session` never changes."""

FILLED_COLUMNS = (
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
"""Columns that a second `create_session` fills if they are empty."""

UPDATED_COLUMNS = (
    *FILLED_COLUMNS,
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

PEER_COLUMNS = ("source", "user_id", "session_key", "chat_id", "chat_type", "thread_id")

_NUMBER_COLUMNS = (
    "started_at",
    "pinned",
    "compression_failure_cooldown_until",
    "compression_fallback_streak",
)
_JSON_COLUMNS = ("model_config", "origin_json")


def encode_fields(fields: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """Encode fields as stored values. Only the fields in `known` are accepted.

    Raises:
        InvalidInput: a field is unknown, or its value is not valid.
    """
    for name in fields:
        if name not in known:
            raise InvalidInput(f"unknown field {name!r}; valid are {', '.join(sorted(known))}")
    return {name: _encode_value(name, value) for name, value in fields.items()}


def encode_new_session(session_id: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Encode a new session, without empty values."""
    if not session_id or not isinstance(session_id, str) or clean_text(session_id) != session_id:
        raise InvalidInput("a session id must be non-empty text")
    check_source(fields.get("source"))
    values = encode_fields(fields, (*FIXED_COLUMNS, *FILLED_COLUMNS))
    return {"id": session_id, **{k: v for k, v in values.items() if v is not None}}


def check_source(source: Any) -> None:
    """Refuse a source that is not text, or is empty."""
    if not isinstance(source, str) or not source:
        raise InvalidInput("a session source must be non-empty text, such as 'cli'")


def check_reason(end_reason: Any) -> None:
    """Refuse an end reason that is not text. None is valid."""
    if end_reason is not None and not isinstance(end_reason, str):
        raise InvalidInput("end_reason must be text, such as 'cli_close'")
    check_line("end_reason", end_reason)


def _encode_value(name: str, value: Any) -> str | float | None:
    if name in _NUMBER_COLUMNS:
        return _check_number(name, value)
    if name in _JSON_COLUMNS and isinstance(value, (Mapping, list)):
        return dump_json(value) if value else None
    if value is None or isinstance(value, int):  # a numeric chat id is stored as its digits
        return value
    if not isinstance(value, str):
        raise InvalidInput(f"{name} must be text")
    return clean_text(value)


def _check_number(name: str, value: Any) -> float | None:
    if value is None or isinstance(value, int):
        return value
    if not isinstance(value, float) or not isfinite(value):
        raise InvalidInput(f"{name} must be a finite number")
    return value


class SqliteTitles(SqliteOperations):
    """Titles of sessions."""

    def set_session_title(self, session_id: str, title: str | None) -> bool:
        """Set or clear a title, or move it from an ancestor of the same conversation.

        Control characters are removed from the title. Return True if the session exists.

        Args:
            session_id: the session.
            title: the new title of at most 100 characters; None or an empty text clears it.

        Raises:
            TitleTaken: another conversation has the title.
            InvalidInput: the title is too long.
        """
        cleaned = titles.clean_title(title)

        def update_title(handle: Connection) -> bool:
            if handle.fetch_row(SQL["get_title"], (session_id,)) is None:
                return False
            if cleaned is not None:
                _clear_ancestor_title(handle, session_id, cleaned)
            return handle.execute_update(SQL["set_title"], {"id": session_id, "title": cleaned}) > 0

        return self._write(update_title)

    def set_auto_title_if_empty(self, session_id: str, title: str) -> bool:
        """Set a title if the session has none, and return True if it was set."""
        cleaned = titles.clean_title(title)
        if cleaned is None:
            return False

        def update_empty_title(handle: Connection) -> bool:
            # Checked in the transaction: a user may have set a title meanwhile.
            if handle.fetch_row(SQL["get_title"], (session_id,)) != {"title": None}:
                return False
            _clear_ancestor_title(handle, session_id, cleaned)
            return handle.execute_update(SQL["set_title"], {"id": session_id, "title": cleaned}) > 0

        return self._write(update_empty_title)

    def get_session_title(self, session_id: str) -> str | None:
        """Return the title of a session."""
        return self._read(
            lambda handle: cast("str | None", handle.fetch_value(SQL["get_title"], (session_id,)))
        )

    def get_session_by_title(self, title: str) -> SessionRow | None:
        """Return the session with exactly this title."""
        return self._read(
            lambda handle: cast(
                "SessionRow | None", handle.fetch_row(SQL["get_by_title"], (title,))
            )
        )

    def resolve_session_by_title(self, title: str) -> str | None:
        """Return the newest session in the lineage of a title, or the session with the title."""
        validation.check_text("title", title, needed=True)

        def find_titled_session(handle: Connection) -> str | None:
            rows = _list_lineage_titles(handle, title)
            numbered = (row for row in rows if titles.is_numbered_title(row[0], title))
            exact = (row for row in rows if row[0] == title)
            _, session_id = next(numbered, None) or next(exact, (None, None))
            return session_id

        return self._read(find_titled_session)

    def get_next_title_in_lineage(self, base_title: str) -> str:
        """Return the next free title: "Trip", then "Trip #2".

        Raises:
            InvalidInput: the title is empty or too long.
        """
        base = titles.clean_title(base_title)
        if base is None:
            raise InvalidInput("the title of a lineage must not be empty")

        def find_next_title(handle: Connection) -> str:
            rows = _list_lineage_titles(handle, titles.strip_number(base))
            return titles.choose_next_title(base, [row[0] for row in rows])

        return self._read(find_next_title)


def _list_lineage_titles(handle: Connection, base: str) -> list[tuple[str, str]]:
    """Return titles that may belong to the lineage of `base`, with their sessions, newest first."""
    return handle.fetch_tuples(
        SQL["list_titles_beginning"], {"begin": titles.make_lineage_prefix(base)}
    )


def _clear_ancestor_title(handle: Connection, session_id: str, title: str) -> None:
    """Clear a title of an ancestor in the same conversation.

    Raise `TitleTaken` if another session has the title.
    """
    holder = handle.fetch_value(SQL["get_holder"], {"title": title, "id": session_id})
    if holder is None:
        return
    if holder not in lineage.list_conversation_ancestors(handle, session_id):
        raise TitleTaken(title, holder)
    # Cleared before it is set elsewhere, because an index keeps titles unique.
    handle.execute_update(SQL["set_title"], {"id": holder, "title": None})
