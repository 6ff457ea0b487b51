"""Sessions of OpenClaw: a database per agent since 2026.8, files of JSON lines before.

The events are the same in both. Archives of deleted and reset sessions are files in both.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from session_core.transcripts.decoding import parse_time
from session_core.transcripts.format import (
    Attachment,
    DatabaseFormat,
    FileFormat,
    Message,
    Query,
    ReaderState,
    Record,
    RowSelection,
    SessionFacts,
    SourceFile,
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

_PLACES = 16
"""The factor from the sequence number of an event to the ids of its messages."""

_FILE = re.compile(
    r"(?P<id>[^/]+?)\.jsonl(?P<archived>\.(?:deleted|reset)\.[\w.:-]+?)?(?P<zstd>\.zst)?"
)
_SILENT = frozenset({"custom", "label", "leaf", "model_change", "session", "thinking_level_change"})

_COLUMNS = {
    "w": ("session_id", "session_key", "previous_session_id", "reason", "created_at", "model"),
    "n": (
        "label",
        "display_name",
        "archived_at",
        "spawned_by",
        "parent_session_key",
        "fork_source_session_id",
    ),
}
"""The columns that are read from windows and nodes of sessions. Older layouts have fewer."""


class OpenClawFileFormat:
    """The format of the files of OpenClaw."""

    store = "openclaw"
    version = 1

    def find_roots(self, environ: Mapping[str, str], home: Path) -> Sequence[Path]:
        """Return the folder of agents."""
        return (find_agent_folder(self.store, environ, home) / "agents",)

    def build_resume_command(self, session_id: str) -> tuple[str, ...] | None:
        """Return the command that continues a conversation by its key.

        Files do not have the key.
        """
        return _build_resume_command(session_id)

    def match_folder(self, path: str) -> bool:
        """Return True for an agent and its sessions."""
        parts = path.split("/")
        return len(parts) == 1 or parts[1:] == ["sessions"]

    def match_file(self, path: str) -> SourceFile | None:
        """Return the session of a file, or None for a checkpoint, which repeats it."""
        match path.split("/"):
            case (_, "sessions", name) if file_match := _FILE.fullmatch(name):
                if ".checkpoint." in name:
                    return None
                archived, zstd = file_match["archived"] is not None, file_match["zstd"] is not None
                return SourceFile(file_match["id"], archived=archived, is_zstd=zstd)
        return None

    def read_sidecar(self, path: str, data: bytes) -> SessionFacts:
        """Return no facts, because the index of an agent covers several sessions."""
        return {}

    def read_record(self, data: bytes, offset: int, state: ReaderState) -> Record:
        """Return the record of one line."""
        return _read_event(data, offset, len(data) + 1)

    def read_cut_record(self, head: bytes, offset: int, length: int, state: ReaderState) -> Record:
        """Return a record without messages for a line above the cap."""
        return Record(offset, length, "cut", is_known=False)


class OpenClawDatabaseFormat:
    """The format of the databases of OpenClaw."""

    store = "openclaw"
    version = 1
    row_selections = (
        RowSelection("session_windows", "session_id = ?", has_messages=False),
        RowSelection(
            "session_nodes",
            "session_key IN (SELECT session_key FROM session_windows WHERE session_id = ?)",
            has_messages=False,
        ),
        *(
            # The conversation of the parent, whose session is looked up by its key.
            RowSelection(
                "session_nodes",
                f"session_key IN (SELECT n.{name} FROM session_nodes n JOIN session_windows w"  # noqa: S608 -- the inserted names are constants
                " ON w.session_key = n.session_key WHERE w.session_id = ?)",
                has_messages=False,
                needs=(name,),
            )
            for name in ("spawned_by", "parent_session_key")
        ),
        RowSelection("transcript_events", "session_id = ?", has_messages=True),
    )

    def find_roots(self, environ: Mapping[str, str], home: Path) -> Sequence[Path]:
        """Return the folder of agents."""
        return (find_agent_folder(self.store, environ, home) / "agents",)

    def build_resume_command(self, session_id: str) -> tuple[str, ...] | None:
        """Return the command that continues a conversation by its key."""
        return _build_resume_command(session_id)

    def match_folder(self, path: str) -> bool:
        """Return True for an agent and the folder of its database."""
        parts = path.split("/")
        return len(parts) == 1 or parts[1:] == ["agent"]

    def match_database(self, path: str) -> bool:
        """Return True for the database of an agent."""
        return re.fullmatch(r"[^/]+/agent/openclaw-agent\.sqlite", path) is not None

    def has_tables(self, query: Query) -> bool:
        """Return True if the tables of events and of windows have the needed columns."""
        return {"seq", "event_json"} <= _list_columns(query, "transcript_events") and {
            "session_id",
            "updated_at",
        } <= _list_columns(query, "session_windows")

    def read_changes(self, query: Query, state: ReaderState, limit: int) -> list[Record]:
        """Return the facts of changed sessions, or new events if there are none."""
        return _read_windows(query, state, limit) or self._read_events(query, state, limit)

    def read_session(self, query: Query, session_id: str, offsets: Sequence[int]) -> list[Record]:
        """Return events of a session by their offsets."""
        sql = "SELECT seq, event_json FROM transcript_events WHERE session_id = ? AND seq = ?"
        rows = [row for offset in offsets for row in query(sql, (session_id, offset // _PLACES))]
        return [_read_row(row[0], session_id, row[1]) for row in rows]

    def list_session_ids(self, query: Query) -> list[str]:
        """Return the ids of all sessions."""
        return [str(row[0]) for row in query("SELECT session_id FROM session_windows", ())]

    def _read_events(self, query: Query, state: ReaderState, limit: int) -> list[Record]:
        marks = state.setdefault("marks", [])

        def read_id(rowid: int) -> str | None:
            sql = "SELECT session_id, seq, event_json FROM transcript_events WHERE rowid = ?"
            rows = query(sql, (rowid,))
            return _identify_event(*rows[0]) if rows else None

        rows = query(
            "SELECT rowid, session_id, seq, event_json FROM transcript_events"
            " WHERE rowid > ? ORDER BY rowid LIMIT ?",
            (find_mark(marks, read_id), limit),
        )
        add_marks(marks, [(row[0], _identify_event(*row[1:])) for row in rows])
        return [_read_row(seq, session_id, event) for _, session_id, seq, event in rows]


FORMATS: tuple[FileFormat | DatabaseFormat, ...] = (OpenClawFileFormat(), OpenClawDatabaseFormat())


def _build_resume_command(session_id: str) -> tuple[str, ...] | None:
    return ("openclaw", "chat", "--session", session_id) if ":" in session_id else None


def _list_columns(query: Query, table: str) -> set[str]:
    return {row[0] for row in query("SELECT name FROM pragma_table_info(?)", (table,))}


def _read_windows(query: Query, state: ReaderState, limit: int) -> list[Record]:
    """Return the facts of changed windows. The tables are small, with one row per session."""
    has_nodes = "session_key" in _list_columns(query, "session_nodes")
    present = {
        "w": _list_columns(query, "session_windows"),
        "n": _list_columns(query, "session_nodes") if has_nodes else set(),
    }
    columns = [
        f"{alias}.{name}" if name in present[alias] else "NULL"
        for alias, names in _COLUMNS.items()
        for name in names
    ]
    changed = "max(w.updated_at, coalesce(n.updated_at, 0))" if has_nodes else "w.updated_at"
    join = "LEFT JOIN session_nodes n ON n.session_key = w.session_key" if has_nodes else ""
    mark = state.setdefault("windows", [-1, ""])
    rows = query(
        f"SELECT {changed}, {', '.join(columns)} FROM session_windows w {join}"  # noqa: S608 -- the inserted names are constants
        # Text sorts above all numbers: as a mark it would hide every later session.
        f" WHERE typeof(w.session_id) = 'text' AND typeof({changed}) = 'integer'"
        f" AND ({changed}, w.session_id) > (?, ?) ORDER BY 1, w.session_id LIMIT ?",
        (*mark, limit),
    )
    if rows:
        mark[:] = [rows[-1][0], rows[-1][1]]
    names = [name for names in _COLUMNS.values() for name in names]
    windows = [dict(zip(names, row[1:], strict=True)) for row in rows]
    return [_read_window(query, window) for window in windows]


def _read_window(query: Query, window: dict[str, Any]) -> Record:
    facts: SessionFacts = {"archived": window["archived_at"] is not None}
    title = get_str(window, "label") or get_str(window, "display_name")
    if title:
        facts["title"], facts["title_rank"] = title, 0
    started, key = parse_time(window["created_at"]), get_name(window, "session_key")
    if started is not None:
        facts["started_at"] = started
    if key:
        facts["resume_id"] = key
    model = get_name(window, "model")
    if model:
        facts["model"] = model
    parent = _find_current(query, get_name(window, "spawned_by"))
    parent = parent or _find_current(query, get_name(window, "parent_session_key"))
    origin = get_name(window, "fork_source_session_id")
    if window["reason"] in ("fork", "rewind"):
        origin = origin or get_name(window, "previous_session_id")
    if parent or origin:
        facts["parent_id"] = parent or origin or ""
        facts["link"] = "delegate" if parent else "branch"
    return Record(0, 0, "session_windows", facts=facts, session_id=window["session_id"])


def _find_current(query: Query, session_key: str | None) -> str | None:
    """Return the current session of a conversation, or None."""
    if session_key is None:
        return None
    sql = "SELECT current_session_id FROM session_nodes WHERE session_key = ?"
    rows = query(sql, (session_key,))
    return str(rows[0][0]) if rows else None


def _identify_event(session_id: Any, seq: Any, event: Any) -> str:
    """Return a text that changes if a rewrite puts another event in the same place."""
    # A rewrite keeps session and number and gives them to another event.
    checksum = zlib.crc32(str(event).encode("utf-8", "replace"))
    return f"{str(session_id)[:200]} {str(seq)[:20]} {checksum}"


def _read_row(seq: Any, session_id: Any, event: Any) -> Record:
    data = event.encode("utf-8", "replace") if isinstance(event, str) else b""
    # SQLite stores any value in the column, and an offset must fit 64 bits.
    offset = seq * _PLACES if isinstance(seq, int) and 0 <= seq < 2**58 else 0
    record = _read_event(data, offset, 0)
    # A rewritten transcript has its events again, under other row ids.
    messages = tuple(message._replace(replaces=True) for message in record.messages)
    return record._replace(session_id=str(session_id) or "unknown", messages=messages)


def _read_event(data: bytes, offset: int, length: int) -> Record:
    """Return the record of one event."""
    record = Record(offset, length, "damaged")
    event = decode_object(data)
    if event is None:
        return record._replace(is_known=False)
    kind = (get_name(event, "type") or "untyped")[:60]
    record = record._replace(type=kind)
    facts: SessionFacts = {}
    messages: list[Message] = []
    if kind == "message":
        messages = list(_read_message(get_dict(event, "message"), facts))
        record = record._replace(is_known=bool(get_name(get_dict(event, "message"), "role")))
    elif kind in ("compaction", "branch_summary"):
        messages = [Message("system", get_str(event, "summary") or "", is_summary=True)]
        record = record._replace(is_compaction=kind == "compaction")
    elif kind == "custom_message":
        text = _read_content(event)
        messages = [Message("system", text)] if text else []
    elif kind == "session_info":
        title = get_str(event, "name")
        if title:
            facts["title"], facts["title_rank"] = title, 0
    else:
        record = record._replace(is_known=kind in _SILENT)
        _read_header(event, kind, facts)
    return record._replace(messages=_add_keys(event, messages), facts=facts or None)


def _add_keys(event: dict[str, Any], messages: list[Message]) -> tuple[Message, ...]:
    """Return the messages with time and keys. Event ids alone are short and repeat."""
    event_id, moment = get_name(event, "id"), event.get("timestamp")
    at = parse_time(moment)
    if at is None:
        at = parse_time(get_dict(event, "message").get("timestamp"))
    key = f"{event_id} {format_value(moment)[:40]}" if event_id else None
    return tuple(
        message._replace(at=at, key=f"{key} {n}" if key and n else key)
        for n, message in enumerate(messages[:_PLACES])
    )


def _read_header(event: dict[str, Any], kind: str, facts: SessionFacts) -> None:
    if kind == "model_change":
        model = get_name(event, "modelId")
        if model:
            facts["model"] = model
    elif kind == "session":
        folder, started = get_name(event, "cwd"), parse_time(event.get("timestamp"))
        if folder:
            facts["folder"] = folder
        if started is not None:
            facts["started_at"] = started


def _read_message(message: dict[str, Any], facts: SessionFacts) -> Iterator[Message]:
    role = get_name(message, "role")
    text = _read_content(message)
    attachments = tuple(_list_attachments(message))
    if role == "user":
        yield Message("user", text, is_prompt=bool(text), attachments=attachments)
    elif role == "assistant":
        yield from _read_answer(message, text, facts)
    elif role in ("toolResult", "tool"):
        yield Message(
            "tool",
            text,
            tool_name=get_name(message, "toolName"),
            tool_call_id=get_name(message, "toolCallId"),
            is_error=message.get("isError") is True,
            attachments=attachments,
        )
    elif role == "bashExecution":
        yield Message("user", f"!{get_str(message, 'command') or ''}")
        failed = get_count(message, "exitCode") != 0
        yield Message("tool", get_str(message, "output") or "", tool_name="bash", is_error=failed)
    else:
        text = text or get_str(message, "summary") or ""
        if text:
            yield Message("system", text, is_summary="summary" in message)


def _read_answer(message: dict[str, Any], text: str, facts: SessionFacts) -> Iterator[Message]:
    blocks = get_dicts(message, "content")
    model = get_name(message, "model")
    calls = tuple(
        ToolCall(
            get_name(block, "id"),
            get_name(block, "name") or "unknown",
            format_value(block.get("arguments", block.get("input"))),
        )
        for block in blocks
        if block.get("type") in ("toolCall", "tool_use", "functionCall")
    )
    thinking = join_texts(get_str(block, "thinking") for block in blocks)
    yield Message("assistant", text, reasoning=thinking, tool_calls=calls, model=model)
    error = get_str(message, "errorMessage")
    if error:
        yield Message("system", error, is_error=True)
    if model:
        facts["model"] = model
    usage = get_dict(message, "usage")
    total = Usage(
        get_count(usage, "input"),
        get_count(usage, "output"),
        get_count(usage, "cacheRead"),
        get_count(usage, "cacheWrite"),
        get_count(usage, "reasoning"),
        get_cost(get_dict(usage, "cost"), "total"),
    )
    if any(total):
        facts["usage"] = total


def _read_content(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return join_texts(get_str(block, "text") for block in get_dicts(message, "content"))


def _list_attachments(message: dict[str, Any]) -> Iterator[Attachment]:
    for block in get_dicts(message, "content"):
        if block.get("type") == "image":
            size = len(get_str(block, "data") or "") * 3 // 4
            yield Attachment("image", None, size or None)
