"""Export sessions of other agents in the format of a home, or byte by byte.

A session becomes the row and the messages that a home would store, so an import into a home reads
them: forks and subagents with their parent, compacted messages with their flag. Attachments and
data that only the agent understands are left out. `raw` has everything.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from session_core.errors import NotFound
from session_core.maintenance.transfer.exporter import (
    ExportForm,
    ExportRequest,
    ExportResult,
    ExportWriter,
    OpenExport,
    encode_parts,
    iter_session_line,
    render_session,
)
from session_core.maintenance.types import CountFn
from session_core.transcripts import TranscriptStore, TranscriptSummary
from session_core.types import MessageRow, RowImages, SessionFilter

_PAGE = 500
_MESSAGE_COLUMNS = (
    *("id", "session_id", "role", "content", "tool_call_id", "tool_calls", "tool_name"),
    *("timestamp", "reasoning", "platform_message_id", "active", "compacted"),
)
_LINK_MARKS = {"branch": "_branched_from", "delegate": "_delegate_from"}
"""The marks with which a home stores how a session is linked to its parent."""


def export_transcripts(
    library: TranscriptStore,
    to: str | os.PathLike[str] | Callable[[bytes], object],
    sessions: Sequence[str] | None = None,
    *,
    where: SessionFilter | None = None,
    form: ExportForm = "jsonl",
    progress: CountFn | None = None,
) -> ExportResult:
    """Export sessions of other agents with their subagents, all of them by default.

    `raw` writes the bytes of the sources: one session, or a folder with one file each. Otherwise as
    `Maintenance.export_sessions`.

    Raises:
        NotFound: a named session does not exist.
        Conflict: a file of that name exists; it stays as it is.
        InvalidInput: raw bytes of several sessions do not fit in one file.
    """
    request = ExportRequest(sessions, where, form, progress=progress)
    return TranscriptExporter(library).write(to, request)


class TranscriptExporter(ExportWriter):
    """Exports sessions of transcript stores."""

    def __init__(self, library: TranscriptStore) -> None:
        self._library = library

    def _select_sessions(self, request: ExportRequest) -> list[list[str]]:
        where = request.where or SessionFilter(status="all")
        if request.sessions is not None:
            for session_id in request.sessions:
                self._require_session(session_id)
            where = replace(where, ids=tuple(request.sessions))
        rows = self._list_rows(where)
        if not request.whole:
            return [[row.id] for row in rows]
        groups = [[row.id, *self._list_delegates(row.id)] for row in rows]
        inner = {session_id for group in groups for session_id in group[1:]}
        # A subagent that is selected next to its session is in its group already.
        return [group for group in groups if group[0] not in inner]

    def _list_rows(self, where: SessionFilter) -> list[TranscriptSummary]:
        """Return the sessions in the order of their start, so that a fork follows its origin."""
        rows: list[TranscriptSummary] = []
        cursor: str | None = None
        while True:
            page = self._library.list_sessions(
                where, order="started", limit=_PAGE, cursor=cursor, delegates=True
            )
            rows += page.items
            cursor = page.next_cursor
            if cursor is None:
                return rows[::-1]

    def _list_delegates(self, session_id: str) -> Iterator[str]:
        """Yield the subagents of a session and, recursively, their subagents."""
        # A damaged transcript could name its own subagent as its parent.
        pending, seen = [session_id], {session_id}
        while pending:
            for child in self._library.list_children(pending.pop()):
                if child.link == "delegate" and child.id not in seen:
                    seen.add(child.id)
                    pending.append(child.id)
                    yield child.id

    def _require_session(self, session_id: str) -> TranscriptSummary:
        row = self._library.get_session(session_id)
        if row is None:
            raise NotFound(f"session {session_id!r:.80} does not exist")
        return row

    def _open_session(self, session_id: str, form: ExportForm) -> OpenExport:
        row = self._require_session(session_id)
        if form == "raw":
            source = self._library.open_raw_source(session_id)
            return OpenExport(source.parts, lambda: row.messages or 0)
        rows = TranscriptRows(self._library, row)
        lines = iter_session_line(rows) if form == "jsonl" else render_session(rows, row)
        return OpenExport(encode_parts(lines), lambda: rows.count)

    def _get_suffix(self, session_id: str, form: ExportForm) -> str:
        if form != "raw":
            return super()._get_suffix(session_id, form)
        return self._library.open_raw_source(session_id).suffix

    def _log_export(self, counts: Mapping[str, int]) -> None:
        """Record nothing: other agents have no audit log."""


class TranscriptRows:
    """A session as the rows that a home would store."""

    def __init__(self, library: TranscriptStore, row: TranscriptSummary) -> None:
        self._library = library
        self.id = row.id
        stored = _make_session_row(row)
        self.columns: Sequence[str] = tuple(stored)
        self.values: Sequence[Any] = tuple(stored.values())
        self.tables: Sequence[RowImages] = ()
        self.count = 0

    def iter_pages(self) -> Iterator[RowImages]:
        """Yield its messages, compacted ones included."""
        after = -1
        while True:
            window = self._library.read_window(self.id, after=after, limit=_PAGE, view="full")
            rows = tuple(map(_make_message_row, window.messages))
            if rows:
                yield RowImages("messages", _MESSAGE_COLUMNS, rows)
            self.count += len(rows)
            if not window.more_after or not rows:
                return
            after = window.messages[-1]["id"]


def _make_session_row(row: TranscriptSummary) -> dict[str, Any]:
    """Return the row of a session with the columns of a home."""
    mark = None if row.link is None else json.dumps({_LINK_MARKS[row.link]: row.parent_id})
    return {
        "id": row.id,
        "source": row.source,
        "model": row.model,
        "model_config": mark,
        "parent_session_id": row.parent_id,
        "started_at": row.started_at,
        # Transcripts record no end: an agent can continue each of them.
        "ended_at": None,
        "end_reason": None,
        "message_count": row.messages,
        "cwd": row.project,
        "git_branch": row.branch,
        "actual_cost_usd": row.cost,
        "title": row.title,
        "archived": int(row.status == "archived"),
    }


def _make_message_row(message: MessageRow) -> tuple[Any, ...]:
    values: dict[str, Any] = dict(message)
    calls = values.get("tool_calls")
    values["tool_calls"] = None if calls is None else json.dumps(calls, ensure_ascii=False)
    return tuple(values.get(name) for name in _MESSAGE_COLUMNS)
