"""Single messages and sessions for interfaces of agent SDKs, reached as `db.sdk`.

These interfaces rewind, edit or delete single messages, and know messages and sessions by the ids
of their own platform.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from session_core._typing import Unpack
from session_core.errors import NotFound
from session_core.state import content, sql_blocks, validation
from session_core.state.columns import MessageColumnUpdates
from session_core.state.sqlite import deletion, lineage, messages, session_lists, sessions
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.rows import row_deleter
from session_core.state.sqlite.store import SqliteOperations
from session_core.types import (
    AppendManyResult,
    FolderUse,
    MessageRow,
    Revision,
    SessionFilter,
    SessionRow,
)

SQL = sql_blocks.load_blocks("sdk")

_CHUNK_VALUES = 500


class SqliteSdk(SqliteOperations):
    """Changes and look-ups of single messages and sessions."""

    def get_sessions(self, session_ids: Iterable[str]) -> dict[str, SessionRow]:
        """Return sessions by their ids, in the given order and from one snapshot.

        Missing sessions are left out.
        """
        ids = validation.parse_texts("session_ids", session_ids) or ()

        def read_sessions(handle: Connection) -> dict[str, SessionRow]:
            rows = {
                row["id"]: cast("SessionRow", row)
                for chunk, marks in _iter_chunks(ids)
                for row in handle.fetch_rows(SQL["list_sessions"].format(marks=marks), chunk)
            }
            return {session_id: rows[session_id] for session_id in ids if session_id in rows}

        return self._read(read_sessions)

    def session_count(self, where: SessionFilter | None = None) -> int:
        """Count matching sessions of every kind.

        Archived sessions are excluded unless the filter sets a status.
        """
        filter_ = SessionFilter() if where is None else where
        return self._read(lambda handle: session_lists.count_sessions(handle, filter_))

    def distinct_session_cwds(self, include_archived: bool = False) -> list[FolderUse]:
        """Return the working folders of all sessions, the last used folder first."""

        def read_folders(handle: Connection) -> list[FolderUse]:
            if not handle.has_column("sessions", "cwd"):
                return []
            status = "" if include_archived else "AND coalesce(archived, 0) = 0"
            statement = handle.resolve_block(SQL["list_used_folders"]).format(status=status)
            return [FolderUse(*row) for row in handle.fetch_tuples(statement)]

        return self._read(read_folders)

    def resolve_resume_session_id(self, session_id: str) -> str:
        """Return the session in which a conversation continues: the last session with messages.

        It is the tip, unless only a later session has messages.
        """
        return self._read(lambda handle: lineage.find_resumed_session(handle, session_id))

    def delete_session_if_empty(self, session_id: str) -> bool:
        """Delete a session without messages, title and children, at once.

        Return True if it was deleted.
        """
        return self._write(lambda handle: deletion.delete_if_empty(handle, session_id))

    def has_archived_messages(self, session_id: str) -> bool:
        """Return True if a session has messages removed by a rewind or a compaction."""

        def has_inactive_row(handle: Connection) -> bool:
            statement = handle.expand_sql(SQL["get_inactive"])
            return handle.fetch_value(statement, (session_id,)) is not None

        return self._read(has_inactive_row)

    def list_recent_user_messages(
        self, session_id: str, limit: int = 20, include_inactive: bool = False
    ) -> list[MessageRow]:
        """Return the last messages of the user, newest first, as candidates for a rewind."""
        validation.check_limit(limit)
        block = SQL["list_recent_all" if include_inactive else "list_recent_live"]
        bounds = {"id": session_id, "limit": limit}

        def read_user_messages(handle: Connection) -> list[MessageRow]:
            rows = handle.fetch_rows(handle.expand_sql(block), bounds)
            return [messages.decode_row(row) for row in rows]

        return self._read(read_user_messages)

    def find_platform_sessions(
        self,
        source: str,
        chat_id: str,
        *,
        user_id: str | None = None,
        thread_id: str | None = None,
    ) -> list[SessionRow]:
        """Return the sessions of a chat of a platform, the newest start first."""
        bounds = {"source": source, "chat_id": chat_id, "user_id": user_id, "thread_id": thread_id}
        for name, value in bounds.items():
            validation.check_text(name, value, needed=name in {"source", "chat_id"})

        def read_chat_sessions(handle: Connection) -> list[SessionRow]:
            if not handle.has_column("sessions", "chat_id"):
                return []  # without the column no session has a chat
            return cast("list[SessionRow]", handle.fetch_rows(SQL["list_chat_sessions"], bounds))

        return self._read(read_chat_sessions)

    def find_platform_messages(
        self, session_id: str, platform_message_ids: Iterable[str]
    ) -> dict[str, MessageRow]:
        """Return messages of a session by their ids on a platform.

        Missing messages are left out. Rewound and compacted messages are found too. Of several
        messages with one id, a live message comes before others, then the newest.
        """
        ids = validation.parse_texts("platform_message_ids", platform_message_ids) or ()

        def read_platform_messages(handle: Connection) -> dict[str, MessageRow]:
            statement = handle.expand_sql(SQL["list_platform_messages"])
            rows = {
                # The statement orders the row that counts last, where it replaces the others.
                row["platform_message_id"]: messages.decode_row(row)
                for chunk, marks in _iter_chunks(ids)
                for row in handle.fetch_rows(statement.format(marks=marks), (session_id, *chunk))
            }
            return {name: rows[name] for name in ids if name in rows}

        return self._read(read_platform_messages)

    def append_to_tip(
        self,
        session_id: str,
        new_messages: messages.MessageMappings,
        *,
        create: Mapping[str, Any] | None = None,
    ) -> AppendManyResult:
        """Append messages to the last continuation of a session, in one transaction.

        `create` is as in `append_messages`.

        Raises:
            NotFound: the session does not exist.
            InvalidInput: a column is unknown.
        """
        now = self._clock()
        encoded = messages.encode_messages(new_messages, now)
        new = None if create is None else sessions.encode_create_arguments(session_id, create, now)

        def append_tip_rows(handle: Connection) -> AppendManyResult:
            tip = lineage.find_tip(handle, session_id)
            return messages.append_rows(handle, tip, encoded, new=new)

        return self._write(append_tip_rows)

    def read_tip_payloads(
        self, session_id: str, limit: int | None = None
    ) -> list[tuple[int, str | None]]:
        """Return the ids and payloads of the newest live messages of the last continuation.

        They are in order. A missing session has none.
        """
        if limit is not None:
            validation.check_limit(limit)

        def read_payload_rows(handle: Connection) -> list[tuple[int, str | None]]:
            bounds = {"id": lineage.find_tip(handle, session_id), "limit": limit or -1}
            rows = handle.fetch_tuples(handle.expand_sql(SQL["list_newest_live"]), bounds)
            return cast("list[tuple[int, str | None]]", rows[::-1])

        return self._read(read_payload_rows)

    def list_payloads(self, session_id: str, limit: int | None = None) -> list[str]:
        """Return the newest payloads of a session in order, also payloads that a summary replaced.

        A payload that a compaction has copied is returned once.
        """
        if limit is not None:
            validation.check_limit(limit)
        return self._read(lambda handle: _list_payloads(handle, session_id, limit))

    def update_message(
        self, message_id: int, /, **columns: Unpack[MessageColumnUpdates]
    ) -> Revision:
        """Overwrite columns of a message at once and return the new revision of its session.

        `columns` are the columns of `append_message` except the time. None empties a column. The
        revision counts the update as a rewind.

        Raises:
            NotFound: the message does not exist.
            InvalidInput: a column is unknown, or its value is not valid.
            Unsupported: this home has no column for it.
        """
        validation.check_number("message_id", message_id, needed=True)
        values = messages.encode_update(columns)

        def update_message_row(handle: Connection) -> Revision:
            row = handle.fetch_row(messages.SQL["get_message"], (message_id,))
            if row is None:
                raise NotFound(f"no message {message_id!r:.40}; read its session for the ids")
            messages.require_columns(handle, values)
            handle.forget_session_counts(row["session_id"])
            row_deleter.update_columns(handle, "messages", {"id": message_id}, values, [message_id])
            # The counters of a session cover live messages only; old rows have no flag.
            if "tool_calls" in values and row["active"] in (1, None):
                _subtract_counts(handle, row["session_id"], 0, _count_removed_calls(row, values))
            handle.execute_update(messages.SQL["count_rewind"], (row["session_id"],))
            return sessions.get_revision(handle, row["session_id"])

        return self._write(update_message_row)

    def pop_message(self, session_id: str) -> MessageRow | None:
        """Rewind the newest live message and return it, or None if there is no live message.

        `restore_rewound` makes it live again.

        Raises:
            NotFound: the session does not exist.
        """

        def rewind_last_message(handle: Connection) -> MessageRow | None:
            sessions.require_session(handle, session_id)
            last_live = handle.expand_sql(messages.SQL["get_last_live"])
            message_id = handle.fetch_value(last_live, (session_id,))
            if message_id is None:
                return None
            row = handle.fetch_row(messages.SQL["get_message"], (message_id,)) or {}
            calls = content.count_tool_calls(row["tool_calls"])
            messages.rewind_rows(handle, session_id, message_id)
            _subtract_counts(handle, session_id, 1, calls)
            return messages.decode_row(row)

        return self._write(rewind_last_message)

    def delete_messages(self, session_id: str, message_ids: Sequence[int]) -> int:
        """Delete messages of a session at once and return their number.

        Ids that the session does not have are skipped.

        Raises:
            NotFound: the session does not exist.
        """
        ids = validation.parse_integers("message_ids", message_ids)

        def delete_rows(handle: Connection) -> int:
            sessions.require_session(handle, session_id)
            bounds = {"session": session_id, "ids": json.dumps(ids)}
            rows = handle.fetch_tuples(handle.expand_sql(SQL["list_to_delete"]), bounds)
            handle.forget_session_counts(session_id)
            deleted = deletion.delete_message_rows(handle, [row[0] for row in rows])
            live_calls = [content.count_tool_calls(calls) for _, live, calls in rows if live]
            _subtract_counts(handle, session_id, len(live_calls), sum(live_calls))
            return deleted

        return self._write(delete_rows)


def _list_payloads(handle: Connection, session_id: str, limit: int | None) -> list[str]:
    last_compacted = handle.fetch_value(handle.expand_sql(SQL["get_last_compacted"]), (session_id,))
    if last_compacted is None or limit is not None:
        bounds = {"id": session_id, "limit": limit or -1}
        rows = handle.fetch_tuples(handle.expand_sql(SQL["list_newest_payloads"]), bounds)
        # A compaction in place copies the messages after its range, so later rows have no copies.
        if last_compacted is None or (len(rows) == limit and rows[-1][0] > last_compacted):
            return [payload for _, payload in reversed(rows)]
    payloads: dict[object, str] = {}
    for payload, platform_id, at in handle.fetch_tuples(
        handle.expand_sql(SQL["list_kept_payloads"]), (session_id,)
    ):
        payloads.setdefault(platform_id or (payload, at), payload)
    return list(payloads.values())[-(limit or 0) :]


def _subtract_counts(
    handle: Connection, session_id: str, message_count: int, call_count: int
) -> None:
    counts = {"id": session_id, "messages": message_count, "tool_calls": call_count}
    handle.execute_update(SQL["subtract_counts"], counts)


def _count_removed_calls(before: dict[str, Any], values: dict[str, Any]) -> int:
    """Count the tool calls that an update removes, negative if it adds some."""
    now = content.count_tool_calls(values["tool_calls"])
    return content.count_tool_calls(before["tool_calls"]) - now


def _iter_chunks(values: Sequence[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield chunks of values with a bounded length, and their placeholders."""
    # Bound, not passed as JSON: older versions of SQLite cut JSON text at a NUL.
    for start in range(0, len(values), _CHUNK_VALUES):
        chunk = tuple(values[start : start + _CHUNK_VALUES])
        yield chunk, ", ".join("?" * len(chunk))
