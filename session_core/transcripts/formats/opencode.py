"""The database of OpenCode, in the layouts of its versions 1 and 2.

Version 1 keeps a message in `message` and its texts and tools in `part`. Version 2 keeps all of it
in `session_message`, and leaves the older rows of a session in place. The tables have no index on
their times: new rows are found by row id, and unfinished rows are read again.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from session_core.transcripts.decoding import parse_time
from session_core.transcripts.format import (
    Attachment,
    DatabaseFormat,
    Message,
    Query,
    ReaderState,
    Record,
    RowSelection,
    SessionFacts,
    ToolCall,
    Usage,
)
from session_core.transcripts.formats.fields import (
    decode_object,
    format_value,
    get_cost,
    get_count,
    get_dict,
    get_dicts,
    get_name,
    get_str,
    join_texts,
)
from session_core.transcripts.formats.watermark import add_marks, find_mark
from session_core.transcripts.places import find_agent_folder

_PLACES = 4096
"""A message id is the time in milliseconds times `_PLACES`, plus the rank in that millisecond times
`_PLACES_OF_RANK`, plus the place in the message.
"""
_PLACES_OF_RANK = 512

_LONGEST_ID = 200
_OPEN_KEPT = 64
_PARTS_READ = 2000

_DEFAULT_TITLE = re.compile(r"(?:New|Child) session - \d{4}-")


class OpenCodeFormat:
    """The format of OpenCode."""

    store = "opencode"
    version = 1
    row_selections = (
        RowSelection("session", "id = ?", has_messages=False),
        RowSelection("session_v2", "id = ?", has_messages=False),
        RowSelection("message", "session_id = ?", has_messages=True),
        RowSelection("part", "session_id = ?", has_messages=True),
        RowSelection("session_message", "session_id = ?", has_messages=True),
    )

    def find_roots(self, environ: Mapping[str, str], home: Path) -> Sequence[Path]:
        """Return the data folder of OpenCode."""
        return (find_agent_folder(self.store, environ, home),)

    def build_resume_command(self, session_id: str) -> tuple[str, ...] | None:
        """Return the command that continues a session."""
        return ("opencode", "--session", session_id)

    def match_folder(self, path: str) -> bool:
        """Return False, because the folders below contain no database."""
        return False

    def match_database(self, path: str) -> bool:
        """Return True for the database of a release channel."""
        return re.fullmatch(r"opencode(?:-[\w.-]+)?\.db", path) is not None

    def has_tables(self, query: Query) -> bool:
        """Return True if the database has the tables of version 1 or 2."""
        return bool(_list_layouts(query))

    def read_changes(self, query: Query, state: ReaderState, limit: int) -> list[Record]:
        """Return the facts of changed sessions, or new and changed messages if there are none."""
        layouts = _list_layouts(query)
        for layout in layouts:
            records = layout.read_sessions(query, state, limit)
            if records:
                return records
        for layout in layouts:
            records = _Changes(layout, query, state).read_records(limit)
            if records:
                return records
        return []

    def read_session(self, query: Query, session_id: str, offsets: Sequence[int]) -> list[Record]:
        """Return records of a session by their offsets."""
        layouts = _list_layouts(query)
        records = []
        for offset in offsets:
            moment, place = divmod(offset, _PLACES)
            for layout in layouts:
                rows = layout.find_rows(query, session_id, moment)
                rank = place // _PLACES_OF_RANK
                if rank < len(rows):
                    records.append(layout.read_row(query, rows[rank]).record)
                    break
        return records

    def list_session_ids(self, query: Query) -> list[str]:
        """Return the ids of all sessions."""
        ids = {str(row[0]) for layout in _list_layouts(query) for row in layout.list_ids(query)}
        return sorted(ids)


FORMATS: tuple[DatabaseFormat, ...] = (OpenCodeFormat(),)


class _Row(NamedTuple):
    """One row of a table of messages."""

    rowid: int
    id: str
    session_id: str
    created: int
    updated: int
    rank: int
    type: str
    data: str


class _ParsedRow(NamedTuple):
    """The record of a row, and whether the row is complete."""

    record: Record
    is_finished: bool


class _Layout(ABC):
    """The tables of one version. The newer version is read first."""

    sessions: ClassVar[str]
    messages: ClassVar[str]
    type_column: ClassVar[str]
    columns: ClassVar[str] = "parent_id, NULL"

    def __init__(self, tables: set[str]) -> None:
        self.tables = tables

    def list_ids(self, query: Query) -> list[tuple[Any, ...]]:
        return query(f"SELECT id FROM {self.sessions}", ())  # noqa: S608 -- the inserted names are constants

    def read_sessions(self, query: Query, state: ReaderState, limit: int) -> list[Record]:
        """Return the facts of changed sessions. The table is small, so a scan is fast."""
        mark = state.setdefault(self.sessions, [-1, ""])
        # Text sorts above all numbers: as a mark it would hide every later session.
        rows = query(
            "SELECT id, time_updated, title, directory, version, time_created, time_archived,"  # noqa: S608 -- the inserted names are constants
            f" model, {self.columns} FROM {self.sessions}"
            " WHERE typeof(id) = 'text' AND typeof(time_updated) = 'integer'"
            " AND (time_updated, id) > (?, ?) ORDER BY time_updated, id LIMIT ?",
            (*mark, limit),
        )
        if rows:
            mark[:] = [rows[-1][1], rows[-1][0]]
        return [_read_session_row(row) for row in rows]

    def select_rows(self, query: Query, where: str, values: Sequence[Any]) -> list[_Row]:
        """Return rows with their rank among rows of the same session and millisecond."""
        rank = (
            f"(SELECT count(*) FROM {self.messages} o WHERE o.session_id = m.session_id"  # noqa: S608 -- the inserted names are constants
            " AND o.time_created = m.time_created AND o.id < m.id)"
        )
        rows = query(
            "SELECT m.rowid, m.id, m.session_id, m.time_created, m.time_updated,"  # noqa: S608 -- the inserted names are constants
            f" {rank}, {self.type_column}, m.data FROM {self.messages} m {where}",
            values,
        )
        return [_clean_row(row) for row in rows]

    def find_rows(self, query: Query, session_id: str, moment: int) -> list[_Row]:
        where = "WHERE m.session_id = ? AND m.time_created = ? ORDER BY m.id"
        return self.select_rows(query, where, (session_id, moment))

    @abstractmethod
    def read_row(self, query: Query, row: _Row) -> _ParsedRow: ...

    def get_change_numbers(self, query: Query, row: _Row) -> list[int]:
        """Return numbers that change with an unfinished message."""
        return [row.updated]


class _Version1(_Layout):
    sessions, messages, type_column = "session", "message", "'message'"

    def read_row(self, query: Query, row: _Row) -> _ParsedRow:
        data = decode_object(row.data.encode())
        record = _make_record(row, get_name(data or {}, "role") or row.type)
        if data is None or self._is_session_taken_over(query, row):
            return _ParsedRow(record._replace(is_known=data is not None), is_finished=True)
        sql = "SELECT data FROM part WHERE message_id = ? ORDER BY id LIMIT ?"
        stored = query(sql, (row.id, _PARTS_READ))
        parts = [decode_object(str(part[0]).encode("utf-8", "replace")) or {} for part in stored]
        role = get_name(data, "role")
        if role == "user":
            return _add_keys(row, record, data, list(_read_user_parts(parts)))
        if role == "assistant":
            return _add_keys(row, record, data, list(_read_answer_parts(data, parts)))
        return _ParsedRow(record._replace(is_known=False), is_finished=True)

    def get_change_numbers(self, query: Query, row: _Row) -> list[int]:
        sql = "SELECT count(*), coalesce(max(time_updated), 0) FROM part WHERE message_id = ?"
        return [row.updated, *query(sql, (row.id,))[0]]

    def _is_session_taken_over(self, query: Query, row: _Row) -> bool:
        """Return True if version 2 has taken over the session of a row."""
        if "session_message" not in self.tables:
            return False
        sql = "SELECT 1 FROM session_message WHERE session_id = ? LIMIT 1"
        return bool(query(sql, (row.session_id,)))


class _Version2(_Layout):
    messages, type_column = "session_message", "m.type"

    def __init__(self, tables: set[str]) -> None:
        super().__init__(tables)
        # The last releases of version 1 have the new messages table and the old session table.
        is_new = "session_v2" in tables
        self.sessions = "session_v2" if is_new else "session"  # type: ignore[misc]
        self.columns = "parent_id, fork_session_id" if is_new else "parent_id, NULL"  # type: ignore[misc]

    def read_row(self, query: Query, row: _Row) -> _ParsedRow:
        data = decode_object(row.data.encode())
        record = _make_record(row, row.type[:60])
        readers = {
            "user": _read_user,
            "assistant": _read_answer,
            "synthetic": _read_system,
            "system": _read_system,
            "shell": _read_shell,
            "compaction": _read_compaction,
        }
        if data is None:
            return _ParsedRow(record._replace(is_known=False), is_finished=True)
        if row.type in readers:
            record = record._replace(is_compaction=row.type == "compaction")
            return _add_keys(row, record, data, list(readers[row.type](data)))
        known = row.type in ("agent-switched", "model-switched", "idle")
        return _ParsedRow(record._replace(is_known=known), is_finished=True)


class _Changes:
    """Reads the changed messages of a layout, starting at the watermark in the state."""

    def __init__(self, layout: _Layout, query: Query, state: ReaderState) -> None:
        self._layout, self._query = layout, query
        self._state = state.setdefault(layout.messages, {"marks": [], "open": {}})

    def read_records(self, limit: int) -> list[Record]:
        records = self._read_changed_unfinished()
        rows = self._layout.select_rows(
            self._query,
            "WHERE m.rowid > ? ORDER BY m.rowid LIMIT ?",
            (find_mark(self._state["marks"], self._read_id), max(1, limit - len(records))),
        )
        for row in rows:
            read = self._layout.read_row(self._query, row)
            if not read.is_finished:
                self._state["open"][row.id] = self._layout.get_change_numbers(self._query, row)
            records.append(read.record)
        add_marks(self._state["marks"], [(row.rowid, row.id) for row in rows])
        unfinished = self._state["open"]
        # The answer of a killed client never ends, so only the newest are checked again.
        for message_id in list(unfinished)[: max(0, len(unfinished) - _OPEN_KEPT)]:
            del unfinished[message_id]
        return records

    def _read_id(self, rowid: int) -> str | None:
        rows = self._layout.select_rows(self._query, "WHERE m.rowid = ?", (rowid,))
        return rows[0].id if rows else None

    def _read_changed_unfinished(self) -> list[Record]:
        """Return the unfinished messages that have changed."""
        records = []
        for message_id, before in list(self._state["open"].items()):
            rows = self._layout.select_rows(self._query, "WHERE m.id = ?", (message_id,))
            change = self._layout.get_change_numbers(self._query, rows[0]) if rows else None
            if change == before:
                continue
            del self._state["open"][message_id]
            if rows and change is not None:
                read = self._layout.read_row(self._query, rows[0])
                replaced = tuple(m._replace(replaces=True) for m in read.record.messages)
                records.append(read.record._replace(messages=replaced))
                if not read.is_finished:
                    self._state["open"][message_id] = change
        return records


def _list_layouts(query: Query) -> list[_Layout]:
    """Return the layouts that the database has, newer first."""
    tables = {row[0] for row in query("SELECT name FROM sqlite_master WHERE type = 'table'", ())}
    layouts: list[_Layout] = []
    if "session_message" in tables and tables & {"session", "session_v2"}:
        layouts.append(_Version2(tables))
    if {"session", "message", "part"} <= tables:
        layouts.append(_Version1(tables))
    return layouts


def _clean_row(row: tuple[Any, ...]) -> _Row:
    """Return a row with the declared types, which SQLite does not enforce."""
    numbers = [value if isinstance(value, int) else 0 for value in (row[0], *row[3:6])]
    texts = [value if isinstance(value, str) else "" for value in (row[1], row[2], *row[6:])]
    rowid, created, updated, rank = numbers
    message_id, session_id, kind, data = texts
    # Ids go into the state and the index, and a damaged database may have any length.
    message_id, session_id = message_id[:_LONGEST_ID], session_id[:_LONGEST_ID]
    return _Row(rowid, message_id, session_id, created, updated, rank, kind, data)


def _make_record(row: _Row, kind: str) -> Record:
    rank = min(row.rank, _PLACES // _PLACES_OF_RANK - 1)
    # SQLite stores any value in the column, and an offset must fit 64 bits.
    created = row.created if 0 <= row.created < 2**48 else 0
    offset = created * _PLACES + rank * _PLACES_OF_RANK
    return Record(offset, 0, kind, session_id=row.session_id or "unknown")


def _read_session_row(row: tuple[Any, ...]) -> Record:
    names = ("id", "updated", "title", "folder", "version", "created", "archived", "model")
    session = dict(zip((*names, "parent", "fork"), row, strict=True))
    facts: SessionFacts = {"archived": session["archived"] is not None}
    title = get_name(session, "title")
    # The preview is more useful than a title that only contains the time.
    if title and not _DEFAULT_TITLE.match(title):
        facts["title"], facts["title_rank"] = title, 0
    folder, release = get_name(session, "folder"), get_name(session, "version")
    if folder:
        facts["folder"] = folder
    if release:
        facts["agent_version"] = release
    started = parse_time(session["created"])
    if started is not None:
        facts["started_at"] = started
    model = get_name(decode_object((get_str(session, "model") or "").encode()) or {}, "id")
    if model:
        facts["model"] = model
    parent, origin = get_name(session, "parent"), get_name(session, "fork")
    if parent or origin:
        facts["parent_id"] = parent or origin or ""
        facts["link"] = "delegate" if parent else "branch"
    return Record(0, 0, "session", facts=facts, session_id=row[0])


def _add_keys(
    row: _Row, record: Record, data: dict[str, Any], messages: list[Message]
) -> _ParsedRow:
    """Return the record with keys and, if the row is complete, its usage.

    A fork of version 1 copies messages under new ids, with the same times and texts.
    """
    is_answer = record.type == "assistant"
    times, error = get_dict(data, "time"), get_dict(data, "error")
    is_finished = not is_answer or bool(times.get("completed") or error)
    at = parse_time(times.get("created", row.created))
    typed = messages[0].text[:200] if messages and not is_answer else ""
    origin = f"{row.created} {times.get('completed')} {record.type} {typed}"
    digest = hashlib.blake2b(origin.encode("utf-8", "replace"), digest_size=12).hexdigest()
    if error:
        text = get_str(get_dict(error, "data"), "message") or get_str(error, "message")
        messages.append(Message("system", text or format_value(error), is_error=True))
    numbered = tuple(
        message._replace(at=at, key=f"{digest}:{place}" if is_finished else None)
        for place, message in enumerate(messages[: _PLACES_OF_RANK - 1])
    )
    usage = _read_usage(data) if is_answer and is_finished else None
    facts: SessionFacts | None = {"usage": usage} if usage else None
    is_compaction = record.is_compaction or (is_finished and data.get("summary") is True)
    record = record._replace(messages=numbered, facts=facts, is_compaction=is_compaction)
    return _ParsedRow(record, is_finished)


def _read_usage(data: dict[str, Any]) -> Usage | None:
    tokens = get_dict(data, "tokens")
    cache = get_dict(tokens, "cache")
    usage = Usage(
        get_count(tokens, "input"),
        get_count(tokens, "output"),
        get_count(cache, "read"),
        get_count(cache, "write"),
        get_count(tokens, "reasoning"),
        get_cost(data, "cost"),
    )
    return usage if any(usage) else None


def _read_user_parts(parts: list[dict[str, Any]]) -> Iterator[Message]:
    texts = [part for part in parts if part.get("type") == "text" and not part.get("ignored")]
    typed = join_texts(get_str(part, "text") for part in texts if not part.get("synthetic"))
    injected = join_texts(get_str(part, "text") for part in texts if part.get("synthetic"))
    attachments = tuple(_list_files(part for part in parts if part.get("type") == "file"))
    if typed or attachments:
        yield Message("user", typed, is_prompt=bool(typed), attachments=attachments)
    if injected:
        yield Message("system", injected)


def _read_answer_parts(data: dict[str, Any], parts: list[dict[str, Any]]) -> Iterator[Message]:
    texts = [part for part in parts if part.get("type") == "text" and not part.get("ignored")]
    text = join_texts(get_str(part, "text") for part in texts)
    if data.get("summary") is True:
        yield Message("system", text, is_summary=True)
        return
    tools = [part for part in parts if part.get("type") == "tool"]
    yield Message(
        "assistant",
        text,
        reasoning=join_texts(get_str(p, "text") for p in parts if p.get("type") == "reasoning"),
        tool_calls=tuple(_read_call(part, "callID", "tool") for part in tools),
        model=get_name(data, "modelID"),
        attachments=tuple(_list_files(part for part in parts if part.get("type") == "file")),
    )
    for part in tools:
        state = get_dict(part, "state")
        text = format_value(state.get("error") if "error" in state else state.get("output"))
        failed = _is_failed(state) or part.get("tool") == "invalid"
        if text or failed:
            yield _make_result(part, "callID", "tool", text, is_error=failed)


def _is_failed(state: dict[str, Any]) -> bool:
    """Return True for an error, and for a command with an exit code other than 0."""
    outcome = get_dict(state, "metadata") or get_dict(state, "structured")
    exit_code = outcome.get("exit")
    return state.get("status") == "error" or (isinstance(exit_code, int) and exit_code != 0)


def _read_call(part: dict[str, Any], id_field: str, name_field: str) -> ToolCall:
    name = get_name(part, name_field) or "unknown"
    return ToolCall(
        get_name(part, id_field), name, format_value(get_dict(part, "state").get("input"))
    )


def _make_result(
    part: dict[str, Any], id_field: str, name_field: str, text: str, *, is_error: bool
) -> Message:
    name, call_id = get_name(part, name_field), get_name(part, id_field)
    return Message("tool", text, tool_name=name, tool_call_id=call_id, is_error=is_error)


def _list_files(files: Iterator[dict[str, Any]]) -> Iterator[Attachment]:
    for file in files:
        kind = (get_name(file, "mime") or "file").partition("/")[0]
        yield Attachment(kind, get_name(file, "filename") or get_name(file, "name"))


def _read_user(data: dict[str, Any]) -> Iterator[Message]:
    text = get_str(data, "text") or ""
    attachments = tuple(_list_files(iter(get_dicts(data, "files"))))
    if text or attachments:
        yield Message("user", text, is_prompt=bool(text), attachments=attachments)


def _read_answer(data: dict[str, Any]) -> Iterator[Message]:
    content = get_dicts(data, "content")
    tools = [part for part in content if part.get("type") == "tool"]
    yield Message(
        "assistant",
        join_texts(get_str(part, "text") for part in content if part.get("type") == "text"),
        reasoning=join_texts(get_str(p, "text") for p in content if p.get("type") == "reasoning"),
        tool_calls=tuple(_read_call(part, "id", "name") for part in tools),
        model=get_name(get_dict(data, "model"), "id"),
    )
    for part in tools:
        state = get_dict(part, "state")
        error = get_str(get_dict(state, "error"), "message")
        text = join_texts([*(get_str(c, "text") for c in get_dicts(state, "content")), error])
        failed = _is_failed(state)
        if text or failed:
            yield _make_result(part, "id", "name", text, is_error=failed)


def _read_system(data: dict[str, Any]) -> Iterator[Message]:
    text = get_str(data, "text")
    if text:
        yield Message("system", text)


def _read_shell(data: dict[str, Any]) -> Iterator[Message]:
    yield Message("user", f"!{get_str(data, 'command') or ''}")
    output = get_str(data, "output")
    if output:
        yield Message("tool", output, tool_name="shell", tool_call_id=get_name(data, "callID"))


def _read_compaction(data: dict[str, Any]) -> Iterator[Message]:
    yield Message("system", get_str(data, "summary") or "", is_summary=True)
