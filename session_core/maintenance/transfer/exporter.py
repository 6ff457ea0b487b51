"""Export sessions and conversations, including compacted and rewound messages.

The format is JSON Lines, which `import_sessions` reads, or Markdown for people, in one file or in
one for each conversation. A session is read page by page, so that the memory in use is independent
of its length. Markdown names the role and time of each message, has a line for each tool call, and
marks compacted and rewound messages.
"""

from __future__ import annotations

import hashlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import quote

from session_core import _atomic
from session_core.compression import chat_messages
from session_core.compression.rebuild import condense_messages, describe_call
from session_core.errors import Conflict, InvalidInput, NotFound
from session_core.ledger.execute import suppress_note_errors
from session_core.ledger.state_folder import translate_os_errors
from session_core.maintenance.home_context import HomeContext
from session_core.maintenance.select.conversations import ConversationIndex
from session_core.maintenance.select.snapshot import iter_matching
from session_core.maintenance.transfer import export_format
from session_core.maintenance.transfer.export_format import EXCLUDED_TABLES
from session_core.maintenance.types import CountFn
from session_core.state.content import decode_content, decode_json, extract_plain_text
from session_core.state.protocol import StateDatabase
from session_core.transcripts import TranscriptSummary
from session_core.types import (
    InventoryItem,
    RawText,
    Revision,
    RowImages,
    SessionFilter,
    SessionSummary,
)

ExportForm = Literal["jsonl", "markdown", "raw"]
"""`raw` are the bytes of another agent; a home has none."""

AUDIT_ACTION = "export"

_FILE_SUFFIXES: dict[ExportForm, str] = {"jsonl": ".jsonl", "markdown": ".md"}
_MAX_NAME_LENGTH = 180
_TEMP_PREFIX = ".export_"
_FILE_MODE = 0o600


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The result of an export."""

    sessions: int
    messages: int
    bytes: int
    gone: tuple[str, ...] = ()
    """Sessions that were deleted during the export."""
    changed: tuple[str, ...] = ()
    """Sessions with changes during the export other than appended messages; export them again."""
    there: tuple[str, ...] = ()
    """Existing files of a folder, which stay as they are."""


@dataclass(slots=True)
class ExportTally:
    """The counts of an export so far."""

    sessions: int = 0
    messages: int = 0
    bytes: int = 0
    gone: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    there: list[str] = field(default_factory=list)

    def build_result(self) -> ExportResult:
        """Return the result of the export."""
        names = tuple(self.gone), tuple(self.changed), tuple(self.there)
        return ExportResult(self.sessions, self.messages, self.bytes, *names)


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """A request for an export, by default of all sessions."""

    sessions: Sequence[str] | None = None
    where: SessionFilter | None = None
    """It applies to named sessions too."""
    form: ExportForm = "jsonl"
    whole: bool = True
    """True to include the whole conversations of named sessions."""
    progress: CountFn | None = None


EXPORT_ALL = ExportRequest()


@dataclass(frozen=True, slots=True)
class OpenExport:
    """A session that is being exported."""

    parts: Iterator[bytes]
    count_messages: Callable[[], int]
    """Returns the number of messages in the parts that were read."""
    has_changed: Callable[[], bool] = lambda: False
    """Returns True if it has changed since by more than appended messages."""


def _require_one(request: ExportRequest) -> ExportRequest:
    """Return a request for the bytes of one session without its subagents."""
    if len(request.sessions or ()) != 1:
        raise InvalidInput("raw bytes of several sessions need a folder, one file for each")
    return replace(request, whole=False)


def encode_parts(texts: Iterable[str]) -> Iterator[bytes]:
    """Yield the bytes of exported text."""
    return (text.encode("utf-8", "replace") for text in texts)


class ExportWriter(ABC):
    """Writes exported sessions to a function, a file or a folder."""

    def write(
        self, to: str | os.PathLike[str] | Callable[[bytes], object], request: ExportRequest
    ) -> ExportResult:
        """Pass the bytes to a function, or write a new file or the files of a folder.

        Raises:
            NotFound: a named session does not exist.
            Conflict: a file of that name exists; it stays as it is.
            InvalidInput: raw bytes of several sessions do not fit in one file.
        """
        path = None if callable(to) else Path(to)
        if request.form == "raw" and not (path and path.is_dir()):
            request = _require_one(request)
        if callable(to):
            return self.write_sessions(to, request)
        if path is not None and path.is_dir():
            return self.write_folder(path, request)
        return self.write_file(Path(to), request)

    def write_sessions(
        self, write: Callable[[bytes], object], request: ExportRequest = EXPORT_ALL
    ) -> ExportResult:
        """Pass the exported bytes to `write`.

        Raises:
            NotFound: a named session does not exist.
        """
        tally = ExportTally()
        ids = _flatten_groups(self._select_sessions(request))
        for part in self._iter_parts(
            ids, request.form, tally, _make_progress_counter(request.progress, len(ids))
        ):
            write(part)
        return self._finish_export(tally)

    def write_file(self, path: Path, request: ExportRequest = EXPORT_ALL) -> ExportResult:
        """Write the exported bytes to a file.

        The file is complete or absent, and readable only by its owner.

        Raises:
            Conflict: a file of that name exists; it stays as it is.
            NotFound: a named session does not exist.
        """
        # Before anything is read, which may take long; the write itself cannot replace a file
        # either.
        if path.is_symlink() or path.exists():
            raise _make_exists_error(path)
        tally = ExportTally()
        ids = _flatten_groups(self._select_sessions(request))
        parts = self._iter_parts(
            ids, request.form, tally, _make_progress_counter(request.progress, len(ids))
        )
        with translate_os_errors(path):
            try:
                _atomic.write_new_file(path, parts, prefix=_TEMP_PREFIX, mode=_FILE_MODE)
            except FileExistsError as error:
                raise _make_exists_error(path) from error
        return self._finish_export(tally)

    def write_folder(self, folder: Path, request: ExportRequest = EXPORT_ALL) -> ExportResult:
        """Write one file per conversation into a folder.

        A file is named by the root of its conversation. Existing files stay.

        Raises:
            NotFound: a named session does not exist.
        """
        tally, groups = ExportTally(), self._select_sessions(request)
        report = _make_progress_counter(request.progress, sum(map(len, groups)))
        for group in groups:
            suffix = self._get_suffix(group[0], request.form)
            path = folder / _make_file_name(group[0], suffix)
            parts = self._iter_parts(group, request.form, tally, report)
            with translate_os_errors(path):
                _write_file_in_folder(path, parts, tally)
        return self._finish_export(tally)

    @abstractmethod
    def _select_sessions(self, request: ExportRequest) -> list[list[str]]:
        """Return the sessions to export by conversation, each after its parent."""

    @abstractmethod
    def _open_session(self, session_id: str, form: ExportForm) -> OpenExport:
        """Return a session to export.

        Raises:
            NotFound: it does not exist.
        """

    @abstractmethod
    def _log_export(self, counts: Mapping[str, int]) -> None:
        """Record an export in the audit log."""

    def _get_suffix(self, session_id: str, form: ExportForm) -> str:
        """Return the suffix of the file of a session."""
        del session_id
        return _FILE_SUFFIXES[form]

    def _iter_parts(
        self,
        session_ids: Sequence[str],
        form: ExportForm,
        tally: ExportTally,
        report: Callable[[], object],
    ) -> Iterator[bytes]:
        for session_id in session_ids:
            report()
            try:
                session = self._open_session(session_id, form)
            except NotFound:
                tally.gone.append(session_id)
                continue
            for data in session.parts:
                tally.bytes += len(data)
                yield data
            tally.sessions += 1
            tally.messages += session.count_messages()
            if session.has_changed():
                tally.changed.append(session_id)

    def _finish_export(self, tally: ExportTally) -> ExportResult:
        """Record the export in the audit log and return its result."""
        result = tally.build_result()
        counts = {"sessions": result.sessions, "messages": result.messages, "bytes": result.bytes}
        with suppress_note_errors(AUDIT_ACTION):
            self._log_export(counts)
        return result


class Exporter(ExportWriter):
    """Exports sessions of one home."""

    def __init__(self, home: HomeContext, client: str) -> None:
        self._db = home.db
        self._ledger = home.ledger
        self._client = client

    def _log_export(self, counts: Mapping[str, int]) -> None:
        self._ledger.add_audit_entry(self._client, AUDIT_ACTION, None, counts)

    def _open_session(self, session_id: str, form: ExportForm) -> OpenExport:
        source = ExportSource.from_session(self._db, session_id)
        if form == "jsonl":
            lines = iter_session_line(source)
        else:
            lines = render_session(source, self._db.summarize_session(session_id))
        return OpenExport(encode_parts(lines), lambda: source.count, source.has_changed)

    def _select_sessions(self, request: ExportRequest) -> list[list[str]]:
        """Return the sessions to export by conversation, each after its parent."""
        if request.form not in _FILE_SUFFIXES:
            raise InvalidInput(
                f"form must be one of {', '.join(_FILE_SUFFIXES)}, got {request.form!r:.40}"
            )
        conversations = ConversationIndex(self._db.admin.list_inventory())
        groups = self._group_by_conversation(conversations, request)
        if request.where is not None:
            matching = iter_matching(self._db, conversations, request.where)
            allowed = {session.id for conversation in matching for session in conversation.sessions}
            groups = (group for group in groups if group[0].id in allowed)
        exported: set[str] = set()
        chosen = []
        for group in groups:
            new = [session.id for session in group if session.id not in exported]
            exported.update(new)
            chosen += [new] if new else []
        return chosen

    def _group_by_conversation(
        self, conversations: ConversationIndex, request: ExportRequest
    ) -> Iterable[Sequence[InventoryItem]]:
        """Return the requested sessions, grouped by conversation."""
        if request.sessions is None:
            return [conversation.sessions for conversation in conversations.all]
        for session_id in request.sessions:
            if session_id not in conversations.sessions:
                self._db.get_revision(session_id)  # its error suggests similar ids
        if not request.whole:
            return [(conversations.sessions[session_id],) for session_id in request.sessions]
        named = map(conversations.find_removed_together, request.sessions)
        return [conversation.sessions for conversation in named if conversation is not None]


def _write_file_in_folder(path: Path, parts: Iterator[bytes], tally: ExportTally) -> None:
    """Write a file in a folder, if its name is free and there is anything to write."""
    if path.is_symlink() or path.exists():
        tally.there.append(path.name)
        return
    first = next(parts, None)
    # All sessions of the conversation were deleted during the export.
    if first is None:
        return
    try:
        _atomic.write_new_file(path, chain([first], parts), prefix=_TEMP_PREFIX, mode=_FILE_MODE)
    # Another process has created the file since the check.
    except FileExistsError:
        tally.there.append(path.name)


def _flatten_groups(groups: Iterable[Iterable[str]]) -> list[str]:
    return [session_id for group in groups for session_id in group]


def _make_progress_counter(progress: CountFn | None, total: int) -> Callable[[], object]:
    """Return a function that reports the start of another session at each call."""
    numbers = count()
    return lambda: None if progress is None else progress(next(numbers), total)


def _make_file_name(session_id: str, suffix: str) -> str:
    """Return a portable file name for a session id.

    A long id is cut and gets a digest.
    """
    name = quote(session_id, safe=" ")
    # Most file systems allow 255 bytes, and quoting makes an id longer.
    if len(name) > _MAX_NAME_LENGTH:
        digest = hashlib.sha256(session_id.encode("utf-8", "replace")).hexdigest()[:16]
        name = f"{name[:_MAX_NAME_LENGTH]}_{digest}"
    return name + suffix


def iter_session_line(source: ExportedRows) -> Iterator[str]:
    """Yield the line of a session in parts."""
    carried = {
        "version": export_format.FORMAT_VERSION,
        "tables": [export_format.encode_table(image_) for image_ in source.tables],
    }
    row = export_format.encode_row(source.columns, source.values)
    head = export_format.encode_json({**row, export_format.FORMAT_KEY: carried})
    yield f'{head[:-1]},"{export_format.MESSAGES_KEY}":['
    separator = ""
    for image in source.iter_pages():
        rows = (
            export_format.encode_json(export_format.encode_row(image.columns, values))
            for values in image.rows
        )
        yield separator + ",".join(rows)
        separator = ","
    yield "]}\n"


def _make_exists_error(path: Path) -> Conflict:
    return Conflict(f"{path} exists already; choose another name or move that file")


class ExportedRows(Protocol):
    """The rows of a session, from which JSON Lines and Markdown are made."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns of the row of the session."""

    @property
    def values(self) -> Sequence[Any]:
        """The values of the row of the session."""

    @property
    def tables(self) -> Sequence[RowImages]:
        """The rows of other tables."""

    def iter_pages(self) -> Iterator[RowImages]:
        """Yield the messages of the session in pages of row images."""


_OWN_TABLE = "sessions"
_PAGE_BYTES = 1 << 20


class ExportSource:
    """One session as it was at one moment, except for later changes of its messages."""

    def __init__(
        self, db: StateDatabase, row: RowImages, other_images: list[RowImages], revision: Revision
    ) -> None:
        self._db = db
        self._revision = revision
        self.columns, self.values = row.columns, row.rows[0]
        self.id: str = self.values[self.columns.index("id")]
        self.tables = [images for images in other_images if images.table not in EXCLUDED_TABLES]
        self.count = 0

    @classmethod
    def from_session(cls, db: StateDatabase, session_id: str) -> ExportSource:
        """Read a session.

        Raises:
            NotFound: the session does not exist.
        """
        # Read first: messages above its last id count as appended since.
        revision = db.get_revision(session_id)
        images = db.rows.read_session_images(session_id)
        session_images = [image for image in images if image.table == _OWN_TABLE]
        if not session_images:
            raise NotFound(f"session {session_id} does not exist")
        return cls(
            db,
            session_images[0],
            [image for image in images if image.table != _OWN_TABLE],
            revision,
        )

    def iter_pages(self) -> Iterator[RowImages]:
        """Yield its messages, up to the last one at the time of the read."""
        after_id: int | None = None
        has_more = True
        while has_more and (after_id is None or after_id < self._revision.last_id):
            image, has_more = self._db.rows.read_message_images(self.id, after_id, _PAGE_BYTES)
            id_index = image.columns.index("id")
            # Messages appended during the export are not part of its moment.
            rows = tuple(row for row in image.rows if row[id_index] <= self._revision.last_id)
            self.count += len(rows)
            if not rows:
                return
            yield RowImages(image.table, image.columns, rows)
            after_id = rows[-1][id_index]

    def has_changed(self) -> bool:
        """Return True if the session has changed since the read by more than appended messages."""
        with suppress(NotFound):
            current = self._db.get_revision(self.id)
            has_grown = (
                current.last_id >= self._revision.last_id and current.live >= self._revision.live
            )
            is_unrewound = (current.compacted, current.rewinds) == (
                self._revision.compacted,
                self._revision.rewinds,
            )
            return not (has_grown and is_unrewound)
        return True


_FENCE_PATTERN = re.compile(r"\s*(```|~~~)")
_HEADING_PATTERN = re.compile(r"(?=#{1,6}(\s|\Z))")
_SPACE_PATTERN = re.compile(r"\s+")


def render_session(
    source: ExportedRows, summary: SessionSummary | TranscriptSummary
) -> Iterator[str]:
    """Yield the Markdown of a session in parts.

    `summary` has its source and folder.
    """
    row = dict(zip(source.columns, map(_decode_raw, source.values), strict=True))
    yield f"# {_format_heading(row['title'] or row['id'])}\n\n"
    yield "".join(
        f"- {name}: {_format_heading(value)}\n" for name, value in _iter_facts(row, summary)
    )
    for image in source.iter_pages():
        rows = [
            dict(zip(image.columns, map(_decode_raw, values), strict=True)) for values in image.rows
        ]
        for message, short in zip(rows, condense_messages(map(_decode_row, rows)), strict=True):
            yield _render_message(message, short)
    yield "\n"


def _iter_facts(
    row: Mapping[str, Any], summary: SessionSummary | TranscriptSummary
) -> Iterator[tuple[str, Any]]:
    yield "session", row["id"]
    ended = _format_time(row["ended_at"]) if row["ended_at"] is not None else None
    facts = {
        "source": summary.source,
        "model": row.get("model"),
        "project": summary.project,
        "came from": row.get("parent_session_id"),
        "began": _format_time(row["started_at"]),
        "ended": f"{ended} ({row['end_reason']})" if ended and row["end_reason"] else ended,
    }
    yield from ((name, value) for name, value in facts.items() if value)


def _render_message(row: Mapping[str, Any], short: Mapping[str, Any]) -> str:
    mark = ""
    if row.get("compacted"):
        mark = " · compacted"
    elif row.get("active") == 0:
        mark = " · taken back"
    name = f" {_format_heading(row['tool_name'])}" if row.get("tool_name") else ""
    text = _render_text(short)
    calls = "".join(
        f"- calls `{_format_code(describe_call(call))}`\n"
        for call in chat_messages.list_calls(short)
    )
    body = "\n\n".join(part for part in (text, calls.rstrip()) if part)
    return (
        f"\n## {_format_heading(row['role'])}{name} · "
        f"{_format_time(row['timestamp'])}{mark}\n\n{body}\n"
    )


def _render_text(message: Mapping[str, Any]) -> str:
    """Return the text of a message, with lines escaped that would be read as our headings."""
    is_fenced = False
    lines = []
    for line in extract_plain_text(message.get("content")).strip("\n").split("\n"):
        if _FENCE_PATTERN.match(line):
            is_fenced = not is_fenced
        # A `#` outside of code would become a heading of the document.
        lines.append(
            line
            if is_fenced
            else _HEADING_PATTERN.sub(r"\\", line, count=1)
            if line[:1] == "#"
            else line
        )
    return "\n".join([*lines, "```"] if is_fenced else lines)


def _decode_row(row: Mapping[str, Any]) -> dict[str, Any]:
    calls = decode_json(row.get("tool_calls"))
    return {**row, "content": decode_content(row.get("content")), "tool_calls": calls}


def _decode_raw(value: Any) -> Any:
    return value.stored.decode("utf-8", "replace") if isinstance(value, RawText) else value


def _format_time(at: Any) -> str:
    try:
        return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (TypeError, ValueError, OverflowError, OSError):
        return "at an unknown time"


def _format_heading(value: Any) -> str:
    return _SPACE_PATTERN.sub(" ", str(value)).strip()


def _format_code(text: str) -> str:
    return text.replace("`", "'")
