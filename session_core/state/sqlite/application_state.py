"""Values of applications: key-value pairs (`db.meta`) and state (`db.state`).

Keys of `db.meta` have a prefix in `state_meta`, so that they differ from the keys of Hermes and of
this library. State is one row for each key, in tables of `own_schema.sql`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from session_core.errors import InvalidInput, Unsupported
from session_core.state import sql_blocks, validation
from session_core.state.content import dump_json
from session_core.state.sqlite import fts, sessions
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.store import SqliteOperations

SQL = sql_blocks.load_blocks("application_state")

KEY_PREFIX = "mcp_sessions:app:"
"""The prefix of the keys of applications in `state_meta`."""

_SESSION_TABLE = "ms_session_state"
_SHARED_TABLE = "ms_shared_state"
_SESSION_BLOCKS = ("set_session_state", "delete_session_state")
_SHARED_BLOCKS = ("set_shared_state", "delete_shared_state")
_LAST_CHARACTER = "\U0010ffff"


class SqliteMeta(SqliteOperations):
    """Key-value pairs of applications, separate from the keys of Hermes and of this library."""

    def get_value(self, key: str) -> str | None:
        """Return the value of a key, or None."""
        stored_key = _to_stored_key(key)
        return self._read(lambda handle: sessions.find_meta(handle, stored_key))

    def set_value(self, key: str, value: str) -> None:
        """Store a value.

        Raises:
            Unsupported: this home has no table for it.
        """
        validation.check_text("value", value, needed=True)
        self._write(partial(_put_value, key=_to_stored_key(key), value=value))

    def delete_value(self, key: str) -> bool:
        """Delete a value and return True if it existed."""
        return self._write(partial(_put_value, key=_to_stored_key(key), value=None))

    def compare_and_set(self, key: str, value: str | None, *, expect: str | None) -> bool:
        """Store a value if the present value is `expect`, and return True if it was stored.

        None stands for a missing key, so a `value` of None deletes it.
        """
        validation.check_text("value", value)
        validation.check_text("expect", expect)
        stored_key = _to_stored_key(key)

        def replace_value(handle: Connection) -> bool:
            if sessions.find_meta(handle, stored_key) != expect:
                return False
            # An equal value needs no write, but the comparison has succeeded.
            if value != expect:
                _put_value(handle, stored_key, value)
            return True

        return self._write(replace_value)

    def list_values(
        self, prefix: str = "", *, after: str | None = None, limit: int = 1000
    ) -> dict[str, str]:
        """Return the values whose keys begin with `prefix`, in the order of code points.

        The list begins after the key `after`, if it is given.
        """
        validation.check_text("prefix", prefix, needed=True)
        validation.check_text("after", after)
        validation.check_limit(limit)
        first = KEY_PREFIX + prefix
        bounds = {
            "first": first,
            "after": "" if after is None else KEY_PREFIX + after,
            # A range uses the index of the keys and needs no escapes, as LIKE would.
            "end": first + _LAST_CHARACTER,
            "limit": limit,
        }

        def read_values(handle: Connection) -> dict[str, str]:
            if not handle.has_column("state_meta"):
                return {}
            rows = handle.fetch_tuples(SQL["list_meta"], bounds)
            return {key.removeprefix(KEY_PREFIX): value for key, value in rows}

        return self._read(read_values)


def _to_stored_key(key: str) -> str:
    validation.check_name("key", key)
    return KEY_PREFIX + key


def _put_value(handle: Connection, key: str, value: str | None) -> bool:
    """Store or delete a value and return True if a row changed."""
    if value is None:
        return sessions.change_meta(handle, sessions.SQL["delete_meta"], (key,))
    return sessions.change_meta(handle, sessions.SQL["set_meta"], (key, value))


class SqliteState(SqliteOperations):
    """State of sessions, users and applications: JSON values by key."""

    def read_session_state(self, session_id: str) -> dict[str, Any]:
        """Return the state of a session by key, or an empty mapping.

        Raises:
            Unsupported: this home has no place for state.
        """
        validation.check_text("session_id", session_id, needed=True)
        return self._read_values(_SESSION_TABLE, "list_session_state", (session_id,))

    def merge_session_state(
        self, session_id: str, changes: Mapping[str, Any], *, remove: Collection[str] = ()
    ) -> None:
        """Set keys of the state of a session and remove others.

        Other keys keep their values. The state is deleted, restored, exported and copied with the
        session.

        Raises:
            NotFound: the session does not exist.
            InvalidInput: a value has no JSON form.
            Unsupported: this home has no place for state.
        """
        validation.check_text("session_id", session_id, needed=True)
        change = _StateChange(changes, remove)

        def update_session_state(handle: Connection) -> None:
            _require_table(handle, _SESSION_TABLE)
            sessions.require_session(handle, session_id)
            change.write_rows(handle, _SESSION_BLOCKS, (session_id,))

        self._write(update_session_state)

    def read_user_state(self, app: str, user_id: str) -> dict[str, Any]:
        """Return the state of a user of an application by key.

        Raises:
            Unsupported: this home has no place for state.
        """
        return self._read_values(_SHARED_TABLE, "list_shared_state", _to_owner(app, user_id))

    def merge_user_state(
        self, app: str, user_id: str, changes: Mapping[str, Any], *, remove: Collection[str] = ()
    ) -> None:
        """Set keys of the state of a user and remove others.

        The state outlives all sessions.

        Raises:
            InvalidInput: a value has no JSON form.
            Unsupported: this home has no place for state.
        """
        self._update_shared_state(_to_owner(app, user_id), _StateChange(changes, remove))

    def read_app_state(self, app: str) -> dict[str, Any]:
        """Return the state that all users of an application share, by key.

        Raises:
            Unsupported: this home has no place for state.
        """
        return self._read_values(_SHARED_TABLE, "list_shared_state", _to_app_owner(app))

    def merge_app_state(
        self, app: str, changes: Mapping[str, Any], *, remove: Collection[str] = ()
    ) -> None:
        """Set keys of the state of an application and remove others.

        The state outlives all sessions.

        Raises:
            InvalidInput: a value has no JSON form.
            Unsupported: this home has no place for state.
        """
        self._update_shared_state(_to_app_owner(app), _StateChange(changes, remove))

    def _read_values(self, table: str, block: str, owner: Sequence[str]) -> dict[str, Any]:
        def read_state_rows(handle: Connection) -> dict[str, Any]:
            if not has_state_table(handle, table):
                return {}
            return {key: json.loads(value) for key, value in handle.fetch_tuples(SQL[block], owner)}

        return self._read(read_state_rows)

    def _update_shared_state(self, owner: tuple[str, ...], change: _StateChange) -> None:
        def update_state_rows(handle: Connection) -> None:
            _require_table(handle, _SHARED_TABLE)
            change.write_rows(handle, _SHARED_BLOCKS, owner)

        self._write(update_state_rows)


class _StateChange:
    """Keys of a state to set and to remove, checked and encoded before the transaction."""

    def __init__(self, changes: Mapping[str, Any], remove: Collection[str]) -> None:
        validation.check_mapping("changes", changes)
        self._values = {key: dump_json(value) for key, value in changes.items()}
        self._removed = validation.parse_texts("remove", remove) or ()
        for key in (*self._values, *self._removed):
            validation.check_name("a key of state", key)
        if not self._values.keys().isdisjoint(self._removed):
            both = sorted(self._values.keys() & set(self._removed))
            raise InvalidInput(f"a key cannot be both set and removed, got {both[0]!r:.40}")

    def write_rows(
        self, handle: Connection, blocks: tuple[str, str], owner: tuple[str, ...]
    ) -> None:
        """Set and delete the keys of an owner.

        `blocks` name the statements that set and delete one key.
        """
        set_key, delete_key = (SQL[block] for block in blocks)
        for key in self._removed:
            handle.execute_update(delete_key, (*owner, key))
        for key, value in self._values.items():
            handle.execute_update(set_key, (*owner, key, value))


def has_state_table(handle: Connection, table: str = _SESSION_TABLE) -> bool:
    """Return True if this home has the table of state.

    An older home of our own gets it with its next change.

    Raises:
        Unsupported: it is a Hermes home, which never gets one.
    """
    if handle.has_column(table):
        return True
    if not fts.is_own_index(handle):
        raise Unsupported("a Hermes home has no place for state; use a home of our own")
    return False


def _require_table(handle: Connection, table: str) -> None:
    if not has_state_table(handle, table):
        raise Unsupported("this home was not brought up to date; open it again")


def copy_session_state(handle: Connection, session_id: str, to_session_id: str) -> None:
    """Copy the state of a session to another session."""
    if handle.has_column(_SESSION_TABLE):
        bounds = {"source": session_id, "target": to_session_id}
        handle.execute_update(SQL["copy_session_state"], bounds)


def _to_owner(app: str, user_id: str) -> tuple[str, ...]:
    validation.check_name("app", app)
    validation.check_name("user_id", user_id)
    return app, user_id


def _to_app_owner(app: str) -> tuple[str, ...]:
    """Return the key of an application itself, which no user can have."""
    validation.check_name("app", app)
    return app, ""
