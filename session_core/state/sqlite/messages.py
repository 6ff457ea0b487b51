"""Message rows: append, rewind, restore and replace.

An agent waits for each append, so the revision of a session is counted once and then carried along
until another connection commits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import compress, groupby
from math import isfinite
from typing import Any, cast

from session_core import _sqlite3
from session_core._typing import Unpack
from session_core.errors import Conflict, Corrupt, InvalidInput, NotFound, Unsupported
from session_core.state import content, sql_blocks, validation
from session_core.state.columns import NewMessageColumns
from session_core.state.sqlite import fts, sessions
from session_core.state.sqlite.admin import admin
from session_core.state.sqlite.connection import DISK_FULL_MESSAGE, Connection, quote_name
from session_core.state.sqlite.store import SqliteOperations
from session_core.types import AppendManyResult, AppendResult, MessageRow, Revision, RewindResult

SQL = sql_blocks.load_blocks("messages")

_PLAIN_COLUMNS = (
    "tool_call_id",
    "tool_name",
    "effect_disposition",
    "token_count",
    "finish_reason",
    "reasoning",
    "reasoning_content",
    "platform_message_id",
    "api_content",
)
_JSON_COLUMNS = ("tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items")
_SET_BY_VERBS = ("id", "session_id", "active", "compacted", "timestamp", "role", "content")
_OWN_COLUMNS = ("id", "session_id", "active", "compacted")
"""Known columns that are never taken from a message."""

_ALIASES = ("name", "message_id")
"""Names in the OpenAI API and on platforms for `tool_name` and `platform_message_id`."""

_OFTEN_EMPTY_FIELDS = ("annotations",)
"""Fields that the OpenAI API adds to every message, mostly empty, and that no home stores."""

_TOOL_ROLES = ("tool", "function")
_PRIVATE_PREFIX = "_"
"""Prefix of private markers, which are stored only if this home has such a column."""

_STORABLE_TYPES = (str, bytes, int, float)
_KNOWN_COLUMNS = (*_PLAIN_COLUMNS, *_JSON_COLUMNS, *_SET_BY_VERBS, "observed")
_FIXED_COLUMNS = ("id", "session_id", "active", "compacted", "timestamp")
"""Columns that an update never sets."""

_PAYLOAD = "payload_json"
"""The column of the opaque JSON of an application."""

_TICK_S = 0.000001
"""Distance between messages of one batch without times of their own."""

_EMPTY_REVISION = Revision(0, 0, 0, 0, None)

MessageMappings = Iterable[Mapping[str, Any]]


class SqliteMessages(SqliteOperations):
    """Message rows."""

    def append_message(
        self,
        session_id: str,
        role: str,
        content: Any = None,
        *,
        create: Mapping[str, Any] | None = None,
        expect: Revision | None = None,
        **columns: Unpack[NewMessageColumns],
    ) -> AppendResult:
        """Append a message and return its id, with the revision before and after.

        The returned id is an `int` with the attributes `before`, `after` and `created`.

        Args:
            session_id: the session of the message.
            role: for example `user`, `assistant` or `tool`.
            content: a text, or any JSON value, such as a list of parts.
            create: the arguments of `create_session`. If the session does not exist, it is created
                in the same transaction.
            expect: the revision that the session must have, so that no other writer came first.
            columns: other columns of the message, for example `timestamp` or `tool_calls`. The time
                defaults to now.

        Raises:
            NotFound: the session does not exist, and `create` is not given.
            Conflict: the session does not have the revision `expect`.
            InvalidInput: a column is unknown.

        Example:
            >>> from session_core import SessionDB
            >>> db = SessionDB(":memory:")
            >>> db.append_message("s1", "user", "hello", create={"source": "cli"}).created
            True
            >>> db.append_message("s1", "assistant", "hi", finish_reason="stop").after.live
            2
        """
        message = {**columns, "role": role, "content": content}
        many = self.append_messages(session_id, (message,), create=create, expect=expect)
        return AppendResult(many.ids[0], many.before, many.after, many.created)

    def append_messages(
        self,
        session_id: str,
        messages: MessageMappings,
        *,
        create: Mapping[str, Any] | None = None,
        expect: Revision | None = None,
    ) -> AppendManyResult:
        """Append messages in one transaction.

        Either all messages are stored or none. Each message is a mapping of the columns of
        `MessageRow`; messages in the format of the OpenAI API are accepted too. `create` and
        `expect` are as in `append_message`.

        Example:
            >>> from session_core import SessionDB
            >>> db = SessionDB(":memory:")
            >>> turn = [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}]
            >>> len(db.append_messages("s1", turn, create={"source": "cli"}).ids)
            2
        """
        now = self._clock()
        # Before the transaction: no lock is held meanwhile, and a refused message changes nothing.
        encoded = encode_messages(messages, now)
        new = None if create is None else sessions.encode_create_arguments(session_id, create, now)

        return self._write(
            lambda handle: append_rows(handle, session_id, encoded, new=new, expect=expect)
        )

    def get_message(self, message_id: int) -> MessageRow | None:
        """Return the message with an id, or None."""

        def read_message(handle: Connection) -> MessageRow | None:
            row = handle.fetch_row(SQL["get_message"], (message_id,))
            return None if row is None else decode_row(row)

        return self._read(read_message)

    def find_messages(self, message_ids: Sequence[int]) -> dict[int, MessageRow]:
        """Return messages by their ids, all from one snapshot. Missing messages are left out."""
        ids_json = json.dumps(list(message_ids))
        return self._read(
            lambda handle: {
                row["id"]: decode_row(row)
                for row in handle.fetch_rows(SQL["find_messages"], (ids_json,))
            }
        )

    def get_messages(
        self,
        session_id: str,
        include_inactive: bool = False,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[MessageRow]:
        """Return the rows of a session in order.

        Args:
            session_id: the session. Without such a session the list is empty.
            include_inactive: include compacted and rewound messages.
            limit: the largest number of rows; by default, all rows.
            offset: the number of rows to skip.
        """
        if limit is not None:
            validation.check_limit(limit)
        if not isinstance(offset, int) or offset < 0:
            raise InvalidInput(f"offset must be an integer >= 0, got {offset!r:.40}")
        block = SQL["list_all" if include_inactive else "list_live"]
        bounds = {"id": session_id, "limit": -1 if limit is None else limit, "offset": offset}
        return self._read(
            lambda handle: [
                decode_row(row) for row in handle.fetch_rows(handle.expand_sql(block), bounds)
            ]
        )

    def message_count(self, session_id: str | None = None) -> int:
        """Return the number of messages of a session, or of all sessions."""
        return self._read(
            lambda handle: cast("int", handle.fetch_value(SQL["count_all"], {"id": session_id}))
        )

    def has_platform_message_id(self, session_id: str, platform_message_id: str) -> bool:
        """Return True if a message of a platform is already stored."""
        key = (session_id, platform_message_id)
        return self._read(
            lambda handle: handle.fetch_value(SQL["get_platform_message"], key) is not None
        )

    def rewind_to_message(self, session_id: str, target_message_id: int) -> RewindResult:
        """Rewind a user message and all live messages after it.

        Rewound rows are kept, but no longer read or found. `restore_rewound` restores them.

        Raises:
            NotFound: the session has no such message.
            InvalidInput: it is not a user message.

        Example:
            >>> from session_core import SessionDB
            >>> db = SessionDB(":memory:")
            >>> first = db.append_message("s1", "user", "hello", create={"source": "cli"})
            >>> db.rewind_to_message("s1", first).rewound
            1
            >>> db.restore_rewound("s1", first)
            1
        """

        def rewind_live_rows(handle: Connection) -> RewindResult:
            target = _read_message(handle, session_id, target_message_id)
            if target["role"] != "user":
                raise InvalidInput(f"message {target_message_id} is not a user message")
            rewound = rewind_rows(handle, session_id, target_message_id)
            last = handle.fetch_value(handle.expand_sql(SQL["get_last_live"]), (session_id,))
            return RewindResult(target, rewound, last)

        return self._write(rewind_live_rows)

    def restore_rewound(self, session_id: str, since_message_id: int) -> int:
        """Restore rewound messages from an id on and return their number.

        Compacted rows stay compacted.
        """
        validation.check_number("since_message_id", since_message_id, needed=True)

        def restore_rows(handle: Connection) -> int:
            sessions.require_session(handle, session_id)
            handle.forget_session_counts(session_id)
            since = {"id": session_id, "since": since_message_id}
            with keep_trigrams_valid(handle, session_id, since_message_id):
                restored = handle.execute_update(handle.expand_sql(SQL["restore_rewound"]), since)
            if restored:
                live, _, tool_calls = admin.count_session(handle, session_id)
                counts = {"id": session_id, "messages": live, "tool_calls": tool_calls}
                handle.execute_update(SQL["count_restored"], counts)
            return restored

        return self._write(restore_rows)

    def replace_messages(
        self, session_id: str, messages: MessageMappings, active_only: bool = False
    ) -> AppendManyResult:
        """Delete all rows, or only the live rows, at once, and store new messages.

        This has no undo. `Compressor` replaces messages with an undo.

        Args:
            session_id: the session.
            messages: the new messages, as in `append_messages`.
            active_only: keep compacted and rewound rows.
        """
        validation.check_flag("active_only", active_only)
        encoded = encode_messages(messages, self._clock())
        which = "live" if active_only else "all"

        def replace_rows(handle: Connection) -> AppendManyResult:
            before = sessions.get_revision(handle, session_id)
            _delete_messages(handle, session_id, which)
            return insert_replacements(handle, session_id, before, encoded)

        return self._write(replace_rows)

    def clear_messages(self, session_id: str) -> int:
        """Delete all messages of a session at once and return their number."""

        def delete_all_rows(handle: Connection) -> int:
            sessions.require_session(handle, session_id)
            deleted = _delete_messages(handle, session_id, "all")
            admin.set_counters(handle, session_id, 0, 0)
            return deleted

        return self._write(delete_all_rows)


def append_rows(
    handle: Connection,
    session_id: str,
    encoded: list[dict[str, Any]],
    *,
    new: Mapping[str, Any] | None = None,
    expect: Revision | None = None,
) -> AppendManyResult:
    """Insert encoded messages at the end of a session, and first the `new` session if missing.

    Raises:
        NotFound: the session does not exist.
        Conflict: the session is not at the expected revision.
    """
    # Decided under the lock: of several processes one creates the session and delivers its start.
    before = sessions.find_revision(handle, session_id)
    created = before is None and new is not None
    if before is None:
        # A session without messages gets no row.
        if new is not None and not encoded:
            return AppendManyResult((), _EMPTY_REVISION, _EMPTY_REVISION)
        if new is not None:
            sessions.insert_or_fill_session(handle, new)
        before = sessions.get_revision(handle, session_id)
    if expect is not None and before != expect:
        raise Conflict(f"session {session_id} has changed; read it again")
    ids = insert_messages(handle, session_id, encoded)
    _update_counters(handle, SQL["count_appended"], session_id, encoded)
    after = before
    # The new revision follows from the old one, so it is not counted again.
    if ids:
        after = before._replace(last_id=ids[-1], live=before.live + len(ids))
        handle.cache["revision", session_id] = after
    return AppendManyResult(tuple(ids), before, after, created)


def rewind_rows(handle: Connection, session_id: str, since: int) -> int:
    """Hide the live messages from an id on and return their number."""
    handle.forget_session_counts(session_id)
    bounds = {"id": session_id, "since": since}
    with keep_trigrams_valid(handle, session_id, since):
        rewound = handle.execute_update(handle.expand_sql(SQL["rewind_rows"]), bounds)
    # The rewind count is part of the revision, so a rewind always changes it.
    handle.execute_update(SQL["count_rewind"], (session_id,))
    return rewound


def decode_row(row: dict[str, Any]) -> MessageRow:
    """Return a row with its content and tool calls decoded."""
    row["content"] = content.decode_content(row["content"])
    if row.get("tool_calls"):
        row["tool_calls"] = content.decode_json(row["tool_calls"])
    return cast("MessageRow", row)


def _read_message(handle: Connection, session_id: str, message_id: int) -> MessageRow:
    row = handle.fetch_row(SQL["get_message"], (message_id,))
    if row is None or row["session_id"] != session_id:
        sessions.require_session(handle, session_id)
        raise NotFound(f"session {session_id} has no message {message_id}; read it for its ids")
    return decode_row(row)


@contextmanager
def keep_trigrams_valid(handle: Connection, session_id: str, since: int = 0) -> Iterator[None]:
    """Keep trigram entries valid in a block that flips flags.

    The triggers of Hermes index these rows again.
    """
    fts.repair_session_entries(handle, session_id, since)
    yield
    fts.repair_session_entries(handle, session_id, since)


def insert_replacements(
    handle: Connection, session_id: str, before: Revision, encoded: list[dict[str, Any]]
) -> AppendManyResult:
    """Insert the rows that replace live rows, and set the counters."""
    ids = insert_messages(handle, session_id, encoded)
    _update_counters(handle, admin.SQL["set_counters"], session_id, encoded)
    handle.forget_session_counts(session_id)
    return AppendManyResult(tuple(ids), before, sessions.get_revision(handle, session_id))


def _delete_messages(handle: Connection, session_id: str, which: str) -> int:
    handle.forget_session_counts(session_id)
    # Our own index has no triggers, so its entries are removed before the rows.
    if fts.is_own_index(handle) and not handle.queues_texts:
        block = SQL["list_live_ids" if which == "live" else "list_ids"]
        ids = [row[0] for row in handle.fetch_tuples(handle.expand_sql(block), (session_id,))]
        fts.remove_index_entries(handle, ids)
    fts.repair_session_entries(handle, session_id)
    return handle.execute_update(handle.expand_sql(SQL[f"delete_{which}"]), (session_id,))


@contextmanager
def translate_id_exhaustion(handle: Connection) -> Iterator[None]:
    """Raise `Corrupt` if a row has the largest possible id, so that no new id is free.

    SQLite reports that as a full disk.
    """
    try:
        yield
    except _sqlite3.load_library().OperationalError as error:
        counted = str(error).startswith(DISK_FULL_MESSAGE) and handle.has_column("sqlite_sequence")
        if counted and handle.fetch_value(SQL["is_numbered_to_the_end"]):
            raise Corrupt(
                "a damaged message has the highest possible id, so no other can be stored; "
                "restore the database from a backup"
            ) from error
        raise


def insert_messages(
    handle: Connection, session_id: str, encoded: list[dict[str, Any]]
) -> list[int]:
    """Insert encoded rows and notify the search index."""
    ids: list[int] = []
    with translate_id_exhaustion(handle):
        for columns, group in groupby(encoded, key=tuple):
            statement, names = _insert_statement(handle, columns)
            rows = [[session_id, *(values[name] for name in names)] for values in group]
            ids += handle.insert_rows(statement, rows)
    if ids:
        fts.schedule_indexing(handle, ids[-1])
        with_nul = [fts.has_nul(values["content"]) for values in encoded]
        fts.repair_entries(handle, list(compress(ids, with_nul)))
    return ids


def _insert_statement(handle: Connection, names: tuple[str, ...]) -> tuple[str, list[str]]:
    """Return the INSERT for the columns that this home has, and these columns."""
    insert = handle.cache.get(("insert", names))
    if insert is None:
        if _PAYLOAD in names:
            _require_payload_column(handle)
        present_names = [name for name in names if handle.has_column("messages", name)]
        unknown = (
            set(names)
            - set(present_names)
            - set(_KNOWN_COLUMNS)
            - handle.list_computed_columns("messages")
        )
        for name in sorted(name for name in unknown if not name.startswith(_PRIVATE_PREFIX)):
            raise _make_unknown_error(handle, name)
        columns = ", ".join(map(quote_name, ["session_id", *present_names]))
        marks = ", ".join("?" * (len(present_names) + 1))
        insert = f"INSERT INTO messages ({columns}) VALUES ({marks})", present_names  # noqa: S608 -- columns that the table has
        if not unknown:  # markers differ from message to message
            handle.cache["insert", names] = insert
    return cast("tuple[str, list[str]]", insert)


def _make_unknown_error(handle: Connection, name: str) -> InvalidInput:
    valid = sorted({*_KNOWN_COLUMNS, *_ALIASES, *handle.list_columns("messages")} - {*_OWN_COLUMNS})
    return InvalidInput(
        f"unknown column {name!r} of a message; valid are {', '.join(valid)}, and names "
        f"that begin with {_PRIVATE_PREFIX}, which are ignored"
    )


def _require_payload_column(handle: Connection) -> None:
    if not handle.has_column("messages", _PAYLOAD):
        raise Unsupported(
            "the messages of this home have no payload_json; store the payload in a home of our own"
        )


def require_columns(handle: Connection, names: Iterable[str]) -> None:
    """Refuse columns that the messages of this home do not have.

    Raises:
        InvalidInput: a column is unknown.
        Unsupported: this home lacks a known column.
    """
    for name in names:
        if name == _PAYLOAD:
            _require_payload_column(handle)
        elif not handle.has_column("messages", name):
            if name not in _KNOWN_COLUMNS:
                raise _make_unknown_error(handle, name)
            raise Unsupported(f"the messages of this home have no {name}")


def _update_counters(
    handle: Connection, statement: str, session_id: str, encoded: list[dict[str, Any]]
) -> None:
    calls = sum(content.count_tool_calls(values.get("tool_calls")) for values in encoded)
    counts = {"id": session_id, "messages": len(encoded), "tool_calls": calls}
    handle.execute_update(statement, counts)
    # Newer schemas of Hermes keep the time of the last message in the session row.
    if encoded and handle.has_column("sessions", "last_activity_at"):
        at = max(values["timestamp"] for values in encoded)
        handle.execute_update(SQL["set_last_activity"], {"id": session_id, "at": at})


def encode_messages(messages: MessageMappings, now: float) -> list[dict[str, Any]]:
    """Encode messages of a caller as stored columns."""
    if not isinstance(messages, Iterable):
        raise InvalidInput("messages must be a list of mappings of columns")
    return [
        # By these steps in time, `compaction` recognises rows that were stored together.
        _encode_message(message, now + place * _TICK_S)
        for place, message in enumerate(messages)
    ]


def _encode_message(message: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Return the stored columns of a message, from a caller or from `get_messages`."""
    if not isinstance(message, Mapping):
        raise InvalidInput("a message must be a mapping of columns")
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise InvalidInput("a message needs a role, such as 'user'")
    values: dict[str, Any] = {
        "role": role,
        "content": content.encode_content(message.get("content")),
        "timestamp": _encode_time(message.get("timestamp"), now),
    }
    for name, value in message.items():
        if name in _SET_BY_VERBS or value is None or (name in _OFTEN_EMPTY_FIELDS and not value):
            continue
        if name == "message_id":
            values["platform_message_id"] = str(value)
        elif name == "name":
            values["tool_name"] = _find_tool_name(message)
        elif name.startswith(_PRIVATE_PREFIX) and not isinstance(value, _STORABLE_TYPES):
            continue  # a marker of its author
        else:
            values[name] = _encode_column(name, value)
    return values


def _encode_column(name: str, value: Any) -> Any:
    """Encode the value of a column that is not empty."""
    if name == _PAYLOAD:
        return content.encode_payload(value)
    if name in _JSON_COLUMNS:
        return content.encode_json(value)
    if name == "observed":
        return int(bool(value))
    return content.clean_text(value) if isinstance(value, str) else value


def encode_update(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Encode columns to overwrite. None empties a column.

    Raises:
        InvalidInput: there are none, or one of them cannot be set.
    """
    if not columns:
        raise InvalidInput("give at least one column to update, such as content")
    for name in columns:
        if name in _FIXED_COLUMNS or name in _ALIASES:
            raise InvalidInput(f"{name} of a message cannot be updated; leave it out")
    role = columns.get("role", "user")
    if not isinstance(role, str) or not role:
        raise InvalidInput("a message needs a role, such as 'user'")
    return {
        name: content.encode_content(value)
        if name == "content"
        else None
        if value is None
        else _encode_column(name, value)
        for name, value in columns.items()
    }


def _find_tool_name(message: Mapping[str, Any]) -> str:
    """Return the tool name of a message in the format of the OpenAI API.

    Raises:
        InvalidInput: the message is not from a tool, or it has two names.
    """
    name, role = message["name"], message["role"]
    if role not in _TOOL_ROLES:
        raise InvalidInput(f"name is only for messages of tools, got role {role!r}; leave it out")
    if not isinstance(name, str):
        raise InvalidInput(f"name must be the name of a tool, got {name!r}")
    if message.get("tool_name") not in {None, name}:
        raise InvalidInput(f"name is {name!r} and tool_name differs; give one of them")
    return content.clean_text(name)


def _encode_time(value: Any, now: float) -> float:
    if value is None:
        return now
    with suppress(ValueError, OverflowError):
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value):
            return float(value)
    raise InvalidInput("the time of a message must be a number of seconds, a datetime or ISO 8601")
